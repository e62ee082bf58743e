"""The sessions that this process knows: how many are resident, and how they are evicted and resumed."""

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
"""Files that a session may open at once: its folders, pipes of commands and MCP servers, connections."""
_EVICTION = 0.5
"""Seconds the store may delay an eviction: another session waits for the room."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """`[acp]` max_sessions and session_idle_timeout_secs. With 0 seconds idle sessions stay resident."""

    resident: int = 16
    idle_seconds: float = 1800.0


class SessionPool:
    """Keeps at most `max_sessions` sessions resident: the idle one that was used longest ago is evicted for a new one.

    Idle sessions are also evicted where this process can hardly open another file. An evicted session gives its lock
    back, so another process may go on with it. Callers hold the session's KeyedLock.

    known    all sessions of this process, by their ids
    limits   by the configuration
    store    where sessions are stored; None where nothing is
    acts     what is being done to sessions just now
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

        Waits while other sessions are being evicted or closed. Raises RequestError if all are busy, or if no more files
        can be opened.

        spared       ids of sessions that are not evicted for it
        instead_of   a session whose place it takes
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
        """Evict a session, unless a turn runs or it is not resident. Takes its KeyedLock."""
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
        """Return whether a session could be evicted as soon as its lock is free, and does not itself wait for room."""
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
        """Evict an idle session. If it is not stored, it remembers everything, and stays locked until it is stored."""
        await session.evict(_EVICTION)
        self.share(session)

    def share(self, session: Session) -> None:
        """Let other processes have an evicted session, if it is stored."""
        if self._store is not None and not session.resident and session.transcript.stored:
            session.trust_store()
            session.transcript.store_in(
                self._store.of(session.id)
            )  # the last repository holds the conversation in memory
            self._lock.release(session.id)

    async def resume(self, session: Session) -> None:
        """Make an evicted session resident again, with the options chosen elsewhere meanwhile. Raises RequestError."""
        # What is not stored is only here: nobody else can have gone on with it.
        session.resumed(await self._reclaimed(session) if session.transcript.stored else None)

    async def store_options(self, session: Session) -> None:
        """Store what the user has chosen for an evicted session.

        If another process has it open, or nothing can be written, that waits until it is resumed.
        """
        if session.chosen_while_evicted and session.transcript.stored and self._lock.is_free(session.id):
            with suppress(RequestError):  # the log has it
                await self.resume(session)
                with anyio.CancelScope(shield=True):  # or no other process could ever have it
                    await self.evict(session)

    async def replace(self, before: Session) -> None:
        """Close a session that is stored, to open it anew. Raises RequestError, and then it is as it was."""
        async with self._lock.taken(before.id):  # an evicted session may be open elsewhere
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
        """Return whether the store has the whole of a session; if not, it is in the memory of this process alone.

        Raises RequestError if neither is so, or if the store cannot be read.
        """
        assert self._store is not None, "without a store nothing is asked"
        before = self.known.get(session_id)
        if before is not None:
            await before.transcript.flush()
        # Once it was evicted and stored, it may have gone on in another process: then only the store knows.
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
