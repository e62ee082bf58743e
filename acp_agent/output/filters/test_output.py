"""What a test run's output is taken apart into: what is kept as it is, what nobody recognised, and failures."""

import re
from collections.abc import Callable, Iterator, Sequence
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


LONGEST_LINE = 2000
"""Characters of a line; the formats are told nothing by longer ones, which bounds what a regex can cost."""

_HEAD, _TAIL = 1500, 400

_TELLING = re.compile(
    r"""E\s | >\s | [\w./\\-]+:\d+:\s | \ *(?:left|right):\s | [\w.]*(?:Error|Exception)\b
      | \s+\S+_test\.go:\d+: | \s+(?:Error|expected|actual|Expected|Received)\b.*: | panic: | [Ff]atal | FATAL
      | [Ee]rror | ERROR | Caused\ by | -+\ Captured | TOTAL\b | \s+(?:at|●|\u276f|\u00d7|✕)\s.*\.test\.[jt]sx?
      | Failed: | worker\ '""",
    re.VERBOSE,
)
_PANIC = "panicked at"
_AFTER_PANIC = 4  # lines of message below "thread '…' panicked at …:"


def shorten(lines: Sequence[str], limit: int) -> tuple[list[str], bool]:
    """At most `limit` lines and the marks for what is left out between them, and whether anything is.

    What says what went wrong comes first (its own first and last when that alone is too much); the rest of the room
    is for the beginning and the end. Lines over 2,000 characters lose their middle.
    """
    chosen = range(len(lines)) if len(lines) <= limit else _chosen(lines, limit)
    cut = len(chosen) < len(lines) or any(len(lines[i]) > LONGEST_LINE for i in chosen)
    return list(_with_marks(lines, chosen)) if cut else list(lines), cut


def _chosen(lines: Sequence[str], limit: int) -> list[int]:
    telling = _telling(lines)
    most = limit * 3 // 4
    if len(telling) > most:
        telling = telling[: most // 2] + telling[len(telling) - (most - most // 2) :]
    kept = set(telling)
    others = [i for i in range(len(lines)) if i not in kept]
    room = limit - len(kept)
    kept.update(others[: (room + 1) // 2])
    kept.update(others[len(others) - room // 2 :])
    return sorted(kept)


def _telling(lines: Sequence[str]) -> list[int]:
    """Where it says what went wrong, in order."""
    found: set[int] = set()
    for i, line in enumerate(lines):
        if _TELLING.match(line):
            found.add(i)
        if _PANIC in line:
            found.update(range(i, min(i + 1 + _AFTER_PANIC, len(lines))))
    return sorted(found)


def _with_marks(lines: Sequence[str], chosen: Sequence[int]) -> Iterator[str]:
    expected = 0
    for i in (*chosen, len(lines)):
        if i > expected:
            yield f"    ... ({i - expected} lines left out)"
        if i < len(lines):
            yield clipped(lines[i])
        expected = i + 1


def clipped(line: str) -> str:
    """A line without its middle when it is very long."""
    if len(line) <= LONGEST_LINE:
        return line
    return f"{line[:_HEAD]} ... ({len(line) - _HEAD - _TAIL} characters left out) ... {line[-_TAIL:]}"
