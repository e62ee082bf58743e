"""delete_path: delete a file, a link or a folder."""

from typing import assert_never

from pydantic import Field

from acp_agent.core.backends import EntryKind, FileSystem
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import Access, PathSubject, Subject, ToolKind, ToolResult
from acp_agent.text import visible
from acp_agent.tools.change import contents, entry_kind, named
from acp_agent.tools.tool import Name, Params, Tool


class DeletePathParams(Params):
    """Delete a file, a link (not what it leads to) or an empty folder. This cannot be undone."""

    path: Name
    recursive: bool = Field(default=False, description="Delete a folder with everything in it")


class DeletePath(Tool[DeletePathParams]):
    """Deletes through the FileSystem port."""

    name = "delete_path"
    mutates = True
    params = DeletePathParams

    def __init__(self, *, kind: ToolKind = ToolKind.OTHER) -> None:
        self.kind = kind

    def subjects(self, params: DeletePathParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.DELETE),)

    async def summary(self, params: DeletePathParams, files: FileSystem) -> str:
        path = named(params.path)
        kind = await entry_kind(files, params.path, Access.DELETE)
        if kind is EntryKind.SYMLINK:
            return f"deletes the link {path}, not what it leads to"
        if kind is EntryKind.DIRECTORY and params.recursive:
            return f"deletes {path} and everything in it ({await contents(files, params.path)})"
        if kind is EntryKind.DIRECTORY:
            await _refuse_filled(files, params.path)
            return f"deletes the empty folder {path}"
        return f"deletes {path}{' and everything in it' if kind is None and params.recursive else ''}"

    async def run(self, params: DeletePathParams, context: ToolContext) -> ToolResult:
        deleted = await context.files.delete(params.path, recursive=params.recursive)
        count = f" ({deleted.below} {'entry' if deleted.below == 1 else 'entries'})"
        inside = count if deleted.kind is EntryKind.DIRECTORY else ""
        return ToolResult(f"Deleted {_word(deleted.kind)}: {visible(params.path)}{inside}")


async def _refuse_filled(files: FileSystem, path: str) -> None:
    try:
        entries = await files.list_directory(path)
    except (ToolError, Refused):  # an empty folder may be deleted even if it may not be listed
        return
    if entries:
        msg = f"{path}: the directory is not empty"
        raise ToolError(
            ToolErrorCategory.PERMANENT_FAILURE, msg, "Set recursive=true to delete it with everything in it."
        )


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
