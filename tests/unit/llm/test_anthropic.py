"""What we send to /v1/messages, and what we make of its events, beyond the contract suite."""

import itertools
import json
import re
from typing import Any

import pytest

from acp_agent.core.errors import ProviderError
from acp_agent.core.messages import (
    ImagePart,
    Message,
    ModelDone,
    ModelStop,
    OpaquePart,
    Role,
    TextPart,
    ThoughtPart,
    ToolResultPart,
    ToolUsePart,
)
from acp_agent.core.ports import ModelRequest
from acp_agent.core.types import ToolKind, ToolSpec
from acp_agent.llm.anthropic import AnthropicReply, request_body
from acp_agent.llm.catalog import Catalog, ModelRef, ProviderConfig, ProviderType
from acp_agent.llm.endpoint import ModelEndpoint
from tests.fakes.scripted_http import Action, Hang, ScriptedHttp, Send
from tests.fakes.scripted_http import Reply as HttpReply
from tests.rows import each_row
from tests.unit.llm import streams

ENDPOINT = ModelEndpoint("acme", "m-1", "http://127.0.0.1:1", 1000)
CACHE = {"type": "ephemeral"}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = tuple(ToolSpec(name, f"{name} it", SCHEMA, ToolKind.OTHER, mutates=False) for name in ("read", "write"))


def user(*parts: Any) -> Message:
    return Message(Role.USER, tuple(TextPart(part) if isinstance(part, str) else part for part in parts))


def assistant(*parts: Any) -> Message:
    return Message(Role.ASSISTANT, tuple(TextPart(part) if isinstance(part, str) else part for part in parts))


def body(*messages: Message, endpoint: ModelEndpoint = ENDPOINT, **fields: Any) -> dict[str, Any]:
    request = ModelRequest(fields.pop("system", ""), messages, **fields)
    return json.loads(request_body(endpoint, request))


def sent(*messages: Message) -> list[dict[str, Any]]:
    return body(*messages)["messages"]


def read(*events: dict[str, Any]) -> ModelDone:
    reply = AnthropicReply("acme")
    for event in events:
        reply.feed(event)
    return reply.done()


def events_of(stream: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in stream.decode().split("\n") if line.startswith("data: ")]


def test_the_whole_body_of_a_first_request() -> None:
    assert body(user("hi"), system="Be brief.", tools=TOOLS) == {
        "model": "m-1",
        "max_tokens": 8192,
        "stream": True,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": CACHE}],
        "tools": [
            {"name": "read", "description": "read it", "input_schema": SCHEMA},
            {"name": "write", "description": "write it", "input_schema": SCHEMA, "cache_control": CACHE},
        ],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": CACHE}]}],
    }


def test_the_whole_conversation_of_a_tool_turn() -> None:
    use = ToolUsePart("toolu_1", "read", {"path": "a"})
    failed = ToolResultPart("toolu_2", "no such file", is_error=True)
    messages = sent(
        user("look", ImagePart("QUJD", "image/png")),
        assistant("Reading.", use, ToolUsePart("toolu_2", "read", None, '{"path')),
        user(ToolResultPart("toolu_1", "text"), failed),
    )
    assert messages == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Reading."},
                {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}},
                {"type": "tool_use", "id": "toolu_2", "name": "read", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "text"},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_2",
                    "content": "no such file",
                    "is_error": True,
                    "cache_control": CACHE,
                },
            ],
        },
    ]


def test_a_longer_conversation_starts_with_the_bytes_of_the_shorter_one() -> None:
    turns = [
        user("one"),
        assistant("two", ToolUsePart("t1", "read", {"path": "ä"})),
        user(ToolResultPart("t1", "three")),
    ]
    turns += [assistant("four"), user("five")]
    bodies = [request_body(ENDPOINT, ModelRequest("S", tuple(turns[:n]), TOOLS)) for n in (1, 3, 5)]
    bare = [text.replace(b',"cache_control":{"type":"ephemeral"}', b"") for text in bodies]
    for shorter, longer in itertools.pairwise(bare):
        assert longer.startswith(shorter.removesuffix(b"]}"))


