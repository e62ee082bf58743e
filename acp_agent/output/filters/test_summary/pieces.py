"""What a test run's output is taken apart into: what is kept as it is, what nobody recognised, and failures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Kept:
    """Lines that stay, all of them: errors, names of failures, totals in the tool's own words."""

    lines: list[str]


@dataclass(frozen=True, slots=True)
class Loose:
    """Lines no format knows: what tests printed, other commands. They stay up to a limit for all of them together."""

    lines: list[str]


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure as it was printed, its heading first.

    message   what went wrong, in a line; for the list of those whose details are left out
    whole     an error that kept tests from running at all (collection, compiler): its details are never shortened
    """

    lines: list[str]
    message: str = ""
    whole: bool = False


Piece: TypeAlias = Kept | Loose | Failure


@dataclass(slots=True)
class Totals:
    """Counts of tests, summed over every run in the text (2.11)."""

    passed: int = 0
    failed: int = 0
    ignored: int = 0
    filtered: int = 0

    def add(self, other: "Totals") -> None:
        """Add another run's counts."""
        self.passed += other.passed
        self.failed += other.failed
        self.ignored += other.ignored
        self.filtered += other.filtered


@dataclass(slots=True)
class Parsed:
    """A text taken apart, pieces in the order they were printed.

    broken   something failed that is in no count: a build, a collection, a run that was interrupted
    cut      something was left out already that somebody might want
    """

    pieces: list[Piece] = field(default_factory=list[Piece])
    totals: Totals = field(default_factory=Totals)
    broken: bool = False
    cut: bool = False

    def keep(self, line: str) -> None:
        """A line that stays."""
        last = self.pieces[-1] if self.pieces else None
        if isinstance(last, Kept):
            last.lines.append(line)
        else:
            self.pieces.append(Kept([line]))

    def loose(self, line: str) -> None:
        """A line that was not recognised."""
        last = self.pieces[-1] if self.pieces else None
        if isinstance(last, Loose):
            last.lines.append(line)
        elif line.strip():
            self.pieces.append(Loose([line]))

    def fail(self, lines: list[str], message: str = "", *, whole: bool = False) -> None:
        """A failure, without the blank lines at its end."""
        while lines and not lines[-1].strip():
            lines.pop()
        self.pieces.append(Failure(lines, message, whole))


class Parser(Protocol):
    """Takes the output of one test runner apart. One object a text."""

    def parse(self, lines: Sequence[str]) -> Parsed | None:
        """The pieces, or None when no run of this runner is in the lines."""
        ...


@dataclass(frozen=True, slots=True)
class Format:
    """A test runner whose output is understood.

    words      as they stand in a command that runs it: with several formats in a text, the command's is taken first
    signs      literals of which a run's output has at least one
    """

    words: tuple[str, ...]
    signs: tuple[str, ...]
    parser: Callable[[], Parser]
