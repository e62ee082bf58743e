"""What we send to /chat/completions, and what we make of the chunks servers really send."""

import json
import re
import sys
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.core.messages import (
    ImagePart,
    Message,
    ModelDone,
    ModelStop,
    ModelText,
    ModelThought,
    OpaquePart,
    Role,
    TextPart,
    ThoughtPart,
    ToolResultPart,
    ToolUsePart,
    Usage,
)
from acp_agent.core.ports import ModelRequest
from acp_agent.core.types import JsonObject, ToolKind, ToolSpec
from acp_agent.llm.catalog import Catalog, ModelRef, ProviderConfig, ProviderType
from acp_agent.llm.endpoint import ModelEndpoint, read_arguments
from acp_agent.llm.exchange import quirk_in
from acp_agent.llm.models import load_table
from acp_agent.llm.openai import REFUSALS, OpenAIProvider, OpenAIQuirk, OpenAIReply, request_body
from acp_agent.net.client import HttpClient
from tests.fakes.scripted_http import Reply as HttpReply
from tests.fakes.scripted_http import ScriptedHttp
from tests.rows import each_row
from tests.unit.llm import streams
from tests.unit.llm.streams import chat_chunk

ENDPOINT = ModelEndpoint("acme", "m-1", "http://127.0.0.1:1", 1000)
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = (ToolSpec("read", "read it", SCHEMA, ToolKind.READ, mutates=False),)
HI = (Message(Role.USER, (TextPart("hi"),)),)


def user(*parts: Any) -> Message:
    return Message(Role.USER, tuple(TextPart(part) if isinstance(part, str) else part for part in parts))


def assistant(*parts: Any) -> Message:
    return Message(Role.ASSISTANT, tuple(TextPart(part) if isinstance(part, str) else part for part in parts))


def body(
    *messages: Message, endpoint: ModelEndpoint = ENDPOINT, quirks: frozenset[OpenAIQuirk] = frozenset(), **fields: Any
) -> Any:
    request = ModelRequest(fields.pop("system", ""), messages, **fields)
    return json.loads(request_body(endpoint, request, quirks))


def read(*chunks: dict[str, Any]) -> ModelDone:
    reply = OpenAIReply("acme")
    for chunk in chunks:
        reply.feed(chunk)
    return reply.done()


def calls(*items: Any) -> dict[str, Any]:
    return chat_chunk({"tool_calls": list(items)})


def function(name: Any = None, arguments: Any = None, **fields: Any) -> dict[str, Any]:
    return {**fields, "function": {"name": name, "arguments": arguments}}


def test_the_whole_body_of_a_first_request() -> None:
    assert body(user("hi"), system="Be brief.", tools=TOOLS) == {
        "model": "m-1",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {"type": "function", "function": {"name": "read", "description": "read it", "parameters": SCHEMA}},
        ],
    }


def test_the_whole_conversation_of_a_tool_turn() -> None:
    messages = body(
        user("look", ImagePart("QUJD", "image/png")),
        assistant("Reading.", ToolUsePart("c1", "read", {"path": "ä"}), ToolUsePart("c2", "read", None, '{"path')),
        user("by the way", ToolResultPart("c1", "text"), ToolResultPart("c2", "", is_error=True)),
        assistant(ToolUsePart("c3", "read", {})),
    )["messages"]
    assert messages == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
            ],
        },
        {
            "role": "assistant",
            "content": "Reading.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path":"ä"}'}},
                {"id": "c2", "type": "function", "function": {"name": "read", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "text"},
        {"role": "tool", "tool_call_id": "c2", "content": ""},
        {"role": "user", "content": "by the way"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c3", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
        },
    ]


PICTURE = ImagePart("QUJD", "image/png")
URL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}


