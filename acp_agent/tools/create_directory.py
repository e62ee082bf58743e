"""create_directory: a folder and those above it (requirements T1, A23.8)."""

from acp_agent.core.ports import ToolContext
from acp_agent.core.types import Access, PathSubject, Subject, ToolKind, ToolResult
from acp_agent.tools.params import Name, Params
from acp_agent.tools.tool import Tool
from acp_agent.tools.visible import visible


class CreateDirectoryParams(Params):
    """Create a folder, and the folders above it that are missing."""

    path: Name


class CreateDirectory(Tool[CreateDirectoryParams]):
    """Makes folders through the FileSystem port. One that is there already is no error."""

    name = "create_directory"
    mutates = True
    params = CreateDirectoryParams

    def __init__(self, *, kind: ToolKind = ToolKind.OTHER) -> None:
        self.kind = kind

    def subjects(self, params: CreateDirectoryParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.WRITE),)

    async def run(self, params: CreateDirectoryParams, context: ToolContext) -> ToolResult:
        made = await context.files.make_directory(params.path)
        return ToolResult(f"{'Created directory' if made else 'Directory already exists'}: {visible(params.path)}")
