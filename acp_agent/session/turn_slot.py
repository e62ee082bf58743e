"""Room for one turn at a time (A12.1, A12.2)."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Protocol

import anyio

from acp_agent.core.errors import AgentError
from acp_agent.core.messages import StopReason
from acp_agent.core.redaction import Redact, verbatim
from acp_agent.core.sessions import Change
from acp_agent.core.types import JsonObject
from acp_agent.log import Log
from acp_agent.protocol.jsonrpc import RpcError, internal_error, invalid_request
from acp_agent.session.slash.commands import Name


@dataclass(frozen=True, slots=True)
class Answer:
    """How a turn ended. `failure` is what kept it from doing its work; the user has read about it."""

    reason: StopReason
    failure: AgentError | None = None

    def to_wire(self, redact: Redact = verbatim) -> JsonObject:
        """ACP `PromptResponse`; a failure goes into `_meta`, for clients without a person in front."""
        response: JsonObject = {"stopReason": self.reason.value}
        if self.failure is not None:
            response["_meta"] = {"acp_agent": {"failure": redact(str(self.failure))}}
        return response


class Engine(Protocol):
    """What answers prompts."""

    async def answer(self, params: JsonObject) -> Answer:
        """Run one turn on the raw `session/prompt` params. Raises RpcError for params that are no prompt."""
        ...

    def state(self) -> Change:
        """What is to be kept of it now: history, tally, model."""
        ...

    async def kept(self) -> Change:
        """The same; what takes a while is done beside the loop."""
        ...

    def commands(self) -> Collection[Name]:
        """The slash commands that make sense now."""
        ...

    async def answered(self, answer: Answer) -> None:
        """The turn was answered: the time for what nobody waits for, such as a title."""
        ...

    async def close(self) -> None:
        """Give back what it holds: terminals, servers, children (A10.3)."""
        ...


_log = Log(__name__)
_ENDS = 5.0
"""Seconds a turn that was told to end may take, before what it holds is taken from it (A10.1)."""


class TurnSlot:
    """Runs turns.

    used_at     when one last began or ended, on the clock of the event loop (A11.3)
    abandoned   whether the last was ended since the session ends, and not by the user
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

    async def run(self, turn: Callable[[], Awaitable[Answer]], settle: Callable[[bool], Awaitable[None]]) -> Answer:
        """Run one turn to its answer. Raises RpcError when one is running, as the turn raises it, or on a bug of ours.

        settle   called at the end of it, whatever became of it, while it still counts as running; told whether it was
                 cancelled
        """
        if self._closed:
            raise invalid_request("the session is being closed")
        if self._scope is not None:
            raise invalid_request("prompt already in progress")
        scope = self._scope = anyio.CancelScope()
        self.used_at, self.abandoned = anyio.current_time(), False
        answer = Answer(StopReason.CANCELLED)
        try:
            with scope:
                answer = await turn()
        except RpcError:
            if not scope.cancel_called:
                raise
        except Exception:  # noqa: BLE001 - top of a turn: what an abort breaks is `cancelled`, the rest our bug (A13.4)
            if not scope.cancel_called:
                _log.error("turn failed", exc_info=True)
                raise internal_error() from None
        finally:
            try:
                await settle(scope.cancel_called)
            finally:
                self._end()
        return Answer(StopReason.CANCELLED) if scope.cancel_called else answer

    def cancel(self) -> None:
        """End the running turn; nothing when none runs, so that a late cancel cannot hit the next (A12.3)."""
        if self._scope is not None:
            self._scope.cancel()

    def abandon(self) -> None:
        """The same, where nobody is there any more who could want an answer."""
        if self._scope is not None and not self._scope.cancel_called:
            self.abandoned = True
            self._scope.cancel()

    async def close(self, within: float = _ENDS) -> None:
        """No turn begins any more; the running one is cancelled, and waited for so many seconds (A10.2, A12.14)."""
        self._closed = True
        self.abandon()
        with anyio.move_on_after(within):
            while self._scope is not None:
                await self._over.wait()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def _end(self) -> None:
        self._scope = None
        self.used_at = anyio.current_time()
        over, self._over = self._over, anyio.Event()
        over.set()
