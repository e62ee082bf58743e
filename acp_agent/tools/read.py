"""read: a text file, or a part of it, with line numbers (requirements T4.11, 2.8)."""

from typing import Annotated

from pydantic import Field

from acp_agent.core.backends import FileSystem
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import Access, Location, PathSubject, Subject, ToolKind, ToolResult
from acp_agent.tools.lines import count_lines, numbered
from acp_agent.tools.params import WHOLE, Name, Params
from acp_agent.tools.tool import Tool

_MAX_OFFSET = 1_000_000_000  # a place's line is 32 bits wide in ACP


class ReadParams(Params):
    """Read a text file. Each line comes as its number, a tab and its text; long files come in parts.

    Paths, here and in the other tools, are absolute or relative to the session's folder.
    """

    path: Name
    offset: Annotated[int, Field(ge=0, le=_MAX_OFFSET), WHOLE] = Field(default=0, description="Lines to skip")
    limit: Annotated[int, Field(ge=1), WHOLE] | None = Field(default=None, description="Lines to read")


class Read(Tool[ReadParams]):
    """Reads through the FileSystem port, so unsaved editor buffers are seen where the editor offers them."""

    name = "read"
    kind = ToolKind.READ
    mutates = False
    cacheable = True
    params = ReadParams

    def __init__(self, *, max_lines: int, max_line_chars: int) -> None:
        self._max_lines = max_lines
        self._max_line_chars = max_line_chars

    def subjects(self, params: ReadParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.READ),)

    def locations(self, params: ReadParams, files: FileSystem) -> tuple[Location, ...]:
        line = params.offset + 1 if params.offset else None
        return (Location(files.resolve(params.path, Access.READ), line),)

    async def run(self, params: ReadParams, context: ToolContext) -> ToolResult:
        text = await context.files.read_text(params.path)
        return ToolResult(self._page(text, params), locations=self.locations(params, context.files))

    def _page(self, text: str, params: ReadParams) -> str:
        """The lines asked for, and a notice where there is more or nothing to show."""
        total = count_lines(text)
        if total == 0:
            return f"Empty file: {params.path}"
        if params.offset >= total:
            return f"Nothing at offset {params.offset}: {params.path} has {total} lines"
        end = min(params.offset + min(params.limit or self._max_lines, self._max_lines), total)
        lines = text.split("\n", end)[params.offset : end]  # what follows the page is not split
        page = numbered((line.removesuffix("\r") for line in lines), params.offset + 1, self._max_line_chars)
        if end == total:
            return page
        return f"{page}\n... {total - end} more lines (go on with offset={end})"
