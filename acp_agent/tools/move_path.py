"""move_path: move or rename a file or folder."""

from pydantic import Field

from acp_agent.core.backends import FileSystem
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import Access, PathSubject, Subject, ToolKind, ToolResult
from acp_agent.text import title, visible
from acp_agent.tools.change import destination_path, entry_kind, named, refuse_taken
from acp_agent.tools.tool import Name, Params, Tool


class MovePathParams(Params):
    """Move or rename a file or folder, creating folders as needed. Nothing is ever replaced."""

    source: Name
    destination: Name = Field(description='The whole new path; with "/" at its end, the folder to put it in')

    @property
    def target(self) -> str:
        """The whole path of the destination."""
        return destination_path(self.source, self.destination)


class MovePath(Tool[MovePathParams]):
    """Moves through the FileSystem port. A link itself is moved."""

    name = "move_path"
    mutates = True
    params = MovePathParams

    def __init__(self, *, kind: ToolKind = ToolKind.OTHER) -> None:
        self.kind = kind

    def title(self, params: MovePathParams) -> str:
        """Return both paths, each cut by itself, so that a long source cannot hide the destination."""
        return f"{title(params.source)} -> {title(params.target)}"

    def subjects(self, params: MovePathParams) -> tuple[Subject, ...]:
        return (PathSubject(params.source, Access.MOVE), PathSubject(params.target, Access.WRITE))

    async def summary(self, params: MovePathParams, files: FileSystem) -> str:
        kind = await entry_kind(files, params.source, Access.MOVE)
        await refuse_taken(files, params.source, kind, params.target, Access.MOVE)
        return f"moves {named(params.source)} to {named(params.target)}"

    async def run(self, params: MovePathParams, context: ToolContext) -> ToolResult:
        await context.files.move(params.source, params.target)
        return ToolResult(f"Moved {visible(params.source)} to {visible(params.target)}")
