"""Room for one turn at a time, what runs a turn, and how it ended."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import anyio

from acp_agent.core.editor import ReadPrompt
from acp_agent.core.errors import AgentError, InvalidState, RequestError, RequestFailed
from acp_agent.core.messages import StopReason
from acp_agent.core.redaction import Redact
from acp_agent.core.sessions import Change
from acp_agent.log import Log
from acp_agent.session.slash.commands import CommandName

_log = Log(__name__)
_CLOSING = 5.0
"""Seconds a cancelled turn may take to end before the session is closed all the same."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a turn ended. `failure` is what kept it from doing its work; the user has read about it."""

    reason: StopReason
    failure: AgentError | None = None


class Engine(Protocol):
    """What answers the prompts of one session."""

    @property
    def redact(self) -> Redact:
        """What removes secrets from texts. It must not keep the engine alive."""
        ...

    async def answer(self, read: ReadPrompt) -> Answer:
        """Run one turn. Raises RequestError for what is no prompt."""
        ...

    def state(self) -> Change:
        """Return what is to be stored now: history, usage, model."""
        ...

    async def kept(self) -> Change:
        """Return the same; long texts are redacted in a thread."""
        ...

    def commands(self) -> Collection[CommandName]:
        """Return the slash commands that make sense now."""
        ...

    async def answered(self, answer: Answer) -> None:
        """Do what can wait until the turn was answered, such as writing a title."""
        ...

    async def close(self) -> None:
        """Give back terminals, servers and children."""
        ...


class TurnSlot:
    """Runs turns, one at a time.

    used_at     when the last turn began or ended, on the clock of the event loop
    abandoned   whether the last turn was ended because the session ends, and not by the user
    """

    def __init__(self) -> None:
        self.abandoned = False
        self.used_at = anyio.current_time()
        self._scope: anyio.CancelScope | None = None
        self._over = anyio.Event()
        self._closed = False

    @property
    def busy(self) -> bool:
        """Whether a turn runs."""
        return self._scope is not None

    @property
    def going_on(self) -> bool:
        """Whether a turn runs that nobody has cancelled."""
        return self._scope is not None and not self._scope.cancel_called

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def touch(self) -> None:
        """Count the session as used now."""
        self.used_at = anyio.current_time()

    @asynccontextmanager
    async def turn(self, settle: Callable[[bool], Awaitable[None]]) -> AsyncGenerator[anyio.CancelScope]:
        """Let the body be the running turn, under the scope that ends it. What a cancellation breaks is not raised.

        Raises RequestError if another turn runs, as the body does, or on a bug of ours.

        settle   called at the end of the turn in any case, while it still counts as running; told whether it was
                 cancelled
        """
        if self._closed:
            raise InvalidState("the session is being closed")
        if self._scope is not None:
            raise InvalidState("prompt already in progress")
        scope = self._scope = anyio.CancelScope()
        self.abandoned = False
        self.touch()
        try:
            with scope:
                yield scope
        except RequestError:
            if not scope.cancel_called:
                raise
        except Exception:  # noqa: BLE001 - top of a turn: what a cancellation breaks is `cancelled`, the rest is our bug
            if not scope.cancel_called:
                _log.error("turn failed", exc_info=True)
                raise RequestFailed from None
        finally:
            try:
                await settle(scope.cancel_called)
            finally:
                self._end()

    def cancel(self) -> None:
        """End the running turn. Does nothing when none runs, so that a late cancel cannot hit the next turn."""
        if self._scope is not None:
            self._scope.cancel()

    def abandon(self) -> None:
        """End the running turn because the session ends: nobody wants an answer any more."""
        if self._scope is not None and not self._scope.cancel_called:
            self.abandoned = True
            self._scope.cancel()

    async def close(self, within: float = _CLOSING) -> None:
        """Let no turn begin any more, cancel the running one, and wait for its end for up to `within` seconds."""
        self._closed = True
        self.abandon()
        with anyio.move_on_after(within):
            while self._scope is not None:
                await self._over.wait()

    def _end(self) -> None:
        self._scope = None
        self.touch()
        over, self._over = self._over, anyio.Event()
        over.set()
