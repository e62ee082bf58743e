"""read_overflow: what was too long to show, by lines, by pieces of a line, or by a pattern (requirements O5)."""

import re
from collections.abc import Callable
from time import monotonic
from typing import Annotated, NoReturn

from anyio import to_thread
from anyio.from_thread import check_cancelled
from pydantic import Field

from acp_agent.core.errors import StoreUnavailable, ToolError, ToolErrorCategory
from acp_agent.core.overflow import PREFIX, UNKNOWN
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import Subject, ToolKind, ToolResult
from acp_agent.linear_regex import LinearRegex
from acp_agent.tools.kept_text import Found, KeptText
from acp_agent.tools.lines import cut
from acp_agent.tools.overflow_page import SMALLEST, Page
from acp_agent.tools.params import WHOLE, Name, Params, quote
from acp_agent.tools.tool import Tool
from acp_agent.tools.visible import visible

_MOST = 1_000_000_000
_LONGEST_REASON = 200
_SECONDS = 20.0  # of one search
_AGAIN = "If it is still needed, make the call again whose output it was, asking for less."
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)


class ReadOverflowParams(Params):
    """Read what was cut out of a long result, by lines or only those that match a pattern."""

    id: Annotated[str, Field(description="The overflow:... id beside the cut")]
    offset: Annotated[int, Field(ge=-_MOST, le=_MOST), WHOLE] = Field(
        default=0, description="Lines to skip; -50: the last 50"
    )
    limit: Annotated[int, Field(ge=1), WHOLE] | None = Field(default=None, description="Lines to show")
    column: Annotated[int, Field(ge=0, le=_MOST), WHOLE] = Field(
        default=0, description="Characters to skip in a line too long to show whole"
    )
    pattern: Name | None = Field(default=None, description="RE2 syntax")


class ReadOverflow(Tool[ReadOverflowParams]):
    """Pages through what `Backends.overflow` keeps for the conversation. A page never overflows itself (O5.7).

    max_chars   most characters of a page, notices included; below the overflow threshold. At least 800 (ValueError)
    """

    name = "read_overflow"
    kind = ToolKind.READ
    mutates = False
    params = ReadOverflowParams

    def __init__(self, *, max_chars: int = 20_000) -> None:
        if max_chars < SMALLEST:
            msg = f"max_chars = {max_chars}: expected at least {SMALLEST}"
            raise ValueError(msg)
        self._max_chars = max_chars

    def subjects(self, params: ReadOverflowParams) -> tuple[Subject, ...]:
        """None: what is kept was shown to this very conversation in part, and is found by its id alone."""
        del params
        return ()

    async def run(self, params: ReadOverflowParams, context: ToolContext) -> ToolResult:
        reference = params.id.strip().removeprefix(PREFIX).lower()
        if not _UUID.fullmatch(reference):
            _no_uuid()
        overflow = context.backends.overflow
        try:
            text = None if overflow is None else await overflow.get(reference)
        except ValueError:
            _no_uuid()
        except StoreUnavailable as error:
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, str(error), _AGAIN) from error
        if text is None:
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, UNKNOWN, _AGAIN)
        return ToolResult(await to_thread.run_sync(self._page, text, params))

    def _page(self, text: str, params: ReadOverflowParams) -> str:
        """What is asked for, as far as it goes on one page, and how to read on."""
        kept = KeptText(text)
        first = params.offset if params.offset >= 0 else max(0, kept.total + params.offset)
        start = next(kept.lines(first), None)
        if start is None:
            return f"Nothing at offset {params.offset}: there are {kept.total} lines"
        page = Page(self._max_chars)
        limit = params.limit or _MOST
        if params.pattern is not None:
            page.search(kept, _regex(params.pattern), Found(start, params.column), limit, _ends_in_time())
            after = f" after line {first}" if first else ""
            return page.text() or f"No matches{after} for: {quote(params.pattern)}"
        if params.column:
            page.read_line(kept, start, params.column)
        else:
            page.read(kept, first, limit)
        return page.text()


def _no_uuid() -> NoReturn:
    hint = f"Copy it whole, like {PREFIX}01234567-89ab-cdef-0123-456789abcdef."
    raise ToolError(ToolErrorCategory.INVALID_PARAMETERS, "id must be a valid UUID", hint)


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
    """The pattern, held against each line. Raises ToolError with RE2's reason for what is no expression."""
    try:
        return LinearRegex(pattern, by_line=True)
    except ValueError as error:
        msg = f"pattern = {quote(pattern)}: {cut(visible(str(error)), _LONGEST_REASON)}"
        hint = "RE2 has no look-around and no back-references; put a backslash before ( [ . and the like."
        raise ToolError(ToolErrorCategory.INVALID_PARAMETERS, msg, hint) from None