def test_the_history_is_not_touched_by_the_cache_mark() -> None:
    payload = {"type": "text", "text": "kept"}
    history = (user("hi"), assistant(OpaquePart("acme:m-1", payload)))
    assert sent(*history)[-1]["content"] == [{**payload, "cache_control": CACHE}]
    assert payload == {"type": "text", "text": "kept"}


def test_a_thinking_block_never_carries_the_cache_mark() -> None:
    thought = ThoughtPart("hm", "acme:m-1", {"type": "thinking", "thinking": "hm", "signature": "s"})
    messages = sent(user("hi"), assistant(thought))
    assert messages[1]["content"] == [{"type": "thinking", "thinking": "hm", "signature": "s"}]
    assert messages[0]["content"][0]["cache_control"] == CACHE


def test_reasoning_goes_back_in_place_and_to_its_own_provider_only() -> None:
    redacted = {"type": "redacted_thinking", "data": "ENCRYPTED"}
    thinking = {"type": "thinking", "thinking": "", "signature": "sig"}
    search = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"q": "x"}}
    me = "acme:m-1"
    mine = (ThoughtPart("", me, redacted), ThoughtPart("", me, thinking), OpaquePart(me, search))
    others = (
        ThoughtPart("secret", "rival:m-1", {"a": 1}),
        ThoughtPart("no block", me),
        OpaquePart("acme:m-2", {"b": 2}),
    )
    messages = sent(user("hi"), assistant(*mine, *others, "done"), user("go on"))
    assert messages[1]["content"] == [redacted, thinking, search, {"type": "text", "text": "done"}]


def test_results_come_before_words_and_messages_of_one_role_become_one() -> None:
    messages = sent(
        user("a"),
        assistant(ToolUsePart("t1", "read", {})),
        user("by the way", ToolResultPart("t1", "x")),
        user("and"),
    )
    assert [block["type"] for block in messages[2]["content"]] == ["tool_result", "text", "text"]
    assert len(messages) == 3


def test_blank_text_and_empty_messages_are_left_out() -> None:
    messages = sent(user("hi", "", " \n"), assistant(ThoughtPart("x", "rival", {"a": 1})), user("go"))
    assert messages == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "go", "cache_control": CACHE}],
        }
    ]
    assert "system" not in body(user("hi"), system=" \n")


def test_a_result_without_output_has_no_content_unless_it_failed() -> None:
    (message,) = sent(user(ToolResultPart("t1", ""), ToolResultPart("t2", "", is_error=True)))
    assert "content" not in message["content"][0]
    assert message["content"][1]["content"] == "(no output)"


PICTURE = ImagePart("QUJD", "image/png")
BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}


def test_pictures_of_a_result_stand_in_it_behind_its_words() -> None:
    parts = (
        ToolResultPart("t1", "Image: a.png", images=(PICTURE, PICTURE)),
        ToolResultPart("t2", " ", images=(PICTURE,)),
        ToolResultPart("t3", "no", is_error=True, images=(PICTURE,)),
    )
    words = {"type": "text", "text": "Image: a.png"}
    assert sent(user(*parts))[0]["content"] == [
        {"type": "tool_result", "tool_use_id": "t1", "content": [words, BLOCK, BLOCK]},
        {"type": "tool_result", "tool_use_id": "t2", "content": [BLOCK]},
        {"type": "tool_result", "tool_use_id": "t3", "content": "no", "is_error": True, "cache_control": CACHE},
    ]


def test_a_model_without_eyes_reads_what_it_is_not_shown() -> None:
    blind = ModelEndpoint("acme", "m-1", "http://127.0.0.1:1", 1000, images=False)
    photo = ImagePart("REVG", "image/jpeg")
    parts = (ToolResultPart("t1", "Image: a.png", images=(PICTURE, photo)), ToolResultPart("t2", "", images=(PICTURE,)))
    first, second, third = body(user(*parts, "look", photo), endpoint=blind)["messages"][0]["content"][:3]
    note = "[image/png not shown: m-1 takes no images]"
    assert first["content"] == f"Image: a.png\n{note}\n[image/jpeg not shown: m-1 takes no images]"
    assert (second["content"], third) == (note, {"type": "text", "text": "look"})
    last = body(user("look", photo), endpoint=blind)["messages"][0]["content"][-1]
    assert last["text"] == "[image/jpeg not shown: m-1 takes no images]"


