"""A long text by lines: any stretch of it, and the lines that match, in time linear in its length."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from acp_agent.linear_regex import LinearRegex

_BLOCK = 64 * 1024


class Line(NamedTuple):
    """A line without its end. `number` counts from 0, `start` is its offset in the text's bytes."""

    number: int
    start: int
    text: str


class Found(NamedTuple):
    """A line with a match, and the character of it (from 0) where the match begins."""

    line: Line
    column: int


class KeptText:
    """A text of any size. Nothing but the lines asked for is taken apart.

    total   its lines; a line end at the very end begins no further line
    """

    def __init__(self, text: str) -> None:
        self._data = text.encode(errors="replace")
        self.total = self._data.count(b"\n") + (self._data[-1:] not in (b"", b"\n"))

    def lines(self, first: int) -> Iterator[Line]:
        """The lines from number `first` (0 or more) on."""
        at = self._start(first) if first < self.total else 0
        for number in range(first, self.total):
            line = self._line(number, at)
            yield line
            at = self._end(at) + 1

    def before(self, line: Line, count: int) -> list[Line]:
        """At most `count` lines before a line, in order."""
        found: list[Line] = []
        at = line.start
        for number in range(line.number - 1, max(line.number - 1 - count, -1), -1):
            at = self._data.rfind(b"\n", 0, at - 1) + 1
            found.insert(0, self._line(number, at))
        return found

    def after(self, line: Line, count: int) -> list[Line]:
        """At most `count` lines after a line, in order."""
        found: list[Line] = []
        at = line.start
        for number in range(line.number + 1, min(line.number + 1 + count, self.total)):
            at = self._end(at) + 1
            found.append(self._line(number, at))
        return found

    def find(self, pattern: LinearRegex, line: Line, column: int, check: Callable[[], None]) -> Found | None:
        """The first match at or after a character of a line, also in later lines. One behind the last is none.

        `check` is called again and again and ends the search by raising.
        """
        check()
        at = line.start + len(line.text[:column].encode())
        if column > len(line.text):
            at += 1  # behind the line end
        found = pattern.find(self._data, at, check) if at < len(self._data) else None
        if found is None or (found == len(self._data) and self._data.endswith(b"\n")):
            return None
        start = self._data.rfind(b"\n", line.start, found) + 1 or line.start
        number = line.number + self._data.count(b"\n", line.start, found)
        return Found(self._line(number, start), len(self._data[start:found].decode(errors="replace")))

    def _line(self, number: int, start: int) -> Line:
        return Line(number, start, self._data[start : self._end(start)].decode(errors="replace"))

    def _start(self, number: int) -> int:
        """Where a line begins that there is."""
        at, left = 0, number
        while (ends := self._data.count(b"\n", at, at + _BLOCK)) < left:
            at, left = at + _BLOCK, left - ends
        for _ in range(left):
            at = self._data.find(b"\n", at) + 1
        return at

    def _end(self, at: int) -> int:
        end = self._data.find(b"\n", at)
        return len(self._data) if end < 0 else end
