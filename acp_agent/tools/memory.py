"""memory_save and memory_search: notes for later sessions, and what was said in earlier ones.

memory_save asks the user like every tool that changes something, and the question shows the whole note: a note that a
page or file has talked the model into would act in all later sessions. "Always" or a rule `memory_save` `*` `allow`
ends the questions. The agent itself may save summaries of conversations without one. So the user has not seen every
note, and notes are data: the output pipeline fences them like the text of any tool.
"""

from typing import Annotated

from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import StoreUnavailable, ToolError
from acp_agent.core.ports import ToolContext
from acp_agent.core.secrets import placeholders
from acp_agent.core.services import PastMessage, Remembered
from acp_agent.core.types import Json, ToolKind, ToolResult
from acp_agent.core.untrusted import utc
from acp_agent.shape import Field
from acp_agent.text import defanged, title
from acp_agent.tools.tool import WHOLE, Name, Params, SessionTool, Text, quote

_NOT_SAVED = "Go on without it. Tell the user if they asked for it."
_GO_ON = "Go on without notes of earlier sessions."


class MemorySaveParams(Params):
    """Save a note for later sessions: what the user wants in general, or a lasting fact about a project that it names.

    Never save secrets.
    """

    content: Name


class MemorySave(SessionTool[MemorySaveParams]):
    """The tool that writes through the Memories port. It asks because it mutates."""

    name = "memory_save"
    kind = ToolKind.OTHER
    mutates = True

    def title(self, params: MemorySaveParams) -> str:
        return title(f"Remember: {params.content}")

    async def summary(self, params: MemorySaveParams, files: FileSystem) -> str:
        del files
        return f"remember for all later sessions: {params.content}"

    async def run(self, params: MemorySaveParams, context: ToolContext) -> ToolResult:
        memories = context.backends.memories
        if memories is None:
            msg = "nothing is remembered in this session: memory is switched off ([memory] enabled)"
            raise ToolError.permanent(msg, _NOT_SAVED)
        try:
            note, new = await memories.save(params.content)
        except StoreUnavailable as error:
            raise ToolError.permanent(f"not saved: {error}", _NOT_SAVED) from error
        text = f"Saved as note {note.id}" if new else f"Known already as note {note.id}; now counts as new"
        if placeholders(note.content) - placeholders(params.content):
            text += ", without the secrets in it: placeholders stand in their places"
        return ToolResult(text, envelope={"id": note.id, "new": new})


class MemorySearchParams(Params):
    """Find notes of earlier sessions, and what was said in earlier conversations in this folder, the best match first.

    An empty query returns the newest.
    """

    query: Text
    limit: Annotated[int, Field(ge=1, le=50), WHOLE] = 5


class MemorySearch(SessionTool[MemorySearchParams]):
    """The tool that reads through the Memories port. It is not cacheable, because other sessions write there, too."""

    name = "memory_search"
    kind = ToolKind.SEARCH
    mutates = False

    def title(self, params: MemorySearchParams) -> str:
        return title(f"Recall: {params.query}") if params.query.strip() else "Recall the newest notes"

    async def run(self, params: MemorySearchParams, context: ToolContext) -> ToolResult:
        memories = context.backends.memories
        if memories is None:
            msg = "there are no notes in this session: memory is switched off ([memory] enabled)"
            raise ToolError.permanent(msg, _GO_ON)
        try:
            notes = await memories.search(params.query, params.limit)
            past = context.backends.past
            messages = () if past is None else await past.search(params.query, params.limit)
        except StoreUnavailable as error:
            raise ToolError.permanent(str(error), _GO_ON) from error
        if not (notes or messages):
            about = f" about {quote(params.query)}" if params.query.strip() else ""
            return ToolResult(f"No notes{about}, nothing in earlier conversations (searched by {memories.method})")
        ids: list[Json] = [note.id for note in notes]
        lines = [*map(_shown, notes), *map(_said, messages)]
        return ToolResult("\n".join(lines), envelope={"ids": ids, "method": memories.method})


def _shown(note: Remembered) -> str:
    """Return a note with its number and day. Further lines are indented, so that none looks like a note."""
    day = utc(note.created_at).date().isoformat()
    return f"[note {note.id}, {day}] " + "\n  ".join(defanged(note.content).splitlines())


def _said(message: PastMessage) -> str:
    """Return a message of an earlier conversation with its day, its session and who wrote it."""
    day, who = utc(message.at // 1000).date().isoformat(), "user" if message.by_user else "agent"
    named = f" {quote(message.title)}" if message.title else ""
    return f"[{who}, {day}, session {message.session[:8]}{named}] {defanged(message.text)}"