def shown(*sizes: int) -> list[bool]:
    """Which of the pictures of these sizes, each the result of a call of its own, are sent."""
    turns = [
        message
        for number, size in enumerate(sizes)
        for message in (
            assistant(ToolUsePart(f"t{number}", "read", {})),
            user(ToolResultPart(f"t{number}", "Image", images=(ImagePart("A" * size, "image/png"),))),
        )
    ]
    results = [message["content"][0]["content"] for message in sent(user("go"), *turns)[2::2]]
    left_out = "Image\n[image/png no longer shown: many pictures came after it]"
    assert all(result == left_out for result in results if isinstance(result, str))
    return [isinstance(result, list) for result in results]


def test_a_request_never_has_more_pictures_than_the_apis_take_and_drops_the_oldest_half_at_once() -> None:
    assert shown(*[4] * 20) == [True] * 20
    assert shown(*[4] * 21) == [False] * 11 + [True] * 10
    assert shown(*[4] * 31) == [False] * 11 + [True] * 20
    assert shown(*[4] * 32) == [False] * 22 + [True] * 10


def test_nor_more_bytes_of_them_but_the_newest_is_always_there() -> None:
    mebi = 1024 * 1024
    assert shown(*[4 * mebi] * 4) == [True] * 4
    assert shown(*[4 * mebi] * 5) == [False] * 3 + [True] * 2
    assert shown(4, 17 * mebi) == [False, True]
    assert shown(17 * mebi, 4) == [False, True]


def test_with_pictures_too_a_longer_conversation_starts_with_the_bytes_of_the_shorter_one() -> None:
    turns = [user("one", PICTURE)]
    for number in range(9):
        turns.append(assistant(ToolUsePart(f"t{number}", "read", {})))
        turns.append(user(ToolResultPart(f"t{number}", "Image", images=(PICTURE, PICTURE))))
    bodies = [request_body(ENDPOINT, ModelRequest("S", tuple(turns[:n]), TOOLS)) for n in range(1, 20, 2)]
    bare = [text.replace(b',"cache_control":{"type":"ephemeral"}', b"") for text in bodies]
    for shorter, longer in itertools.pairwise(bare):
        assert longer.startswith(shorter.removesuffix(b"]}"))


def test_ids_of_other_providers_are_made_acceptable_and_still_pair() -> None:
    messages = sent(
        user("x"), assistant(ToolUsePart("functions.bash:0", "bash", {})), user(ToolResultPart("functions.bash:0", "y"))
    )
    call_id = messages[1]["content"][0]["id"]
    assert call_id == messages[2]["content"][0]["tool_use_id"]
    assert re.fullmatch("functions_bash_0[a-zA-Z0-9_-]*", call_id)


def test_ids_that_differ_only_in_what_the_api_does_not_take_still_differ() -> None:
    ids = ("a.b", "a:b", "a_b", "é", "ü")
    messages = sent(
        user("x"),
        assistant(*(ToolUsePart(each, "bash", {}) for each in ids)),
        user(*(ToolResultPart(each, "y") for each in ids)),
    )
    calls = [block["id"] for block in messages[1]["content"]]
    assert len(set(calls)) == len(ids)
    assert calls == [block["tool_use_id"] for block in messages[2]["content"]]
    assert calls[2] == "a_b"


def test_max_tokens_thinking_and_the_users_own_fields() -> None:
    endpoint = ModelEndpoint("a", "m", "http://x", 1, max_tokens=500, thinking=True, extra_body={"temperature": 0.5})
    full = body(user("x"), endpoint=endpoint)
    assert full["max_tokens"] == 500
    assert full["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert full["temperature"] == 0.5
    assert body(user("x"), endpoint=endpoint, max_tokens=7)["max_tokens"] == 7


# ----------------------------------------------------------------------------------------- reply


def test_a_signature_and_its_thought_are_kept_byte_for_byte() -> None:
    done = read(*events_of(streams.anthropic(thought=["Let me ", "see."], text=["ok"])))
    block = {"type": "thinking", "thinking": "Let me see.", "signature": streams.SIGNATURE}
    assert done.message.parts[0] == ThoughtPart("Let me see.", "acme", block)


def test_redacted_and_unknown_blocks_are_kept_whole_and_in_order() -> None:
    redacted = {"type": "redacted_thinking", "data": "ENCRYPTED=="}
    future = {"type": "hologram", "depth": 3, "nested": {"a": [1]}}
    done = read(*events_of(streams.anthropic(extra_blocks=[redacted, future], text=["ok"])))
    assert done.message.parts == (
        ThoughtPart("", "acme", redacted),
        OpaquePart("acme", future),
        TextPart("ok"),
    )


def test_the_input_of_an_unknown_block_is_put_together_too() -> None:
    start = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": '{"query": "x"}'}
    done = read(
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "content_block_delta", "index": 0, "delta": delta},
    )
    assert done.message.parts == (OpaquePart("acme", {**start, "input": {"query": "x"}}),)


