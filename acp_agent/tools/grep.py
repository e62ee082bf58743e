"""grep: lines of files that match a regular expression (requirements T4.15)."""

from pydantic import Field

from acp_agent.core.backends import GrepMatch, GrepQuery
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import Access, PathSubject, Subject, ToolKind, ToolResult
from acp_agent.tools.lines import cut, relative
from acp_agent.tools.params import Name, Params
from acp_agent.tools.tool import Tool
from acp_agent.tools.visible import visible


class GrepParams(Params):
    """Find lines that match a regular expression, in a file or below a folder; leaves out what .gitignore names."""

    pattern: Name = Field(description="RE2 syntax: no look-around, no back-references")
    path: Name = "."
    case_sensitive: bool = True


class Grep(Tool[GrepParams]):
    """Searches through the FileSystem port; a match is one line, `path:line: text`."""

    name = "grep"
    kind = ToolKind.SEARCH
    mutates = False
    cacheable = True
    params = GrepParams

    def __init__(self, *, max_matches: int, max_line_chars: int) -> None:
        self._max_matches = max_matches
        self._max_line_chars = max_line_chars

    def subjects(self, params: GrepParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.READ),)

    async def run(self, params: GrepParams, context: ToolContext) -> ToolResult:
        query = GrepQuery(params.pattern, params.path, params.case_sensitive, self._max_matches)
        found = await context.files.grep(query)
        if not found.matches:
            return ToolResult(f"No matches for: {params.pattern}")
        base = context.files.resolve(".", Access.READ)
        lines = [self._line(match, base) for match in found.matches]
        if found.more:
            lines.append(f"... and more matches (showing first {len(found.matches)})")
        return ToolResult("\n".join(lines))

    def _line(self, match: GrepMatch, base: str) -> str:
        text = cut(match.text, self._max_line_chars)
        return f"{visible(relative(match.path, base))}:{match.line}: {text}"
