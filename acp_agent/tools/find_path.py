"""find_path: find files and folders by glob."""

import posixpath
from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from acp_agent.core.ports import ToolContext
from acp_agent.core.secrets import Secrecy, secrecy
from acp_agent.core.types import Access, PathSubject, Subject, ToolKind, ToolResult
from acp_agent.text import visible
from acp_agent.tools.tool import WHOLE, Name, Params, Tool, pattern_below, relative


class FindPathParams(Params):
    """Find files by name below a folder. Files that .gitignore names are left out."""

    pattern: Name = Field(description='Glob relative to path; without a slash at any depth: "*.py"')
    path: Name = "."
    max_results: Annotated[int, Field(ge=1, le=1000), WHOLE] | None = None


class FindPath(Tool[FindPathParams]):
    """Searches names through the FileSystem port.

    A pattern without a slash matches at any depth, like grep's glob; `./*.py` matches in the folder itself.
    """

    name = "find_path"
    mutates = False
    cacheable = True
    params = FindPathParams

    def __init__(self, *, max_results: int, kind: ToolKind = ToolKind.OTHER, guards_secrets: bool = True) -> None:
        self._max_results = max_results
        self._guards_secrets = guards_secrets
        self.kind = kind

    def subjects(self, params: FindPathParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.LIST),)

    async def run(self, params: FindPathParams, context: ToolContext) -> ToolResult:
        pattern = pattern_below(params.pattern, params.path, context, key="pattern")
        bare = "/" not in pattern.rstrip("/")
        limit = params.max_results or self._max_results
        found = await context.files.find(params.path, f"**/{pattern}" if bare else pattern, limit)
        base = context.files.resolve(".", Access.LIST)
        closed = self._closed_folder(context.files.resolve(params.path, Access.LIST))
        shown = [path for path in found.paths if not closed(path)]
        lines = [visible(relative(path, base)) for path in shown]
        if not lines:
            lines.append(f"No files matching: {params.pattern}{', at any depth' if bare else ''}")
        left_out = len(found.paths) - len(shown)
        if left_out:
            entries = "1 entry" if left_out == 1 else f"{left_out} entries"
            lines.append(f"({entries} of folders that hold secrets not shown; give the folder as path to be asked)")
        if found.more:
            lines.append(f"... and more results (showing first {len(found.paths)})")
        if found.stopped is not None:
            where = visible(relative(found.stopped, base))
            lines.append(f"(time ran out at {where}: what comes after it was not searched; give a smaller path)")
        return ToolResult("\n".join(lines))

    def _closed_folder(self, base: str) -> Callable[[str], bool]:
        """Return whether a path lies in a folder that may be listed only when the call names it."""
        allowed = secrecy(base) if self._guards_secrets else Secrecy.SEALED
        return lambda path: secrecy(posixpath.dirname(path)) > allowed
