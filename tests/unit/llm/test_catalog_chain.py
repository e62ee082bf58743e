"""From the settings of `[llm]` to models in the order in which they are asked."""

from typing import Any

import pytest

from acp_agent.config.llm_settings import LlmSettings, OpenAIApi
from acp_agent.core.errors import ConfigError, ProviderError, ProviderErrorKind
from acp_agent.core.messages import Message, ModelText, Role, TextPart
from acp_agent.core.ports import ModelRequest, Provider
from acp_agent.llm.catalog import Catalog, ModelRef, ProviderConfig, ProviderType, parse_model
from acp_agent.llm.retry import FallbackProvider
from tests.fakes.scripted_http import Reply, ScriptedHttp
from tests.unit.llm import streams

KEY = "fake-key-1234567890"


KEY = "fake-key-1234567890"


def settings(*providers: dict[str, Any], **fields: Any) -> LlmSettings:
    return LlmSettings.model_validate({"providers": providers, **fields})


async def kind_of(provider: Provider) -> ProviderErrorKind:
    with pytest.raises(ProviderError) as caught:
        async for _ in provider.stream(ModelRequest("", ())):
            pass
    return caught.value.kind


@pytest.mark.anyio
async def test_a_chain_builds_each_model_when_it_is_asked_and_one_that_cannot_be_says_so() -> None:
    llm = settings(
        {"name": "s", "type": "scripted"},
        {"name": "keyless", "type": "anthropic"},
        {"name": "headed", "type": "openai", "base_url": "http://127.0.0.1:1", "headers": {"X-A": "${UNSET}"}},
    )
    catalog = Catalog.of(llm, {})
    names = ["keyless:claude-opus-5", "headed:m", "nobody:m", "s:no-such-script", "s:hello"]
    *broken, good = catalog.chain([parse_model(name) for name in names])
    assert [provider.context_window for provider in (*broken, good)] == [1_000_000, 32_768, 32_768, 200_000, 200_000]
    assert {await kind_of(provider) for provider in broken} == {ProviderErrorKind.NOT_CONFIGURED}
    assert [event async for event in good.stream(ModelRequest("", ()))]
    with pytest.raises(ConfigError, match=r"provider 'headed': headers.X-A = \$\{UNSET\}: expected the environment"):
        catalog.build(ModelRef("headed", "m"))


@pytest.mark.anyio
async def test_a_chain_over_real_servers_ends_at_the_one_that_answers() -> None:
    told: list[str] = []

    async def tell(text: str) -> None:
        told.append(text)

    refused = Reply.plain(401, b'{"error": {"message": "no such key"}}')
    async with (
        ScriptedHttp([refused]) as first,
        ScriptedHttp([Reply.plain(404, b"404 page not found")]) as second,
        ScriptedHttp([Reply.stream(streams.openai(text=["hello"]))]) as third,
    ):
        llm = settings(
            {"name": "a", "type": "anthropic", "base_url": first.url},
            {"name": "o", "type": "ollama", "base_url": second.url, "context_window": 5000, "images": False},
            {"name": "c", "type": "openai", "base_url": third.url, "context_window": 6000},
        )
        catalog = Catalog.of(llm, {})
        names = ["a:claude-opus-5", "o:qwen3", "c:m"]
        chain = FallbackProvider(catalog.chain([parse_model(name) for name in names]), tell)
        events = [event async for event in chain.stream(ModelRequest("", (Message(Role.USER, (TextPart("hi"),)),)))]
        await catalog.aclose()
    assert events[0] == ModelText("hello")
    assert (chain.name, chain.model, chain.context_window) == ("c", "m", 6000)
    assert [text.partition(" did not answer ")[0] for text in told] == ["a:claude-opus-5", "o:qwen3"]
    assert "wants an API key (401: no such key)" in told[0]
    assert [len(server.requests) for server in (first, second, third)] == [1, 1, 1]


def test_everything_of_the_settings_arrives() -> None:
    llm = settings(
        {
            "name": "o",
            "type": "openai",
            "base_url": "http://127.0.0.1:1/v1",
            "api_key_env": "O_KEY",
            "headers": {"X-A": "${A}"},
            "extra_body": {"top_p": 0.5},
            "api": "responses",
            "images": False,
            "timeout": 7,
        },
        models=[{"id": "o:m", "context_window": 5000}],
    )
    config = Catalog.of(llm, {"O_KEY": KEY, "A": "secret-value-1"}).find(ModelRef("o", "m"))
    assert config == ProviderConfig(
        "o",
        ProviderType.OPENAI,
        "http://127.0.0.1:1/v1",
        KEY,
        "O_KEY",
        7,
        context_window=5000,
        images=False,
        api=OpenAIApi.RESPONSES,
        headers={"X-A": "secret-value-1"},
        extra_body={"top_p": 0.5},
    )
    assert "secret-value-1" not in repr(config)
