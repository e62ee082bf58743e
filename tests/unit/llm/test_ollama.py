"""What we send to /api/chat, and what we make of the lines servers really send."""

import json
from typing import Any

import pytest

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
from acp_agent.core.types import ToolKind, ToolSpec
from acp_agent.llm.endpoint import ModelEndpoint, write
from acp_agent.llm.ollama import OllamaReply, request_body
from tests.rows import each_row
from tests.unit.llm.streams import ollama_line

ENDPOINT = ModelEndpoint("acme", "m-1", "http://127.0.0.1:1", 1000)
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = (ToolSpec("read", "read it", SCHEMA, ToolKind.READ, mutates=False),)
PICTURE = ImagePart("QUJD", "image/png")
OTHER_PICTURE = ImagePart("REVG", "image/png")


def user(*parts: Any) -> Message:
    return Message(Role.USER, tuple(TextPart(part) if isinstance(part, str) else part for part in parts))


def assistant(*parts: Any) -> Message:
    return Message(Role.ASSISTANT, tuple(TextPart(part) if isinstance(part, str) else part for part in parts))


def body(
    *messages: Message,
    endpoint: ModelEndpoint = ENDPOINT,
    num_ctx: int | None = None,
    think: bool = False,
    **fields: Any,
) -> Any:
    request = ModelRequest(fields.pop("system", ""), messages, **fields)
    return json.loads(write(request_body(endpoint, request, num_ctx=num_ctx, think=think)))


def read(*lines: dict[str, Any], seed: bytes = b"request", taken: tuple[str, ...] = ()) -> ModelDone:
    reply = OllamaReply("acme", seed, taken)
    for line in lines:
        reply.feed(line)
    return reply.done()


def calling(*items: Any) -> dict[str, Any]:
    return ollama_line({"tool_calls": list(items)})


def function(name: Any = "ls", arguments: Any = None, **fields: Any) -> dict[str, Any]:
    return {**fields, "function": {"name": name, "arguments": arguments}}


# --------------------------------------------------------------------------------------- request


def test_the_whole_body_of_a_first_request() -> None:
    assert body(user("hi"), system="Be brief.", tools=TOOLS, max_tokens=7, num_ctx=32_768, think=True) == {
        "model": "m-1",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "stream": True,
        "truncate": False,
        "shift": False,
        "tools": [
            {"type": "function", "function": {"name": "read", "description": "read it", "parameters": SCHEMA}},
        ],
        "think": True,
        "options": {"num_ctx": 32_768, "num_predict": 7},
    }


def test_what_nobody_asked_for_is_not_sent() -> None:
    assert body(user("hi")).keys() == {"model", "messages", "stream", "truncate", "shift"}


def test_the_whole_conversation_of_a_tool_turn() -> None:
    messages = body(
        user("look", PICTURE),
        assistant("Reading.", ToolUsePart("c1", "read", {"path": "ä"}), ToolUsePart("c2", "ls", None, '{"path')),
        user("by the way", ToolResultPart("c1", "text"), ToolResultPart("c2", "", is_error=True)),
        assistant(ToolUsePart("c3", "read", {})),
    )["messages"]
    assert messages == [
        {"role": "user", "content": "look", "images": ["QUJD"]},
        {
            "role": "assistant",
            "content": "Reading.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"index": 0, "name": "read", "arguments": {"path": "ä"}}},
                {"id": "c2", "type": "function", "function": {"index": 1, "name": "ls", "arguments": {}}},
            ],
        },
        {"role": "tool", "tool_name": "read", "tool_call_id": "c1", "content": "text"},
        {"role": "tool", "tool_name": "ls", "tool_call_id": "c2", "content": ""},
        {"role": "user", "content": "by the way"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "c3", "type": "function", "function": {"index": 0, "name": "read", "arguments": {}}},
            ],
        },
    ]


