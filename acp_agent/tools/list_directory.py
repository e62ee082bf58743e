"""list_directory: the names in a folder."""

from acp_agent.core.backends import EntryKind
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import Access, PathSubject, Subject, ToolKind, ToolResult
from acp_agent.text import visible
from acp_agent.tools.tool import Name, Params, Tool

_ORDER = (EntryKind.DIRECTORY, EntryKind.FILE, EntryKind.SYMLINK, EntryKind.OTHER)


class ListDirectoryParams(Params):
    """List a folder: one entry a line, marked [dir], [file] or [symlink]."""

    path: Name = "."


class ListDirectory(Tool[ListDirectoryParams]):
    """Lists without following links: a link is shown as a link, wherever it leads.

    max_entries   the number of entries that are shown. Of a longer list the first ones are, with the number of the
                  others
    """

    name = "list_directory"
    mutates = False
    cacheable = True
    params = ListDirectoryParams

    def __init__(self, *, max_entries: int = 1000, kind: ToolKind = ToolKind.OTHER) -> None:
        self._max_entries = max_entries
        self.kind = kind

    def subjects(self, params: ListDirectoryParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.LIST),)

    async def run(self, params: ListDirectoryParams, context: ToolContext) -> ToolResult:
        entries = await context.files.list_directory(params.path)
        if not entries:
            return ToolResult(f"Empty directory: {visible(params.path)}")
        ordered = sorted(entries, key=lambda entry: (_ORDER.index(entry.kind), entry.name))
        lines = [f"[{entry.kind}] {visible(entry.name)}" for entry in ordered[: self._max_entries]]
        if len(ordered) > len(lines):
            lines.append(f"... and {len(ordered) - len(lines)} more (showing first {len(lines)})")
        return ToolResult("\n".join(lines))
