"""The pool of sessions in this process: it limits resident sessions, and evicts and resumes them."""

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio

from acp_agent.core.conduct import SessionOptions
from acp_agent.core.errors import InvalidState, RequestError, RequestFailed, SessionNotFound, StoreUnavailable
from acp_agent.core.process_limits import can_open
from acp_agent.session.locks import KeyedLock, SessionLock, readable, unreadable
from acp_agent.session.session import Session
from acp_agent.store.sessions import SessionStore

_DESCRIPTORS = 32
"""Files that one session may have open: its folders, pipes of commands and MCP servers, connections."""
_EVICTION = 0.5
"""Seconds that the store may delay an eviction while another session waits for the place."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """The settings `max_sessions` and `session_idle_timeout_secs` of `[acp]`. With 0 seconds, idle sessions stay."""

    resident: int = 16
    idle_seconds: float = 1800.0


class SessionPool:
    """A pool with at most `max_sessions` resident sessions. It evicts the least recently used idle one for a new one.

    Idle sessions are also evicted if this process is close to its limit of open files. An evicted session releases
    its lock, so that another process may continue it. Callers hold the session's KeyedLock.

    known    all sessions of this process, by their ids
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
    async def room(self, *spared: str, instead_of: Session | None = None) -> AsyncGenerator[None]:
        """Make room for one more resident session, which the body opens.

        Wait while other sessions are being evicted or closed. Raises RequestError if all sessions are busy, or if no
        more files can be opened.

        spared       ids of sessions that must not be evicted
        instead_of   a session that the new one replaces
        """
        self._waiting.update(spared)
        try:
            await self._make_room(spared, instead_of)
        finally:
            self._waiting.difference_update(spared)
        self._opening += 1
        try:
            yield
        finally:
            self._opening -= 1

    async def evict_idle(self, session: Session) -> None:
        """Evict a session if it is resident and no turn runs. Take its KeyedLock."""
        async with self._acts.of(session.id):
            if not session.turns.busy and session.resident:
                await self.evict(session)

    async def _make_room(self, spared: Collection[str], instead_of: Session | None) -> None:
        most = self._limits().resident
        while self._residents(instead_of) + self._opening >= most:
            if await self._evict_oldest(spared):
                continue
            if not self._opening and not self._is_any_held_up(spared):
                raise RequestFailed(f"session limit reached: {most} sessions are busy in this process")
            await self._acts.released()
        while not can_open(_DESCRIPTORS):
            if not await self._evict_oldest(spared):
                advice = "close sessions, or let the agent have more open files (ulimit -n)"
                raise RequestFailed(f"too many files are open in this process: {advice}")

    def _is_any_held_up(self, spared: Collection[str]) -> bool:
        """Return whether a session could be evicted once its lock is free. Sessions that wait for room do not count."""
        return any(each.id in self._acts and each.id not in self._waiting for each in self._idle(spared))

    def _residents(self, but_for: Session | None) -> int:
        return sum(session.resident for session in self.known.values() if session is not but_for)

    async def _evict_oldest(self, spared: Collection[str]) -> bool:
        """Evict the idle session that was used longest ago. Return False if there is none."""
        for session in sorted(self._idle(spared), key=lambda each: each.turns.used_at):
            if session.id not in self._acts:
                await self.evict_idle(session)
                return True
        return False

    def _idle(self, spared: Collection[str]) -> list[Session]:
        return [each for each in self.known.values() if each.resident and not each.turns.busy and each.id not in spared]

    # ---------------------------------------------------------------------------------- evict, resume

    async def evict(self, session: Session) -> None:
        """Evict an idle session. If it is not stored, it stays in memory and locked until it is stored."""
        await session.evict(_EVICTION)
        self.share(session)

    def share(self, session: Session) -> None:
        """Unlock an evicted session for other processes if it is stored."""
        if self._store is not None and not session.resident and session.transcript.stored:
            session.trust_store()
            session.transcript.store_in(
                self._store.of(session.id)
            )  # the last repository holds the conversation in memory
            self._lock.release(session.id)

    async def resume(self, session: Session) -> None:
        """Make an evicted session resident again, with the options chosen elsewhere meanwhile. Raises RequestError."""
        # A session that is not stored is still locked, so no other process can have continued it.
        session.resumed(await self._reclaimed(session) if session.transcript.stored else None)

    async def store_options(self, session: Session) -> None:
        """Store the options that the user has chosen for an evicted session.

        If another process has the session open, or the write fails, the options are stored when it is resumed.
        """
        if session.chosen_while_evicted and session.transcript.stored and self._lock.is_free(session.id):
            with suppress(RequestError):  # already logged
                await self.resume(session)
                with anyio.CancelScope(shield=True):  # otherwise it would stay locked for other processes
                    await self.evict(session)

    async def replace(self, before: Session) -> None:
        """Close a stored session so that it can be opened again. A RequestError leaves it unchanged."""
        async with self._lock.taken(before.id):  # another process may have an evicted session open
            if before.chosen_while_evicted and before.transcript.stored:
                await self.resume(before)
            await before.transcript.flush()
            must_be_idle(before)
            if not before.transcript.stored:
                raise RequestFailed("what was said last is not kept yet: the database cannot be written now")
            del self.known[before.id]
            await before.close(tell=False)
        self._lock.release(before.id)  # the caller takes it at once

    async def is_stored(self, session_id: str) -> bool:
        """Return whether the store has the whole session. If not, only this process has it, in memory.

        Raises RequestError if the session is in neither, or if the store cannot be read.
        """
        assert self._store is not None, "without a store nothing is asked"
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

    async def _reclaimed(self, session: Session) -> SessionOptions:
        """Lock an evicted session, and return its options in the store. Raises RequestError."""
        assert self._store is not None, "it is stored"
        async with self._lock.taken(session.id):
            options = await readable(self._store.of(session.id).conduct())
            if options is None:
                del self.known[session.id]
                raise SessionNotFound(session.id)
            return options


def must_be_idle(session: Session | None) -> None:
    """Raise RequestError if a turn runs."""
    if session is not None and session.turns.busy:
        raise InvalidState("the session has a prompt in progress: cancel it first")
