"""What we send is what the vendors' own SDKs send for the same conversation (design.md, "Dependencies, decided").

Both sides talk to a real server on loopback that plays the same answers, so an assistant's turn goes all the way
round: streamed, put together, kept, sent back. What is set aside, and nothing else:

    everywhere   null members and the order of members, which mean nothing in JSON; the text form of a call's
                 arguments, which are compared by what they say
    chat         `index` of a call and `content: ""` beside calls: what the SDK's stream leaves behind in its objects
    responses    what the API's reference gives as defaults (`type: message`, `detail: auto`, `parallel_tool_calls`
                 true); the id and status of messages and calls, which a server that stores nothing does not look up;
                 whether a text of the model stands alone or in a list of parts. Reasoning items are compared whole
    ollama       `truncate`, `shift` and `num_ctx`, which we send and its client does not; an empty list of tools; words
                 of a tool's schema its client's types do not know and drop; ids of calls, likewise; `content: ""`
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import ollama
import pytest

from acp_agent.config.llm_settings import OpenAIApi, ProviderType
from acp_agent.llm.catalog import Catalog, ModelRef, ProviderConfig
from tests.fakes.scripted_http import Reply, ScriptedHttp
from tests.oracle import anthropic_sdk, ollama_sdk, openai_sdk
from tests.oracle.conversations import CONVERSATIONS, Conversation
from tests.oracle.ours import our_bodies
from tests.rows import Test, each_row
from tests.unit.llm import responses_streams, streams

pytestmark = pytest.mark.anyio

_MAX_TOKENS = 4096


@dataclass(frozen=True)
class Format:
    """A wire format: how we are configured for it, how it streams, how the SDK converses, what is set aside."""

    type: ProviderType
    base: str
    stream: Callable[..., bytes]
    model: Callable[[Conversation], str]
    converse: Callable[[Conversation, str, str], Awaitable[None]]
    config: dict[str, Any]
    aside: Callable[[dict[str, Any]], dict[str, Any]] = dict


def _by_anthropic(conversation: Conversation, url: str, model: str) -> Awaitable[None]:
    return anthropic_sdk.converse(conversation, url, model, _MAX_TOKENS)


def _claude(conversation: Conversation) -> str:
    return "claude-sonnet-5" if conversation.thinking else "claude-sonnet-4"


def _chat_aside(body: dict[str, Any]) -> dict[str, Any]:
    messages = body["messages"]
    for message in messages:
        for call in message.get("tool_calls") or ():
            call.pop("index", None)
            if not message.get("content"):
                message["content"] = None
    return body


def _ollama_aside(body: dict[str, Any]) -> dict[str, Any]:
    options = {name: value for name, value in body.pop("options", None or {}).items() if name != "num_ctx"}
    tools = [ollama.Tool.model_validate(tool).model_dump() for tool in body.pop("tools", ())]
    for message in body["messages"]:
        message.pop("tool_call_id", None)
        for call in message.get("tool_calls") or ():
            call.pop("id", None)
            call.pop("type", None)
            call["function"].pop("index", None)
        if not message.get("content"):
            message["content"] = None
    kept = {name: value for name, value in body.items() if name not in ("truncate", "shift")}
    return {**kept, "options": options, "tools": tools}


def _responses_aside(body: dict[str, Any]) -> dict[str, Any]:
    assert body.pop("parallel_tool_calls", True) is True
    return {**body, "input": [_item_aside(item) for item in body["input"]]}


def _item_aside(item: dict[str, Any]) -> dict[str, Any]:
    kind = item.get("type", "message")
    if kind == "reasoning":
        return item
    kept = {name: value for name, value in item.items() if name not in ("id", "status", "type", "phase")}
    if kind != "message":
        return {**kept, "type": kind, "output": _parts_aside(item.get("output"))}
    return {**kept, "content": _parts_aside(item["content"])}


def _parts_aside(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    if all(part["type"] == "output_text" for part in content):
        return "".join(part["text"] for part in content)
    return [{name: value for name, value in part.items() if (name, value) != ("detail", "auto")} for part in content]


FORMATS = {
    "anthropic": Format(
        ProviderType.ANTHROPIC, "", streams.anthropic, _claude, _by_anthropic, {"max_tokens": _MAX_TOKENS}
    ),
    "chat": Format(
        ProviderType.OPENAI, "/v1", streams.openai, lambda _: "some-model", openai_sdk.converse_by_chat, {}, _chat_aside
    ),
    "responses": Format(
        ProviderType.OPENAI,
        "/v1",
        responses_streams.responses,
        lambda conversation: "gpt-5.5" if conversation.thinking else "gpt-4o",
        openai_sdk.converse_by_responses,
        {"api": OpenAIApi.RESPONSES},
        _responses_aside,
    ),
    "ollama": Format(
        ProviderType.OLLAMA,
        "",
        streams.ollama,
        lambda _: "some-model",
        ollama_sdk.converse,
        {"context_window": 8192, "images": True},
        _ollama_aside,
    ),
}


def _conversing_by(name: str) -> Callable[[Test], Test]:
    """Have each conversation that a format can carry, in one test: to import its SDK takes longer than all of them."""
    table = [each for each in CONVERSATIONS if name not in each.lacks]
    return each_row("conversation", table, [each.name for each in table])


@_conversing_by("anthropic")
async def test_our_requests_are_those_of_the_sdk_of_anthropic(conversation: Conversation) -> None:
    await _compare(FORMATS["anthropic"], conversation)


@_conversing_by("chat")
async def test_our_chat_requests_are_those_of_the_sdk_of_openai(conversation: Conversation) -> None:
    await _compare(FORMATS["chat"], conversation)


@_conversing_by("responses")
async def test_our_responses_requests_are_those_of_the_sdk_of_openai(conversation: Conversation) -> None:
    await _compare(FORMATS["responses"], conversation)


@_conversing_by("ollama")
async def test_our_requests_are_those_of_the_sdk_of_ollama(conversation: Conversation) -> None:
    await _compare(FORMATS["ollama"], conversation)


async def _compare(form: Format, conversation: Conversation) -> None:
    played = [
        Reply.stream(
            form.stream(text=answer.text, calls=[call.wire() for call in answer.calls], thought=answer.thought)
        )
        for answer in conversation.answers
    ]
    model = form.model(conversation)
    async with ScriptedHttp(played) as theirs, ScriptedHttp(played) as ours:
        await form.converse(conversation, theirs.url + form.base, model)
        config = ProviderConfig("acme", form.type, base_url=ours.url + form.base, api_key="sk-fake-0", **form.config)
        catalog = Catalog([config])
        try:
            sent = await our_bodies(conversation, catalog.build(ModelRef("acme", model)), ours)
        finally:
            await catalog.aclose()
        expected = [json.loads(request.body) for request in theirs.requests]
        assert [_meaning(form.aside(body)) for body in sent] == [_meaning(form.aside(body)) for body in expected]


def _meaning(value: Any) -> Any:
    """A body without what means nothing."""
    match value:
        case dict():
            value = openai_sdk.parsed_arguments(value)
            return {name: _meaning(member) for name, member in value.items() if member is not None}
        case list():
            return [_meaning(member) for member in value]
        case _:
            return value
