"""create_directory: create a folder and the missing folders above it."""

from dataclasses import replace

from acp_agent.core.backends import EntryKind, FileSystem
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.ports import Invocation, ToolContext
from acp_agent.core.types import Access, JsonObject, PathSubject, Subject, ToolCall, ToolKind, ToolResult
from acp_agent.text import visible
from acp_agent.tools.change import named
from acp_agent.tools.tool import Name, Params, Tool


class CreateDirectoryParams(Params):
    """Create a folder, and the folders above it that are missing."""

    path: Name


class CreateDirectory(Tool[CreateDirectoryParams]):
    """Creates folders through the FileSystem port. A folder that already exists is not an error."""

    name = "create_directory"
    mutates = True
    params = CreateDirectoryParams

    def __init__(self, *, kind: ToolKind = ToolKind.OTHER) -> None:
        self.kind = kind

    def subjects(self, params: CreateDirectoryParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.WRITE),)

    async def understand(self, call: ToolCall, arguments: JsonObject, files: FileSystem) -> Invocation:
        """Return the invocation. The user is not asked about a folder that already exists, because nothing changes."""
        invocation = await super().understand(call, arguments, files)
        path = self.parse(arguments).path
        if invocation.predicted_failure is None and await _kind(files, path) is EntryKind.DIRECTORY:
            return replace(invocation, predicted_failure=_result(path, made=False))
        return invocation

    async def summary(self, params: CreateDirectoryParams, files: FileSystem) -> str:
        files.resolve(params.path, Access.WRITE)
        if await _kind(files, params.path) not in (None, EntryKind.DIRECTORY):
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"{params.path}: exists and is not a directory")
        return f"creates the folder {named(params.path)}"

    async def run(self, params: CreateDirectoryParams, context: ToolContext) -> ToolResult:
        return _result(params.path, made=await context.files.make_directory(params.path))


async def _kind(files: FileSystem, path: str) -> EntryKind | None:
    """Return what is at the path. None if there is nothing, or if it may not be looked at."""
    try:
        return await files.kind(path)
    except (ToolError, Refused):
        return None


def _result(path: str, *, made: bool) -> ToolResult:
    return ToolResult(f"{'Created directory' if made else 'Directory already exists'}: {visible(path)}")
