"""Which sessions this process may write: two processes never write one at once (A6.8, A10.7)."""

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import anyio

from acp_agent.core.errors import StoreUnavailable
from acp_agent.log import Log
from acp_agent.protocol.jsonrpc import INTERNAL_ERROR, RpcError, invalid_request
from acp_agent.store.session_locks import SessionLocks

T = TypeVar("T")
_log = Log(__name__)
_LET_GO = 3.0
"""Seconds another process that is just ending gets to give a session back."""
_LOOK = 0.05  # seconds between two looks at its lock: nothing tells when it is given back


class SessionHold:
    """The locks, for those who can wait a moment. `locks` is None where nothing is kept, so that all are ours."""

    def __init__(self, locks: SessionLocks | None) -> None:
        self._locks = locks

    async def take(self, session_id: str) -> None:
        """Hold one. Raises RpcError when another process does, and goes on doing so."""
        if self._locks is None:
            return
        deadline = anyio.current_time() + _LET_GO
        try:
            while not self._locks.take(session_id):
                if anyio.current_time() > deadline:
                    raise invalid_request("the session is open in another process of acp-agent: close it there first")
                await anyio.sleep(_LOOK)
        except StoreUnavailable as error:
            raise unreadable(error) from None

    @asynccontextmanager
    async def taken(self, session_id: str) -> AsyncGenerator[None]:
        """Hold one from now on; when the body fails only if it was held before. Raises RpcError as `take`."""
        held = self._locks is not None and self._locks.holds(session_id)
        await self.take(session_id)
        try:
            yield
        except BaseException:
            if not held:
                self.give_back(session_id)
            raise

    def check(self, session_id: str) -> None:
        """Make sure, before a turn, that one that is open here is ours still. It takes microseconds.

        Its lock goes with the file, and that can be removed. Raises RpcError when another process has the session now.
        """
        if self._locks is None:
            return
        try:
            ours = self._locks.take(session_id)
        except StoreUnavailable as error:  # the database is beside it: it cannot be written either
            _log.warning("session may not be locked", session=session_id, reason=str(error))
            return
        if not ours:
            raise invalid_request("the session is open in another process of acp-agent by now: close it there first")

    def give_back(self, session_id: str) -> None:
        """Hold it no longer."""
        if self._locks is not None:
            self._locks.give_back(session_id)

    def is_free(self, session_id: str) -> bool:
        """Whether nobody holds it, neither we nor another process."""
        if self._locks is None or self._locks.holds(session_id):
            return False
        try:
            free = self._locks.take(session_id)
        except StoreUnavailable:
            return False
        if free:
            self._locks.give_back(session_id)
        return free


async def asked(question: Awaitable[T]) -> T:
    """What the store answers. Raises RpcError."""
    try:
        return await question
    except StoreUnavailable as error:
        raise unreadable(error) from None


def unreadable(error: StoreUnavailable) -> RpcError:
    """The cause in words for people, as in the notices of open sessions; none of what is stored is in it (A5.6)."""
    _log.error("sessions cannot be read or written", reason=str(error))
    return RpcError(INTERNAL_ERROR, f"the sessions kept on this machine cannot be read now: {error}")


class OneAtATime:
    """A lock for each key, which is gone when nobody wants it."""

    def __init__(self) -> None:
        self._locks: dict[str, anyio.Lock] = {}
        self._ended = anyio.Event()

    def __contains__(self, key: str) -> bool:
        """Whether something happens to it just now, or is about to."""
        return key in self._locks

    @asynccontextmanager
    async def of(self, key: str) -> AsyncGenerator[None]:
        """Nothing else happens to `key` while the body runs. Not to be nested for one key."""
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

    async def one_ended(self) -> None:
        """Wait until something has ended that happens to any of them."""
        await self._ended.wait()


class TakeUps:
    """Which sessions are being taken up, by their ids, and who waits for them."""

    def __init__(self) -> None:
        self._under_way = Counter[str]()
        self._over = anyio.Event()
        self._waiting: dict[str, list[anyio.CancelScope]] = {}

    @contextmanager
    def begun(self, session_id: str) -> Generator[Callable[[], None]]:
        """One is being taken up until the body calls what it is given, or is left."""
        self._under_way[session_id] += 1
        under_way = True

        def over() -> None:
            nonlocal under_way
            if not under_way:
                return
            under_way = False
            self._under_way[session_id] -= 1
            self._under_way += Counter()  # forgets those of which there are none
            ended, self._over = self._over, anyio.Event()
            ended.set()

        try:
            yield over
        finally:
            over()

    async def over(self, session_id: str) -> bool:
        """Wait until nobody is taking it up; at once where nobody is. False when `cancel` came meanwhile."""
        if session_id not in self._under_way:
            return True
        waiting = self._waiting.setdefault(session_id, [])
        scope = anyio.CancelScope()
        waiting.append(scope)
        try:
            with scope:
                while session_id in self._under_way:
                    await self._over.wait()
        finally:
            waiting.remove(scope)
            if not waiting:
                self._waiting.pop(session_id, None)
        return not scope.cancel_called

    def cancel(self, session_id: str) -> None:
        """Nobody is to wait for it any more."""
        for scope in self._waiting.get(session_id, ()):
            scope.cancel()
