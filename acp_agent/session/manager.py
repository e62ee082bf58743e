"""The sessions of one process: open, find, evict, resume and close them.

Every session is stored when it is made: editors open sessions long before the first prompt, and load them in other
processes. A process that writes a session holds its lock; two processes never write the same session at once. In this
package a session is called

    known      if this process has it in memory and answers requests about it
    resident   if this process holds its lock, so that it may have an engine. At most `max_sessions` are resident (see
               `pool.py`)

Operations on one session run one after another: a load waits until the last engine is closed.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from uuid import uuid4

import anyio
import anyio.lowlevel

from acp_agent.core.editor import EditorConnection
from acp_agent.core.errors import (
    AgentError,
    InvalidState,
    RequestError,
    RequestFailed,
    SessionNotFound,
    StoreUnavailable,
)
from acp_agent.core.session_options import SessionOptions
from acp_agent.core.sessions import Change, SessionRecord, SessionSnapshot, StoredEvent
from acp_agent.log import Log
from acp_agent.session.pool import (
    KeyedLock,
    PendingLoads,
    SessionLimits,
    SessionLock,
    SessionPool,
    must_be_idle,
    readable,
)
from acp_agent.session.session import Opening, Session, SessionWorkspace
from acp_agent.store.known_answers import OpenedSession
from acp_agent.store.session_locks import SessionLocks
from acp_agent.store.sessions import SessionStore

_log = Log(__name__)
_PATIENCE = 1.0
"""Seconds that `session/new` waits for a busy database. After that the session is written with its first turn."""
_NOT_STORED = "the session is open, but it is not stored: only a session in the database can be forked"
_TICK = 60.0
_UNUSED_DAYS = 7
"""Days after which a session without a prompt is removed: editors open many that they do not use."""


class DeferredRepository:
    """A SessionRepository that creates the session's row at once, or else with the first write that succeeds."""

    def __init__(self, store: SessionStore, record: SessionRecord, options: SessionOptions) -> None:
        self._store = store
        self._record = record
        self._repository = store.of(record.id)
        self._options = options.to_keep(SessionOptions())
        self._made = False

    async def make(self, *, patience: float | None = None) -> None:
        """Create the session's row if it does not exist. Raises StoreUnavailable."""
        if not self._made:
            self._repository = await self._store.create(self._record, self._options, patience=patience)
            self._made = True

    async def begin(self, *, patience: float) -> bool:
        """Create the row, waiting at most `patience` seconds. Return whether it was created."""
        try:
            await self.make(patience=patience)
        except StoreUnavailable as error:
            _log.warning("session not written yet", session=self._record.id, reason=str(error))
            return False
        return True

    async def write(self, change: Change, *, durable: bool = True, patience: float | None = None) -> None:
        await self.make(patience=patience)
        await self._repository.write(change, durable=durable, patience=patience)

    async def snapshot(self) -> SessionSnapshot | None:
        return await self._repository.snapshot()

    def events(self, after: int = 0) -> AsyncGenerator[StoredEvent]:
        """Yield the stored events, or none if the row does not exist yet."""
        return self._repository.events(after) if self._made else _nothing()

    async def clear(self) -> None:
        await self.make()
        await self._repository.clear()


async def _nothing() -> AsyncGenerator[StoredEvent]:
    for event in ():
        yield event


