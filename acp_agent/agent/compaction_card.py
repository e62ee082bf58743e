"""A compaction as the user sees it: begun, then ended one way, whatever happens (ACP `compaction_update`)."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from uuid import uuid4

import anyio

from acp_agent.core.errors import AgentError
from acp_agent.core.events import CompactionChanged, CompactionStatus, EventSink

_TELLING = 2.0  # seconds an editor that is far behind may keep a cancelled turn


class CompactionCard:
    """Tells how one compaction stands. Nothing is told of one that never began."""

    def __init__(self, emit: EventSink) -> None:
        self._emit = emit
        self._id = str(uuid4())
        self._open = False

    async def begun(self) -> None:
        """A model is asked for the summary now."""
        self._open = True
        await self._emit(CompactionChanged(self._id, CompactionStatus.IN_PROGRESS))

    async def completed(self, summary: str) -> None:
        """The summary stands in the place of what it is about."""
        await self.end(CompactionStatus.COMPLETED, summary=summary)

    async def end(self, status: CompactionStatus, *, summary: str = "", error: str = "") -> None:
        """The end, unless there was one; told also when the turn is being cancelled."""
        if self._open:
            self._open = False
            with anyio.move_on_after(_TELLING, shield=True):
                await self._emit(CompactionChanged(self._id, status, summary, error))


@asynccontextmanager
async def compaction_card(emit: EventSink) -> AsyncGenerator[CompactionCard]:
    """A card that is ended when the block is left: failed by an AgentError, cancelled by all else."""
    card = CompactionCard(emit)
    try:
        yield card
    except AgentError as error:
        await card.end(CompactionStatus.FAILED, error=str(error))
        raise
    finally:
        await card.end(CompactionStatus.CANCELLED)
