"""How long a request is, as Anthropic counts it."""

import json
from typing import Any

import pytest

from acp_agent.config.llm_settings import Effort
from acp_agent.core.messages import Message, Role, TextPart
from acp_agent.core.ports import ModelRequest
from acp_agent.core.types import ToolKind, ToolSpec
from acp_agent.llm.catalog import Catalog, ModelRef, ProviderConfig, ProviderType
from tests.fakes.scripted_http import Cut, Reply, ScriptedHttp, Send
from tests.unit.llm import streams

pytestmark = pytest.mark.anyio

KEY = "fake-key-1234567890"
TOOL = ToolSpec("read", "Reads.", {"type": "object"}, ToolKind.READ, mutates=False)
ASK = ModelRequest("Be brief.", (Message(Role.USER, (TextPart("hi"),)),), (TOOL,))


async def counted(reply: Reply, **fields: Any) -> tuple[int | None, ScriptedHttp]:
    async with ScriptedHttp([reply]) as server:
        config = ProviderConfig("acme", ProviderType.ANTHROPIC, base_url=server.url, api_key=KEY, **fields)
        catalog = Catalog([config])
        counter = catalog.counter(ModelRef("acme", "claude-opus-5"))
        assert counter is not None
        count = await counter.count(ASK)
        await catalog.aclose()
        return count, server


async def test_what_is_counted_is_what_a_call_would_send() -> None:
    fields: dict[str, Any] = {"extra_body": {"top_p": 0.9}, "effort": Effort.HIGH}
    count, server = await counted(Reply.plain(200, b'{"input_tokens": 42}'), **fields)
    assert count == 42
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/v1/messages/count_tokens")
    assert request.headers["x-api-key"] == KEY
    assert request.headers["anthropic-version"] == "2023-06-01"
    body = json.loads(request.body)
    async with ScriptedHttp([Reply.stream(streams.anthropic(text=["ok"]))]) as call:
        config = ProviderConfig("acme", ProviderType.ANTHROPIC, base_url=call.url, api_key=KEY, **fields)
        catalog = Catalog([config])
        async for _ in catalog.build(ModelRef("acme", "claude-opus-5")).stream(ASK):
            pass
        await catalog.aclose()
    sent = json.loads(call.requests[0].body)
    assert sent.items() >= body.items()
    assert set(sent) - set(body) == {"max_tokens", "stream", "top_p"}


@pytest.mark.parametrize(
    "reply",
    [
        Reply.plain(404, b"{}"),
        Reply.plain(429, b"{}"),
        Reply.plain(200, b"{}"),
        Reply.plain(200, b'{"input_tokens": "many"}'),
        Reply.plain(200, b'{"input_tokens": -1}'),
        Reply.plain(200, b"<html>", "text/html"),
        Reply([Send(b"{"), Cut()]),
        Reply([Send(b"x" * 70_000)]),
    ],
)
async def test_a_count_that_cannot_be_had_is_none_and_no_error(reply: Reply) -> None:
    assert (await counted(reply))[0] is None


@pytest.mark.parametrize("type_", [ProviderType.OPENAI, ProviderType.OLLAMA, ProviderType.SCRIPTED])
def test_who_does_not_count_is_not_asked(type_: ProviderType) -> None:
    catalog = Catalog([ProviderConfig("acme", type_, base_url="http://127.0.0.1:1")])
    assert catalog.counter(ModelRef("acme", "m")) is None
