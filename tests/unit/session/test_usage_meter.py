"""What a session's model calls cost: call by call, each by its own price."""

from collections.abc import AsyncIterator

import pytest

from acp_agent.core.errors import ConfigError, ProviderError, ProviderErrorKind
from acp_agent.core.messages import ModelEvent, ModelText, Usage
from acp_agent.core.ports import ModelRequest
from acp_agent.core.sessions import UsageTotals
from acp_agent.llm.models import ModelRef, Price
from acp_agent.llm.retry import MeteredProvider
from acp_agent.session.models import UsageMeter
from tests.fakes.scripted_provider import ScriptedProvider, Step, say

A, B = ModelRef("a", "m"), ModelRef("b", "m")
PRICES = {A: Price(input=1, output=2, over=100_000, over_input=2, over_output=2), B: Price(input=10, output=10)}


def meter(*calls: tuple[ModelRef, Usage | None]) -> UsageMeter:
    made = UsageMeter()
    for ref, usage in calls:
        made.add(PRICES.get, ref, usage)
    return made


def test_a_surcharge_for_long_prompts_is_of_the_call_that_was_long_not_of_the_sum():
    small = Usage(input=90_000, output=1_000)
    assert meter((A, small), (A, small)).status() == ("Tokens: 180,000 read, 2,000 written; $0.1840",)
    assert meter((A, Usage(input=110_000))).status() == ("Tokens: 110,000 read, 0 written; $0.2200",)


def test_two_models_have_two_prices():
    call = Usage(input=100_000, output=10_000)
    assert meter((A, call), (B, call)).status()[0].endswith("; $1.2200")


@pytest.mark.parametrize(
    "unknown", [(ModelRef("c", "m"), Usage(input=1)), (A, Usage(cache_read=1)), (A, Usage()), (A, None)]
)
def test_what_nobody_can_price_makes_it_at_least_that_much(unknown):
    assert meter((A, Usage(input=100_000)), unknown).status()[0].endswith("; at least $0.1000")
    assert "$" not in "".join(meter(unknown).status())


def test_a_provider_that_is_gone_has_no_price():
    def price(ref: ModelRef) -> Price | None:
        raise ConfigError("[llm]", "model", str(ref), "a configured provider")

    made = UsageMeter()
    made.add(price, A, Usage(input=1))
    assert made.status() == ("Tokens: 1 read, 0 written",)


def test_a_meter_goes_on_where_a_stored_session_had_come_to():
    before = meter((A, Usage(input=100_000)), (A, None))
    assert (before.cost, before.complete) == (0.1, False)
    assert (meter().cost, meter((A, None)).cost, meter().complete) == (None, None, True)
    after = UsageMeter()
    after.restore(UsageTotals(usage=before.tokens, cost=before.cost, complete=before.complete))
    assert after.status() == before.status()
    after.add(PRICES.get, A, Usage(input=100_000))
    assert after.status() == ("Tokens: 200,000 read, 0 written; at least $0.2000",)
    after.restore(UsageTotals())
    assert (after.status(), after.cost) == ((), None)


@pytest.mark.anyio
async def test_a_metered_call_is_told_once_with_its_model_and_one_that_breaks_off_as_unknown():
    told: list[tuple[ModelRef, Usage | None]] = []
    failing = ProviderError("gone", kind=ProviderErrorKind.NETWORK)
    script = [say("hello"), Step(text="half", failure=failing), failing]
    provider = MeteredProvider(ScriptedProvider(script, name="a", model="m"), lambda *call: told.append(call))
    assert (provider.name, provider.model, provider.context_window) == ("a", "m", 200_000)
    await _all(provider.stream(ModelRequest("", ())))
    for _ in range(2):
        with pytest.raises(ProviderError, match="gone"):
            await _all(provider.stream(ModelRequest("", ())))
    assert told == [(A, Usage(input=100, output=10)), (A, None)]


async def _all(events: AsyncIterator[ModelEvent]) -> bool:
    return any([isinstance(event, ModelText) async for event in events])
