"""copy_path: copy a file or a folder."""

from pydantic import Field

from acp_agent.core.backends import Copied, EntryKind, FileSystem
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import Access, Location, PathSubject, Subject, ToolKind, ToolResult
from acp_agent.text import title, visible
from acp_agent.tools.change import destination_path, named, refuse_taken, source_kind
from acp_agent.tools.tool import Name, Params, Tool


class CopyPathParams(Params):
    """Copy a file or a whole folder, creating folders as needed. Nothing is ever replaced; links are left out."""

    source: Name
    destination: Name = Field(description='The whole new path; with "/" at its end, the folder to put it in')

    @property
    def target(self) -> str:
        """The whole path of the copy."""
        return destination_path(self.source, self.destination)


class CopyPath(Tool[CopyPathParams]):
    """Copies through the FileSystem port."""

    name = "copy_path"
    mutates = True
    params = CopyPathParams

    def __init__(self, *, kind: ToolKind = ToolKind.OTHER) -> None:
        self.kind = kind

    def title(self, params: CopyPathParams) -> str:
        """Return both paths, each cut by itself, so that a long source cannot hide the destination."""
        return f"{title(params.source)} -> {title(params.target)}"

    def subjects(self, params: CopyPathParams) -> tuple[Subject, ...]:
        # Whether the source may be read is asked of each file that is copied.
        return (PathSubject(params.source, Access.LIST), PathSubject(params.target, Access.WRITE))

    async def summary(self, params: CopyPathParams, files: FileSystem) -> str:
        kind = await source_kind(files, params.source)
        await refuse_taken(files, params.source, kind, params.target, Access.LIST)
        return f"copies {named(params.source)} to {named(params.target)}"

    async def run(self, params: CopyPathParams, context: ToolContext) -> ToolResult:
        copied = await context.files.copy(params.source, params.target)
        text = f"Copied {visible(params.source)} to {visible(params.target)}"
        if copied.kind is EntryKind.DIRECTORY:
            return ToolResult(f"{text} ({_what(copied)})")
        return ToolResult(text, locations=(Location(context.files.resolve(params.target, Access.WRITE)),))


def _what(copied: Copied) -> str:
    files = f"{copied.files} {'file' if copied.files == 1 else 'files'}"
    if not copied.left_out:
        return files
    entries = "entry" if copied.left_out == 1 else "entries"
    return f"{files}; {copied.left_out} {entries} left out: links, special or unreadable files"