def test_pictures_of_results_follow_all_results_and_say_whose_they_are() -> None:
    results = (
        ToolResultPart("c1", "Image: a.png", images=(PICTURE,)),
        ToolResultPart("c2", "Image: b.png", images=(OTHER_PICTURE,)),
    )
    uses = [ToolUsePart("c1", "read", {}), ToolUsePart("c2", "web_scrape", {})]
    messages = body(user("look"), assistant(*uses), user(*results, "and now?", PICTURE))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "user"]
    assert messages[-1] == {
        "role": "user",
        "content": "[image 1: from tool call read]\n\n[image 2: from tool call web_scrape]\n\nand now?",
        "images": ["QUJD", "REVG", "QUJD"],
    }


def test_a_model_without_eyes_reads_what_it_is_not_shown() -> None:
    blind = ModelEndpoint("acme", "m-1", "http://127.0.0.1:1", 1000, images=False)
    (message,) = body(user("look", PICTURE), endpoint=blind)["messages"]
    assert message == {"role": "user", "content": "look\n\n[image/png not shown: m-1 takes no images]"}


def test_thoughts_go_back_to_the_model_that_had_them_only() -> None:
    mine, other = "acme:m-1", "acme:m-2"
    parts = (ThoughtPart("hm ", mine), ThoughtPart("secret", other), ThoughtPart("so", mine, {"x": 1}))
    messages = body(user("x"), assistant(*parts, OpaquePart("rival", {"a": 1}), "done"))["messages"]
    assert messages[1] == {"role": "assistant", "content": "done", "thinking": "hm so"}
    assert len(body(user("x"), assistant(*parts))["messages"]) == 1, "a thought alone is no answer"


def test_a_result_whose_call_is_gone_is_sent_without_a_name() -> None:
    (message,) = body(user(ToolResultPart("c9", "text")))["messages"]
    assert message == {"role": "tool", "tool_call_id": "c9", "content": "text"}


def test_the_users_own_fields_go_where_the_server_reads_them() -> None:
    extra: Any = {
        "keep_alive": "30m",
        "think": "high",
        "truncate": True,
        "temperature": 0.5,
        "options": {"top_k": 3, "num_ctx": 9},
    }
    sent = body(user("x"), endpoint=ModelEndpoint("a", "m", "http://x", 1, max_tokens=5, extra_body=extra), num_ctx=8)
    assert (sent["keep_alive"], sent["think"], sent["truncate"]) == ("30m", "high", True)
    assert sent["options"] == {"num_ctx": 9, "num_predict": 5, "temperature": 0.5, "top_k": 3}
    assert "temperature" not in sent


def test_a_longer_conversation_starts_with_the_messages_of_the_shorter_one() -> None:
    turns = [user("a"), assistant(ToolUsePart("c", "read", {})), user(ToolResultPart("c", "t")), assistant("b")]
    whole = body(*turns)["messages"]
    assert all(whole[: len(body(*turns[:n])["messages"])] == body(*turns[:n])["messages"] for n in range(5))


# ----------------------------------------------------------------------------------------- reply


def test_thought_and_text_are_told_as_they_come_and_counted() -> None:
    reply = OllamaReply("acme", b"")
    told = reply.feed(ollama_line({"thinking": "hm", "content": "so"}))
    assert told == [ModelThought("hm"), ModelText("so")]
    assert not reply.complete
    assert reply.feed(ollama_line(done="stop", prompt_eval_count=26, eval_count=259)) == []
    assert reply.complete
    assert reply.done() == ModelDone(
        Message(Role.ASSISTANT, (ThoughtPart("hm", "acme"), TextPart("so"))), ModelStop.END, Usage(26, 259)
    )


def test_calls_without_ids_get_ids_that_are_unique_and_the_same_each_time() -> None:
    lines = (calling(function(), function()), calling(function()), ollama_line(done="stop"))
    ids = [use.id for use in read(*lines).message.tool_uses]
    assert len(set(ids)) == 3
    assert all(ids)
    assert [use.id for use in read(*lines).message.tool_uses] == ids
    others = [use.id for use in read(*lines, seed=b"the next request").message.tool_uses]
    assert not set(ids) & set(others), "the same call of another request is another call"


