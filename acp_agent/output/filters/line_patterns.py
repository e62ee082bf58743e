"""Finds the lines of a text that hold one of several expressions, in time linear in the text (O1.4, security.md 2.7).

All expressions of a rule become one, and lines that follow one another are found as one run: a call into RE2 costs
as much as searching some kilobytes, so the calls must be few.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol, cast

import re2  # pyright: ignore[reportMissingTypeStubs] - the package has none, hence the protocols below

LONGEST_PATTERN = 512
"""Characters of an expression; a rule with a longer one is skipped (O1.4)."""


_LARGEST = 1024 * 1024  # bytes of one expression that was written down: what is larger would take long to compile
_MEMORY = 8 * 1024 * 1024  # for what RE2 remembers of a search; a fiftieth of its speed is left when that is too little


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
    """One expression, searched for in a short text such as a command. Raises ValueError when it is none."""

    def __init__(self, pattern: str) -> None:
        self._regex = _compiled(pattern, _LARGEST, lines=False)

    def found_in(self, text: str) -> bool:
        """Whether it matches anywhere in the text."""
        return self._regex.search(encoded(text)) is not None


class LinePatterns:
    """Several expressions. `^` and `$` are the ends of a line, and no match goes beyond its line.

    Raises ValueError for an expression RE2 does not take, or when all of them are too much for it together.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        for pattern in patterns:  # each alone first: its error quotes what the author wrote
            check(pattern)
        anyone = "|".join(f"(?:{pattern})" for pattern in patterns)
        # `.` never takes a line feed here, `\C` takes any byte: behind a greedy `.*` only a line feed is left.
        runs = rf"(?m)(?:^.*(?:{anyone}).*\C?)+"
        check(runs)
        self._runs = _compiled(runs, _MEMORY)

    def runs(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Start and end of every run of lines that hold an expression, line feeds included. `data` is UTF-8."""
        for match in self._runs.finditer(data):
            start, end = match.span()
            if start < len(data):  # behind the last line feed there is no line
                yield start, end

    def other_runs(self, data: bytes) -> Iterator[tuple[int, int]]:
        """The same for the lines that hold none."""
        at = 0
        for start, end in self.runs(data):
            if at < start:
                yield at, start
            at = end
        if at < len(data):
            yield at, len(data)

    def lines(self, data: bytes) -> bytes:
        """The lines that hold an expression."""
        return b"".join([data[start:end] for start, end in self.runs(data)])

    def other_lines(self, data: bytes) -> bytes:
        """The lines that hold none."""
        return b"".join([data[start:end] for start, end in self.other_runs(data)])

    def found_in(self, text: str) -> bool:
        """Whether any line of a text holds an expression."""
        return next(self.runs(encoded(text)), None) is not None


class Captures:
    """One expression that says which part of a line is meant: by its first group, or the whole match.

    Raises ValueError when it is none.
    """

    def __init__(self, pattern: str) -> None:
        check(pattern)
        self._regex = _compiled(f"(?m){pattern}", _MEMORY, captures=True)
        self._group = min(1, self._regex.groups)

    def by_line(self, data: bytes) -> dict[int, str]:
        """The meant part of the first match in each line that has one, by the offset the line begins at."""
        found: dict[int, str] = {}
        for match in self._regex.finditer(data):
            start, end = match.span(self._group)
            if start >= 0:  # the group took part
                found.setdefault(data.rfind(b"\n", 0, start) + 1, decoded(data[start:end]))
        return found


def check(pattern: str) -> None:
    """Raises ValueError, with RE2's reason, for what is no expression."""
    _compiled(pattern, _LARGEST)


def encoded(text: str) -> bytes:
    """UTF-8, whatever is in the text; `decoded` undoes it."""
    return text.encode("utf-8", "surrogatepass")


def decoded(data: bytes) -> str:
    """The text of what `encoded` gave, cut between lines."""
    return data.decode("utf-8", "surrogatepass")


def line_count(data: bytes) -> int:
    """Lines, the last one whether or not it ends with a line feed."""
    return data.count(b"\n") + (data != b"" and not data.endswith(b"\n"))


def united(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The runs of lines of both lists in their order, none of them twice where they overlap."""
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
