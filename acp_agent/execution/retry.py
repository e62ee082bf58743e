"""RetryExecutor: repeat calls that failed because of the network or a server.

It is next to the tool. A repetition is no new call: it does not ask and does not count for a quota. Only the last
result is filtered, cached, recorded and read by the model.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from time import monotonic

import anyio

from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.types import ToolResult
from acp_agent.execution.runner import ToolExecutor
from acp_agent.gates.gate import CallFacts
from acp_agent.log import Log

_LATER = "The system has given up on this call. Go on without it, or try it once more later."
_PROMISING = frozenset({ToolErrorCategory.RATE_LIMITED, ToolErrorCategory.SERVER_ERROR})
"""Categories whose suggestion says that the system will retry, which no returned result may say."""

_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class ToolRetries:
    """How often a call is repeated. All times are in seconds.

    attempts        further attempts after the first one; 0 for none
    base, longest   the n-th wait, counted from 0, is random between 0 and base * 2**n, at most `longest` (full jitter)
    budget          for all attempts of a call and the waits between them; the first attempt alone may take longer
    """

    attempts: int = 2
    base: float = 0.5
    longest: float = 5.0
    budget: float = 30.0

    def wait(self, number: int, chance: float) -> float:
        """Return the seconds before a repetition, counted from 0. `chance` is in [0, 1]."""
        return chance * min(self.base * 2.0 ** min(number, 64), self.longest)


class RetryExecutor:
    """Repeats a call that failed with one of the four retryable categories.

    A call that changes something or runs a command is never repeated. Every returned result says `retryable: false`,
    because the system will not try again. An attempt that runs when the budget ends is cancelled, and the failure
    before it is returned.

    clock, sleep, chance   for tests; `chance` returns a number in [0, 1)
    """

    def __init__(
        self,
        wrapped: ToolExecutor,
        retries: ToolRetries,
        *,
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._wrapped = wrapped
        self._retries = retries
        self._clock = clock
        self._sleep = sleep
        self._chance = chance

    async def execute(self, facts: CallFacts) -> ToolResult:
        """Run the call, several times if necessary."""
        begun = self._clock()
        result = await self._wrapped.execute(facts)
        repeatable = not (facts.spec.mutates or facts.commands)  # a command may change anything
        while repeatable and facts.attempts <= self._retries.attempts and _passing(result):
            wait = self._retries.wait(facts.attempts - 1, self._chance())
            if self._left(begun) <= wait:
                break
            _log.info("tool call repeated", tool=facts.spec.name, attempt=facts.attempts + 1, wait=round(wait, 2))
            await self._sleep(wait)
            again: ToolResult | None = None
            with anyio.move_on_after(self._left(begun)):
                facts.tried_again()
                again = await self._wrapped.execute(facts)
            if again is None:  # the time was up
                break
            result = again
        return result if result.failure is None else _final(result, result.failure, facts.attempts)

    def _left(self, begun: float) -> float:
        """Return the remaining seconds of the budget, 0 or more."""
        return max(0.0, begun + self._retries.budget - self._clock())


def _passing(result: ToolResult) -> bool:
    """Return whether a failure may pass by itself."""
    return result.failure is not None and result.failure.category.retryable


def _final(result: ToolResult, before: ToolFailure, attempts: int) -> ToolResult:
    """Return a result whose failure says how often it was tried, and promises no further attempt."""
    if not before.category.retryable:
        return result
    told = f"{before.message} (tried {attempts} times)" if attempts > 1 else before.message
    suggestion = before.suggestion or (_LATER if before.category in _PROMISING else "")
    failure = replace(before, message=told, suggestion=suggestion, retryable=False)
    text = failure.block() if result.text == before.block() else result.text
    display = failure.message if result.display == before.message else result.display
    return replace(result, text=text, display=display, failure=failure)
