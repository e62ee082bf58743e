"""Finds the lines of a text that match one of several expressions, in time linear in the length of the text.

All expressions of a rule are compiled to one, and neighbouring lines are found as one run. One call of RE2 costs as
much as the search of some kilobytes, so there must be few calls.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol, cast

import re2  # pyright: ignore[reportMissingTypeStubs] - the package has none, hence the protocols below

LONGEST_PATTERN = 512
"""The longest expression of a rule, in characters. A rule with a longer one is skipped."""


_LARGEST = 1024 * 1024  # bytes of an expression: a larger one would take long to compile
_MEMORY = 8 * 1024 * 1024  # bytes for RE2's cache of a search: with too few, RE2 has a fiftieth of its speed


class _Options(Protocol):
    log_errors: bool
    max_mem: int
    never_nl: bool
    never_capture: bool


class _Match(Protocol):
    def span(self, group: int = 0) -> tuple[int, int]: ...


class _Compiled(Protocol):
    groups: int

    def finditer(self, text: bytes) -> Iterator[_Match]: ...
    def search(self, text: bytes) -> _Match | None: ...


class _Engine(Protocol):
    error: type[Exception]

    def Options(self) -> _Options: ...  # noqa: N802 - re2's own name
    def compile(self, pattern: str, options: _Options) -> _Compiled: ...


_ENGINE = cast("_Engine", re2)


class Pattern:
    """An expression to search for in a short text, such as a command. Raises ValueError if it is invalid."""

    def __init__(self, pattern: str) -> None:
        self._regex = _compiled(pattern, _LARGEST, lines=False)

    def found_in(self, text: str) -> bool:
        """Return whether it matches anywhere in the text."""
        return self._regex.search(encoded(text)) is not None


class LinePatterns:
    """Several expressions. `^` and `$` match at the ends of a line, and a match stays within its line.

    Raises ValueError if an expression is invalid or if all of them together are too large.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        for pattern in patterns:  # each alone first: the error quotes what the author wrote
            check(pattern)
        anyone = "|".join(f"(?:{pattern})" for pattern in patterns)
        # `.` never matches a line feed here, `\C` matches any byte: after a greedy `.*` only a line feed is left
        runs = rf"(?m)(?:^.*(?:{anyone}).*\C?)+"
        check(runs)
        self._runs = _compiled(runs, _MEMORY)

    def runs(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield start and end of every run of matching lines, with their line feeds. `data` is UTF-8."""
        for match in self._runs.finditer(data):
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
        self._regex = _compiled(f"(?m){pattern}", _MEMORY, captures=True)
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
    _compiled(pattern, _LARGEST)


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


def _compiled(pattern: str, memory: int, *, lines: bool = True, captures: bool = False) -> _Compiled:
    options = _ENGINE.Options()
    options.log_errors = False
    options.max_mem = memory
    options.never_nl = lines
    options.never_capture = not captures
    try:
        return _ENGINE.compile(pattern, options)
    except _ENGINE.error as error:
        told: object = error.args[0] if error.args else error
        raise ValueError(told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)) from None
