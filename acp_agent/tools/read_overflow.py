"""read_overflow: the stored text of a result that was too long, by lines, by parts of a line, or by a pattern."""

import re
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Annotated, NamedTuple, NoReturn

from anyio import to_thread
from anyio.from_thread import check_cancelled

from acp_agent.core.errors import StoreUnavailable, ToolError, ToolErrorCategory
from acp_agent.core.ports import ToolContext
from acp_agent.core.services import UNKNOWN_OVERFLOW
from acp_agent.core.sessions import OVERFLOW_PREFIX
from acp_agent.core.types import ToolKind, ToolResult
from acp_agent.regex import LinearRegex
from acp_agent.shape import Field
from acp_agent.text import counted, visible
from acp_agent.tools.tool import WHOLE, Name, Params, SessionTool, cut, quote, skipped

_BLOCK = 64 * 1024


class TextLine(NamedTuple):
    """A line without its end. `number` counts from 0, `start` is its offset in the bytes of the text."""

    number: int
    start: int
    text: str


class PatternMatch(NamedTuple):
    """A line with a match, and the character (from 0) at which the match begins."""

    line: TextLine
    column: int


class KeptText:
    """A text of any size. Only the requested lines are decoded.

    total   the number of lines. A line end at the very end begins no further line
    """

    def __init__(self, text: str) -> None:
        self._data = text.encode(errors="replace")
        self.total = self._data.count(b"\n") + (self._data[-1:] not in (b"", b"\n"))

    def lines(self, first: int) -> Iterator[TextLine]:
        """Yield the lines from number `first` on."""
        at = self._start(first) if first < self.total else 0
        for number in range(first, self.total):
            line = self._line(number, at)
            yield line
            at = self._end(at) + 1

    def find(self, pattern: LinearRegex, line: TextLine, column: int, check: Callable[[], None]) -> PatternMatch | None:
        """Return the first match at or after a character of a line, also in later lines. None if there is none.

        `check` is called repeatedly and may end the search by raising.
        """
        check()
        at = line.start + len(line.text[:column].encode())
        if column > len(line.text):
            at += 1  # after the line end
        found = pattern.find(self._data, at, check) if at < len(self._data) else None
        if found is None or (found == len(self._data) and self._data.endswith(b"\n")):
            return None
        start = self._data.rfind(b"\n", line.start, found) + 1 or line.start
        number = line.number + self._data.count(b"\n", line.start, found)
        return PatternMatch(self._line(number, start), len(self._data[start:found].decode(errors="replace")))

    def _line(self, number: int, start: int) -> TextLine:
        return TextLine(number, start, self._data[start : self._end(start)].decode(errors="replace"))

    def _start(self, number: int) -> int:
        """Return the byte at which an existing line begins."""
        at, left = 0, number
        while (ends := self._data.count(b"\n", at, at + _BLOCK)) < left:
            at, left = at + _BLOCK, left - ends
        for _ in range(left):
            at = self._data.find(b"\n", at) + 1
        return at

    def _end(self, at: int) -> int:
        end = self._data.find(b"\n", at)
        return len(self._data) if end < 0 else end


SMALLEST = 800
"""The smallest page in characters. A match in a long line fits with the notice."""

_NOTICE = 180  # room for the line that says how to read on
_READ_CHARS = 2000
_FOUND_CHARS = 500