def test_text_and_input_that_come_with_the_start_of_a_block_count() -> None:
    text = {"type": "text", "text": "Hel"}
    tool = {"type": "tool_use", "id": "", "name": "read", "input": {"path": "a"}}
    reply = AnthropicReply("acme")
    first = reply.feed({"type": "content_block_start", "index": 0, "content_block": text})
    reply.feed({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}})
    reply.feed({"type": "content_block_start", "index": 1, "content_block": tool})
    done = reply.done()
    assert first is not None
    assert first.text == "Hel"
    assert done.message.text == "Hello"
    (use,) = done.message.tool_uses
    assert use.id.startswith("toolu_")
    assert use.arguments == {"path": "a"}
    assert done.stop is ModelStop.TOOL_USE


@each_row(
    "sent_input, arguments, raw",
    [
        ('{"a": 1}', {"a": 1}, ""),
        ("oops", None, "oops"),
        (["a"], None, '["a"]'),
        (None, {}, ""),
        ({"a": 1}, {"a": 1}, ""),
    ],
)
def test_an_input_of_another_type_is_read_as_text_or_no_empty_object(sent_input: Any, arguments: Any, raw: str) -> None:
    reply = AnthropicReply("acme")
    block = {"type": "tool_use", "id": "t", "name": "read", "input": sent_input}
    reply.feed({"type": "content_block_start", "index": 0, "content_block": block})
    (use,) = reply.done().message.tool_uses
    assert (use.arguments, use.raw_arguments) == (arguments, raw)


@each_row("indices", [[0, 0, 0], [0.0, 1.0, 2.0], [None, None, None]])
def test_blocks_that_a_server_numbers_oddly_are_told_apart(indices: list[float | None]) -> None:
    calls = [streams.CALL, streams.OTHER_CALL]
    events = events_of(streams.anthropic(text=["Hm."], calls=calls))
    odd = [{**event, "index": indices[event["index"]]} if "index" in event else event for event in events]
    assert read(*odd) == read(*events)
    assert len(read(*odd).message.parts) == 3


def test_usage_told_at_the_end_does_not_undo_what_was_told_at_the_start() -> None:
    done = read(
        {"type": "message_start", "message": {"usage": {"input_tokens": 9, "cache_read_input_tokens": 5}}},
        {"type": "message_delta", "delta": {}, "usage": {"input_tokens": 0, "output_tokens": 3}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}},
    )
    assert (done.usage.input, done.usage.output, done.usage.cache_read) == (9, 4, 5)
    assert done.usage.context == 18


@each_row(
    "event",
    [
        {},
        {"type": None},
        {"type": "content_block_start"},
        {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta", "text": "x"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "delta_of_the_future", "x": "y"}},
        {"type": "content_block_delta", "index": "0", "delta": []},
        {"type": "content_block_stop", "index": 99},
        {"type": "message_start", "message": None},
        {"type": "message_delta", "delta": None, "usage": {"output_tokens": "many"}},
    ],
)
def test_an_event_out_of_shape_changes_nothing(event: dict[str, Any]) -> None:
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "ok"}}
    if event.get("type") == "content_block_start":
        assert read(event).message.parts in ((), (OpaquePart("acme", {}),))
    else:
        assert read(start, event).message.parts == (TextPart("ok"),)


# ------------------------------------------------------------------------------- refused thoughts

