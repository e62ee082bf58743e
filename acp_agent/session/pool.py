"""How many sessions of a process are awake: who makes room for one more (A11)."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, MutableMapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio

from acp_agent.core.conduct import Conduct
from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.process_limits import can_open
from acp_agent.protocol.client import Client
from acp_agent.protocol.jsonrpc import INTERNAL_ERROR, RpcError, invalid_request, session_not_found
from acp_agent.session.locks import OneAtATime, SessionHold, asked, unreadable
from acp_agent.session.session import Place, Session
from acp_agent.store.sessions import SessionStore

_DESCRIPTORS = 32
"""Files that one more session may open at once: its folders, pipes of commands and MCP servers, connections."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """`[acp]` max_sessions and session_idle_timeout_secs; 0 seconds keep idle sessions awake."""

    awake: int = 16
    idle_seconds: float = 1800.0


class SessionRoom:
    """At most `max_sessions` are awake; the idle one that was used the longest time ago makes room (A11.1).

    Where this process can hardly open another file, idle sessions give theirs back, too.

    known     all sessions there are
    lay_down  puts one to rest that is idle
    acts      what happens to sessions just now
    """

    def __init__(
        self,
        known: Mapping[str, Session],
        limits: Callable[[], SessionLimits],
        lay_down: Callable[[Session], Awaitable[None]],
        acts: OneAtATime,
    ) -> None:
        self._known = known
        self._limits = limits
        self._lay_down = lay_down
        self._acts = acts
        self._opening = 0
        self._waiting: set[str] = set()

    @asynccontextmanager
    async def made(self, *spared: str, instead_of: Session | None = None) -> AsyncGenerator[None]:
        """Room for one more session that is awake, while the body makes it. Raises RpcError when all are busy.

        Also when no more files can be opened. It is an act upon one session: who waits for room hears when another act
        has ended.

        spared       ids of sessions that are not put to rest for it
        instead_of   one whose place it takes
        """
        self._waiting.update(spared)
        try:
            await self._find(spared, instead_of)
        finally:
            self._waiting.difference_update(spared)
        self._opening += 1
        try:
            yield
        finally:
            self._opening -= 1

    async def rest(self, session: Session) -> None:
        """Put one to rest, if that can be: no turn runs, and it is awake."""
        async with self._acts.of(session.id):
            if not session.turns.busy and session.awake:
                await self._lay_down(session)

    async def _find(self, spared: Collection[str], instead_of: Session | None) -> None:
        most = self._limits().awake
        while self._awake(instead_of) + self._opening >= most:
            if await self._rest_oldest(spared):
                continue
            if not self._opening and not self._is_any_held_up(spared):
                raise RpcError(INTERNAL_ERROR, f"session limit reached: {most} sessions are busy in this process")
            await self._acts.one_ended()
        while not can_open(_DESCRIPTORS):
            if not await self._rest_oldest(spared):
                advice = "close sessions, or let the agent have more open files (ulimit -n)"
                raise RpcError(INTERNAL_ERROR, f"too many files are open in this process: {advice}")

    def _is_any_held_up(self, spared: Collection[str]) -> bool:
        """Whether one could make room as soon as what happens to it is over, which does not itself wait for room."""
        held_up = (each.id in self._acts and each.id not in self._waiting for each in self._idle(spared))
        return any(held_up)

    def _awake(self, but_for: Session | None) -> int:
        return sum(session.awake for session in self._known.values() if session is not but_for)

    async def _rest_oldest(self, spared: Collection[str]) -> bool:
        """Put the idle session to rest that was used the longest time ago; False when there is none."""
        for session in sorted(self._idle(spared), key=lambda each: each.turns.used_at):
            if session.id not in self._acts:  # or something happens to it just now
                await self.rest(session)
                return True
        return False

    def _idle(self, spared: Collection[str]) -> list[Session]:
        return [each for each in self._known.values() if each.awake and not each.turns.busy and each.id not in spared]


_MOMENT = 0.5
"""Seconds the store may hold up a session that is put to rest: others wait for its room."""


class SessionRest:
    """Puts them to rest, and has them go on. Whoever calls sees to it that nothing else happens to the session.

    known   all sessions there are
    store   where they are kept; None where nothing is
    """

    def __init__(self, known: MutableMapping[str, Session], store: SessionStore | None, hold: SessionHold) -> None:
        self._known = known
        self._store = store
        self._hold = hold

    async def lay_down(self, session: Session) -> None:
        """Put one to rest that is idle. One that is not kept remembers all of it, and stays ours until it is."""
        await session.rest(_MOMENT)
        self.share(session)

    def share(self, session: Session) -> None:
        """Let other processes have one that rests, if it is kept."""
        if self._store is not None and not session.awake and session.story.kept:
            session.trust_store()
            session.story.keep_with(self._store.of(session.id))  # the former holds the conversation in memory
            self._hold.give_back(session.id)

    async def end(self, session: Session) -> None:
        """Have one go on, with what others have chosen for it meanwhile. Raises RpcError."""
        # What is not kept is only here: nobody else can have gone on with it.
        session.woke(await self._reclaimed(session) if session.story.kept else None)

    async def keep_choice(self, session: Session) -> None:
        """Write what the user has chosen for one that rests (A7.5).

        Where another process has it open just now, or nothing can be written, that waits until it wakes.
        """
        if session.chosen_at_rest and session.story.kept and self._hold.is_free(session.id):
            with suppress(RpcError):  # the log has it
                await self.end(session)
                with anyio.CancelScope(shield=True):  # or nobody else could ever have it
                    await self.lay_down(session)

    async def make_way(self, before: Session) -> None:
        """End what was known of a session, all of which is kept. Raises RpcError, and then it is as it was."""
        async with self._hold.taken(before.id):  # one that rests may be open elsewhere
            if before.chosen_at_rest and before.story.kept:
                await self.end(before)
            await before.story.settle()
            must_be_idle(before)
            if not before.story.kept:
                raise RpcError(INTERNAL_ERROR, "what was said last is not kept yet: the database cannot be written now")
            del self._known[before.id]
            await before.close(tell=False)
        self._hold.give_back(before.id)  # for who takes it at once

    async def is_kept(self, session_id: str) -> bool:
        """Return whether the store has the whole of a session; if not, it is in the memory of this process alone.

        Raises RpcError where neither is so, or nobody can tell.
        """
        assert self._store is not None, "without a store nothing is asked"
        before = self._known.get(session_id)
        if before is not None:
            await before.story.settle()
        # At rest and kept it may have gone on in another process: then only the store knows.
        is_ours = before is not None and (before.awake or not before.story.kept)
        try:
            record = await self._store.find(session_id)
        except StoreUnavailable as error:
            if is_ours:
                return False
            raise unreadable(error) from None
        if record is None and not is_ours:
            raise session_not_found(session_id)
        return record is not None and (before is None or before.story.kept)

    async def move(self, session: Session, place: Place, client: Client) -> Session:
        """Put one to rest that is in memory alone, and have it go on in another place."""
        await self.lay_down(session)
        session.client, session.place = client, place
        session.move(place.cwd)
        return session

    async def _reclaimed(self, session: Session) -> Conduct:
        """Hold one that rested, while others could do with it what they liked; what is chosen now. Raises RpcError."""
        assert self._store is not None, "it is kept"
        async with self._hold.taken(session.id):
            conduct = await asked(self._store.of(session.id).conduct())
            if conduct is None:
                del self._known[session.id]
                raise session_not_found(session.id)
            return conduct


def must_be_idle(session: Session | None) -> None:
    """Raises RpcError where a turn runs."""
    if session is not None and session.turns.busy:
        raise invalid_request("the session has a prompt in progress: cancel it first")
