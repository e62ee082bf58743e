"""The judges themselves: a conversation that breaks a rule is found out."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from acp_agent.cli.agent_process import Direction, RecordedFrame, Recording
from tests.rows import each_row
from tests.wire import rules, schema

SESSION = "s"


def asks(number, method, **params):
    return Direction.TO_AGENT, {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def answers(number, result):
    return Direction.FROM_AGENT, {"jsonrpc": "2.0", "id": number, "result": result}


def update(kind, /, session=SESSION, **members):
    params = {"sessionId": session, "update": {"sessionUpdate": kind, **members}}
    return Direction.FROM_AGENT, {"jsonrpc": "2.0", "method": "session/update", "params": params}


def wants(number, method, **params):
    return Direction.FROM_AGENT, {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def gives(number, result):
    return Direction.TO_AGENT, {"jsonrpc": "2.0", "id": number, "result": result}


def words(text="hi"):
    return update("agent_message_chunk", content={"type": "text", "text": text})


def starts(call, status="in_progress", **members):
    return update("tool_call", toolCallId=call, title="t", status=status, **members)


def ends(call, status="completed", **members):
    return update("tool_call_update", toolCallId=call, status=status, **{"rawOutput": {"output": ""}, **members})


def shows(call, terminal, **members):
    content = [{"type": "terminal", "terminalId": terminal}]
    return update("tool_call_update", toolCallId=call, content=content, **{"status": "in_progress", **members})


OPEN = [asks(1, "session/new", cwd="/w"), answers(1, {"sessionId": SESSION})]
PROMPT = asks(2, "session/prompt", sessionId=SESSION, prompt=[])
DONE = answers(2, {"stopReason": "end_turn"})
TERMINAL = [wants(0, "terminal/create", sessionId=SESSION, command="x"), gives(0, {"terminalId": "T"})]
RELATIVE = {"toolCallId": "a", "locations": [{"path": "x"}]}
RELEASE = wants(1, "terminal/release", sessionId=SESSION, terminalId="T")


def recorded(frames) -> Recording:
    recording = Recording()
    for direction, message in frames:
        recording.add(RecordedFrame(direction, message, 0.0))
    return recording


def test_a_lawful_conversation_breaks_nothing():
    turn = [PROMPT, words(), starts("a"), *TERMINAL, shows("a", "T"), ends("a"), RELEASE, DONE]
    recording = recorded([*OPEN, *turn, update("available_commands_update", availableCommands=[])])
    assert rules.broken(recording) == []


@each_row(
    "frames, problem",
    [
        ([*OPEN, answers(1, {})], "second one"),
        ([answers(9, {})], "nothing that was asked"),
        ([update("available_commands_update"), *OPEN], "not answered yet"),
        ([*OPEN, words()], "outside a turn"),
        ([*OPEN, PROMPT, DONE, words()], "outside a turn"),
        ([*OPEN, PROMPT, starts("a"), DONE], "ended before its tool call a"),
        ([*OPEN, PROMPT, ends("a"), DONE], "before its tool_call"),
        ([*OPEN, PROMPT, starts("a"), starts("a"), ends("a"), DONE], "used twice"),
        ([*OPEN, PROMPT, starts("a"), ends("a"), ends("a"), DONE], "after it was completed"),
        ([*OPEN, PROMPT, starts("a", status="pending"), ends("a"), DONE], "begins as 'pending'"),
        ([*OPEN, PROMPT, starts("a", locations=[{"path": "x"}]), ends("a"), DONE], "relative path"),
        ([*OPEN, PROMPT, starts("a"), shows("a", "T"), ends("a"), DONE], "which is unknown"),
        ([*OPEN, PROMPT, starts("a"), *TERMINAL, RELEASE, shows("a", "T"), ends("a"), DONE], "which is released"),
        ([*OPEN, PROMPT, starts("a"), *TERMINAL, shows("a", "T"), RELEASE, ends("a"), DONE], "before the final update"),
        ([*OPEN, PROMPT, *TERMINAL, RELEASE, RELEASE, DONE], "which is released"),
        ([*OPEN, PROMPT, wants(5, "fs/read_text_file", path="x"), DONE], "with a relative path"),
        ([*OPEN, PROMPT, wants(5, "session/request_permission", toolCall=RELATIVE), DONE], "with a relative path: 'x'"),
        ([*OPEN, PROMPT, starts("a"), *TERMINAL, shows("a", "T", status=""), ends("a"), DONE], "without a status"),
        ([*OPEN, PROMPT, starts("a"), ends("a", rawOutput="text"), DONE], "without the text of its output"),
        ([*OPEN, PROMPT, starts("a"), ends("a", rawOutput={"stdout": ""}), DONE], "without the text of its output"),
    ],
)
def test_a_broken_rule_is_named(frames, problem):
    assert any(problem in found for found in rules.broken(recorded(frames)))


@pytest.mark.skipif(not schema.available(), reason="the protocol's schema is not beside this checkout")
@pytest.mark.parametrize(
    "frame",
    [
        starts("a", rawinput={}),
        starts("a", kind="reading"),
        starts("a", content=[{"type": "content", "content": {"type": "text", "txt": "x"}}]),
        update("tool_call_updated", toolCallId="a"),
        update("agent_message_chunk", content="words"),
        wants(1, "terminal/kill", sessionId=SESSION),
        wants(1, "fs/remove_file", sessionId=SESSION, path="/x"),
        answers(7, {"stopReason": "tired"}),
        answers(7, {"stopReason": "end_turn", "usage": 1, "extra": True}),
        (Direction.FROM_AGENT, {"jsonrpc": "2.0", "id": 7, "result": {}, "error": {"code": 1, "message": "x"}}),
        (Direction.FROM_AGENT, {"jsonrpc": "2.0", "id": 7, "error": {"message": "x"}}),
        (Direction.FROM_AGENT, {"id": 7, "result": {"stopReason": "end_turn"}}),
        (Direction.FROM_AGENT, {"jsonrpc": "2.0", "id": 7, "result": {"stopReason": "end_turn"}, "type": "x"}),
    ],
)
def test_a_message_the_schema_does_not_know_is_found_out(frame):
    prompt = asks(7, "session/prompt", sessionId=SESSION, prompt=[])
    assert schema.violations(recorded([prompt, frame]))


@pytest.mark.skipif(not schema.available(), reason="the protocol's schema is not beside this checkout")
def test_a_message_the_schema_knows_passes():
    raw = {"any": [{"thing": 1}], "_meta": {"x": {"y": 1}}}
    fine = starts("a", name="read", kind="read", rawInput=raw, _meta={"a": {"b": 1}})
    prompt = asks(7, "session/prompt", sessionId=SESSION, prompt=[])
    assert schema.violations(recorded([prompt, fine, answers(7, {"stopReason": "end_turn", "_meta": {"a": 1}})])) == []


@pytest.mark.skipif(not schema.available(), reason="the protocol's schema is not beside this checkout")
def test_a_message_like_one_that_was_fine_is_judged_by_itself():
    fine = [words(), starts("a", kind="read"), update("usage_update", used=1, size=2)]
    assert schema.violations(recorded(fine)) == []
    wrong = [starts("a", kind="x"), update("usage_update", used=-1, size=2), update("usage_update", used="1", size=2)]
    empty, none = update("notice", severity="info", title=""), update("notice", severity=None, title="x")
    for frame in (*wrong, empty, none):
        assert len({found.split(":")[0] for found in schema.violations(recorded([*fine, frame]))}) == 1


@pytest.mark.skipif(not schema.available(), reason="the protocol's schema is not beside this checkout")
def test_the_schema_says_nothing_that_the_shape_of_a_message_does_not_show():
    shown = {"type", "const", "enum", "minimum", "maximum", "minLength", "format"}
    looks = {"pattern", "maxLength", "minItems", "maxItems", "uniqueItems", "contains", "multipleOf", "minProperties"}
    found = [
        (word, node[word])
        for node in nodes(json.loads(schema.SCHEMA_FILE.read_text()))
        for word in shown | looks
        if word in node
    ]
    plain = [(word, value) for word, value in found if not isinstance(value, dict)]
    assert {word for word, _ in plain} <= shown
    assert {value for word, value in plain if word == "minLength"} == {1}
    assert all(value in (0, 1) or value > 60_000 for word, value in plain if word in {"minimum", "maximum"})


def nodes(node: Any) -> Iterator[dict[str, Any]]:
    """Every object within."""
    if isinstance(node, dict):
        yield node
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from nodes(each)
