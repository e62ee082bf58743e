"""memory_save: a note for later sessions.

It asks the user like every tool that changes something, and the question shows the whole note: a note that a page or
file has talked the model into would act in all later sessions. "Always" or a rule `memory_save` `*` `allow` ends the
questions.
"""

from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import StoreUnavailable, ToolError, ToolErrorCategory
from acp_agent.core.ports import ToolContext
from acp_agent.core.secrets import placeholders
from acp_agent.core.types import Subject, ToolKind, ToolResult
from acp_agent.text import title
from acp_agent.tools.tool import Name, Params, Tool

_NOT_SAVED = "Go on without it. Tell the user if they asked for it."


class MemorySaveParams(Params):
    """Save a note for later sessions: what the user wants in general, or a lasting fact about a project that it names.

    Never save secrets.
    """

    content: Name


class MemorySave(Tool[MemorySaveParams]):
    """Writes through the Memories port."""

    name = "memory_save"
    kind = ToolKind.OTHER
    mutates = True
    params = MemorySaveParams

    def title(self, params: MemorySaveParams) -> str:
        return title(f"Remember: {params.content}")

    def subjects(self, params: MemorySaveParams) -> tuple[Subject, ...]:
        """Return no subject, because it touches only our own store. It asks because it mutates."""
        del params
        return ()

    async def summary(self, params: MemorySaveParams, files: FileSystem) -> str:
        del files
        return f"remember for all later sessions: {params.content}"

    async def run(self, params: MemorySaveParams, context: ToolContext) -> ToolResult:
        memories = context.backends.memories
        if memories is None:
            msg = "nothing is remembered in this session: memory is switched off ([memory] enabled)"
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, msg, _NOT_SAVED)
        try:
            note, new = await memories.save(params.content)
        except StoreUnavailable as error:
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"not saved: {error}", _NOT_SAVED) from error
        text = f"Saved as note {note.id}" if new else f"Known already as note {note.id}; now counts as new"
        if placeholders(note.content) - placeholders(params.content):
            text += ", without the secrets in it: placeholders stand in their places"
        return ToolResult(text, envelope={"id": note.id, "new": new})
