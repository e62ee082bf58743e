"""One page of a long text: as many lines, pieces of a line or matches as fit, and how to read on."""

from collections.abc import Callable

from acp_agent.linear_regex import LinearRegex
from acp_agent.tools.kept_text import Found, KeptText, Line

SMALLEST = 800
"""Characters a page must have at least: a match in a long line, its context and the notice fit in that."""

_NOTICE = 180  # room for the line that says how to read on
_READ_CHARS = 2000
_FOUND_CHARS = 500
_CONTEXT = 2
_GAP = "--"


class Page:
    """Lines of at most `max_chars` characters with what says how to read on; `max_chars` is at least SMALLEST."""

    def __init__(self, max_chars: int) -> None:
        self._room = max_chars - _NOTICE
        self._part = max_chars // 8  # of one line, so that a match fits with its context
        self._lines: list[str] = []
        self._notice: list[str] = []

    def text(self) -> str:
        """The page; empty when nothing was put on it."""
        return "\n".join((*self._lines, *self._notice))

    def read(self, kept: KeptText, first: int, limit: int) -> None:
        """At most `limit` lines from number `first` on, as read shows them."""
        end = first
        for line in kept.lines(first):
            if end - first == limit or not self._add(f"{line.number + 1:>4}\t{self._piece(line, 0, _READ_CHARS)}"):
                break
            end += 1
        self._go_on(kept, end)

    def read_line(self, kept: KeptText, line: Line, column: int) -> None:
        """As much of one line from a character on as the page holds."""
        number = f"{line.number + 1:>4}\t"
        end = min(column + self._room - len(number) - 1, len(line.text))
        if column > end:
            self._notice = [f"Nothing at column {column}: line {line.number + 1} has {len(line.text)} characters"]
            return
        self._add(f"{number}{line.text[column:end]}")
        if end == len(line.text):
            self._go_on(kept, line.number + 1)
        else:
            more = f"{len(line.text) - end} more characters in this line"
            self._notice = [f"... {more} (go on with offset={line.number} column={end})"]

    def search(self, kept: KeptText, pattern: LinearRegex, at: Found, limit: int, check: Callable[[], None]) -> None:
        """At most `limit` matches from a place on, as grep shows them; of a long line, what is around each match.

        `check` is called again and again and ends the search by raising.
        """
        shown, last = 0, None
        while (found := kept.find(pattern, at.line, at.column, check)) is not None:
            begin, end = self._window(found)
            text = f"{found.line.number + 1}: {self._piece(found.line, begin, _FOUND_CHARS)}"
            if shown == limit or not self._add(*self._between(kept, last, found.line), text):
                where = f"offset={found.line.number}" + (f" column={found.column}" if begin else "")
                self._notice = [f"... and more matches (showing {shown}; go on with {where})"]
                return
            shown, last = shown + 1, found.line
            at = Found(found.line, end if end < len(found.line.text) else end + 1)
        if last is not None:
            self._add(*self._around(kept.after(last, _CONTEXT)))

    def _add(self, *lines: str) -> bool:
        """Put lines on the page, if there is room for all of them."""
        size = sum(len(line) + 1 for line in lines)
        if size > self._room:
            return False
        self._room -= size
        self._lines.extend(lines)
        return True

    def _go_on(self, kept: KeptText, end: int) -> None:
        if end < kept.total:
            self._notice = [f"... {kept.total - end} more lines (go on with offset={end})"]

    def _window(self, found: Found) -> tuple[int, int]:
        """First and last character, the last exclusive, of what is shown of a line with a match."""
        size, whole = min(_FOUND_CHARS, self._part), len(found.line.text)
        begin = max(0, min(found.column - size // 4, whole - size))
        return begin, min(begin + size, whole)

    def _between(self, kept: KeptText, last: Line | None, line: Line) -> list[str]:
        """The context of two matches that follow each other; of the first, what is before it."""
        if last is None:
            return self._around(kept.before(line, _CONTEXT))
        after = kept.after(last, min(_CONTEXT, line.number - last.number - 1)) if last.number < line.number else []
        unseen = line.number - last.number - 1 - len(after)
        before = kept.before(line, min(_CONTEXT, max(unseen, 0)))
        gap = [_GAP] if unseen > len(before) else []
        return [*self._around(after), *gap, *self._around(before)]

    def _around(self, lines: list[Line]) -> list[str]:
        return [f"{line.number + 1}- {self._piece(line, 0, _FOUND_CHARS)}" for line in lines]

    def _piece(self, line: Line, begin: int, size: int) -> str:
        """Part of a line, marked where it is not the whole, with how to read the rest."""
        end = begin + min(size, self._part)
        before = f"[from column {begin}] …" if begin else ""
        missing = len(line.text) - end
        after = f"… [{missing} more characters: offset={line.number} column={end}]" if missing > 0 else ""
        return f"{before}{line.text[begin:end]}{after}"
