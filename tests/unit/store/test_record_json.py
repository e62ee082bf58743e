"""Events and messages as rows, and back."""

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.core.conduct import AutoApprove, Mode, SessionOptions
from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.events import TextDelta, ToolFinished, ToolStarted, TranscriptEvent
from acp_agent.core.messages import Message, Role, TextPart, ToolUsePart
from acp_agent.core.sessions import UsageTotals
from acp_agent.core.types import ToolKind, ToolResult
from acp_agent.store.record_json import (
    event_from_row,
    event_row,
    from_json,
    json_bytes,
    json_from,
    message_from_row,
    message_row,
    readable_part,
    to_json,
)
from tests.unit.store.records import EVENTS, MESSAGES, any_of


@given(event=EVENTS)
def test_any_event_comes_back_as_it_was(event):
    assert event_from_row(*event_row(event)) == event


@given(message=MESSAGES)
def test_any_message_comes_back_as_it_was(message):
    assert message_from_row(*message_row(message)) == message


@given(state=any_of(SessionOptions) | any_of(UsageTotals))
def test_any_state_comes_back_as_it_was(state):
    body = json_bytes(to_json(state))
    assert from_json(type(state), json_from(body)) == readable_part(type(state), json_from(body)) == state


def test_rows_are_small_and_people_can_read_them():
    assert event_row(TextDelta("Grüße\0\ud800", "m")) == (
        "text",
        '{"text":"Grüße\\u0000\ud800","message_id":"m"}'.encode("utf-8", "surrogatepass"),
    )
    finished = ToolFinished("c", "read", ToolResult("out"), 0.5)
    assert event_row(finished) == (
        "tool_finished",
        b'{"call_id":"c","name":"read","result":{"text":"out"},"elapsed":0.5}',
    )
    message = Message(Role.ASSISTANT, (TextPart("a"), ToolUsePart("1", "read", {"path": "x"})))
    assert message_row(message) == (
        "assistant",
        b'[{"type":"text","text":"a"},{"type":"tool_use","id":"1","name":"read","arguments":{"path":"x"}}]',
    )


@settings(max_examples=1)
@given(events=st.tuples(*map(any_of, get_args(TranscriptEvent))))
def test_every_kind_of_event_has_a_name_that_stays(events):
    assert sorted(event_row(event)[0] for event in events) == [
        "plan",
        "text",
        "thought",
        "tool_finished",
        "tool_started",
        "usage",
        "user",
    ]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("hologram", b"{}"),
        ("text", b"{}"),
        ("text", b'{"text":"a"}'),
        ("text", b'{"text":5,"message_id":"m"}'),
        ("text", b'{"text":"a","message_id":"m"'),
        ("text", b"\xff\xfe"),
        ("text", b"[]"),
        ("text", b"null"),
        ("text", b""),
        ("text", None),
        ("text", 7),
        ("text", b"[" * 100_000),
        ("user", b'{"parts":[{"type":"hologram"}],"message_id":"m"}'),
        ("user", b'{"parts":[{"text":"no type"}],"message_id":"m"}'),
        ("user", b'{"parts":[{"type":["text"],"text":"a"}],"message_id":"m"}'),
        ("user", b'{"parts":[{"type":"tool_use","id":"1","name":"x"}],"message_id":"m"}'),
        ("tool_started", b'{"call_id":"c","name":"n","title":"t","kind":"teleport","raw_input":{}}'),
        ("tool_started", b'{"call_id":"c","name":"n","title":"t","kind":"read","raw_input":[]}'),
        ("usage", b'{"used":true,"size":1}'),
        ("usage", b'{"used":1,"size":1,"cost":NaN}'),
        ("usage", b'{"used":1,"size":1,"cost":1e999}'),
    ],
)
def test_what_is_damaged_or_from_a_later_version_is_one_error(kind, body):
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says, it is caught and logged
        event_from_row(kind, body)


def test_members_a_later_version_added_are_passed_over():
    assert event_from_row("text", b'{"text":"a","message_id":"m","mood":{"x":[1]}}') == TextDelta("a", "m")


def test_of_a_state_with_something_unknown_in_it_the_rest_counts():
    body = json_from(b'{"mode":"oracle","auto_approve":"auto-edit","readonly":true,"model":7}')
    assert readable_part(SessionOptions, body) == SessionOptions(Mode.CODE, AutoApprove.AUTO_EDIT, readonly=True)


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_a_number_no_reader_of_json_knows_is_not_written(number):
    with pytest.raises(StoreUnavailable, match="cannot be kept"):
        event_row(ToolStarted("c", "n", "t", ToolKind.READ, {"x": [number]}))


def test_what_is_no_json_is_refused_and_does_no_harm():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    started = ToolStarted("c", "n", "t", ToolKind.READ, {"x": deep})
    with pytest.raises(StoreUnavailable, match="cannot be kept"):
        event_row(started)