class SessionManager:
    """All sessions of one process.

    store, locks   the store and its locks; None if nothing can be stored. `trouble` says why
    make_session   makes a session
    limits         returns the limits of the configuration
    clock          milliseconds since 1970
    lock_seconds   seconds to wait for a session that another process may be about to close
    loads          the sessions that are being loaded
    """

    def __init__(
        self,
        store: SessionStore | None,
        locks: SessionLocks | None,
        make_session: Callable[[Opening], Session],
        limits: Callable[[], SessionLimits],
        clock: Callable[[], int],
        trouble: str = "",
        lock_seconds: float = 3.0,
    ) -> None:
        self.store = store
        self.limits = limits
        self.loads = PendingLoads()
        self._lock = SessionLock(locks, lock_seconds)
        self._make_session = make_session
        self._clock = clock
        self._trouble = trouble
        self._acts = KeyedLock()
        self._being_opened = 0
        self._all_opened = anyio.Event()
        self._pool = SessionPool(limits, store, self._lock, self._acts)
        self._known = self._pool.known

    # -------------------------------------------------------------------------------------- opening

    async def new(
        self, workspace: SessionWorkspace, connection: EditorConnection, opened: OpenedSession | None = None
    ) -> Session:
        """Return a new session. If the pool is full of busy sessions, it starts evicted, and its first prompt waits.

        opened   the session if it is stored already; None to create one
        """
        session_id, now = (str(uuid4()), self._clock()) if opened is None else (opened.id, opened.created_at)
        record = SessionRecord(session_id, workspace.cwd, workspace.additional, created_at=now, updated_at=now)
        async with self._opening(), self._acts.hold(record.id), self._pool.room() as found:
            session = self._make(record, workspace, connection)
            if self.store is None:
                session.notices.warn(f"this conversation is not stored: {self._trouble}")
            else:
                await self._store_first(session, DeferredRepository(self.store, record, session.options))
            self._remember(session)
            if not found:
                await self._pool.evict(session)
        return session

    @asynccontextmanager
    async def _opening(self) -> AsyncGenerator[None]:
        self._being_opened += 1
        try:
            yield
        finally:
            self._being_opened -= 1
            if not self._being_opened:
                self._all_opened.set()
                self._all_opened = anyio.Event()

    async def all_opened(self) -> None:
        """Wait until no new session is being opened, because editors open many at once and wait for all of them."""
        await anyio.lowlevel.checkpoint()
        if self._being_opened:
            await self._all_opened.wait()

    @asynccontextmanager
    async def load(
        self, session_id: str, workspace: SessionWorkspace, connection: EditorConnection
    ) -> AsyncGenerator[Session]:
        """Load a stored session in a new workspace and yield it. Its prompts wait until the body ends.

        The turn of a scheduled prompt is ended, since the editor may no longer show the question that it waits for.

        Raises:
            RequestError: The session is unknown, runs a prompt, or is open in another process.

        """
        before = self._known.get(session_id)
        if session_id not in self._acts and not (before and before.turns.runs_scheduled):
            must_be_idle(before)  # a prompt after the load must wait for it
        with self.loads.loading(session_id) as is_known:
            if before is not None:
                await before.turns.end_scheduled_with_session()
            async with self._acts.hold(session_id):
                if self.store is None:
                    is_known()
                    yield self.get(session_id)  # without a store, the conversation is only in memory
                    return
                async with self._loaded(session_id, workspace, connection) as session:
                    is_known()
                    yield session

    @asynccontextmanager
    async def _loaded(
        self, session_id: str, workspace: SessionWorkspace, connection: EditorConnection
    ) -> AsyncGenerator[Session]:
        """Load a session. The caller holds its KeyedLock."""
        before = self._known.get(session_id)
        must_be_idle(before)
        is_stored = await self._pool.is_stored(session_id)
        async with self._pool.room(session_id, instead_of=before) as found:
            if before is not None and not is_stored:
                session = before
                await self._pool.evict(session)
                session.reopen(workspace, connection.session(session_id, workspace.cwd))
            else:
                if before is not None:
                    await self._pool.replace(before)
                session = await self._opened(session_id, workspace, connection)
                session.suspend()
            session.transcript.store(Change(cwd=workspace.cwd, additional=workspace.additional))
            try:
                yield session
            except BaseException:
                await self._pool.evict(session)
                raise
            if found:
                session.resumed()
            else:
                await self._pool.evict(session)

    async def fork(self, source_id: str, workspace: SessionWorkspace, connection: EditorConnection) -> Session:
        """Return a new session with a copy of another session's conversation. Raises the errors of `load`."""
        async with self._acts.hold(source_id):
            source = self._known.get(source_id)
            if source is not None:
                await source.transcript.flush()
            saved = None if self.store is None else await readable(self.store.of(source_id).snapshot())
            if self.store is None or saved is None:
                raise SessionNotFound(source_id) if source is None else InvalidState(_NOT_STORED)
            now = self._clock()
            record = replace(saved.record, id=str(uuid4()), created_at=now, updated_at=now)
            made = replace(record, cwd=workspace.cwd, additional=workspace.additional)
            async with self._pool.room(source_id) as found:
                try:
                    await readable(self.store.fork(source_id, made, saved.options))
                    session = await self._opened(made.id, workspace, connection)
                    if not found:
                        await self._pool.evict(session)
                    return session
                except BaseException:
                    with anyio.CancelScope(shield=True), suppress(StoreUnavailable):
                        await self.store.delete(made.id)
                    raise

    async def _opened(self, session_id: str, workspace: SessionWorkspace, connection: EditorConnection) -> Session:
        """Lock a stored session, make it known and return it. Raises RequestError."""
        assert self.store is not None
        async with self._lock.taken(session_id):
            repository = self.store.of(session_id)
            saved = await readable(repository.snapshot())
            if saved is None:  # deleted meanwhile
                raise SessionNotFound(session_id)
            record = replace(saved.record, cwd=workspace.cwd, additional=workspace.additional)
            session = self._make(record, workspace, connection, saved)
            session.transcript.store_in(repository)
            try:
                if saved.unfinished_messages:
                    with suppress(AgentError):  # the first prompt gets the same error and shows it
                        await session.engine()  # the engine redacts unfinished messages
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await session.close(tell=False)  # before another request can find it
                raise
            self._remember(session)
            return session

    def _make(
        self,
        record: SessionRecord,
        workspace: SessionWorkspace,
        connection: EditorConnection,
        saved: SessionSnapshot | None = None,
    ) -> Session:
        return self._make_session(Opening(record, workspace, connection.session(record.id, workspace.cwd), saved))

    async def _store_first(self, session: Session, repository: DeferredRepository) -> None:
        """Create the session's row. If the database cannot be written now, a later write creates it."""
        session.transcript.store_in(repository)
        written = False
        with suppress(RequestError):  # no lock can be taken; the log says why
            async with self._lock.taken(session.id):
                written = await repository.begin(patience=_PATIENCE)
        if not written:
            session.transcript.store(Change(touch=True))

    def _remember(self, session: Session) -> None:
        """Make a session known. If there are too many, forget those that were used longest ago and are not in use."""
        self._known[session.id] = session
        for old in [*self._known.values()][: max(len(self._known) - self.limits().known, 0)]:
            in_use = old.resident or old.turns.busy or old.id in self._acts
            if not in_use and old.transcript.stored:
                del self._known[old.id]

    # -------------------------------------------------------------------------------------- finding

    def get(self, session_id: str) -> Session:
        """Return a session that is known here. Raises RequestError."""
        session = self._known.get(session_id)
        if session is None:
            raise SessionNotFound(session_id)
        return session

    def find(self, session_id: str) -> Session | None:
        """Return a session that is known here, or None."""
        return self._known.get(session_id)

    def all(self) -> tuple[Session, ...]:
        """Return all sessions that are known here."""
        return tuple(self._known.values())

    def in_use(self, session_id: str) -> bool:
        """Return whether a session is open in this or another process."""
        return session_id in self._known or not self._lock.is_free(session_id)

    # ------------------------------------------------------------------------------------- ending

    async def close(self, session_id: str) -> None:
        """Close a session; it can be loaded again. Raises RequestError if it is not known here."""
        self._cancel_turn(session_id)
        async with self._acts.hold(session_id):  # a running load may make it known
            session = self.get(session_id)
            del self._known[session_id]
            try:
                await session.close()
            finally:
                self._lock.release(session_id)

    async def delete(self, session_id: str) -> bool:
        """Close a session and delete it from the store. Return False if it did not exist. Raises RequestError."""
        self._cancel_turn(session_id)
        async with self._acts.hold(session_id):
            session = self._known.get(session_id)
            if session is None and (self.store is None or await readable(self.store.find(session_id)) is None):
                return False
            await self._lock.take(session_id)  # a session that is evicted here may be open in another process
            try:
                if session is not None:
                    del self._known[session_id]
                    await session.close(tell=False)
                return (self.store is not None and await self.store.delete(session_id)) or session is not None
            except StoreUnavailable as error:
                _log.error("session not deleted", session=session_id, reason=str(error))
                raise RequestFailed("session deletion not persisted") from None
            finally:
                self._lock.release(session_id)

    async def move(self, session_id: str, cwd: str, moved: Callable[[], None] = lambda: None) -> None:
        """Move a session to another folder from its next prompt on. Raises RequestError while a turn runs.

        moved   called when the session has moved, before any prompt can run there
        """
        async with self._acts.hold(session_id):
            session = self.get(session_id)
            must_be_idle(session)
            await self._lock.take(session_id)  # it may be evicted here and open in another process
            session.move(cwd)
            moved()
            await self._pool.evict(session)

    def _cancel_turn(self, session_id: str) -> None:
        """Cancel the session's turn now, so that a later answer of the editor cannot start a tool."""
        if session := self.find(session_id):
            session.turns.end_with_session()

    def cancel_all(self) -> None:
        """Cancel every turn and begin none, because the editor is gone."""
        for session in self._known.values():
            session.end_with_process()

    async def flush(self, *, within: float | None = None, patience: float | None = None) -> None:
        """Store the pending events of every session. See EventQueue.flush."""
        async with anyio.create_task_group() as group:
            for session in self._known.values():
                group.start_soon(partial(session.transcript.flush, within=within, patience=patience))

    # ------------------------------------------------------------------------------ evicting, resuming

    async def evict_idle(self, seconds: float) -> None:
        """Evict the sessions that were not used for the given number of seconds, and in which nothing runs."""
        before = anyio.current_time() - seconds
        for session in self.all():
            if session.turns.used_at < before and not session.runs_processes:
                await self._pool.evict_idle(session)

    async def evict_all(self) -> None:
        """Evict every session in which no turn runs."""
        for session in self.all():
            await self._pool.evict_idle(session)

    def share_evicted(self) -> None:
        """Unlock the evicted sessions that could not be stored when they were evicted but are stored now."""
        for session in self.all():
            if session.id not in self._acts:
                self._pool.share(session)

    async def resume(self, session: Session) -> None:
        """Make a session resident, so that it may have an engine. Raises RequestError if that is not possible."""
        if session.resident:
            self._lock.check(session.id)
            return
        async with self._acts.hold(session.id):
            if self._known.get(session.id) is not session:  # it was closed or loaded again meanwhile
                raise SessionNotFound(session.id)
            if session.resident:
                return
            async with self._pool.room(session.id, patient=True):
                await self._pool.resume(session)

    async def store_options(self, session: Session) -> None:
        """Store the user's options, also for an evicted session. Return when they are stored or storing has failed."""
        session.store_options()
        if session.resident:
            await session.transcript.save()
            return
        async with self._acts.hold(session.id):
            if self._known.get(session.id) is session:
                await self._pool.store_options(session)


async def evict_unused(sessions: SessionManager) -> None:
    """Evict, again and again, the sessions that were idle for the configured time. Run it as a background task."""
    while True:
        await anyio.sleep(_TICK)
        sessions.share_evicted()
        seconds = sessions.limits().idle_seconds
        if seconds:
            await sessions.evict_idle(seconds)


async def purge_unused(sessions: SessionManager) -> None:
    """Delete stored sessions that were never prompted and are not open anywhere. Run it as a background task."""
    if sessions.store is None:
        return
    try:
        removed = await sessions.store.purge_unused(_UNUSED_DAYS, sessions.in_use)
    except StoreUnavailable as error:
        _log.warning("unused sessions were not removed", reason=str(error))
    else:
        _log.debug("unused sessions removed", count=removed)