THOUGHT = ThoughtPart("hm", "acme:m", {"type": "thinking", "thinking": "hm", "signature": "s"})
STALE = b'{"type":"error","error":{"type":"invalid_request_error","message":"messages.1: the thinking block is stale"}}'


async def ask(server: ScriptedHttp, *history: Message) -> ModelDone:
    catalog = Catalog([ProviderConfig("acme", ProviderType.ANTHROPIC, base_url=server.url, api_key="fake-key")])
    try:
        events = [event async for event in catalog.build(ModelRef("acme", "m")).stream(ModelRequest("", history))]
    finally:
        await catalog.aclose()
    assert isinstance(events[-1], ModelDone)
    return events[-1]


@pytest.mark.anyio
async def test_thoughts_the_api_refuses_are_left_out_at_once() -> None:
    replies = [HttpReply.plain(400, STALE), HttpReply.stream(streams.anthropic(text=["ok"]))]
    async with ScriptedHttp(replies) as server:
        done = await ask(server, user("a"), assistant(THOUGHT, "b"), user("c"))
    assert done.message.text == "ok"
    assert [b"thinking" in request.body for request in server.requests] == [True, False]


@pytest.mark.anyio
async def test_thoughts_that_were_refused_are_not_sent_again_and_newer_ones_are() -> None:
    fine = HttpReply.stream(streams.anthropic(text=["ok"]))
    history = [user("a"), assistant(THOUGHT, "b"), user("c")]
    newer = ThoughtPart("new", "acme:m", {"type": "thinking", "thinking": "new", "signature": "t"})
    async with ScriptedHttp([HttpReply.plain(400, STALE), fine]) as server:
        catalog = Catalog([ProviderConfig("acme", ProviderType.ANTHROPIC, base_url=server.url, api_key="fake-key")])
        provider = catalog.build(ModelRef("acme", "m"))
        try:
            for messages in (history, history, [*history, assistant(newer, "d"), user("e")]):
                async for _ in provider.stream(ModelRequest("", tuple(messages))):
                    pass
        finally:
            await catalog.aclose()
    old = [b'"hm"' in request.body for request in server.requests]
    assert old == [True, False, False, False]
    assert b'"new"' in server.requests[-1].body


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("refusal", "history"),
    [
        (HttpReply.plain(400, STALE), (user("a"),)),  # no thought to leave out
        (HttpReply.plain(500, STALE), (user("a"), assistant(THOUGHT, "b"), user("c"))),
        (HttpReply.plain(400, b"{}"), (user("a"), assistant(THOUGHT, "b"), user("c"))),
    ],
)
async def test_any_other_refusal_is_told(refusal: HttpReply, history: tuple[Message, ...]) -> None:
    async with ScriptedHttp([refusal]) as server:
        with pytest.raises(ProviderError):
            await ask(server, *history)
    assert len(server.requests) == 1


@pytest.mark.anyio
@each_row("end", [[], [Send(b"data: [DONE]\n\n")], [Hang()]])
async def test_an_answer_with_a_stop_reason_is_whole_without_the_last_event(end: list[Action]) -> None:
    stream = streams.anthropic(text=["ok"])
    cut = stream[: stream.index(b"event: message_stop")]
    async with ScriptedHttp([HttpReply([Send(cut), *end])]) as server:
        catalog = Catalog([ProviderConfig("acme", ProviderType.ANTHROPIC, base_url=server.url)])
        events = [event async for event in catalog.build(ModelRef("acme", "m")).stream(ModelRequest("", (user("hi"),)))]
        await catalog.aclose()
    assert isinstance(events[-1], ModelDone)
    assert events[-1].message.text == "ok"


@pytest.mark.anyio
@each_row("error", [{"type": "error", "error": "gone"}, {"error": {"message": "gone"}}, {"error": ["gone"]}])
async def test_an_error_in_any_shape_inside_the_stream_is_told(error: dict[str, Any]) -> None:
    async with ScriptedHttp([HttpReply.stream(streams.sse(error))]) as server:
        catalog = Catalog([ProviderConfig("acme", ProviderType.ANTHROPIC, base_url=server.url)])
        with pytest.raises(ProviderError, match="gone"):
            await anext(aiter(catalog.build(ModelRef("acme", "m")).stream(ModelRequest("", (user("hi"),)))))
        await catalog.aclose()
