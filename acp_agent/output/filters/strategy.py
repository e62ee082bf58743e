"""The port of the nine filter strategies, and the line patterns that they share.

A strategy shortens a text and says with which confidence. Line patterns find the lines that match one of several
expressions, in time linear in the length of the text. One call of RE2 costs as much as searching some kilobytes, so
all expressions of a rule are compiled to one, which finds adjacent lines with one match.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple, Protocol

from acp_agent.core.data import frozen
from acp_agent.core.types import Confidence
from acp_agent.regex import Regex, compiled


@frozen
class CommandRun:
    """A command that has ended, as the filters see it.

    command    the text that the model gave to the shell
    printing   the simple commands whose output is in the text, in order, each without wrappers and with its words
               joined by spaces; empty if they are unknown
    exit_code  128 + n if signal n ended the command; None if it is not known
    """

    command: str
    printing: tuple[str, ...] = ()
    exit_code: int | None = None

    @property
    def failed(self) -> bool:
        """Whether the command is known to have failed."""
        return self.exit_code not in (None, 0)


class Restored(IntEnum):
    """The kinds of lines that are put back if a rule leaves them out.

    NOTHING   none: the text is a document, such as a diff
    ERRORS    lines that report an error or a vulnerability
    SUSPECTS  also lines that only contain "failed" or the like, for rules that do not know the command's output
    """

    NOTHING = 0
    ERRORS = 1
    SUSPECTS = 2


@frozen
class Filtered:
    """A text after all matching rules.

    rules       their names, in the order of application
    confidence  the worst of their confidences
    removed     whether anything was left out
    restored    which lines are put back
    """

    text: str
    rules: tuple[str, ...]
    confidence: Confidence
    removed: bool
    restored: Restored = Restored.ERRORS


class Applied(NamedTuple):
    """The result of a strategy.

    Its confidence is Full if everything that matters is kept, Partial if something that matters may be missing, and
    Fallback if nothing was recognised and `text` is the unchanged text.
    """

    text: str
    confidence: Confidence


class Strategy(Protocol):
    """A way to shorten the output of a command. It is compiled once and used by several threads."""

    def apply(self, text: str, run: CommandRun) -> Applied:
        """Return the shorter text. A text that is not recognised is returned unchanged, as Fallback. Never raises.

        `text` is sanitized (no escape sequences, LF line ends), redacted, and at most 10 MiB long.
        """
        ...


LONGEST_PATTERN = 512
"""The longest expression of a rule, in characters. A rule with a longer one is skipped."""


_LARGEST = 1024 * 1024  # bytes of an expression: a larger one would take long to compile
_MEMORY = 8 * 1024 * 1024  # bytes for RE2's cache of a search; if they are too few, RE2 is 50 times slower


def command_pattern(pattern: str) -> Regex:
    """Compile an expression to search for in commands, which may have several lines. Raises ValueError if invalid."""
    return compiled(pattern, lines=True, captures=False, memory=_LARGEST)


class LinePatterns:
    """Several expressions. `^` and `$` match at the ends of a line, and a match stays within its line.

    checked   True if the expressions are known to be valid; then they are compiled at the first search
    source    the expression that finds a run of matching lines

    Raises ValueError if an expression is invalid or if all of them together are too large.
    """

    def __init__(self, patterns: Sequence[str], *, checked: bool = False) -> None:
        anyone = "|".join(f"(?:{pattern})" for pattern in patterns)
        # `.` never matches a line feed here, `\C` matches any byte: after a greedy `.*` only a line feed is left
        self.source = rf"(?m)(?:^.*(?:{anyone}).*\C?)+"
        for pattern in (
            () if checked else (*patterns, self.source)
        ):  # one by one, so that errors quote the one expression
            check(pattern)

    @cached_property
    def _runs(self) -> Regex:
        return compiled(self.source, captures=False, memory=_MEMORY)

    def runs(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield start and end of every run of matching lines, with their line feeds. `data` is UTF-8."""
        for match in self._runs.finditer(data) if data else ():
            start, end = match.span()
            if start < len(data):  # there is no line after the last line feed
                yield start, end

    def other_runs(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield start and end of every run of lines that do not match."""
        at = 0
        for start, end in self.runs(data):
            if at < start:
                yield at, start
            at = end
        if at < len(data):
            yield at, len(data)

    def lines(self, data: bytes) -> bytes:
        """Return the matching lines."""
        return b"".join([data[start:end] for start, end in self.runs(data)])

    def other_lines(self, data: bytes) -> bytes:
        """Return the lines that do not match."""
        return b"".join([data[start:end] for start, end in self.other_runs(data)])

    def found_in(self, text: str) -> bool:
        """Return whether any line of a text matches."""
        return next(self.runs(encoded(text)), None) is not None


class Captures:
    """An expression that selects a part of a line: its first group, or the whole match.

    Raises ValueError if it is invalid.
    """

    def __init__(self, pattern: str) -> None:
        check(pattern)
        self._regex = compiled(f"(?m){pattern}", memory=_MEMORY)
        self._group = min(1, self._regex.groups)

    def by_line(self, data: bytes) -> dict[int, str]:
        """Return the selected part of each line that matches, by the offset of the line."""
        found: dict[int, str] = {}
        for match in self._regex.finditer(data):
            start, end = match.span(self._group)
            if start >= 0:  # the group took part in the match
                found.setdefault(data.rfind(b"\n", 0, start) + 1, decoded(data[start:end]))
        return found


def check(pattern: str) -> None:
    """Raise ValueError with RE2's reason if the pattern is invalid."""
    compiled(pattern, captures=False, memory=_LARGEST)


def encoded(text: str) -> bytes:
    """Return the text as UTF-8. Any text can be encoded, and `decoded` restores it."""
    return text.encode("utf-8", "surrogatepass")


def decoded(data: bytes) -> str:
    """Return the text that `encoded` was called with, or a part of it that was cut between lines."""
    return data.decode("utf-8", "surrogatepass")


def line_count(data: bytes) -> int:
    """Return the number of lines. The last line counts even without a line feed."""
    return data.count(b"\n") + (data != b"" and not data.endswith(b"\n"))


def united(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the runs of both lists in order. Overlapping runs are merged."""
    runs: list[tuple[int, int]] = []
    at = 0
    for start, end in sorted((*some, *others)) if others else some:
        if end > at:
            runs.append((max(start, at), end))
            at = end
    return runs
