"""copy_path: a second file or folder like the first (requirements T1, T4.3, T4.20)."""

from pydantic import Field

from acp_agent.core.backends import Copied, EntryKind
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import Access, Location, PathSubject, Subject, ToolKind, ToolResult
from acp_agent.tools.params import Name, Params
from acp_agent.tools.tool import Tool
from acp_agent.tools.visible import title, visible


class CopyPathParams(Params):
    """Copy a file or a whole folder, creating folders as needed. Nothing is ever replaced; links are left out."""

    source: Name
    destination: Name = Field(description="The whole path of the copy, not the folder to put it in")


class CopyPath(Tool[CopyPathParams]):
    """Copies through the FileSystem port."""

    name = "copy_path"
    mutates = True
    params = CopyPathParams

    def __init__(self, *, kind: ToolKind = ToolKind.OTHER) -> None:
        self.kind = kind

    def title(self, params: CopyPathParams) -> str:
        """Both paths, each cut for itself: a long source cannot hide the destination."""
        return f"{title(params.source)} -> {title(params.destination)}"

    def subjects(self, params: CopyPathParams) -> tuple[Subject, ...]:
        # Whether the source may be read is asked of each file that is copied.
        return (PathSubject(params.source, Access.LIST), PathSubject(params.destination, Access.WRITE))

    async def run(self, params: CopyPathParams, context: ToolContext) -> ToolResult:
        copied = await context.files.copy(params.source, params.destination)
        text = f"Copied {visible(params.source)} to {visible(params.destination)}"
        if copied.kind is EntryKind.DIRECTORY:
            return ToolResult(f"{text} ({_what(copied)})")
        return ToolResult(text, locations=(Location(context.files.resolve(params.destination, Access.WRITE)),))


def _what(copied: Copied) -> str:
    files = f"{copied.files} {'file' if copied.files == 1 else 'files'}"
    if not copied.left_out:
        return files
    entries = "entry" if copied.left_out == 1 else "entries"
    return f"{files}; {copied.left_out} {entries} left out: links, special or unreadable files"
