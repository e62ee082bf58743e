"""find_path: files and folders by glob (requirements T4.17, A22.5)."""

from typing import Annotated

from pydantic import Field

from acp_agent.core.backends import FoundPaths
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import Access, PathSubject, Subject, ToolKind, ToolResult
from acp_agent.tools.lines import relative
from acp_agent.tools.params import WHOLE, Name, Params, quote
from acp_agent.tools.tool import Tool
from acp_agent.tools.visible import visible


class FindPathParams(Params):
    """Find files by name below a folder; files that .gitignore names are left out."""

    pattern: Name = Field(description='Glob relative to path; "**/*.py" is any depth')
    path: Name = "."
    max_results: Annotated[int, Field(ge=1, le=1000), WHOLE] | None = None


class FindPath(Tool[FindPathParams]):
    """Searches names through the FileSystem port.

    A bare name that is not in the folder itself is looked for at any depth, as half of the tools models know would
    have done at once; the answer says so.
    """

    name = "find_path"
    mutates = False
    cacheable = True
    params = FindPathParams

    def __init__(self, *, max_results: int, kind: ToolKind = ToolKind.OTHER) -> None:
        self._max_results = max_results
        self.kind = kind

    def subjects(self, params: FindPathParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.LIST),)

    async def run(self, params: FindPathParams, context: ToolContext) -> ToolResult:
        pattern, limit = params.pattern, params.max_results or self._max_results
        if pattern.startswith("/") or ".." in pattern.split("/"):
            msg = f'find_path: pattern = {quote(pattern)} (expected a pattern below path, without "..")'
            raise ToolError(ToolErrorCategory.INVALID_PARAMETERS, msg)
        found = await context.files.find(params.path, pattern, limit)
        if found.paths or "/" in pattern.rstrip("/"):
            return _told(found, context) or ToolResult(f"No files matching: {pattern}")
        deeper = await context.files.find(params.path, f"**/{pattern}", limit)
        note = f"None directly in {visible(params.path)}; deeper, matching **/{visible(pattern)}:"
        return _told(deeper, context, note) or ToolResult(f"No files matching: {pattern}, at any depth")


def _told(found: FoundPaths, context: ToolContext, note: str = "") -> ToolResult | None:
    """The paths as the model reads them, the note above; None for none."""
    if not found.paths:
        return None
    base = context.files.resolve(".", Access.LIST)
    lines = [note] if note else []
    lines += [visible(relative(path, base)) for path in found.paths]
    if found.more:
        lines.append(f"... and more results (showing first {len(found.paths)})")
    return ToolResult("\n".join(lines))
