"""What is kept of a session that begins, while the store may not take it yet."""

from collections.abc import AsyncGenerator
from contextlib import suppress

from acp_agent.core.conduct import Conduct
from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.sessions import Change, SessionRecord, SessionSnapshot, StoredEvent
from acp_agent.log import Log
from acp_agent.protocol.jsonrpc import RpcError
from acp_agent.protocol.session import Session
from acp_agent.protocol.session_hold import SessionHold
from acp_agent.store.sessions import SessionStore

_log = Log(__name__)
_PATIENCE = 1.0
"""Seconds `session/new` waits for a database that is busy; then the session is written with its first turn."""


class DeferredRepository:
    """A repository that stores its session at once if possible, or else with the first change that can be written."""

    def __init__(self, store: SessionStore, record: SessionRecord, conduct: Conduct) -> None:
        self._store = store
        self._record = record
        self._repository = store.of(record.id)
        self._conduct = conduct.to_keep(Conduct())
        self._made = False

    async def make(self, *, patience: float | None = None) -> None:
        """Make the row, once. Raises StoreUnavailable."""
        if not self._made:
            await self._store.create(self._record, self._conduct, patience=patience)
            self._made = True
            await self._repository.write(Change(), durable=False, patience=patience)  # it knows its row from now on

    async def begin(self, *, patience: float) -> bool:
        """Make the row if that can be done within so many seconds; whether it was."""
        try:
            await self.make(patience=patience)
        except StoreUnavailable as error:
            _log.warning("session not written yet", session=self._record.id, reason=str(error))
            return False
        return True

    async def write(self, change: Change, *, durable: bool = True, patience: float | None = None) -> None:
        """As the port says."""
        await self.make(patience=patience)
        await self._repository.write(change, durable=durable, patience=patience)

    async def snapshot(self) -> SessionSnapshot | None:
        """As the port says."""
        return await self._repository.snapshot()

    def events(self, after: int = 0) -> AsyncGenerator[StoredEvent]:
        """As the port says; nothing before the row is made."""
        return self._repository.events(after) if self._made else _nothing()

    async def clear(self) -> None:
        """As the port says."""
        await self.make()
        await self._repository.clear()


async def _nothing() -> AsyncGenerator[StoredEvent]:
    for told in ():
        yield told


async def begin_to_keep(session: Session, repository: DeferredRepository, hold: SessionHold) -> None:
    """Write the first row. A database that cannot be written now is written as soon as it can be."""
    session.story.keep_with(repository)
    written = False
    with suppress(RpcError):  # nothing can be locked; the log has it
        async with hold.taken(session.id):
            written = await repository.begin(patience=_PATIENCE)
    if not written:
        session.story.keep(Change(touch=True))
