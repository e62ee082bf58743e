"""What servers say of their models, and what is made of it."""

import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from acp_agent.config.llm_settings import ModelSettings, PriceSettings
from acp_agent.core.errors import ConfigError, ProviderError, ProviderErrorKind
from acp_agent.llm.catalog import Catalog, ModelRef, ProviderConfig, ProviderType
from acp_agent.llm.model_list import describe_ollama_model, list_models
from acp_agent.llm.models import Price
from acp_agent.llm.provider_config import ModelInfo
from acp_agent.net.client import HttpClient
from tests.fakes.keyrings import OneStoredKey
from tests.fakes.scripted_http import Cut, Reply, ScriptedHttp, Send
from tests.rows import each_row

pytestmark = pytest.mark.anyio

KEY = "fake-key-1234567890"


def listing(**document: Any) -> Reply:
    return Reply.plain(200, json.dumps(document).encode())


@asynccontextmanager
async def serving(
    type_: ProviderType, *replies: Reply, **fields: Any
) -> AsyncIterator[tuple[ProviderConfig, Any, Any]]:
    http = HttpClient()
    async with ScriptedHttp(replies) as server:
        config = ProviderConfig("acme", type_, **{"base_url": server.url, "api_key": KEY, **fields})
        try:
            with anyio.fail_after(10):
                yield config, http, server
        finally:
            await http.aclose()


async def listed(type_: ProviderType, *replies: Reply, **fields: Any) -> list[ModelInfo]:
    async with serving(type_, *replies, **fields) as (config, http, _):
        return [*await list_models(config, http)]


