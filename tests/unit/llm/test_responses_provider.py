"""ResponsesProvider against a real server on 127.0.0.1: what it asks again, and every way an answer fails."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.core.messages import Message, ModelDone, ModelText, Role, TextPart, ThoughtPart
from acp_agent.core.ports import ModelRequest
from acp_agent.core.types import ImagePart
from acp_agent.llm.endpoint import ModelEndpoint
from acp_agent.llm.responses import ResponsesProvider
from acp_agent.net.client import HttpClient
from tests.contract.wire_rules import assert_responses_request
from tests.fakes.scripted_http import Reply, ScriptedHttp
from tests.rows import each_row
from tests.unit.llm.responses_streams import call_item, ended, events, message_item, reasoning_item, responses
from tests.unit.llm.streams import CALL, sse

pytestmark = pytest.mark.anyio

FAKE_KEY = "sk-fake-000000000000"
HI = Message(Role.USER, (TextPart("hi"),))


@asynccontextmanager
async def serving(*replies: Reply, **fields: Any) -> AsyncIterator[tuple[ResponsesProvider, ScriptedHttp]]:
    async with ScriptedHttp(replies) as server:
        http = HttpClient()
        endpoint = ModelEndpoint("acme", "gpt-9", f"{server.url}/v1", 1000, FAKE_KEY, timeout=5, thinking=True)
        try:
            yield ResponsesProvider(replace(endpoint, **fields), http), server
        finally:
            await http.aclose()


async def answered(provider: ResponsesProvider, *messages: Message) -> tuple[str, ModelDone]:
    request = ModelRequest("Be brief.", messages or (HI,))
    told = [event async for event in provider.stream(request)]
    done = told[-1]
    assert isinstance(done, ModelDone)
    return "".join(event.text for event in told if isinstance(event, ModelText)), done


async def failure(stream: bytes) -> ProviderError:
    async with serving(Reply.stream(stream)) as (provider, _):
        with pytest.raises(ProviderError) as caught:
            await answered(provider)
    return caught.value


def refused(text: str, status: int = 400) -> Reply:
    return Reply.plain(status, json.dumps({"error": {"message": text, "type": "invalid_request_error"}}).encode())


def bodies(server: ScriptedHttp) -> list[dict[str, Any]]:
    for request in server.requests:
        assert_responses_request(request.body)
    return [json.loads(request.body) for request in server.requests]


def streamed(*stream: dict[str, Any]) -> bytes:
    return b"".join(sse(each, each.get("type")) for each in stream)


def item_done(item: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


# ------------------------------------------------------------------------------------ requests


async def test_a_request_goes_to_responses_with_the_key_and_keeps_nothing_there() -> None:
    async with serving(Reply.stream(responses(text=["ok"]))) as (provider, server):
        assert (await answered(provider))[0] == "ok"
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/v1/responses")
    assert request.headers["authorization"] == f"Bearer {FAKE_KEY}"
    (body,) = bodies(server)
    assert body["store"] is False
    assert body["include"] == ["reasoning.encrypted_content"]


async def test_reasoning_goes_back_as_it_came_in_the_next_request() -> None:
    item = reasoning_item("**Hm**", extra={"b": 1, "a": [None, 1.5]})
    first = streamed(item_done(item), item_done(message_item("a"), 1), ended(item, message_item("a")))
    async with serving(Reply.stream(first), Reply.stream(responses(text=["ok"]))) as (provider, server):
        _, done = await answered(provider)
        await answered(provider, HI, done.message, HI)
    assert json.dumps(bodies(server)[1]["input"][1]) == json.dumps(item)
    assert bodies(server)[1]["input"][2]["id"] == "msg_1"


async def test_thoughts_that_are_refused_are_left_out_at_once() -> None:
    kept = {"model": "gpt-9", "item": reasoning_item("hm"), "next": {"type": "message", "id": "msg_1"}}
    said = Message(Role.ASSISTANT, (ThoughtPart("hm", "acme", kept), TextPart("so")))
    refusal = refused("The encrypted content gAAA...Rg== could not be verified.")
    async with serving(refusal, Reply.stream(responses(text=["ok"]))) as (provider, server):
        assert (await answered(provider, HI, said, HI))[0] == "ok"
    kinds = [[item["type"] for item in body["input"]] for body in bodies(server)]
    assert kinds == [["message", "reasoning", "message", "message"], ["message"] * 3]
    assert "msg_1" not in server.requests[1].body.decode()


def thought(number: int) -> Message:
    item = {**reasoning_item("hm"), "id": f"rs_{number}"}
    kept = {"model": "gpt-9", "item": item, "next": {"type": "message", "id": f"msg_{number}"}}
    return Message(Role.ASSISTANT, (ThoughtPart("hm", "acme", kept), TextPart("so")))


def reasoning_sent(server: ScriptedHttp) -> list[list[str]]:
    return [[item["id"] for item in body["input"] if item["type"] == "reasoning"] for body in bodies(server)]


async def test_refused_reasoning_is_not_sent_again_and_newer_reasoning_is() -> None:
    refusal, ok = refused("The encrypted content gAAA...Rg== could not be verified."), responses(text=["ok"])
    async with serving(refusal, Reply.stream(ok)) as (provider, server):
        await answered(provider, HI, thought(1), HI)
        await answered(provider, HI, thought(1), HI, thought(2), HI)
        await answered(provider, HI, thought(1), HI, thought(2), HI, thought(3), HI)
    assert reasoning_sent(server) == [["rs_1"], [], ["rs_2"], ["rs_2", "rs_3"]]


async def test_a_server_that_refuses_newer_reasoning_as_well_is_sent_none_any_more() -> None:
    refusal, ok = refused("Reasoning input items are not supported."), Reply.stream(responses(text=["ok"]))
    async with serving(refusal, ok, refusal, ok) as (provider, server):
        await answered(provider, HI, thought(1), HI)
        await answered(provider, HI, thought(1), HI, thought(2), HI)
        await answered(provider, HI, thought(1), HI, thought(2), HI, thought(3), HI)
    assert reasoning_sent(server) == [["rs_1"], [], ["rs_2"], [], []]


async def test_a_refusal_of_thoughts_that_were_none_is_told() -> None:
    async with serving(refused("The encrypted content could not be verified.")) as (provider, server):
        with pytest.raises(ProviderError, match="could not be verified"):
            await answered(provider)
    assert len(server.requests) == 1


async def test_what_a_server_does_not_take_is_left_out_at_once_and_from_then_on() -> None:
    replies = [
        refused("Encrypted content is not supported with this model."),
        refused("Unsupported parameter: 'reasoning.summary' is not supported with this model."),
        Reply.stream(responses(text=["ok"])),
    ]
    async with serving(*replies) as (provider, server):
        for _ in range(2):
            await answered(provider)
    assert ["include" in body for body in bodies(server)] == [True, False, False, False]
    assert ["reasoning" in body for body in bodies(server)] == [True, True, False, False]


async def test_a_server_that_goes_on_refusing_is_asked_no_third_time() -> None:
    async with serving(refused("input_image is not supported")) as (provider, server):
        with pytest.raises(ProviderError) as caught:
            await answered(provider, Message(Role.USER, (ImagePart("QUJD", "image/png"),)))
    assert caught.value.kind is ProviderErrorKind.INVALID_REQUEST
    assert len(bodies(server)) == 2


# -------------------------------------------------------------------------------------- errors


@each_row(
    "code, message, kind, status",
    [
        ("rate_limit_exceeded", "slow", ProviderErrorKind.RATE_LIMITED, 429),
        ("server_error", "oops", ProviderErrorKind.SERVER, 500),
        ("context_length_exceeded", "too much", ProviderErrorKind.CONTEXT_TOO_LONG, 413),
        ("invalid_prompt", "flagged", ProviderErrorKind.INVALID_REQUEST, 400),
        ("insufficient_quota", "pay", ProviderErrorKind.INVALID_REQUEST, 402),
        ("server_is_overloaded", "busy", ProviderErrorKind.OVERLOADED, 529),
        ("slow_down", "busy", ProviderErrorKind.OVERLOADED, 529),
        ("image_parse_error", "what is it", ProviderErrorKind.INVALID_REQUEST, 400),
        ("invalid_api_key", f"bad {FAKE_KEY}", ProviderErrorKind.AUTH, 401),
        ("of_the_future", "hm", ProviderErrorKind.SERVER, 500),
        (None, "hm", ProviderErrorKind.SERVER, 500),
    ],
)
async def test_an_error_in_the_stream_counts_like_a_status_in_each_of_its_shapes(
    code: str | None, message: str, kind: ProviderErrorKind, status: int
) -> None:
    error = {"code": code, "message": message}
    shapes: list[dict[str, Any]] = [
        {"type": "error", **error, "param": None, "sequence_number": 3},
        {"type": "error", "error": {"type": None, **error}},
        {"error": error},
        {"type": "response.failed", "response": {"status": "failed", "error": error}},
        {"type": "response.completed", "response": {"status": "failed", "error": error, "output": []}},
        {"type": "response.failed", "error": None, "response": {"status": "failed", "error": error}},
    ]
    for shape in shapes:
        fault = await failure(streamed(*events(text=["Hel"])[:5], shape))
        assert (fault.kind, fault.status) == (kind, status)
        assert FAKE_KEY not in str(fault)
        assert message.replace(FAKE_KEY, "[key]") in str(fault)


@each_row(
    "shape",
    [
        {"type": "error"},
        {"type": "error", "message": None},
        {"type": "error", "error": "busy"},
        {"type": "response.failed"},
        {"type": "response.failed", "response": {"error": None}},
        {"type": "response.completed", "response": {"status": "cancelled"}},
    ],
)
async def test_an_error_that_says_little_is_one_all_the_same(shape: dict[str, Any]) -> None:
    assert (await failure(streamed(shape))).kind is ProviderErrorKind.SERVER


async def test_an_event_whose_type_only_its_name_tells_is_understood() -> None:
    bare = [{key: value for key, value in each.items() if key != "type"} for each in events(text=["ok"])]
    stream = b"".join(sse(each, whole["type"]) for each, whole in zip(bare, events(text=["ok"]), strict=True))
    async with serving(Reply.stream(stream)) as (provider, _):
        assert (await answered(provider))[0] == "ok"
    assert (await failure(sse({"code": "server_error", "message": "oops"}, "error"))).status == 500


# ----------------------------------------------------------------------------------------- end


async def test_an_answer_without_an_end_counts_when_every_item_had_its_own() -> None:
    stream = streamed(*events(thought=["hm"], text=["a"], calls=[CALL])[:-1])
    async with serving(Reply.stream(stream)) as (provider, _):
        told, done = await answered(provider)
    assert told == "a"
    assert [use.id for use in done.message.tool_uses] == ["call_1"]


async def test_done_ends_an_answer_too() -> None:
    stream = streamed(*events(text=["a"])[:6]) + b"data: [DONE]\n\n"
    async with serving(Reply.stream(stream)) as (provider, _):
        assert (await answered(provider))[0] == "a"


@pytest.mark.parametrize(
    "stream",
    [
        [],
        events(text=["a"])[:2],
        events(text=["a", "b"])[:6],
        [item_done(reasoning_item("hm"))],
        [item_done(message_item("a")), {**item_done(call_item(CALL), 1), "type": "response.output_item.added"}],
    ],
)
async def test_an_answer_that_ends_before_its_items_do_is_an_error(stream: list[dict[str, Any]]) -> None:
    fault = await failure(streamed(*stream))
    assert fault.kind is ProviderErrorKind.PROTOCOL
    assert "before it was whole" in str(fault)


async def test_what_comes_after_the_end_changes_nothing() -> None:
    stream = responses(text=["a"]) + streamed({"type": "error", "message": "late"}) + b"data: {oops\n\n"
    async with serving(Reply.stream(stream)) as (provider, server):
        for _ in range(2):
            assert (await answered(provider))[0] == "a"
    assert [request.connection for request in server.requests] == [1, 1]
