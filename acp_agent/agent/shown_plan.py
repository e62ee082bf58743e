"""The plan of a conversation as the user sees it.

The model writes it with `update_plan`. The loop clears it when a new conversation begins. It stays when a turn ends or
is cancelled, since the next turn may continue it.
"""

from dataclasses import replace

from acp_agent.core.events import EventSink, PlanChanged, PlanEntry
from acp_agent.core.redaction import Redact, verbatim


class ShownPlan:
    """The plan of one conversation.

    redact    removes secrets from it
    entries   what the user saw last, also before a restart of the agent
    """

    def __init__(self, emit: EventSink, redact: Redact = verbatim, entries: tuple[PlanEntry, ...] = ()) -> None:
        self._emit = emit
        self._redact = redact
        self._entries = entries

    async def show(self, entries: tuple[PlanEntry, ...]) -> None:
        """Show a plan in place of the previous one, unless they are equal."""
        shown = tuple(replace(entry, content=self._redact(entry.content)) for entry in entries)
        if shown != self._entries:
            self._entries = shown
            await self._emit(PlanChanged(shown))

    async def clear(self) -> None:
        """Remove the plan, because a new conversation begins."""
        await self.show(())