def words(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


@pytest.mark.anyio
@pytest.mark.parametrize("images", [True, False])
async def test_what_is_sent_grows_with_the_conversation_and_a_later_picture_is_found(images: bool) -> None:
    calls = [assistant(ToolUsePart("c", "read", {"all": yes})) for yes in (True, 1)]  # equal, but not their JSON
    told = (user("one"), calls[0], user(ToolResultPart("c", "done")), assistant("ok"), user("look", PICTURE))
    conversations = [
        told[:2],
        (told[0], calls[1], *told[2:4]),
        *(told[:count] for count in range(1, 6)),
        told[2:4],
        told[:4],
        (told[4], *told[:4]),
    ]
    requests = [ModelRequest("S", messages, TOOLS) for messages in conversations]
    async with ScriptedHttp([HttpReply.stream(streams.openai(text=["x"]))]) as server:
        endpoint, http = replace(ENDPOINT, base_url=server.url, images=images), HttpClient()
        provider = OpenAIProvider(endpoint, http)
        for request in requests:
            _ = [event async for event in provider.stream(request)]
        await http.aclose()
    assert [sent.body for sent in server.requests] == [
        request_body(endpoint, request, frozenset()) for request in requests
    ]


@pytest.mark.anyio
async def test_what_is_sent_is_the_body_however_much_of_it_was_sent_before() -> None:
    turn = (user("one", ImagePart("aGk=", "image/png")), assistant('ö 1 "tools":[]'), user('"messages":[]'))
    requests = [
        *(ModelRequest("S", turn[:count], TOOLS) for count in (1, 2, 3)),
        ModelRequest("S", turn[1:], ()),
        ModelRequest(" ", (), TOOLS),
        ModelRequest("S", (), TOOLS),
        ModelRequest("other", (turn[0], turn[0]), (*TOOLS, replace(TOOLS[0], name='"tools":[]')), 7),
    ]
    extras: list[JsonObject] = [{}, {"top_p": 1, "metadata": {"tools": []}}, {"tools": []}, {"messages": []}]
    for extra in extras:
        async with ScriptedHttp([HttpReply.stream(streams.openai(text=["x"]))]) as server:
            endpoint = replace(ENDPOINT, base_url=server.url, extra_body=extra)
            http = HttpClient()
            provider = OpenAIProvider(endpoint, http)
            for request in requests:
                _ = [event async for event in provider.stream(request)]
            await http.aclose()
        assert [sent.body for sent in server.requests] == [
            request_body(endpoint, request, frozenset()) for request in requests
        ]


def test_pictures_of_results_follow_all_results_of_the_turn_in_one_message() -> None:
    results = (
        ToolResultPart("c1", "Image: a.png", images=(PICTURE, PICTURE)),
        ToolResultPart("c2", "text"),
        ToolResultPart("c3", "Image: b.png", images=(PICTURE,)),
    )
    uses = [ToolUsePart(id_, "read", {}) for id_ in ("c1", "c2", "c3")]
    messages = body(user("look"), assistant(*uses), user(*results), assistant("ok"))["messages"]
    pictures = [words("From tool call c1:"), URL, URL, words("From tool call c3:"), URL]
    assert messages[2:] == [
        {"role": "tool", "tool_call_id": "c1", "content": "Image: a.png"},
        {"role": "tool", "tool_call_id": "c2", "content": "text"},
        {"role": "tool", "tool_call_id": "c3", "content": "Image: b.png"},
        {"role": "user", "content": pictures},
        {"role": "assistant", "content": "ok"},
    ]
    (last,) = body(user(*results, "and now?"))["messages"][3:]
    assert last == {"role": "user", "content": [*pictures, words("and now?")]}


def test_a_model_without_eyes_reads_what_it_is_not_shown() -> None:
    blind = ModelEndpoint("acme", "m-1", "http://127.0.0.1:1", 1000, images=False)
    note = "[image/png not shown: m-1 takes no images]"
    parts = (ToolResultPart("c1", "Image: a.png", images=(PICTURE,)), "look", PICTURE)
    seeing_nothing = [
        {"role": "tool", "tool_call_id": "c1", "content": f"Image: a.png\n{note}"},
        {"role": "user", "content": f"look\n\n{note}"},
    ]
    assert body(user(*parts), endpoint=blind)["messages"] == seeing_nothing
    assert body(user(*parts), quirks=frozenset({OpenAIQuirk.NO_IMAGES}))["messages"] == seeing_nothing


def test_reasoning_goes_back_under_its_own_name_to_its_own_provider() -> None:
    mine = ThoughtPart("hm", "acme:m-1", {"reasoning_content": "hm"})
    rival = ThoughtPart("secret", "acme:m-2", {"reasoning_content": "secret"})
    messages = body(user("x"), assistant(mine, rival, OpaquePart("rival", {"a": 1}), "done"))["messages"]
    assert messages[1] == {"role": "assistant", "content": "done", "reasoning_content": "hm"}
    assert len(body(user("x"), assistant(rival))["messages"]) == 1


def test_max_tokens_and_the_users_own_fields() -> None:
    endpoint = ModelEndpoint("a", "m", "http://x", 1, max_tokens=500, extra_body={"temperature": 0.5})
    assert body(user("x"), endpoint=endpoint)["max_tokens"] == 500
    assert body(user("x"), endpoint=endpoint)["temperature"] == 0.5
    assert "max_tokens" not in body(user("x"))
    renamed = body(user("x"), max_tokens=7, quirks=frozenset({OpenAIQuirk.MAX_COMPLETION_TOKENS}))
    assert renamed["max_completion_tokens"] == 7
    assert "max_tokens" not in renamed


# ---------------------------------------------------------------------------------------- quirks


@each_row(
    "status, text, quirk",
    [
        (400, "Unrecognized request argument supplied: stream_options", OpenAIQuirk.NO_STREAM_OPTIONS),
        (422, "extra fields not permitted: stream_options", OpenAIQuirk.NO_STREAM_OPTIONS),
        (
            400,
            "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
            OpenAIQuirk.MAX_COMPLETION_TOKENS,
        ),
        (
            400,
            "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length 40.",
            OpenAIQuirk.SHORT_IDS,
        ),
        (
            400,
            "Tool call id was toolu_01 but must be a-z, A-Z, 0-9, with a length of 9.",
            OpenAIQuirk.SHORT_IDS,
        ),
        (400, "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'", None),
        (400, "Function tools with reasoning_effort are not supported for gpt-x", OpenAIQuirk.NO_REASONING),
        (400, "Invalid content type. image_url is only supported by certain models.", OpenAIQuirk.NO_IMAGES),
        (422, "messages[0]: unknown variant `image_url`, expected `text`", OpenAIQuirk.NO_IMAGES),
        (404, "No endpoints found that support image input", OpenAIQuirk.NO_IMAGES),
        (500, "image input is not supported - hint: you may need to provide the mmproj", OpenAIQuirk.NO_IMAGES),
        (400, "Model does not support images. Please use a model that does.", OpenAIQuirk.NO_IMAGES),
        (400, "At most 0 image(s) may be provided in one prompt.", OpenAIQuirk.NO_IMAGES),
        (400, "m-1 is not a multimodal model", OpenAIQuirk.NO_IMAGES),
        (400, "'messages.0' : content must be a string", OpenAIQuirk.NO_IMAGES),
        (503, "image input is not supported", None),
        (400, "something else", None),
        (500, "stream_options", None),
    ],
)
def test_a_refusal_that_names_its_reason_is_understood(status: int, text: str, quirk: OpenAIQuirk | None) -> None:
    assert quirk_in(ProviderError(text, kind=ProviderErrorKind.INVALID_REQUEST, status=status), REFUSALS) is quirk


@pytest.mark.anyio
async def test_a_refused_field_is_left_out_at_once_and_from_then_on() -> None:
    def refusal(text: str) -> HttpReply:
        return HttpReply.plain(400, json.dumps({"error": {"message": text}}).encode())

    replies = [refusal("unknown field stream_options"), refusal("reasoning_effort must be none with tools")]
    replies.append(HttpReply.stream(streams.openai(text=["ok"])))
    async with ScriptedHttp(replies) as server:
        catalog = Catalog([ProviderConfig("acme", ProviderType.OPENAI, base_url=server.url)])
        provider = catalog.build(ModelRef("acme", "m"))
        for _ in range(2):
            events = [event async for event in provider.stream(ModelRequest("", HI, TOOLS))]
            assert isinstance(events[-1], ModelDone)
        await catalog.aclose()
    bodies = [json.loads(request.body) for request in server.requests]
    assert ["stream_options" in sent for sent in bodies] == [True, False, False, False]
    assert [sent.get("reasoning_effort") for sent in bodies] == [None, None, "none", "none"]


@pytest.mark.anyio
async def test_ids_of_calls_that_a_server_refuses_are_sent_as_short_ones_that_still_pair() -> None:
    use = [ToolUsePart(call_id, "read", {}) for call_id in ("functions.read:0", "x" * 2000)]
    results = [ToolResultPart(each.id, "ok") for each in use]
    history = (*HI, Message(Role.ASSISTANT, tuple(use)), Message(Role.USER, tuple(results)))
    refusal = {"error": {"message": "Tool call id was x but must be a-z, A-Z, 0-9, with a length of 9."}}
    replies = [HttpReply.plain(400, json.dumps(refusal).encode())]
    async with ScriptedHttp([*replies, *[HttpReply.stream(streams.openai(text=["ok"]))] * 2]) as server:
        catalog = Catalog([ProviderConfig("acme", ProviderType.OPENAI, base_url=server.url)])
        provider = catalog.build(ModelRef("acme", "m"))
        for _ in range(2):
            events = [event async for event in provider.stream(ModelRequest("", history, TOOLS))]
            assert isinstance(events[-1], ModelDone)
        await catalog.aclose()
    first, second, third = [json.loads(request.body)["messages"] for request in server.requests]
    made = [call["id"] for call in second[1]["tool_calls"]]
    assert [call["id"] for call in first[1]["tool_calls"]] == [each.id for each in use]
    assert made == [message["tool_call_id"] for message in second[2:]]
    assert len(set(made)) == 2
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", each) for each in made)
    assert third == second


@pytest.mark.anyio
async def test_pictures_a_server_refuses_are_left_out_at_once_and_from_then_on() -> None:
    refusal = HttpReply.plain(500, b'{"error": {"message": "image input is not supported"}}')
    async with ScriptedHttp([refusal, HttpReply.stream(streams.openai(text=["ok"]))]) as server:
        catalog = Catalog([ProviderConfig("acme", ProviderType.OPENAI, base_url=server.url)])
        provider = catalog.build(ModelRef("acme", "m"))
        for _ in range(2):
            events = [event async for event in provider.stream(ModelRequest("", (user("look", PICTURE),)))]
            assert isinstance(events[-1], ModelDone)
        await catalog.aclose()
    assert [b"QUJD" in request.body for request in server.requests] == [True, False, False]
    assert b"[image/png not shown: m takes no images]" in server.requests[-1].body


@pytest.mark.anyio
@each_row(
    "type_, model, images, seen",
    [
        (ProviderType.OPENAI, "unheard-of", None, True),
        (ProviderType.OPENAI, "unheard-of", False, False),
        (ProviderType.OPENAI, "gpt-5.5", None, True),
        (ProviderType.OPENAI, "o3-mini", None, False),
        (ProviderType.OPENAI, "gpt-oss-120b", None, False),
        (ProviderType.OPENAI, "google/gemini-3-pro", None, True),
        (ProviderType.OPENAI, "qwen/qwen3-coder", None, False),
        (ProviderType.OPENAI, "qwen/qwen3-vl-8b", None, True),
    ],
)
async def test_who_is_shown_pictures(type_: ProviderType, model: str, images: bool | None, seen: bool) -> None:
    async with ScriptedHttp([HttpReply.stream(streams.openai(text=["ok"]))]) as server:
        catalog = Catalog([ProviderConfig("acme", type_, base_url=server.url, images=images)])
        request = ModelRequest("", (user("look", PICTURE),))
        async for _ in catalog.build(ModelRef("acme", model)).stream(request):
            pass
        await catalog.aclose()
    assert [b"QUJD" in request.body for request in server.requests] == [seen]


def test_every_claude_is_shown_pictures_and_so_is_one_nobody_knows() -> None:
    table = load_table()
    claudes = [name for name in table.models if name.startswith("claude")]
    assert claudes
    assert all(table.limits("anthropic", name).images for name in (*claudes, "unheard-of"))


@pytest.mark.anyio
async def test_a_refusal_that_stays_is_told() -> None:
    async with ScriptedHttp([HttpReply.plain(400, b'{"error": "stream_options is bad"}')]) as server:
        catalog = Catalog([ProviderConfig("acme", ProviderType.OPENAI, base_url=server.url)])
        with pytest.raises(ProviderError, match="stream_options is bad"):
            await anext(aiter(catalog.build(ModelRef("acme", "m")).stream(ModelRequest("", HI))))
        await catalog.aclose()
    assert len(server.requests) == 2


# ----------------------------------------------------------------------------------------- reply


def uses(done: ModelDone) -> list[tuple[str, Any]]:
    assert all(use.id for use in done.message.tool_uses)
    assert len({use.id for use in done.message.tool_uses}) == len(done.message.tool_uses)
    return [(use.name, use.arguments) for use in done.message.tool_uses]


def test_a_call_in_one_piece_without_an_id_gets_one() -> None:
    assert uses(read(calls(function("ls", '{"path":"."}', index=0)))) == [("ls", {"path": "."})]


def test_arguments_as_an_object_are_taken() -> None:
    assert uses(read(calls(function("ls", {"path": "."}, index=0, id="")))) == [("ls", {"path": "."})]


def test_arguments_of_another_type_are_no_empty_object() -> None:
    (use,) = read(calls(function("read", ["a"], index=0, id="1"))).message.tool_uses
    assert (use.arguments, use.raw_arguments) == (None, '["a"]')


def test_calls_without_an_index_are_told_apart_by_id() -> None:
    done = read(
        calls(function("ls", "", id="a"), function("cat", "", id="b")),
        calls(function(None, '{"p":', id="a")),
        calls(function(None, '{"q":2}', id="b")),
        calls(function(None, "1}", id="a")),
    )
    assert uses(done) == [("ls", {"p": 1}), ("cat", {"q": 2})]


def test_calls_with_neither_index_nor_id_are_told_apart_by_name() -> None:
    done = read(
        calls(function("ls", '{"p":')), calls(function(None, "1}")), calls(function("ls", "{}")), calls(function("cat"))
    )
    assert uses(done) == [("ls", {"p": 1}), ("ls", {}), ("cat", {})]


def test_calls_all_numbered_zero_are_told_apart() -> None:
    by_id = read(calls(function("ls", "{}", index=0, id="a")), calls(function("cat", "{}", index=0, id="b")))
    assert uses(by_id) == [("ls", {}), ("cat", {})]
    by_whole_arguments = read(calls(function("ls", "{}", index=0)), calls(function("ls", '{"p":1}', index=0)))
    assert uses(by_whole_arguments) == [("ls", {}), ("ls", {"p": 1})]


def test_a_name_repeated_with_each_piece_is_one_name_and_pieces_of_a_name_are_joined() -> None:
    repeated = read(calls(function("ls", '{"p"', index=0, id="a")), calls(function("ls", ":1}", index=0, id="a")))
    assert uses(repeated) == [("ls", {"p": 1})]
    pieces = read(calls(function("list_", "", index=0, id="a")), calls(function("dir", "{}", index=0)))
    assert uses(pieces) == [("list_dir", {})]


def test_a_long_call_is_not_parsed_again_with_each_piece_that_repeats_the_name() -> None:
    parsed = 0

    def counted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal parsed
        parsed += event == "call" and frame.f_code is read_arguments.__code__

    arguments = json.dumps({"content": "x" * 500})
    pieces = [calls(function("write", piece, index=0, id="c")) for piece in arguments]
    sys.setprofile(counted)
    try:
        done = read(*pieces)
    finally:
        sys.setprofile(None)
    assert uses(done) == [("write", {"content": "x" * 500})]
    assert parsed == 1, "at the end of the answer"


def test_a_call_behind_blanks_is_another_one() -> None:
    pieces = [("a", '{"a": 1}'), (None, " "), (None, "\n"), ("b", '{"a": 1}')]
    done = read(*(calls(function(name, piece, index=0)) for name, piece in pieces))
    assert uses(done) == [("a", {"a": 1}), ("b", {"a": 1})]


def test_an_id_that_comes_late_is_taken() -> None:
    done = read(calls(function("ls", "", index=0)), calls(function(None, "{}", index=0, id="late")))
    assert done.message.tool_uses == (ToolUsePart("late", "ls", {}),)


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_reasoning_under_either_name_is_thought(key: str) -> None:
    done = read(chat_chunk({key: "a"}), chat_chunk({key: "b", "content": None}), chat_chunk({"content": "c"}))
    assert done.message.parts == (ThoughtPart("ab", "acme", {key: "ab"}), TextPart("c"))


def test_reasoning_told_twice_counts_once() -> None:
    done = read(chat_chunk({"reasoning": "a", "reasoning_content": "a"}))
    assert done.message.parts == (ThoughtPart("a", "acme", {"reasoning_content": "a"}),)


def test_a_thought_among_the_parts_of_the_content_is_shown_and_not_sent_back() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm, "}, {"type": "text", "text": "well."}]}
    reply = OpenAIReply("acme:m")
    assert reply.feed(chat_chunk({"content": [thinking]})) == [ModelThought("Hm, well.")]
    assert reply.feed(chat_chunk({"content": [{"type": "text", "text": "ok"}]})) == [ModelText("ok")]
    message = reply.done().message
    assert message.parts == (ThoughtPart("Hm, well.", "acme:m"), TextPart("ok"))


def test_content_in_parts_is_joined() -> None:
    content = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert read(chat_chunk({"content": content})).message.text == "ab"


def test_a_refusal_is_shown_and_told() -> None:
    done = read(chat_chunk({"refusal": "I must not."}), chat_chunk({}, "stop"))
    assert done.message.text == "I must not."
    assert done.stop is ModelStop.REFUSAL


def test_a_stop_with_calls_is_tool_use() -> None:
    assert read(calls(function("ls", "{}", index=0)), chat_chunk({}, "stop")).stop is ModelStop.TOOL_USE
    assert read(calls(function("ls", "{", index=0)), chat_chunk({}, "length")).stop is ModelStop.MAX_TOKENS


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, Usage()),
        ({"prompt_tokens": 10, "completion_tokens": 2}, Usage(input=10, output=2)),
        ({"prompt_tokens": 10, "prompt_cache_hit_tokens": 4}, Usage(input=6, cache_read=4)),
        ({"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 9}}, Usage(cache_read=3)),
        ({"prompt_tokens": "x", "completion_tokens": None, "prompt_tokens_details": []}, Usage()),
    ],
)
def test_usage_in_its_variants(usage: Any, expected: Usage) -> None:
    assert read(chat_chunk({"content": "x"}, "stop"), {"choices": [], "usage": usage}).usage == expected


