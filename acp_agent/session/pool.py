"""The pool of sessions in this process: it limits resident sessions, evicts and resumes them, and holds their locks."""

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TypeVar

import anyio

from acp_agent.core.data import frozen
from acp_agent.core.errors import InvalidState, RequestError, RequestFailed, SessionNotFound, StoreUnavailable
from acp_agent.core.process_limits import can_open
from acp_agent.core.session_options import SessionOptions
from acp_agent.log import Log
from acp_agent.session.session import Session
from acp_agent.store.session_locks import SessionLocks
from acp_agent.store.sessions import SessionStore

T = TypeVar("T")
_log = Log(__name__)
_POLL = 0.05
"""Seconds between two attempts to take a lock. The system does not report when a lock is released."""


class SessionLock:
    """The locks of sessions between processes: two processes never write one session at once.

    locks      None if nothing is stored; every session then belongs to this process
    seconds    seconds to wait for the locks of another process that may be about to end
    """

    def __init__(self, locks: SessionLocks | None, seconds: float = 0.0) -> None:
        self._locks = locks
        self._seconds = seconds

    async def take(self, session_id: str) -> None:
        """Lock a session. Raises RequestError if another process keeps it locked."""
        if self._locks is None:
            return
        deadline = anyio.current_time() + self._seconds
        try:
            while not self._locks.take(session_id):
                if anyio.current_time() > deadline:
                    raise InvalidState("the session is open in another process of acp-agent: close it there first")
                await anyio.sleep(_POLL)
        except StoreUnavailable as error:
            raise unreadable(error) from None

    @asynccontextmanager
    async def taken(self, session_id: str) -> AsyncGenerator[None]:
        """Lock a session. If the body fails, unlock it, unless it was locked before. Raises the errors of `take`."""
        held = self._locks is not None and self._locks.holds(session_id)
        await self.take(session_id)
        try:
            yield
        except BaseException:
            if not held:
                self.release(session_id)
            raise

    def check(self, session_id: str) -> None:
        """Check before a turn that this process still holds the session's lock. This takes microseconds.

        A lock is lost if its file is removed. Raises RequestError if another process has locked the session.
        """
        if self._locks is None:
            return
        try:
            ours = self._locks.take(session_id)
        except StoreUnavailable as error:  # the database is in the same folder, so it cannot be written either
            _log.warning("session may not be locked", session=session_id, reason=str(error))
            return
        if not ours:
            raise InvalidState("the session is now open in another process of acp-agent: close it there first")

    def release(self, session_id: str) -> None:
        if self._locks is not None:
            self._locks.give_back(session_id)

    def is_free(self, session_id: str) -> bool:
        """Return whether no process has locked a session, this one included."""
        if self._locks is None or self._locks.holds(session_id):
            return False
        try:
            free = self._locks.take(session_id)
        except StoreUnavailable:
            return False
        if free:
            self._locks.give_back(session_id)
        return free


async def readable(answer: Awaitable[T]) -> T:
    """Return the store's answer. Raises RequestError if the store cannot be read."""
    try:
        return await answer
    except StoreUnavailable as error:
        raise unreadable(error) from None


def unreadable(error: StoreUnavailable) -> RequestFailed:
    """Return the error for a store that cannot be read. It contains the cause and no stored text."""
    _log.error("sessions cannot be read or written", reason=str(error))
    return RequestFailed(f"the sessions stored on this machine cannot be read now: {error}")


