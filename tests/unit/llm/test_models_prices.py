"""What a call costs, and when that is not said."""

import pytest

from acp_agent.config.llm_settings import ModelSettings, PriceSettings
from acp_agent.core.errors import ConfigError
from acp_agent.core.messages import Usage
from acp_agent.llm.catalog import Catalog, ModelRef, ProviderConfig, ProviderType
from acp_agent.llm.models import Price
from tests.rows import each_row

KEY = "fake-key-1234567890"


@each_row(
    "usage, dollars",
    [
        (Usage(), 0),
        (Usage(input=250_000), 0.5),
        (Usage(output=100_000), 1),
        (Usage(input=1000, output=1000, cache_read=10_000, cache_write=2000), 0.002 + 0.01 + 0.002 + 0.005),
        (Usage(input=272_000), 0.544),
        (Usage(input=272_001), 1.088004),
        (Usage(cache_read=272_001, output=1000), 2 * 0.0544002 + 1.5 * 0.01),
    ],
)
def test_a_call_costs_what_its_tokens_cost(usage: Usage, dollars: float) -> None:
    price = Price(input=2, output=10, cache_read=0.2, cache_write=2.5, over=272_000, over_input=2, over_output=1.5)
    assert price.cost(usage) == pytest.approx(dollars)


def test_what_is_not_known_is_not_guessed() -> None:
    assert Price(input=1, output=1).cost(Usage(input=1, cache_read=1)) is None
    assert Price(input=1, output=1).cost(Usage(input=1, cache_write=1)) is None
    assert Price(input=1, output=1, over=10).cost(Usage(input=11)) is None
    assert Price(input=1, output=1, over=10).cost(Usage(input=10)) == pytest.approx(1e-5)


@each_row(
    "type_, base_url, model, price",
    [
        (ProviderType.ANTHROPIC, "", "claude-opus-5", 5.0),
        (ProviderType.ANTHROPIC, "https://api.anthropic.com", "claude-opus-4-20250514", 15.0),
        (ProviderType.ANTHROPIC, "", "claude-opus-5-9", None),
        (ProviderType.ANTHROPIC, "https://gateway.test", "claude-opus-5", None),
        (ProviderType.OPENAI, "", "gpt-5.4-mini-2026-03-17", 0.75),
        (ProviderType.OPENAI, "", "gpt-5.4-maxi", None),
        (ProviderType.OPENAI, "https://openrouter.ai/api/v1", "gpt-5.5", None),
        (ProviderType.OPENAI, "", "gpt-5.6-sol", None),
        (ProviderType.OLLAMA, "", "gpt-5.5", None),
        (ProviderType.SCRIPTED, "", "gpt-5.5", None),
    ],
)
def test_a_price_is_that_of_exactly_this_model_at_its_vendor(
    type_: ProviderType, base_url: str, model: str, price: float | None
) -> None:
    known = Catalog([ProviderConfig("acme", type_, base_url=base_url)]).price(ModelRef("acme", model))
    assert (known.input if known else None) == price


def test_the_users_price_counts_anywhere() -> None:
    models = [
        ModelSettings(id="acme:m", price=PriceSettings(input=3, output=4, cache_read=0.5)),
        ModelSettings(id="acme:m-large", context_window=2000),
    ]
    catalog = Catalog([ProviderConfig("acme", ProviderType.OPENAI, base_url="http://127.0.0.1:1/v1")], models)
    ref = ModelRef("acme", "m-large")
    assert catalog.price(ref) == Price(input=3, output=4, cache_read=0.5)
    assert catalog.price(ModelRef("acme", "other")) is None
    with pytest.raises(ConfigError, match="a configured provider"):
        catalog.price(ModelRef("nobody", "x"))
