"""A store of one session that a test can make slow or unusable."""

from collections.abc import AsyncIterator

import anyio

from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.events import TranscriptEvent
from acp_agent.core.sessions import Change, SessionSnapshot, StoredEvent


class FakeRepository:
    """Keeps changes in memory. `broken` refuses them; `held` lets them wait for it; `wrote` is set by the first."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.durable: list[bool] = []
        self.broken = False
        self.patience: list[float | None] = []
        self.tries = 0
        self.held: anyio.Event | None = None
        self.waiting = anyio.Event()
        self.wrote = anyio.Event()

    @property
    def kept(self) -> list[TranscriptEvent]:
        """All events that were stored, in order."""
        return [event for change in self.changes for event in change.events]

    async def write(self, change: Change, *, durable: bool = True, patience: float | None = None) -> None:
        self.patience.append(patience)
        self.tries += 1
        if self.held is not None:
            self.waiting.set()
            await self.held.wait()
        if self.broken:
            raise StoreUnavailable("the disk is gone")
        self.changes.append(change)
        self.wrote.set()
        self.durable.append(durable)

    async def snapshot(self) -> SessionSnapshot | None:
        return None

    async def events(self) -> AsyncIterator[StoredEvent]:
        for seq, event in enumerate(self.kept):
            yield StoredEvent(seq, seq, event)
