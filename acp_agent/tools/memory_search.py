"""memory_search: notes of earlier sessions.

The user has not seen every note: a rule or "always" lets the model save without asking, and the agent's own calls save
summaries, which say so. Therefore notes are data: the output pipeline fences them like the text of any tool.
"""

from typing import Annotated

from pydantic import Field

from acp_agent.core.clock import utc
from acp_agent.core.errors import StoreUnavailable, ToolError, ToolErrorCategory
from acp_agent.core.ports import ToolContext
from acp_agent.core.services import Remembered
from acp_agent.core.types import Json, Subject, ToolKind, ToolResult
from acp_agent.text import defanged, title
from acp_agent.tools.tool import WHOLE, Params, Text, Tool, quote

_GO_ON = "Go on without notes of earlier sessions."


class MemorySearchParams(Params):
    """Find notes of earlier sessions, the best match first. An empty query returns the newest notes."""

    query: Text
    limit: Annotated[int, Field(ge=1, le=50), WHOLE] = 5


class MemorySearch(Tool[MemorySearchParams]):
    """Reads through the Memories port. It is not cacheable, because other sessions write to the store, too."""

    name = "memory_search"
    kind = ToolKind.OTHER
    mutates = False
    params = MemorySearchParams

    def title(self, params: MemorySearchParams) -> str:
        return title(f"Recall: {params.query}") if params.query.strip() else "Recall the newest notes"

    def subjects(self, params: MemorySearchParams) -> tuple[Subject, ...]:
        """Return no subject: it touches only our own store."""
        del params
        return ()

    async def run(self, params: MemorySearchParams, context: ToolContext) -> ToolResult:
        memories = context.backends.memories
        if memories is None:
            msg = "there are no notes in this session: memory is switched off ([memory] enabled)"
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, msg, _GO_ON)
        try:
            notes = await memories.search(params.query, params.limit)
        except StoreUnavailable as error:
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, str(error), _GO_ON) from error
        if not notes:
            about = f" about {quote(params.query)}" if params.query.strip() else ""
            return ToolResult(f"No notes{about} (searched by {memories.method})")
        ids: list[Json] = [note.id for note in notes]
        return ToolResult("\n".join(map(_shown, notes)), envelope={"ids": ids, "method": memories.method})


def _shown(note: Remembered) -> str:
    """Return a note with its number and day. Further lines are indented, so that none looks like a note."""
    day = utc(note.created_at).date().isoformat()
    return f"[note {note.id}, {day}] " + "\n  ".join(defanged(note.content).splitlines())