class Page:
    """A page of at most `max_chars` characters, with a note how to read on. `max_chars` is at least SMALLEST."""

    def __init__(self, max_chars: int) -> None:
        self._room = max_chars - _NOTICE
        self._part = max_chars // 8  # of one line, so that a page has several
        self._lines: list[str] = []
        self._notice: list[str] = []

    def text(self) -> str:
        """Return the page, "" if nothing was added."""
        return "\n".join((*self._lines, *self._notice))

    def read(self, kept: KeptText, first: int, limit: int) -> None:
        """Add at most `limit` lines from number `first` on, as `read` shows them."""
        end = first
        for line in kept.lines(first):
            if end - first == limit or not self._add(f"{line.number + 1:>4}\t{self._piece(line, 0, _READ_CHARS)}"):
                break
            end += 1
        if end - first < limit:
            self._go_on(kept, end)

    def read_line(self, kept: KeptText, line: TextLine, column: int) -> None:
        """Add as much of one line as fits, from a character on."""
        number = f"{line.number + 1:>4}\t"
        end = min(column + self._room - len(number) - 1, len(line.text))
        if column > end:
            self._notice = [f"Nothing at column {column}: line {line.number + 1} has {len(line.text)} characters"]
            return
        self._add(f"{number}{line.text[column:end]}")
        if end == len(line.text):
            self._go_on(kept, line.number + 1)
        else:
            more = f"{counted(len(line.text) - end, 'more character')} in this line"
            self._notice = [f"[{more}: go on with offset={line.number + 1} column={end}]"]

    def search(
        self, kept: KeptText, pattern: LinearRegex, at: PatternMatch, limit: int, check: Callable[[], None]
    ) -> None:
        """Add at most `limit` matches from a place on, a line each. Long lines are shown in part.

        `check` is called repeatedly and may end the search by raising.
        """
        shown = 0
        while (found := kept.find(pattern, at.line, at.column, check)) is not None:
            begin, end = self._window(found)
            text = f"{found.line.number + 1}: {self._piece(found.line, begin, _FOUND_CHARS)}"
            if shown == limit or not self._add(text):
                where = f"offset={found.line.number + 1}" + (f" column={found.column}" if begin else "")
                self._notice = [f"[more matches than these {shown}: go on with {where}]"]
                return
            shown += 1
            at = PatternMatch(found.line, end if end < len(found.line.text) else end + 1)

    def _add(self, line: str) -> bool:
        """Add a line if it fits. Return whether it did."""
        if len(line) + 1 > self._room:
            return False
        self._room -= len(line) + 1
        self._lines.append(line)
        return True

    def _go_on(self, kept: KeptText, end: int) -> None:
        if end < kept.total:
            self._notice = [f"[{counted(kept.total - end, 'more line')}: go on with offset={end + 1}]"]

    def _window(self, found: PatternMatch) -> tuple[int, int]:
        """Return the first character and the end of the shown part of a line with a match."""
        size, whole = min(_FOUND_CHARS, self._part), len(found.line.text)
        begin = max(0, min(found.column - size // 4, whole - size))
        return begin, min(begin + size, whole)

    def _piece(self, line: TextLine, begin: int, size: int) -> str:
        """Return a part of a line, with marks if it is not whole, and how to read the rest."""
        end = begin + min(size, self._part)
        before = f"[from column {begin}] …" if begin else ""
        missing = len(line.text) - end
        after = f"… [{missing} more characters: offset={line.number + 1} column={end}]" if missing > 0 else ""
        return f"{before}{line.text[begin:end]}{after}"


_MOST = 1_000_000_000
_LONGEST_REASON = 200
_SECONDS = 20.0  # of one search
_AGAIN = "If you still need it, repeat the call that returned it, and ask for less."
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)


class ReadOverflowParams(Params):
    """Read the parts of a long result that were left out: by lines, or only the lines that match a pattern."""

    id: Annotated[str, Field(description="The overflow:... id that the result names")]
    offset: Annotated[int, Field(ge=-_MOST, le=_MOST), WHOLE] = Field(
        default=1, description="First line; -50: the last 50"
    )
    limit: Annotated[int, Field(ge=1), WHOLE] | None = Field(default=None, description="Lines to show")
    column: Annotated[int, Field(ge=0, le=_MOST), WHOLE] = Field(
        default=0, description="Characters to skip in a line too long to show whole"
    )
    pattern: Name | None = Field(default=None, description="RE2 syntax")


class ReadOverflow(SessionTool[ReadOverflowParams]):
    """The tool that reads the texts `Backends.overflow` keeps. A page is never too long itself.

    The text was shown to this conversation in part, and only its id finds it.

    max_chars   the longest page with notices, below the overflow threshold. Raises ValueError under 800
    """

    name = "read_overflow"
    kind = ToolKind.READ
    mutates = False

    def __init__(self, *, max_chars: int = 20_000) -> None:
        if max_chars < SMALLEST:
            raise ValueError(f"max_chars = {max_chars}: expected at least {SMALLEST}")
        self._max_chars = max_chars

    async def run(self, params: ReadOverflowParams, context: ToolContext) -> ToolResult:
        reference = params.id.strip().removeprefix(OVERFLOW_PREFIX).lower()
        if not _UUID.fullmatch(reference):
            _no_uuid()
        overflow = context.backends.overflow
        try:
            text = None if overflow is None else await overflow.get(reference)
        except ValueError:
            _no_uuid()
        except StoreUnavailable as error:
            raise ToolError.permanent(str(error), _AGAIN) from error
        if text is None:
            raise ToolError.permanent(UNKNOWN_OVERFLOW, _AGAIN)
        return ToolResult(await to_thread.run_sync(self._page, text, params), escaped=True)

    def _page(self, text: str, params: ReadOverflowParams) -> str:
        """Return one page of the requested part, and how to read on."""
        kept = KeptText(text)
        first = skipped(params.offset)
        first = max(0, kept.total + first) if first < 0 else first
        start = next(kept.lines(first), None)
        if start is None:
            return f"Nothing at offset {params.offset}: there are {kept.total} lines"
        page = Page(self._max_chars)
        limit = params.limit or _MOST
        if params.pattern is not None:
            page.search(kept, _regex(params.pattern), PatternMatch(start, params.column), limit, _ends_in_time())
            after = f" after line {first}" if first else ""
            return page.text() or f"No matches{after} for: {quote(params.pattern)}"
        if params.column:
            page.read_line(kept, start, params.column)
        else:
            page.read(kept, first, limit)
        return page.text()


def _no_uuid() -> NoReturn:
    hint = f"Copy it whole, like {OVERFLOW_PREFIX}01234567-89ab-cdef-0123-456789abcdef."
    raise ToolError.invalid("id must be a valid UUID", hint)


def _ends_in_time() -> Callable[[], None]:
    """Return a check that ends a search when its task is cancelled or its time is over."""
    end = monotonic() + _SECONDS

    def check() -> None:
        check_cancelled()
        if monotonic() >= end:
            msg = f"the search took longer than {_SECONDS:g} seconds"
            raise ToolError(ToolErrorCategory.TIMEOUT, msg, "Search for a plainer pattern, or read on with offset.")

    return check


def _regex(pattern: str) -> LinearRegex:
    """Compile the pattern for single lines. Raises ToolError with RE2's reason."""
    try:
        return LinearRegex(pattern, by_line=True)
    except ValueError as error:
        msg = f"pattern = {quote(pattern)}: {cut(visible(str(error)), _LONGEST_REASON)}"
        hint = "RE2 has no look-around and no back-references; put a backslash before ( [ . and the like."
        raise ToolError.invalid(msg, hint) from None