class KeyedLock:
    """One lock per key. A key exists while a task holds its lock or waits for it."""

    def __init__(self) -> None:
        self._locks: dict[str, anyio.Lock] = {}
        self._ended = anyio.Event()

    def __contains__(self, key: str) -> bool:
        """Return whether a key is locked, or about to be."""
        return key in self._locks

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncGenerator[None]:
        """Hold the lock of a key while the body runs. Uses for one key must not be nested."""
        lock = self._locks.setdefault(key, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            statistics = lock.statistics()
            if not statistics.locked and not statistics.tasks_waiting:
                self._locks.pop(key, None)
            ended, self._ended = self._ended, anyio.Event()
            ended.set()

    @property
    def released(self) -> anyio.Event:
        """The event that the next release of a lock sets."""
        return self._ended


class PendingLoads:
    """The sessions that are being loaded. Requests that follow a load wait until it is over."""

    def __init__(self) -> None:
        self._loading = Counter[str]()
        self._ended = anyio.Event()
        self._waiting: dict[str, list[anyio.CancelScope]] = {}

    @contextmanager
    def loading(self, session_id: str) -> Generator[Callable[[], None]]:
        """Count a session as being loaded until the body calls the yielded function or ends."""
        self._loading[session_id] += 1
        loading = True

        def end() -> None:
            nonlocal loading
            if not loading:
                return
            loading = False
            self._loading[session_id] -= 1
            self._loading += Counter()  # removes counts of 0
            ended, self._ended = self._ended, anyio.Event()
            ended.set()

        try:
            yield end
        finally:
            end()

    async def wait(self, session_id: str) -> bool:
        """Wait until a session is not being loaded. Return False if `cancel` was called meanwhile."""
        if session_id not in self._loading:
            return True
        waiting = self._waiting.setdefault(session_id, [])
        scope = anyio.CancelScope()
        waiting.append(scope)
        try:
            with scope:
                while session_id in self._loading:
                    await self._ended.wait()
        finally:
            waiting.remove(scope)
            if not waiting:
                self._waiting.pop(session_id, None)
        return not scope.cancel_called

    def cancel(self, session_id: str) -> None:
        """Make every `wait` for this session return False."""
        for scope in self._waiting.get(session_id, ()):
            scope.cancel()


_DESCRIPTORS = 32
"""File descriptors reserved for one session: its folders, pipes of commands and MCP servers, connections."""
_EVICTION = 0.5
"""Seconds that the store may delay an eviction while another session waits for room in the pool."""


@frozen
class SessionLimits:
    """The settings `max_sessions` and `session_idle_timeout_secs` of `[acp]`. With 0 seconds, idle sessions stay.

    known   the most sessions that are known, unless more are in use. Others are forgotten and can be loaded again
    """

    resident: int = 64
    idle_seconds: float = 1800.0
    known: int = 1000


class SessionPool:
    """A pool with at most `max_sessions` resident sessions. It evicts the least recently used idle one for a new one.

    Idle sessions are also evicted if this process is close to its limit of open files. An evicted session releases
    its lock, so that another process may continue it. Callers hold the session's KeyedLock.

    known    all sessions of this process by id; the most recently evicted ones come last
    limits   returns the limits of the configuration
    store    the store of sessions; None if sessions are not stored
    acts     the locks of operations on single sessions
    """

    def __init__(
        self, limits: Callable[[], SessionLimits], store: SessionStore | None, lock: SessionLock, acts: KeyedLock
    ) -> None:
        self.known: dict[str, Session] = {}
        self._limits = limits
        self._store = store
        self._lock = lock
        self._acts = acts
        self._opening = 0
        self._waiting: set[str] = set()

    # ------------------------------------------------------------------------------------------ room

    @asynccontextmanager
    async def room(
        self, *spared: str, instead_of: Session | None = None, patient: bool = False
    ) -> AsyncGenerator[bool]:
        """Make room for one more resident session, which the body opens. Yield False if all sessions are busy.

        Wait while other sessions are being evicted or closed. Raises RequestError if no more files can be opened.

        spared       ids of sessions that must not be evicted
        instead_of   a session that the new one replaces
        patient      True to wait for the end of a turn, instead of yielding False, if all sessions are busy
        """
        self._waiting.update(spared)
        try:
            found = await self._make_room(spared, instead_of, patient=patient)
        finally:
            self._waiting.difference_update(spared)
        self._opening += found
        try:
            yield found
        finally:
            self._opening -= found

    async def evict_idle(self, session: Session) -> None:
        """Evict a session if it is resident and no turn runs. Take its KeyedLock."""
        async with self._acts.hold(session.id):
            if not session.turns.busy and session.resident:
                await self.evict(session)

    async def _make_room(self, spared: Collection[str], instead_of: Session | None, *, patient: bool) -> bool:
        most = self._limits().resident
        while sum(each.resident for each in self.known.values() if each is not instead_of) + self._opening >= most:
            if await self._evict_oldest(spared):
                continue
            if not (patient or self._opening or self._is_any_held_up(spared)):
                return False
            await self._any_change()
        while not can_open(_DESCRIPTORS):
            if not await self._evict_oldest(spared):
                advice = "close sessions, or let the agent have more open files (ulimit -n)"
                raise RequestFailed(f"too many files are open in this process: {advice}")
        return True

    async def _any_change(self) -> None:
        """Wait until a turn or an operation on a session ends."""
        # The events are read now, because the tasks start later and would miss a change before that.
        turns = [each.turns.ended.wait for each in self.known.values() if each.resident and each.turns.busy]
        changes: list[Callable[[], Awaitable[object]]] = [self._acts.released.wait, *turns]
        async with anyio.create_task_group() as tasks:

            async def wait(change: Callable[[], Awaitable[object]]) -> None:
                await change()
                tasks.cancel_scope.cancel()

            for change in changes:
                tasks.start_soon(wait, change)

    def _is_any_held_up(self, spared: Collection[str]) -> bool:
        """Return whether an idle session can be evicted when an operation on it has ended.

        Operations that themselves wait for room do not count.
        """
        return any(each.id in self._acts and each.id not in self._waiting for each in self._idle(spared))

    async def _evict_oldest(self, spared: Collection[str]) -> bool:
        """Evict the idle session that was used longest ago. Return False if there is none.

        Sessions with background processes come last.
        """
        for session in sorted(self._idle(spared), key=lambda each: (each.runs_processes, each.turns.used_at)):
            if session.id not in self._acts:
                await self.evict_idle(session)
                return True
        return False

    def _idle(self, spared: Collection[str]) -> list[Session]:
        return [each for each in self.known.values() if each.resident and not each.turns.busy and each.id not in spared]

    # ---------------------------------------------------------------------------------- evict, resume

    async def evict(self, session: Session) -> None:
        """Evict an idle session, also if the request is cancelled meanwhile.

        If the session is not stored, it stays in memory and locked until it is stored.
        """
        with anyio.CancelScope(shield=True):  # a cancelled eviction would leave programs running and the lock taken
            await session.evict(_EVICTION)
        if self.known.get(session.id) is session:
            self.known[session.id] = self.known.pop(session.id)
        self.share(session)

    def share(self, session: Session) -> None:
        """Unlock an evicted session for other processes if it is stored."""
        if self._store is not None and not session.resident and session.transcript.stored:
            session.trust_store()
            # The old repository would keep the conversation in memory.
            session.transcript.store_in(self._store.of(session.id))
            self._lock.release(session.id)

    async def resume(self, session: Session) -> None:
        """Make an evicted session resident again, with the options that are stored by now. Raises RequestError."""
        # A session that is not stored is still locked, so no other process can have continued it.
        stored: SessionOptions | None = None
        if self._store is not None and session.transcript.stored:
            async with self._lock.taken(session.id):
                stored = await readable(self._store.of(session.id).options())
                if stored is None:
                    del self.known[session.id]
                    raise SessionNotFound(session.id)
        session.resumed(stored)

    async def store_options(self, session: Session) -> None:
        """Store the options that the user has chosen for an evicted session.

        If another process has the session open, or the write fails, the options are stored when it is resumed.
        """
        if session.chosen_while_evicted and session.transcript.stored and self._lock.is_free(session.id):
            with suppress(RequestError):  # already logged
                await self.resume(session)
                await self.evict(session)

    async def replace(self, before: Session) -> None:
        """Close a stored session so that it can be opened again. If it raises RequestError, nothing has changed."""
        async with self._lock.taken(before.id):  # another process may have this session open, if it is evicted here
            if before.chosen_while_evicted and before.transcript.stored:
                await self.resume(before)
            await before.transcript.flush()
            must_be_idle(before)
            if not before.transcript.stored:
                raise RequestFailed("the end of the conversation is not stored yet: the database cannot be written now")
            del self.known[before.id]
            await before.close(tell=False)
        self._lock.release(before.id)  # the caller locks it again at once

    async def is_stored(self, session_id: str) -> bool:
        """Return whether the store has the whole session. If not, only this process has it, in memory.

        Raises RequestError if the session is in neither, or if the store cannot be read.
        """
        assert self._store is not None, "callers check that there is a store"
        before = self.known.get(session_id)
        if before is not None:
            await before.transcript.flush()
        # After an eviction another process may have continued the session, so only the store is up to date.
        is_ours = before is not None and (before.resident or not before.transcript.stored)
        try:
            record = await self._store.find(session_id)
        except StoreUnavailable as error:
            if is_ours:
                return False
            raise unreadable(error) from None
        if record is None and not is_ours:
            raise SessionNotFound(session_id)
        return record is not None and (before is None or before.transcript.stored)


def must_be_idle(session: Session | None) -> None:
    """Raise RequestError if a turn runs."""
    if session is not None and session.turns.busy:
        raise InvalidState("the session has a prompt in progress: cancel it first")