async def failure(type_: ProviderType, *replies: Reply, **fields: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await listed(type_, *replies, **fields)
    assert KEY not in str(caught.value)
    return caught.value


def supports(**abilities: Any) -> dict[str, Any]:
    return {name: {"supported": value} for name, value in abilities.items()}


@pytest.mark.parametrize("type_", [ProviderType.OPENAI, ProviderType.OLLAMA])
async def test_a_keyring_that_asks_for_a_password_does_not_stop_the_event_loop(type_: ProviderType) -> None:
    keys = OneStoredKey(KEY)
    replies = (listing(data=[]), listing(capabilities=[])) if type_ is ProviderType.OLLAMA else (listing(data=[]),)
    async with serving(type_, *replies, api_key="", stored=keys) as (config, _, server):
        catalog = Catalog([config])
        await catalog.models("acme")
        await catalog.described(ModelInfo("acme", "m", "m"))
        await catalog.aclose()
    assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {KEY}"}
    assert threading.get_ident() not in keys.asked_by


async def test_anthropics_models_come_page_by_page_with_their_sizes() -> None:
    adaptive = {"supported": True, "types": supports(adaptive=True)}
    first = {
        "type": "model",
        "id": "claude-new-1",
        "display_name": "Claude New 1",
        "lifecycle": "active",
        "max_input_tokens": 1_000_000,
        "max_tokens": 128_000,
        "capabilities": {**supports(image_input=True), "thinking": adaptive},
    }
    old = {"type": "model", "id": "claude-old", "display_name": "", "capabilities": None}
    gone = {"type": "model", "id": "claude-gone", "lifecycle": "retired"}
    pages = [listing(data=[first], has_more=True, last_id="a/b c"), listing(data=[old, gone], has_more=False)]
    async with serving(ProviderType.ANTHROPIC, *pages) as (config, http, server):
        found = await list_models(config, http)
    assert found == (
        ModelInfo("acme", "claude-new-1", "Claude New 1", 1_000_000, 128_000, images=True, thinking=True),
        ModelInfo("acme", "claude-old", "claude-old"),
    )
    assert [request.path for request in server.requests] == [
        "/v1/models?limit=1000",
        "/v1/models?limit=1000&after_id=a%2Fb%20c",
    ]
    assert all(request.method == "GET" and request.headers["x-api-key"] == KEY for request in server.requests)
    assert all(request.headers["anthropic-version"] == "2023-06-01" for request in server.requests)
    assert all(request.body == b"" for request in server.requests)


async def test_a_list_that_never_ends_is_left_after_ten_pages() -> None:
    async with serving(ProviderType.ANTHROPIC, listing(data=[{"id": "m"}], has_more=True, last_id="m")) as (
        config,
        http,
        server,
    ):
        assert len(await list_models(config, http)) == 10
    assert len(server.requests) == 10


async def test_an_openrouter_list_has_windows_abilities_and_prices() -> None:
    entry = {
        "id": "anthropic/claude-x",
        "name": "Anthropic: Claude X",
        "context_length": 200_000,
        "architecture": {"input_modalities": ["text", "image"]},
        "top_provider": {"max_completion_tokens": 64_000},
        "supported_parameters": ["tools", "temperature"],
        "pricing": {"prompt": "0.000003", "completion": "0.000015", "input_cache_read": "0.0000003"},
    }
    auto = {"id": "auto", "pricing": {"prompt": "-1", "completion": "-1"}}
    found = await listed(ProviderType.OPENAI, listing(data=[entry, auto]))
    price = Price(input=3, output=15, cache_read=0.3)
    assert found == [
        ModelInfo("acme", "anthropic/claude-x", "Anthropic: Claude X", 200_000, 64_000, True, True, False, price),
        ModelInfo("acme", "auto", "auto"),
    ]


@pytest.mark.parametrize(
    ("entry", "window"),
    [
        ({"id": "m", "object": "model", "owned_by": "vllm", "max_model_len": 32_768}, 32_768),
        ({"id": "m", "max_context_length": 131_072}, 131_072),
        ({"id": "m", "meta": {"n_ctx_train": 40_960}}, None),  # llama.cpp: trained for, not served
        ({"id": "m", "context_length": "large"}, None),
    ],
)
async def test_other_servers_say_little(entry: dict[str, Any], window: int | None) -> None:
    (info,) = await listed(ProviderType.OPENAI, listing(data=[entry]))
    assert info == ModelInfo("acme", "m", "m", context_window=window)


@each_row("body", ['[{"id": "m"}]', ' [{"id": "m"}]\n', '\ufeff{"data": [{"id": "m"}]}'])
async def test_a_bare_list_is_a_list_too(body: str) -> None:
    assert await listed(ProviderType.OPENAI, Reply.plain(200, body.encode())) == [ModelInfo("acme", "m", "m")]


async def test_a_server_of_ones_own_may_call_a_model_as_it_likes() -> None:
    assert len(await listed(ProviderType.OPENAI, listing(data=[{"id": "my-image-search-model"}]))) == 1


async def test_without_a_key_none_is_sent() -> None:
    async with serving(ProviderType.OPENAI, listing(data=[]), api_key="") as (config, http, server):
        assert await list_models(config, http) == ()
    assert "authorization" not in server.requests[0].headers
    async with serving(ProviderType.OPENAI, listing(data=[])) as (config, http, server):
        await list_models(config, http)
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert server.requests[0].path == "/models"


TAGS = listing(
    models=[
        {"name": "qwen3:8b", "model": "qwen3:8b", "details": {"family": "qwen3"}},
        {"name": "llava:7b", "capabilities": ["completion", "vision"]},
        {"name": "nomic-embed-text", "capabilities": ["embedding"]},
    ]
)


async def test_ollamas_models_are_named_at_once_and_described_when_asked_for() -> None:
    card = listing(
        capabilities=["completion", "tools", "thinking"],
        model_info={"general.architecture": "qwen3", "qwen3.context_length": 40_960},
    )
    async with serving(ProviderType.OLLAMA, TAGS, card) as (config, http, server):
        first, second = await list_models(config, http)
        assert first == ModelInfo("acme", "qwen3:8b", "qwen3:8b")
        assert second == ModelInfo("acme", "llava:7b", "llava:7b", images=True, tools=False, thinking=False)
        described = await describe_ollama_model(config, http, first)
    assert described == ModelInfo("acme", "qwen3:8b", "qwen3:8b", 40_960, images=False, tools=True, thinking=True)
    assert [(request.method, request.path) for request in server.requests] == [
        ("GET", "/api/tags"),
        ("POST", "/api/show"),
    ]
    assert json.loads(server.requests[1].body) == {"model": "qwen3:8b"}


async def test_a_script_is_no_list() -> None:
    assert await list_models(ProviderConfig("s", ProviderType.SCRIPTED), HttpClient()) == ()


@pytest.mark.parametrize("type_", [ProviderType.ANTHROPIC, ProviderType.OPENAI, ProviderType.OLLAMA])
@pytest.mark.parametrize(
    "document",
    [
        {},
        {"data": None, "models": None},
        {"data": 5, "models": {"name": "m"}},
        {"data": [None, 1, "m", {}, {"id": 5}, {"id": ""}], "models": [None, 1, "m", {}, {"name": 5}]},
        {"data": [{"id": "a\x1b[2J"}, {"id": "a b"}], "models": [{"name": "\u202ea"}, {"name": "x" * 301}]},
    ],
)
async def test_what_is_no_model_is_left_out(type_: ProviderType, document: dict[str, Any]) -> None:
    assert await listed(type_, listing(**document)) == []


@each_row(
    "reply, kind, words",
    [
        (Reply.plain(401, b'{"error": {"message": "no"}}'), ProviderErrorKind.AUTH, "refused the API key"),
        (Reply.plain(404, b"404 page not found"), ProviderErrorKind.NOT_FOUND, "acme has no list of models at http://"),
        (Reply.plain(302, b"", location="https://evil.test/"), ProviderErrorKind.PROTOCOL, "redirects (302)"),
        (Reply.plain(500, b"boom"), ProviderErrorKind.SERVER, "failed on its side"),
        (Reply.plain(200, b"<html>", "text/html"), ProviderErrorKind.PROTOCOL, "cannot be read"),
        (Reply.plain(200, b'{"data": [NaN]}'), ProviderErrorKind.PROTOCOL, "cannot be read"),
        (Reply([Send(b"x" * 1_000_000)] * 9), ProviderErrorKind.PROTOCOL, "more than 8388608 bytes"),
        (Reply([Send(b'{"data": '), Cut()]), ProviderErrorKind.NETWORK, "closed the connection"),
    ],
)
async def test_a_list_that_cannot_be_had_says_why(reply: Reply, kind: ProviderErrorKind, words: str) -> None:
    error = await failure(ProviderType.OPENAI, reply)
    assert error.kind is kind
    assert words in str(error)


async def test_a_redirect_is_not_followed_with_the_key() -> None:
    async with ScriptedHttp([listing(data=[])]) as elsewhere:
        await failure(ProviderType.OPENAI, Reply.plain(307, b"", location=elsewhere.url))
    assert elsewhere.requests == []


# ------------------------------------------------------------------- through the catalog, all put together


async def test_the_user_knows_best_then_the_server_then_the_table() -> None:
    entries = [{"id": "gpt-5.5"}, {"id": "gpt-5.4", "max_model_len": 9999}, {"id": "mine"}]
    models = [
        ModelSettings(id="acme:gpt-5.4", context_window=8000),
        ModelSettings(id="acme:mine", tools=False, price=PriceSettings(input=1, output=2)),
    ]
    async with ScriptedHttp([listing(data=entries)]) as server:
        config = ProviderConfig("acme", ProviderType.OPENAI, base_url=server.url, headers={"X-Title": "t"})
        catalog = Catalog([config], models)
        first, second, third = await catalog.models("acme")
        await catalog.aclose()
    assert (first.context_window, first.images, first.thinking, first.price) == (1_050_000, True, True, None)
    assert second.context_window == 8000
    assert (third.context_window, third.tools, third.price) == (None, False, Price(input=1, output=2))
    assert str(third) == "acme:mine"
    assert server.requests[0].headers["x-title"] == "t"
    price = catalog.price(ModelRef("acme", "mine"))
    assert price is not None
    assert price.input == 1
    with pytest.raises(ConfigError, match="a configured provider"):
        await catalog.models("nobody")


async def test_through_the_catalog_only_ollamas_models_are_asked_about_one_by_one() -> None:
    card = listing(capabilities=["completion"], model_info={"a.context_length": 40_960})
    async with ScriptedHttp([TAGS, card]) as server:
        config = ProviderConfig("acme", ProviderType.OLLAMA, base_url=server.url, images=True)
        catalog = Catalog([config, ProviderConfig("o", ProviderType.OPENAI, base_url=server.url)])
        first, _ = await catalog.models("acme")
        described = await catalog.described(first)
        other = ModelInfo("o", "m", "m")
        assert await catalog.described(other) is other
        await catalog.aclose()
    assert (described.context_window, described.tools, described.images) == (40_960, False, True)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("\x1b[31m\u202eGPT\n 5", "GPT 5"),
        ("![x](https://evil.example/p)", "![x]\\(https://evil.example/p)"),
        ("A" * 100_000, "A" * 120),
        ("\u202e\x07 \n", "m1"),
        (None, "m1"),
    ],
)
async def test_what_a_server_calls_a_model_is_one_short_harmless_line(said: str | None, title: str) -> None:
    [claude] = await listed(ProviderType.ANTHROPIC, listing(data=[{"id": "m1", "display_name": said}]))
    [gpt] = await listed(ProviderType.OPENAI, listing(data=[{"id": "m1", "name": said}]))
    assert [claude.title, gpt.title] == [title, title]


async def test_an_id_that_reads_as_a_picture_is_no_picture_in_its_title() -> None:
    name = "![x](https://evil.example/p)"
    found = [
        *await listed(ProviderType.OPENAI, listing(data=[{"id": name}])),
        *await listed(ProviderType.OLLAMA, listing(models=[{"name": name}])),
    ]
    assert [(info.model, info.title) for info in found] == [(name, name.replace("](", "]\\("))] * 2
