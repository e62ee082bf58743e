"""The plan of a conversation, as the user sees it (requirements A18.5).

The model says what is in it (`update_plan`); what the loop knows is when it no longer means anything: when the
conversation begins anew. The end of a turn and a cancel leave it as it is, since the next turn may go on with it.
"""

from dataclasses import replace

from acp_agent.core.events import EventSink, PlanChanged
from acp_agent.core.plan import PlanEntry
from acp_agent.core.redaction import Redact, verbatim


class ShownPlan:
    """One for each conversation.

    redact    takes secrets out of it
    entries   what the user saw last, also before the agent was started again
    """

    def __init__(self, emit: EventSink, redact: Redact = verbatim, entries: tuple[PlanEntry, ...] = ()) -> None:
        self._emit = emit
        self._redact = redact
        self._entries = entries

    async def show(self, entries: tuple[PlanEntry, ...]) -> None:
        """Show a plan in the place of the one before; nothing where they are the same. For `Backends.show_plan`."""
        shown = tuple(replace(entry, content=self._redact(entry.content)) for entry in entries)
        if shown != self._entries:
            self._entries = shown
            await self._emit(PlanChanged(shown))

    async def clear(self) -> None:
        """The conversation begins anew: its plan goes."""
        await self.show(())