def test_an_id_the_conversation_has_already_seen_is_replaced() -> None:
    items = (function(id="call_0"), function(id="call_1"), function("rm", id="call_1"))
    done = read(calling(*items), taken=("call_0",))
    first, second, third = (use.id for use in done.message.tool_uses)
    assert second == "call_1"
    assert len({first, second, third, "call_0"}) == 4


def test_a_call_that_is_sent_twice_is_one_call() -> None:
    call = function("rm", {"path": "a"}, id="call_1")
    done = read(calling(call), calling(call, function("rm", {"path": "b"}, id="call_2")))
    assert [use.id for use in done.message.tool_uses] == ["call_1", "call_2"]
    assert len(read(calling(call), taken=("call_1",)).message.tool_uses) == 1


@each_row(
    "given, arguments, raw",
    [
        ({"a": [1]}, {"a": [1]}, ""),
        ('{"a": "\u2028"}', {"a": "\u2028"}, ""),
        (None, {}, ""),
        ("", {}, ""),
        ({}, {}, ""),
        ('{"a', None, '{"a'),
        (["ü"], None, '["ü"]'),
        (7, None, "7"),
        (False, None, "false"),
    ],
)
def test_arguments_as_an_object_as_text_and_as_neither(given: Any, arguments: Any, raw: str) -> None:
    (use,) = read(calling(function("ls", given, id="c1"))).message.tool_uses
    assert use == ToolUsePart("c1", "ls", arguments, raw)


@each_row(
    "reason, calls, stop",
    [
        ("stop", 0, ModelStop.END),
        ("stop", 1, ModelStop.TOOL_USE),
        ("length", 0, ModelStop.MAX_TOKENS),
        ("length", 1, ModelStop.MAX_TOKENS),
        ("", 0, ModelStop.END),  # older servers, and a runner whose connection closed
        ("", 1, ModelStop.TOOL_USE),
        ("load", 1, ModelStop.TOOL_USE),
    ],
)
def test_why_it_stopped(reason: str, calls: int, stop: ModelStop) -> None:
    assert read(calling(*[function()] * calls), ollama_line(done=reason)).stop is stop


def test_text_on_the_last_line_counts() -> None:
    assert read(ollama_line({"content": "!"}, done="stop")).message.text == "!"


def test_an_answer_that_only_loaded_the_model_is_known() -> None:
    for reason, content, expected in (
        ("load", "", True),
        ("unload", "", True),
        ("stop", "", False),
        ("load", "x", False),
    ):
        reply = OllamaReply("acme", b"")
        reply.feed(ollama_line({"content": content}, done=reason))
        assert reply.only_loaded is expected, (reason, content)


@each_row(
    "line",
    [
        {},
        {"message": None},
        {"message": [], "done": False},
        {"message": {"content": 7, "thinking": {}, "tool_calls": "x"}},
        {"message": {"content": None, "tool_calls": None}},
        {"message": {"tool_calls": [None, 3, {}, {"function": None}]}},
        {"message": {"content": "", "mood": "calm"}, "logprobs": [{"token": "x"}], "of_the_future": {"a": 1}},
        {"done": "true"},
        {"status": "loading"},
    ],
)
def test_a_line_out_of_shape_changes_nothing(line: dict[str, Any]) -> None:
    reply = OllamaReply("acme", b"")
    reply.feed(ollama_line({"content": "ok"}))
    assert reply.feed(line) == []
    assert not reply.complete
    assert reply.done().message.parts == (TextPart("ok"),)


@pytest.mark.parametrize("count", [None, -1, True, 2.5, "4"])
def test_a_count_out_of_shape_is_none(count: Any) -> None:
    assert read(ollama_line(done="stop", prompt_eval_count=count, eval_count=3)).usage == Usage(0, 3)
