"""write: create a file or replace all of it."""

from acp_agent.core.backends import FileSystem
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import Access, Diff, PathSubject, Subject, ToolKind, ToolResult
from acp_agent.tools.change import change, commit, previous_text, shown_text
from acp_agent.tools.tool import Name, Params, Text, Tool, changed


class WriteParams(Params):
    """Create a file or replace all of it, creating folders as needed. To change a part, use edit."""

    path: Name
    content: Text


class Write(Tool[WriteParams]):
    """Writes through the FileSystem port. A file that uses CRLF keeps it."""

    name = "write"
    kind = ToolKind.EDIT
    mutates = True
    params = WriteParams

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes

    def subjects(self, params: WriteParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.WRITE),)

    async def preview(self, params: WriteParams, files: FileSystem) -> tuple[Diff, ...]:
        return (self._change(params, files, await previous_text(files, params.path)),)

    async def run(self, params: WriteParams, context: ToolContext) -> ToolResult:
        old = shown_text(context)
        if old is None:
            old = await previous_text(context.files, params.path)
        made = self._change(params, context.files, old)
        await commit(made, params.path, context)
        text = f"Wrote {len(made.new_text.encode())} bytes to {params.path}"
        return ToolResult(text, diffs=(made,), locations=changed((made,)))

    def _change(self, params: WriteParams, files: FileSystem, old: str | None) -> Diff:
        new = params.content
        if old is not None and _all_crlf(old) and "\r" not in new:
            new = new.replace("\n", "\r\n")
        return change(files, params.path, old, new, self._max_bytes)


def _all_crlf(text: str) -> bool:
    return 0 < text.count("\n") == text.count("\r\n")
