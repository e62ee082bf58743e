"""How many sessions of a process are awake: who makes room for one more (A11)."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager

from acp_agent.core.process_limits import can_open
from acp_agent.protocol.jsonrpc import INTERNAL_ERROR, RpcError
from acp_agent.protocol.one_at_a_time import OneAtATime
from acp_agent.protocol.session import Session
from acp_agent.protocol.session_opening import SessionLimits

_DESCRIPTORS = 32
"""Files that one more session may open at once: its folders, pipes of commands and MCP servers, connections."""


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
