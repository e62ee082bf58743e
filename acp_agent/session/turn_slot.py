"""The slot for the one turn that a session may run, and the answer at its end."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

import anyio

from acp_agent.core.data import frozen
from acp_agent.core.errors import AgentError, InvalidState, RequestError, RequestFailed
from acp_agent.core.messages import StopReason
from acp_agent.log import Log

_log = Log(__name__)
_PAUSE = 0.05
"""Seconds to wait after a turn, in case the editor sends the next prompt at once."""
_ENDING = 0.3
"""Seconds that `cancelled_over` waits for the end of a cancelled turn."""
_CLOSING = 5.0
"""Seconds that a cancelled turn may take to end. After that the session is closed anyway."""


@frozen
class Answer:
    """The end of a turn. `failure` is the error that stopped it, which the user has already been shown."""

    reason: StopReason
    failure: AgentError | None = None


class TurnSlot:
    """The one place in which a turn of the session may run.

    used_at         the time when the last turn began or ended, on the clock of the event loop
    closed          whether `close` was called
    session_ended   whether the last turn was cancelled because the session ends or is loaded again, and not by the user
    scheduled       whether the turn that runs, or ran last, is one of a scheduled prompt. A prompt of the user ends it
    gave_way        whether a prompt of the user has ended the last turn
    """

    def __init__(self) -> None:
        self.session_ended = self.scheduled = self.gave_way = False
        self.used_at = anyio.current_time()
        self._scope: anyio.CancelScope | None = None
        self._arriving: set[anyio.CancelScope] = set()  # prompts that wait for the end of a scheduled turn
        self._over = asyncio.Event()
        self.closed = False

    @property
    def busy(self) -> bool:
        """Whether a turn runs."""
        return self._scope is not None

    @property
    def runs_scheduled(self) -> bool:
        """Whether a turn of a scheduled prompt runs."""
        return self._scope is not None and self.scheduled

    @property
    def going_on(self) -> bool:
        """Whether a turn runs that has not been cancelled."""
        return self._scope is not None and not self._scope.cancel_called

    def touch(self) -> None:
        """Count the session as used now."""
        self.used_at = anyio.current_time()

    @asynccontextmanager
    async def turn(
        self, settle: Callable[[bool], Awaitable[None]], *, scheduled: bool = False
    ) -> AsyncGenerator[anyio.CancelScope]:
        """Run the body as the turn, in the yielded scope, which `cancel` cancels. A cancelled turn raises no errors.

        Raises RequestError if another turn runs or the session is being closed, if the body raises it, or if the agent
        has a bug.

        settle      called at the end of every turn, while it still counts as running. Its argument says whether the
                    turn was cancelled
        scheduled   whether it is the turn of a scheduled prompt. A prompt of the user ends such a turn
        """
        scope = anyio.CancelScope()
        if not scheduled:
            await self._end_scheduled(scope)
        if self.closed:
            raise InvalidState("the session is being closed")
        if self._scope is not None:
            raise InvalidState("prompt already in progress")
        self._scope, self.scheduled = scope, scheduled
        self.session_ended = self.gave_way = False
        self.touch()
        try:
            with scope:
                yield scope
        except RequestError:
            if not scope.cancel_called:
                raise
        except Exception:  # noqa: BLE001 - top of a turn: an error after a cancellation is ignored, others are bugs
            if not scope.cancel_called:
                _log.error("turn failed", exc_info=True)
                raise RequestFailed from None
        finally:
            try:
                await settle(scope.cancel_called)
            finally:
                self._scope = None
                self.touch()
                over, self._over = self._over, asyncio.Event()
                over.set()

    async def _end_scheduled(self, scope: anyio.CancelScope) -> None:
        """Cancel a scheduled turn, and wait for its end. Meanwhile `cancel` cancels `scope`, the new prompt's."""
        self._arriving.add(scope)
        try:
            while self._scope is not None and self.scheduled:
                self.gave_way = self.gave_way or not self._scope.cancel_called
                self._scope.cancel()
                await self.over()
        finally:
            self._arriving.discard(scope)

    @property
    def ended(self) -> asyncio.Event:
        """The event that the end of the running turn sets, or of the next one if none runs."""
        return self._over

    async def over(self) -> None:
        """Wait until the running turn has ended, or the next one if none runs."""
        await self._over.wait()

    async def cancelled_over(self) -> None:
        """Wait a moment for the end of a turn that was cancelled. Return at once if no such turn runs."""
        if self.busy and not self.going_on:
            with anyio.move_on_after(_ENDING):
                await self.over()

    def cancel(self) -> None:
        """Cancel the running turn. Do nothing if none runs, so that a late cancel cannot end the next turn."""
        for scope in (self._scope, *self._arriving):
            if scope is not None:
                scope.cancel()

    def end_with_session(self) -> None:
        """Cancel the running turn because the session ends, so no answer is needed."""
        if self._scope is not None and not self._scope.cancel_called:
            self.session_ended = True
            self._scope.cancel()

    async def end_scheduled_with_session(self) -> None:
        """Cancel a scheduled turn as `end_with_session` does, and wait for its end."""
        while self.runs_scheduled:
            self.end_with_session()
            await self.over()

    async def close(self, within: float = _CLOSING) -> None:
        """Refuse new turns, cancel the running one, and wait up to `within` seconds for its end."""
        self.closed = True
        self.end_with_session()
        with anyio.move_on_after(within):
            while self._scope is not None:
                await self.over()


class IdleWaiter:
    """A callable that waits until no turn runs, so that other work does not slow down the answers of other sessions.

    slots      returns the slots of all sessions
    patience   the most seconds to wait
    """

    def __init__(self, slots: Callable[[], Iterable[TurnSlot]], patience: float = 1.0) -> None:
        self._slots = slots
        self._patience = patience
        self._one_at_a_time = anyio.Lock(fast_acquire=True)

    async def __call__(self) -> None:
        """Wait until no turn has run for a moment, or until `patience` is over."""
        with anyio.move_on_after(self._patience):
            await anyio.sleep(_PAUSE)
            async with self._one_at_a_time:
                while (running := next((slot for slot in self._slots() if slot.busy), None)) is not None:
                    await running.over()
                    await anyio.sleep(_PAUSE)
