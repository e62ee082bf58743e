"""The parts of a test run's output: lines that are kept, lines that no parser recognised, and failures."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class KeptLines:
    """Lines that are always kept: errors, names of failures, totals in the tool's own words."""

    lines: list[str]


@dataclass(frozen=True, slots=True)
class UnknownLines:
    """Lines that no parser knows: output of tests or of other commands. Together they are kept up to a limit."""

    lines: list[str]


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure as it was printed, its heading first.

    message   what went wrong, in one line; for the list of failures without details
    whole     an error that kept tests from running, such as a compiler error. Its details are never shortened
    """

    lines: list[str]
    message: str = ""
    whole: bool = False


Piece: TypeAlias = KeptLines | UnknownLines | Failure


@dataclass(slots=True)
class Totals:
    """Counts of tests, summed over every run in the text."""

    passed: int = 0
    failed: int = 0
    ignored: int = 0
    filtered: int = 0

    def add(self, other: "Totals") -> None:
        """Add the counts of another run."""
        self.passed += other.passed
        self.failed += other.failed
        self.ignored += other.ignored
        self.filtered += other.filtered


@dataclass(slots=True)
class ParsedOutput:
    """A parsed text. Its pieces are in the order of the output.

    broken   something failed that no count includes: a build, a collection, an interrupted run
    cut      something that may matter was left out already
    """

    pieces: list[Piece] = field(default_factory=list[Piece])
    totals: Totals = field(default_factory=Totals)
    broken: bool = False
    cut: bool = False

    def keep(self, line: str) -> None:
        """Keep a line."""
        last = self.pieces[-1] if self.pieces else None
        if isinstance(last, KeptLines):
            last.lines.append(line)
        else:
            self.pieces.append(KeptLines([line]))

    def loose(self, line: str) -> None:
        """Add a line that was not recognised."""
        last = self.pieces[-1] if self.pieces else None
        if isinstance(last, UnknownLines):
            last.lines.append(line)
        elif line.strip():
            self.pieces.append(UnknownLines([line]))

    def fail(self, lines: list[str], message: str = "", *, whole: bool = False) -> None:
        """Add a failure, without the blank lines at its end."""
        while lines and not lines[-1].strip():
            lines.pop()
        self.pieces.append(Failure(lines, message, whole))


class OutputParser(Protocol):
    """Parses the output of one test runner. One object parses one text."""

    def parse(self, lines: Sequence[str]) -> ParsedOutput | None:
        """Return the parts of the text. None if it contains no run of this test runner."""
        ...


@dataclass(frozen=True, slots=True)
class Format:
    """A test runner whose output can be parsed.

    words      words in the command that runs it. The format named by the command is tried first
    signs      literals; every output of the runner contains at least one of them
    """

    words: tuple[str, ...]
    signs: tuple[str, ...]
    parser: Callable[[], OutputParser]


LONGEST_LINE = 2000
"""The longest line that is parsed, in characters. The limit bounds the cost of a regular expression."""

_HEAD, _TAIL = 1500, 400

_TELLING = re.compile(
    r"""E\s | >\s | [\w./\\-]+:\d+:\s | \ *(?:left|right):\s | [\w.]*(?:Error|Exception)\b
      | \s+\S+_test\.go:\d+: | \s+(?:Error|expected|actual|Expected|Received)\b.*: | panic: | [Ff]atal | FATAL
      | [Ee]rror | ERROR | Caused\ by | -+\ Captured | TOTAL\b | \s+(?:at|●|\u276f|\u00d7|✕)\s.*\.test\.[jt]sx?
      | Failed: | worker\ '""",
    re.VERBOSE,
)
_PANIC = "panicked at"
_AFTER_PANIC = 4  # lines of the message below "thread '...' panicked at ...:"


def shorten(lines: Sequence[str], limit: int) -> tuple[list[str], bool]:
    """Return at most `limit` lines, with marks for what was left out, and whether anything was.

    Lines that say what went wrong come first. If they alone are too many, their first and last ones stay. The remaining
    room goes to the beginning and the end. Lines over 2,000 characters lose their middle.
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
    """Return the indexes of the lines that say what went wrong, in order."""
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
    """Return a line without its middle if it is very long."""
    if len(line) <= LONGEST_LINE:
        return line
    return f"{line[:_HEAD]} ... ({len(line) - _HEAD - _TAIL} characters left out) ... {line[-_TAIL:]}"
