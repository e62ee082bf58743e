"""Locks of sessions: between processes, within this process, and for sessions that are being loaded."""

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import anyio

from acp_agent.core.errors import InvalidState, RequestFailed, StoreUnavailable
from acp_agent.log import Log
from acp_agent.store.session_locks import SessionLocks

T = TypeVar("T")
_log = Log(__name__)
_POLL = 0.05
"""Seconds between two attempts to take a lock. The system does not report when a lock is released."""


class SessionLock:
    """The locks of sessions between processes: two processes never write one session at once.

    locks      None if nothing is stored; every session then belongs to this process
    patience   seconds to wait for the locks of another process that may be about to end
    """

    def __init__(self, locks: SessionLocks | None, *, patience: float = 3.0) -> None:
        self._locks = locks
        self._patience = patience

    async def take(self, session_id: str) -> None:
        """Lock a session. Raises RequestError if another process keeps it locked."""
        if self._locks is None:
            return
        deadline = anyio.current_time() + self._patience
        try:
            while not self._locks.take(session_id):
                if anyio.current_time() > deadline:
                    raise InvalidState("the session is open in another process of acp-agent: close it there first")
                await anyio.sleep(_POLL)
        except StoreUnavailable as error:
            raise unreadable(error) from None

    @asynccontextmanager
    async def taken(self, session_id: str) -> AsyncGenerator[None]:
        """Lock a session, and keep it locked unless the body fails and it was not locked before. Raises as `take`."""
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

        A lock is lost if its file is removed. Raises RequestError if another process has the session now.
        """
        if self._locks is None:
            return
        try:
            ours = self._locks.take(session_id)
        except StoreUnavailable as error:  # the database is beside it: it cannot be written either
            _log.warning("session may not be locked", session=session_id, reason=str(error))
            return
        if not ours:
            raise InvalidState("the session is now open in another process of acp-agent: close it there first")

    def release(self, session_id: str) -> None:
        """Unlock a session."""
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
    return RequestFailed(f"the sessions kept on this machine cannot be read now: {error}")


class KeyedLock:
    """One lock per key. A key exists while a task holds its lock or waits for it."""

    def __init__(self) -> None:
        self._locks: dict[str, anyio.Lock] = {}
        self._ended = anyio.Event()

    def __contains__(self, key: str) -> bool:
        """Return whether a key is locked, or about to be."""
        return key in self._locks

    @asynccontextmanager
    async def of(self, key: str) -> AsyncGenerator[None]:
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

    async def released(self) -> None:
        """Wait until any lock is released."""
        await self._ended.wait()


class PendingLoads:
    """The sessions that are being loaded. Requests that follow a load wait until it is over."""

    def __init__(self) -> None:
        self._loading = Counter[str]()
        self._over = anyio.Event()
        self._waiting: dict[str, list[anyio.CancelScope]] = {}

    @contextmanager
    def begun(self, session_id: str) -> Generator[Callable[[], None]]:
        """Count a session as being loaded until the body calls the yielded function or ends."""
        self._loading[session_id] += 1
        loading = True

        def over() -> None:
            nonlocal loading
            if not loading:
                return
            loading = False
            self._loading[session_id] -= 1
            self._loading += Counter()  # forgets the counts that are 0
            ended, self._over = self._over, anyio.Event()
            ended.set()

        try:
            yield over
        finally:
            over()

    async def over(self, session_id: str) -> bool:
        """Wait until a session is not being loaded. Return False if `cancel` was called meanwhile."""
        if session_id not in self._loading:
            return True
        waiting = self._waiting.setdefault(session_id, [])
        scope = anyio.CancelScope()
        waiting.append(scope)
        try:
            with scope:
                while session_id in self._loading:
                    await self._over.wait()
        finally:
            waiting.remove(scope)
            if not waiting:
                self._waiting.pop(session_id, None)
        return not scope.cancel_called

    def cancel(self, session_id: str) -> None:
        """Stop all waiting for a session."""
        for scope in self._waiting.get(session_id, ()):
            scope.cancel()