@each_row(
    "chunk",
    [
        {},
        {"choices": None},
        {"choices": [None]},
        {"choices": [{"index": 0, "delta": None, "finish_reason": None}]},
        {"choices": [{"delta": {}, "finish_reason": ""}]},
        {"choices": [{"index": 1, "delta": {"content": "another answer"}}]},
        {"choices": [{"delta": {"content": "", "tool_calls": None}}]},
        {"choices": [{"delta": {"content": 7, "reasoning": {}}}]},
    ],
)
def test_a_chunk_out_of_shape_changes_nothing(chunk: dict[str, Any]) -> None:
    assert read(chat_chunk({"content": "ok"}), chunk).message.parts == (TextPart("ok"),)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "tail",
    [
        b"",  # no usage, no [DONE]
        b"data: [DONE]\n\n",
        b"data: {garbage\n\n",
        streams.sse({"choices": [], "usage": {"prompt_tokens": 1}}),
    ],
)
async def test_what_follows_the_finish_reason_may_be_missing_or_broken(tail: bytes) -> None:
    stream = streams.sse(chat_chunk({"content": "ok"}, "stop")) + tail
    async with ScriptedHttp([HttpReply.stream(stream)]) as server:
        catalog = Catalog([ProviderConfig("acme", ProviderType.OPENAI, base_url=server.url)])
        events = [event async for event in catalog.build(ModelRef("acme", "m")).stream(ModelRequest("", HI))]
        await catalog.aclose()
    assert isinstance(events[-1], ModelDone)
    assert events[-1].message.text == "ok"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("stream", "kind"),
    [
        (streams.sse({"error": "out of memory"}), ProviderErrorKind.SERVER),
        (streams.sse({"error": {"code": 429, "message": "x"}, "choices": []}), ProviderErrorKind.RATE_LIMITED),
        (streams.sse({"error": ["out of memory"]}), ProviderErrorKind.SERVER),
        (streams.sse({"message": "boom"}, "error"), ProviderErrorKind.SERVER),
        (streams.sse({"object": "error", "message": "x", "code": 400}), ProviderErrorKind.INVALID_REQUEST),
        (b"event: error\ndata: out of memory\n\n", ProviderErrorKind.SERVER),
        (streams.sse(chat_chunk({}, "error")), ProviderErrorKind.SERVER),
    ],
)
async def test_an_error_in_any_shape_inside_the_stream_is_an_error(stream: bytes, kind: ProviderErrorKind) -> None:
    async with ScriptedHttp([HttpReply.stream(stream)]) as server:
        catalog = Catalog([ProviderConfig("acme", ProviderType.OPENAI, base_url=server.url)])
        with pytest.raises(ProviderError) as caught:
            await anext(aiter(catalog.build(ModelRef("acme", "m")).stream(ModelRequest("", HI))))
        await catalog.aclose()
    assert caught.value.kind is kind
