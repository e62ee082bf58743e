"""How a model is asked: by which API, how hard it thinks, and what the user knows better about it."""

from typing import Any

from acp_agent.config.llm_settings import Effort, ModelOptions, ModelSettings, OpenAIApi
from acp_agent.core.types import JsonObject
from acp_agent.llm.catalog import Catalog, ModelRef, ProviderConfig, ProviderType
from acp_agent.llm.endpoint import ModelEndpoint
from tests.rows import each_row

KEY = "fake-key-1234567890"


KEY = "fake-key-1234567890"


def endpoint(type_: ProviderType, model: str = "some-model", **fields: Any) -> ModelEndpoint:
    config = ProviderConfig("acme", type_, **{"api_key": KEY, **fields})
    provider = Catalog([config]).build(ModelRef("acme", model))
    found = provider._endpoint  # type: ignore[attr-defined]
    assert isinstance(found, ModelEndpoint)
    return found


def adapter(base_url: str = "", **fields: Any) -> tuple[str, JsonObject]:
    """The class that was chosen for a model of type openai, and what it adds to each request."""
    model = fields.pop("model", "gpt-5.5")
    config = ProviderConfig("acme", ProviderType.OPENAI, base_url=base_url, api_key=KEY, **fields)
    provider = Catalog([config]).build(ModelRef("acme", model))
    return type(provider).__name__, provider._endpoint.extra_body  # type: ignore[attr-defined]


@each_row(
    "base_url, api, chosen",
    [
        ("", OpenAIApi.AUTO, "ResponsesProvider"),
        ("https://api.openai.com/v1", OpenAIApi.AUTO, "ResponsesProvider"),
        ("https://API.openai.com/v1", OpenAIApi.AUTO, "ResponsesProvider"),
        ("https://api.openai.com.evil.test/v1", OpenAIApi.AUTO, "OpenAIProvider"),
        ("http://127.0.0.1:8080/v1", OpenAIApi.AUTO, "OpenAIProvider"),
        ("http://127.0.0.1:8080/v1", OpenAIApi.RESPONSES, "ResponsesProvider"),
        ("", OpenAIApi.CHAT, "OpenAIProvider"),
    ],
)
def test_openai_itself_is_spoken_to_by_responses_and_others_by_chat_completions(
    base_url: str, api: OpenAIApi, chosen: str
) -> None:
    assert adapter(base_url, api=api)[0] == chosen


@each_row(
    "type_, model, fields, added",
    [
        (ProviderType.ANTHROPIC, "claude-opus-5", {"effort": Effort.LOW}, {"output_config": {"effort": "low"}}),
        (ProviderType.ANTHROPIC, "claude-opus-5", {"temperature": 0.5}, {}),
        (ProviderType.ANTHROPIC, "claude-haiku-4-5", {"temperature": 0.5, "effort": Effort.LOW}, {"temperature": 0.5}),
        (ProviderType.ANTHROPIC, "claude-opus-4-6", {"temperature": 0.0, "thinking": False}, {"temperature": 0.0}),
        (ProviderType.ANTHROPIC, "claude-opus-5", {"thinking": False}, {"thinking": {"type": "disabled"}}),
        (ProviderType.ANTHROPIC, "claude-sonnet-5-5", {"effort": Effort.NONE}, {"thinking": {"type": "between_tools"}}),
        (ProviderType.ANTHROPIC, "claude-opus-5-5", {"effort": Effort.NONE}, {}),
        (ProviderType.OPENAI, "gpt-5.5", {"effort": Effort.XHIGH}, {"reasoning": {"effort": "xhigh"}}),
        (
            ProviderType.OPENAI,
            "gpt-5.5",
            {"effort": Effort.HIGH, "api": OpenAIApi.CHAT},
            {"reasoning_effort": "high"},
        ),
        (ProviderType.OPENAI, "gpt-4o", {"effort": Effort.HIGH, "temperature": 1.0}, {"temperature": 1.0}),
        (ProviderType.OLLAMA, "m", {"temperature": 0.1, "effort": Effort.LOW}, {"temperature": 0.1}),
        (ProviderType.OLLAMA, "m", {"keep_alive": "30m"}, {"keep_alive": "30m"}),
        (ProviderType.OLLAMA, "m", {"keep_alive": "-1"}, {"keep_alive": -1}),
        (ProviderType.OPENAI, "gpt-4o", {"temperature": 1.0, "extra_body": {"a": 1}}, {"temperature": 1.0, "a": 1}),
    ],
)
def test_temperature_is_for_models_that_do_not_think_and_effort_for_those_that_do(
    type_: ProviderType, model: str, fields: dict[str, Any], added: JsonObject
) -> None:
    assert endpoint(type_, model, **fields).extra_body == added


def test_openais_reasoning_models_are_known_to_think() -> None:
    assert endpoint(ProviderType.OPENAI, "gpt-5.5").thinking
    assert endpoint(ProviderType.OPENAI, "o3").thinking
    assert not endpoint(ProviderType.OPENAI, "gpt-5-chat-latest").thinking
    assert not endpoint(ProviderType.OPENAI, "gpt-4o").thinking
    assert endpoint(ProviderType.OPENAI, "my-model", thinking=True).thinking


def described(*models: ModelSettings, **fields: Any) -> Catalog:
    config = ProviderConfig("acme", ProviderType.OPENAI, **{"base_url": "http://127.0.0.1:1/v1", **fields})
    return Catalog([config], models)


def found(catalog: Catalog, model: str) -> ModelEndpoint:
    provider = catalog.build(ModelRef("acme", model))
    return provider._endpoint  # type: ignore[attr-defined]


def test_the_longest_beginning_that_fits_counts_and_leaves_the_rest_to_shorter_ones() -> None:
    catalog = described(
        ModelSettings(id="acme:big-2", max_tokens=22),
        ModelSettings(id="acme:big", context_window=2000, max_tokens=11, images=False),
        ModelSettings(id="acme:", temperature=0.5, images=True),
        ModelSettings(id="other:big", context_window=9999),
        context_window=1000,
        max_tokens=5,
    )
    for model, expected in (
        ("big-2", (2000, 22, False)),
        ("big-1", (2000, 11, False)),
        ("small", (1000, 5, True)),
    ):
        it = found(catalog, model)
        assert (it.context_window, it.max_tokens, it.images) == expected
        assert it.extra_body == {"temperature": 0.5}
    assert catalog.window(ModelRef("acme", "big-1")) == 2000
    assert catalog.window(ModelRef("nobody", "x")) > 1000


def test_what_a_session_chooses_counts_most() -> None:
    catalog = described(ModelSettings(id="acme:", temperature=0.5, images=True, context_window=2000))
    chosen = ModelOptions(temperature=0.0, images=False)
    it = catalog.build(ModelRef("acme", "m"), chosen)._endpoint  # type: ignore[attr-defined]
    assert (it.extra_body, it.images, it.context_window) == ({"temperature": 0.0}, False, 2000)


def test_a_model_may_be_spoken_to_by_another_api_than_its_provider() -> None:
    catalog = described(ModelSettings(id="acme:new", api=OpenAIApi.RESPONSES))
    assert type(catalog.build(ModelRef("acme", "new-1"))).__name__ == "ResponsesProvider"
    assert type(catalog.build(ModelRef("acme", "old-1"))).__name__ == "OpenAIProvider"


def test_a_model_without_tools_is_built_without() -> None:
    catalog = described(ModelSettings(id="acme:talker", tools=False))
    assert type(catalog.build(ModelRef("acme", "talker"))).__name__ == "ToollessProvider"
