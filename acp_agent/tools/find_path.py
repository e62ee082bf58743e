"""find_path: files and folders by glob (requirements T4.17, A22.5)."""

from typing import Annotated

from pydantic import Field

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import Access, PathSubject, Subject, ToolKind, ToolResult
from acp_agent.tools.lines import relative
from acp_agent.tools.params import WHOLE, Name, Params, quote
from acp_agent.tools.tool import Tool
from acp_agent.tools.visible import visible


class FindPathParams(Params):
    """Find files by name below a folder; files that .gitignore names are left out."""

    pattern: Name = Field(description='Glob relative to path, such as "**/*.py"')
    path: Name = "."
    max_results: Annotated[int, Field(ge=1, le=1000), WHOLE] | None = None


class FindPath(Tool[FindPathParams]):
    """Searches names through the FileSystem port."""

    name = "find_path"
    mutates = False
    cacheable = True
    params = FindPathParams

    def __init__(self, *, max_results: int, kind: ToolKind = ToolKind.OTHER) -> None:
        self._max_results = max_results
        self.kind = kind

    def subjects(self, params: FindPathParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.READ),)

    async def run(self, params: FindPathParams, context: ToolContext) -> ToolResult:
        if params.pattern.startswith("/") or ".." in params.pattern.split("/"):
            msg = f'find_path: pattern = {quote(params.pattern)} (expected a pattern below path, without "..")'
            raise ToolError(ToolErrorCategory.INVALID_PARAMETERS, msg)
        found = await context.files.find(params.path, params.pattern, params.max_results or self._max_results)
        if not found.paths:
            return ToolResult(f"No files matching: {params.pattern}")
        base = context.files.resolve(".", Access.READ)
        lines = [visible(relative(path, base)) for path in found.paths]
        if found.more:
            lines.append(f"... and more results (showing first {len(found.paths)})")
        return ToolResult("\n".join(lines))
