"""When a model is asked again, how long after, and when not."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.core.messages import Message, ModelDone, ModelEvent, ModelStop, ModelText, Role
from acp_agent.core.ports import ModelRequest
from acp_agent.llm.retry import RetryingProvider, RetryPolicy

pytestmark = pytest.mark.anyio

DONE = ModelDone(Message(Role.ASSISTANT, ()), ModelStop.END)
REQUEST = ModelRequest("", ())
BUSY = ProviderError("acme is overloaded", kind=ProviderErrorKind.OVERLOADED, status=529)
REFUSED = ProviderError("acme refused the API key", kind=ProviderErrorKind.AUTH, status=401)


def limited(retry_after: float) -> ProviderError:
    return ProviderError("slow down", kind=ProviderErrorKind.RATE_LIMITED, status=429, retry_after=retry_after)


@dataclass
class FlakyProvider:
    """Plays one script of events and errors an attempt; remembers how often it was asked and closed."""

    attempts: Sequence[Sequence[ModelEvent | ProviderError]]
    name: str = "acme"
    model: str = "m-1"
    context_window: int = 1000
    asked: int = 0
    closed: int = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        script = self.attempts[self.asked]
        self.asked += 1
        try:
            for item in script:
                if isinstance(item, ProviderError):
                    raise item
                yield item
        finally:
            self.closed += 1


@dataclass
class Rig:
    """A RetryingProvider whose sleeping only moves its clock."""

    flaky: FlakyProvider
    policy: RetryPolicy
    slept: list[float] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.provider = RetryingProvider(
            self.flaky,
            on_retry=self.tell,
            policy=self.policy,
            sleep=self.sleep,
            clock=lambda: self.now,
            chance=lambda: 0.5,
        )

    async def tell(self, text: str) -> None:
        self.told.append(text)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def run(self) -> list[ModelEvent]:
        return [event async for event in self.provider.stream(REQUEST)]


def rig(*attempts: Sequence[ModelEvent | ProviderError], policy: RetryPolicy | None = None) -> Rig:
    return Rig(FlakyProvider(attempts), policy or RetryPolicy(jitter=0))


async def test_an_answer_passes_through_untouched() -> None:
    it = rig([ModelText("a"), DONE])
    assert await it.run() == [ModelText("a"), DONE]
    assert (it.slept, it.told, it.flaky.asked) == ([], [], 1)
    assert (it.provider.name, it.provider.model, it.provider.context_window) == ("acme", "m-1", 1000)


async def test_a_passing_fault_is_retried_with_growing_waits_and_told() -> None:
    it = rig([BUSY], [BUSY], [ModelText("a"), DONE])
    assert await it.run() == [ModelText("a"), DONE]
    assert it.slept == [0.3, 0.6]
    assert it.told == [
        "acme is overloaded; trying again in 0.3 s (2 of 3)",
        "acme is overloaded; trying again in 0.6 s (3 of 3)",
    ]


async def test_after_the_last_attempt_the_error_says_how_often() -> None:
    it = rig([BUSY], [BUSY], [BUSY], [DONE])
    with pytest.raises(ProviderError, match=r"acme is overloaded \(tried 3 times\)") as caught:
        await it.run()
    assert (caught.value.kind, caught.value.status) == (ProviderErrorKind.OVERLOADED, 529)
    assert it.flaky.asked == 3


async def test_what_no_repetition_mends_is_not_repeated() -> None:
    it = rig([REFUSED], [DONE])
    with pytest.raises(ProviderError) as caught:
        await it.run()
    assert caught.value is REFUSED
    assert it.flaky.asked == 1


async def test_nothing_is_repeated_once_an_event_went_out() -> None:
    it = rig([ModelText("Hel"), BUSY], [DONE])
    with pytest.raises(ProviderError) as caught:
        await it.run()
    assert caught.value is BUSY
    assert it.flaky.asked == 1


async def test_the_server_says_how_long_to_wait() -> None:
    it = rig([limited(7)], [limited(0)], [DONE])
    assert await it.run() == [DONE]
    assert it.slept == [7, 0]


async def test_a_server_that_asks_for_too_long_is_not_waited_for() -> None:
    it = rig([limited(61)], [DONE])
    with pytest.raises(ProviderError, match="slow down"):
        await it.run()
    assert it.slept == []


async def test_the_budget_bounds_all_attempts_together() -> None:
    it = rig([limited(50)], [limited(50)], [DONE], policy=RetryPolicy(budget=90))
    with pytest.raises(ProviderError, match="tried 2 times"):
        await it.run()
    assert it.slept == [50]


async def test_every_attempt_is_closed_before_the_next() -> None:
    it = rig([BUSY], [ModelText("a"), DONE])
    async with aclosing(it.provider.stream(REQUEST)) as events:
        assert await anext(events) == ModelText("a")
        assert it.flaky.closed == 1
    assert it.flaky.closed == 2


@given(
    failures=st.integers(1, 20),
    chance=st.floats(0, 1, exclude_max=True),
    retry_after=st.none() | st.floats(0, 1e6),
    kind=st.sampled_from(ProviderErrorKind),
)
def test_a_wait_is_never_longer_than_the_policy_allows(
    failures: int, chance: float, retry_after: float | None, kind: ProviderErrorKind
) -> None:
    policy = RetryPolicy(attempts=10)
    error = ProviderError("x", kind=kind, retry_after=retry_after)
    wait = policy.wait(failures, error, chance)
    if wait is None:
        assert failures >= policy.attempts or not error.retryable or (retry_after or 0) > policy.longest_asked
    elif retry_after is not None:
        assert wait == retry_after <= policy.longest_asked
    else:
        undisturbed = min(0.3 * 2 ** (failures - 1), 30.0)
        assert undisturbed * 0.9 <= wait <= undisturbed * 1.1
