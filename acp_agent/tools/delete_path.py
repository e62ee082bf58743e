"""delete_path: a file, a link or a folder (requirements T1, T4.3, T4.19)."""

from typing import assert_never

from pydantic import Field

from acp_agent.core.backends import EntryKind
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import Access, PathSubject, Subject, ToolKind, ToolResult
from acp_agent.tools.params import Name, Params
from acp_agent.tools.tool import Tool
from acp_agent.tools.visible import visible


class DeletePathParams(Params):
    """Delete a file, a link (not what it leads to) or an empty folder. This cannot be undone."""

    path: Name
    recursive: bool = Field(default=False, description="Delete a folder with all that is in it")


class DeletePath(Tool[DeletePathParams]):
    """Deletes through the FileSystem port."""

    name = "delete_path"
    mutates = True
    params = DeletePathParams

    def __init__(self, *, kind: ToolKind = ToolKind.OTHER) -> None:
        self.kind = kind

    def subjects(self, params: DeletePathParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.DELETE),)

    async def run(self, params: DeletePathParams, context: ToolContext) -> ToolResult:
        deleted = await context.files.delete(params.path, recursive=params.recursive)
        count = f" ({deleted.below} {'entry' if deleted.below == 1 else 'entries'})"
        inside = count if deleted.kind is EntryKind.DIRECTORY else ""
        return ToolResult(f"Deleted {_word(deleted.kind)}: {visible(params.path)}{inside}")


def _word(kind: EntryKind) -> str:
    match kind:
        case EntryKind.DIRECTORY:
            return "directory"
        case EntryKind.FILE:
            return "file"
        case EntryKind.SYMLINK:
            return "link"
        case EntryKind.OTHER:
            return "special file"
        case _:
            assert_never(kind)
