"""Asks a model again when it is worth it (requirements G25; dependencies.md, condition 4)."""

import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import NamedTuple

import anyio

from acp_agent.core.errors import ProviderError
from acp_agent.core.messages import ModelEvent
from acp_agent.core.ports import ModelRequest, Provider
from acp_agent.llm.closing import closing
from acp_agent.llm.wrapper import WrapperProvider


class RetryPolicy(NamedTuple):
    """When and how often. Times in seconds.

    attempts          requests in all, the first one included
    base, ceiling     the wait doubles from `base` up to `ceiling`
    jitter            share of the wait that is random, both ways
    longest_asked     a server that asks to wait longer than this has answered "not now": give up
    budget            no further attempt starts later than this after the first one
    """

    attempts: int = 3
    base: float = 0.3
    ceiling: float = 30.0
    jitter: float = 0.1
    longest_asked: float = 60.0
    budget: float = 120.0

    def wait(self, failures: int, error: ProviderError, chance: float) -> float | None:
        """How long to wait after the n-th failure, or None to give up. `chance` is in [0, 1)."""
        if not error.retryable or failures >= self.attempts:
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= self.longest_asked else None
        wait = min(self.base * 2 ** (failures - 1), self.ceiling)
        return wait * (1 + self.jitter * (2 * chance - 1))


class RetryingProvider(WrapperProvider):
    """A Provider that repeats a failed request, only as long as nothing of an answer has come through.

    Once an event went out, a repetition would say things twice, so the error goes on instead. `on_retry` is
    told, in words for the user, why and when it tries again. `sleep`, `clock` and `chance` are for tests.
    """

    def __init__(
        self,
        wrapped: Provider,
        *,
        on_retry: Callable[[str], Awaitable[None]],
        policy: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(wrapped)
        self._on_retry = on_retry
        self._policy = policy or RetryPolicy()
        self._sleep = sleep
        self._clock = clock
        self._chance = chance

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """As the port says. Raises the last ProviderError when it gives up."""
        started, failures = self._clock(), 0
        while True:
            silent = True
            try:
                async with closing(self.wrapped.stream(request)) as events:
                    async for event in events:
                        silent = False
                        yield event
                return
            except ProviderError as error:
                failures += 1
                wait = self._policy.wait(failures, error, self._chance()) if silent else None
                if wait is None or self._clock() - started + wait > self._policy.budget:
                    if failures == 1:
                        raise
                    raise _exhausted(error, failures) from error
                message = f"{error}; trying again in {wait:.1f} s ({failures + 1} of {self._policy.attempts})"
            await self._on_retry(message)
            await self._sleep(wait)


def _exhausted(error: ProviderError, attempts: int) -> ProviderError:
    """The same error, saying how often it was tried."""
    message = f"{error} (tried {attempts} times)"
    return ProviderError(message, kind=error.kind, status=error.status, retry_after=error.retry_after)
