"""The sessions of one process: opened, found, put to rest, closed (A5-A11).

Every session is in the store from the moment it is made: clients open them long before the first prompt, and take them
up from other processes. Whoever may write one holds its lock; two processes never write one session at once.

    known      it has a place here and answers; light
    awake      it holds the lock and may have an engine; at most `max_sessions` are (session_room.py)

What happens to one session happens one after another: a load waits until the loop of before is gone (A10.7).
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

import anyio

from acp_agent.core.conduct import Conduct
from acp_agent.core.errors import AgentError, StoreUnavailable
from acp_agent.core.sessions import Change, SessionRecord, SessionSnapshot, StoredEvent
from acp_agent.log import Log
from acp_agent.protocol.client import Client
from acp_agent.protocol.jsonrpc import INTERNAL_ERROR, RpcError, invalid_request, session_not_found
from acp_agent.session.locks import OneAtATime, SessionHold, TakeUps, asked
from acp_agent.session.pool import SessionLimits, SessionRest, SessionRoom, must_be_idle
from acp_agent.session.session import Place, Session
from acp_agent.store.session_locks import SessionLocks
from acp_agent.store.sessions import SessionStore


@dataclass(frozen=True, slots=True)
class Opening:
    """What a session is made of; `saved` is None for one that begins."""

    record: SessionRecord
    place: Place
    client: Client
    saved: SessionSnapshot | None = None


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


_MOST_KNOWN = 1000
"""Sessions that stay known while they rest; those beyond are forgotten here, and can be loaded."""
_NOT_KEPT = "the session is open, but it is not kept: only what is kept can be forked"


class Sessions:
    """All of them.

    take_ups       who waits for one that is being taken up
    store, locks   where they are kept; None where nothing can be kept at all, for the reason `trouble` names
    open_session   makes one
    limits         by the configuration
    clock          milliseconds since 1970
    """

    def __init__(
        self,
        store: SessionStore | None,
        locks: SessionLocks | None,
        open_session: Callable[[Opening], Session],
        limits: Callable[[], SessionLimits],
        clock: Callable[[], int],
        trouble: str = "",
    ) -> None:
        self.store = store
        self._hold = SessionHold(locks)
        self._open_session = open_session
        self.limits = limits
        self._clock = clock
        self._trouble = trouble
        self._known: dict[str, Session] = {}
        self._acts = OneAtATime()
        self.take_ups = TakeUps()
        self._rest = SessionRest(self._known, store, self._hold)
        self._room = SessionRoom(self._known, limits, self._rest.lay_down, self._acts)

    # -------------------------------------------------------------------------------------- opening

    async def new(self, place: Place, client: Client) -> Session:
        """A session that begins. Raises RpcError when all there may be are busy."""
        now = self._clock()
        record = SessionRecord(str(uuid4()), place.cwd, place.additional, created_at=now, updated_at=now)
        async with self._acts.of(record.id), self._room.made():
            session = self._open_session(Opening(record, place, client))
            if self.store is None:
                session.notices.warn(f"this conversation is not kept: {self._trouble}")
            else:
                await begin_to_keep(session, DeferredRepository(self.store, record, session.conduct), self._hold)
            self._take(session)
        return session

    @asynccontextmanager
    async def take_up(self, session_id: str, place: Place, client: Client) -> AsyncGenerator[Session]:
        """A session that goes on, in the place it is given now (A6.6). Its prompts wait until the body is left.

        Raises RpcError: unknown, a prompt runs in it, another process has it, all there may be are busy.
        """
        if self.store is not None and session_id not in self._acts:
            must_be_idle(self._known.get(session_id))  # a prompt that comes right behind has to wait
        with self.take_ups.begun(session_id) as is_known:
            async with self._acts.of(session_id):
                if self.store is None:
                    is_known()
                    yield self.get(session_id)  # what is in memory is all there is (A5.11)
                    return
                async with self._taken_up(session_id, place, client) as session:
                    is_known()
                    yield session

    @asynccontextmanager
    async def _taken_up(self, session_id: str, place: Place, client: Client) -> AsyncGenerator[Session]:
        """Within what happens to the session."""
        assert self.store is not None
        before = self._known.get(session_id)
        must_be_idle(before)
        is_kept = await self._rest.is_kept(session_id)
        async with self._room.made(session_id, instead_of=before):
            if before is not None and not is_kept:
                session = await self._rest.move(before, place, client)
            else:
                if before is not None:
                    await self._rest.make_way(before)
                session = await self._opened(session_id, place, client)
                session.awake = False
            session.story.keep(Change(cwd=place.cwd, additional=place.additional))
            try:
                yield session
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await self._rest.lay_down(session)  # nobody knows whether anyone wants it still
                raise
            session.woke()

    async def fork(self, source_id: str, place: Place, client: Client) -> Session:
        """A new session with all of another's conversation, which stays as it is (A8). Raises RpcError as `take_up`."""
        async with self._acts.of(source_id):
            source = self._known.get(source_id)
            if source is not None:
                await source.story.settle()
            saved = None if self.store is None else await asked(self.store.of(source_id).snapshot())
            if self.store is None or saved is None:
                raise session_not_found(source_id) if source is None else invalid_request(_NOT_KEPT)
            now = self._clock()
            record = replace(saved.record, id=str(uuid4()), created_at=now, updated_at=now)
            made = replace(record, cwd=place.cwd, additional=place.additional)
            async with self._room.made(source_id):
                try:
                    await asked(self.store.fork(source_id, made, saved.conduct))
                    return await self._opened(made.id, place, client)
                except BaseException:
                    with anyio.CancelScope(shield=True), suppress(StoreUnavailable):
                        await self.store.delete(made.id)
                    raise

    async def _opened(self, session_id: str, place: Place, client: Client) -> Session:
        """What is kept of a session, as a session. Raises RpcError."""
        assert self.store is not None
        async with self._hold.taken(session_id):
            repository = self.store.of(session_id)
            saved = await asked(repository.snapshot())
            if saved is None:  # deleted meanwhile
                raise session_not_found(session_id)
            record = replace(saved.record, cwd=place.cwd, additional=place.additional)
            session = self._open_session(Opening(record, place, client, saved))
            session.story.keep_with(repository)
            try:
                if saved.unfinished_messages:
                    with suppress(AgentError):  # the first prompt meets the same and tells
                        await session.engine()  # it mends what was told, before that is told again
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await session.close(tell=False)  # before anybody else can have it
                raise
            self._take(session)
            return session

    # -------------------------------------------------------------------------------------- finding

    def get(self, session_id: str) -> Session:
        """One that is known here. Raises RpcError."""
        session = self._known.get(session_id)
        if session is None:
            raise session_not_found(session_id)
        return session

    def find(self, session_id: str) -> Session | None:
        """One that is known here, or None."""
        return self._known.get(session_id)

    def all(self) -> tuple[Session, ...]:
        """All that are known here."""
        return tuple(self._known.values())

    # ------------------------------------------------------------------------------------- ending

    async def close(self, session_id: str) -> None:
        """End one; it can be loaded again. Raises RpcError for one that is not known here (A10.5)."""
        self._abandon(session_id)
        async with self._acts.of(session_id):  # it may be about to become known
            session = self.get(session_id)
            del self._known[session_id]
            try:
                await session.close()
            finally:
                self._hold.give_back(session_id)

    async def delete(self, session_id: str) -> bool:
        """End one and remove all that is kept of it; whether there was any. Raises RpcError (A10.6)."""
        self._abandon(session_id)
        async with self._acts.of(session_id):
            session = self._known.get(session_id)
            if session is None and (self.store is None or await asked(self.store.find(session_id)) is None):
                return False
            await self._hold.take(session_id)  # one that rests here may be open elsewhere
            try:
                if session is not None:
                    del self._known[session_id]
                    await session.close(tell=False)
                return (self.store is not None and await self.store.delete(session_id)) or session is not None
            except StoreUnavailable as error:
                _log.error("session not deleted", session=session_id, reason=str(error))
                raise RpcError(INTERNAL_ERROR, "session deletion not persisted") from None
            finally:
                self._hold.give_back(session_id)

    async def move(self, session_id: str, cwd: str) -> None:
        """Have one work in another folder from its next prompt on (A26). Raises RpcError, also while a prompt runs."""
        async with self._acts.of(session_id):
            session = self.get(session_id)
            must_be_idle(session)
            await self._hold.take(session_id)  # it may rest, and another process have it
            session.move(cwd)
            await self._rest.lay_down(session)

    def _abandon(self, session_id: str) -> None:
        """End its turn now: an answer of the editor behind the request must not let anything run."""
        if session := self.find(session_id):
            session.turns.abandon()

    def cancel_all(self) -> None:
        """The editor is gone: end every turn."""
        for session in self._known.values():
            session.turns.abandon()

    async def settle(self, *, within: float | None = None, patience: float | None = None) -> None:
        """Keep all that is not kept yet; both as Outbox.flush has them."""
        async with anyio.create_task_group() as group:
            for session in self._known.values():
                group.start_soon(partial(session.story.settle, within=within, patience=patience))

    async def rest_idle(self, seconds: float) -> None:
        """Put sessions to rest that nobody has used for so long (A11.4)."""
        before = anyio.current_time() - seconds
        for session in self.all():
            if session.turns.used_at < before:
                await self._room.rest(session)

    def share_rested(self) -> None:
        """Let other processes have what rests and could not be kept at first, but is by now (A11.5)."""
        for session in self.all():
            if session.id not in self._acts:
                self._rest.share(session)

    async def rest_all(self) -> None:
        """Put every session to rest in which no turn runs."""
        await self.rest_idle(-1)

    def in_use(self, session_id: str) -> bool:
        """Whether a session is open, here or in another process."""
        return session_id in self._known or not self._hold.is_free(session_id)

    # -------------------------------------------------------------------------------------- within

    async def wake(self, session: Session) -> None:
        """Make sure that a session may have an engine. Raises RpcError when it may not."""
        if session.awake:
            self._hold.check(session.id)
            return
        async with self._acts.of(session.id):
            if self._known.get(session.id) is not session:  # it was closed meanwhile, or loaded anew
                raise session_not_found(session.id)
            if session.awake:
                return
            async with self._room.made(session.id):
                await self._rest.end(session)

    async def keep_choice(self, session: Session) -> None:
        """Keep what the user has just chosen for a session, also where it rests, before he hears that it was (A7.5)."""
        session.keep_conduct()
        if session.awake:
            await session.story.save()
            return
        async with self._acts.of(session.id):
            if self._known.get(session.id) is session:
                await self._rest.keep_choice(session)

    def _take(self, session: Session) -> None:
        session.wake = self.wake
        self._known[session.id] = session
        for old in [*self._known.values()][: max(len(self._known) - _MOST_KNOWN, 0)]:
            if not old.awake and not old.turns.busy and old.story.kept:
                del self._known[old.id]


_TICK = 60.0
_UNUSED_DAYS = 7
"""Days after which a session that was never prompted is forgotten: editors open many for nothing."""


async def reap(sessions: Sessions) -> None:
    """Put sessions to rest that nobody has used for long (A11.4). Runs for ever; nothing happens at once."""
    while True:
        await anyio.sleep(_TICK)
        sessions.share_rested()
        seconds = sessions.limits().idle_seconds
        if seconds:
            await sessions.rest_idle(seconds)


async def purge_unused(sessions: Sessions) -> None:
    """Remove sessions from the store that nobody has ever prompted, and nobody has open."""
    if sessions.store is None:
        return
    try:
        removed = await sessions.store.purge_unused(_UNUSED_DAYS, sessions.in_use)
    except StoreUnavailable as error:
        _log.warning("unused sessions were not removed", reason=str(error))
    else:
        _log.debug("unused sessions removed", count=removed)
