"""edit: replace one exact string in a file (requirements T4.13, T4.14, A23)."""

from dataclasses import replace
from functools import partial

import anyio.to_thread
from pydantic import Field

from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import Access, Diff, PathSubject, Subject, ToolKind, ToolResult
from acp_agent.tools.change import change, commit, shown_text
from acp_agent.tools.nearest import NoMatch
from acp_agent.tools.params import Name, Params, Text
from acp_agent.tools.replacement import replace_exactly
from acp_agent.tools.tool import Tool, changed


class EditParams(Params):
    """Replace old_string with new_string in a file. old_string must occur exactly once.

    Copy it from read without the line numbers, with enough lines around it to be unique.
    """

    path: Name
    old_string: Name
    new_string: Text
    replace_all: bool = Field(default=False, description="Replace every occurrence")


class Edit(Tool[EditParams]):
    """Exact or refused: what the model named is replaced, and every other byte stays."""

    name = "edit"
    kind = ToolKind.EDIT
    mutates = True
    params = EditParams

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes

    def subjects(self, params: EditParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.READ), PathSubject(params.path, Access.WRITE))

    async def preview(self, params: EditParams, files: FileSystem) -> tuple[Diff, ...]:
        made, _ = await self._change(params, files, await files.read_text(params.path))
        return (made,)

    async def run(self, params: EditParams, context: ToolContext) -> ToolResult:
        old = shown_text(context)
        if old is None:
            old = await context.files.read_text(params.path)
        try:
            made, count = await self._change(params, context.files, old)
        except NoMatch as miss:
            return self.failed(miss)
        await commit(made, params.path, context)
        locations = changed((made,))
        where = f"{params.path} at line {locations[0].line}"
        text = f"Edited {where}" if count == 1 else f"Edited {where}: {count} replacements"
        return ToolResult(text, diffs=(made,), locations=locations)

    def failed(self, error: ToolError | Refused) -> ToolResult:
        return _missed(error) if isinstance(error, NoMatch) else super().failed(error)

    async def _change(self, params: EditParams, files: FileSystem, old: str) -> tuple[Diff, int]:
        """The change and how many places it touches."""
        replacing = partial(replace_exactly, old, params.old_string, params.new_string, every=params.replace_all)
        new, count = await anyio.to_thread.run_sync(replacing)  # a big file with a near miss takes its time
        return change(files, params.path, old, new, self._max_bytes), count


def _missed(miss: NoMatch) -> ToolResult:
    """The error block of L6.1, and under it what the file has instead."""
    failed = ToolResult.failed(miss.failure)
    if not miss.nearest:
        return failed
    return replace(failed, text=f"{failed.text}\n{miss.nearest}", display=f"{failed.shown}\n{miss.nearest}")
