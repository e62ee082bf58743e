"""Events and messages as rows, and back."""

import json
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.events import TextDelta, ToolFinished, ToolStarted, TranscriptEvent, UserMessage
from acp_agent.core.messages import Message, OpaquePart, Role, TextPart, ThoughtPart, ToolResultPart, ToolUsePart
from acp_agent.core.session_options import AutoApprove, Mode, SessionOptions
from acp_agent.core.sessions import HistoryState, SessionRecord, SessionSnapshot, UsageTotals
from acp_agent.core.types import JsonObject, ToolKind, ToolResult
from acp_agent.store.session_json import (
    MOST_EVENTS,
    NotASessionFile,
    event_from_row,
    event_object,
    event_row,
    from_json,
    json_bytes,
    json_from,
    message_from_row,
    message_row,
    read_session_file,
    readable_part,
    session_object,
    session_pieces,
    to_json,
)
from tests.rows import each_row
from tests.unit.cli.stored_sessions import at, events, saved, telling
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


@each_row(
    "kind, body",
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
    with pytest.raises(StoreUnavailable, match="cannot be stored as JSON"):
        event_row(ToolStarted("c", "n", "t", ToolKind.READ, {"x": [number]}))


def test_what_is_no_json_is_refused_and_does_no_harm():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    started = ToolStarted("c", "n", "t", ToolKind.READ, {"x": deep})
    with pytest.raises(StoreUnavailable, match="cannot be stored as JSON"):
        event_row(started)


pytestmark = pytest.mark.anyio

MESSAGES = (
    Message(Role.USER, (TextPart("look"), TextPart("\ud800"))),
    Message(
        Role.ASSISTANT,
        (ThoughtPart("hm", "anthropic", {"s": 1}), OpaquePart("x", {"a": [None]}), ToolUsePart("1", "read", None, "{")),
    ),
    Message(Role.USER, (ToolResultPart("1", "nothing", is_error=True),)),
)
WHOLE = SessionSnapshot(
    SessionRecord("id", "/a", ("/b",), "title", 1, 2, 3, "openai:x"),
    SessionOptions(thought_level="high"),
    UsageTotals(used=1, size=2, cost=0.5, complete=False, calls=7),
    HistoryState(MESSAGES, knowledge=1, tokens=99),
)


async def text_of(session: SessionSnapshot, told: list[TranscriptEvent]) -> str:
    return "".join([piece async for piece in session_pieces(session, telling(at(told)))])


async def test_what_is_written_is_read_again():
    data = json.loads(await text_of(WHOLE, events()))
    assert data == await session_object(WHOLE, telling(at(events())))
    assert (data["format"], data["version"]) == ("acp-agent-session", 1)
    session, told = read_session_file(data)
    assert session == WHOLE
    assert len(told) == len(events()) - 2, "messages told in pieces are whole"
    again, same = read_session_file(await session_object(session, telling(told)))
    assert (again, same) == (session, told)


async def test_the_text_is_utf_8_whatever_was_said():
    text = await text_of(WHOLE, [TextDelta("é \ud800", "m")])
    text.encode()
    _, told = read_session_file(json.loads(text))
    assert told[0].event == TextDelta("é \ud800", "m")


def test_an_event_on_its_own_has_its_number():
    (one,) = at([TextDelta("a", "m")])
    assert event_object(one) == {"seq": 1, "at": one.at, "kind": "text", "body": {"text": "a", "message_id": "m"}}


async def test_ten_thousand_events_are_taken_and_not_one_more():
    def told(number: int) -> list[TranscriptEvent]:
        return [UserMessage((), str(n)) for n in range(number)]

    _, taken = read_session_file(await session_object(saved(), telling(at(told(MOST_EVENTS)))))
    assert len(taken) == MOST_EVENTS
    with pytest.raises(NotASessionFile, match="events: expected at most 10,000, not 10,001"):
        read_session_file(await session_object(saved(), telling(at(told(MOST_EVENTS + 1)))))


@each_row(
    "change, error",
    [
        ({"format": "x" * 99}, "format: expected 'acp-agent-session', not 'xxxx"),
        ({"version": 2}, "version: expected 1, not 2"),
        ({"version": True}, "version: expected 1, not True"),
        ({"record": None}, "record: "),
        ({"record": {"id": 1, "cwd": "/"}}, "record: "),
        ({"record": {"id": "1"}}, "record: SessionRecord without cwd"),
        ({"record": {"id": "1", "cwd": "/", "prompts": 2**63}}, "record: prompts: expected a whole number"),
        ({"options": {"mode": "fast"}, "conduct": {}}, "options: "),
        ({"tally": {"cost": "much"}}, "tally: "),
        ({"messages": {}}, "messages: expected a list, not an object"),
        ({"messages": [{"role": "user", "parts": []}, {"role": "system", "parts": []}]}, r"messages\[1\]: "),
        ({"messages": [{"role": "user", "parts": [{"type": "video"}]}]}, r"messages\[0\]: "),
        ({"messages": [[]]}, r"messages\[0\]: "),
        ({"knowledge": -1}, "knowledge: expected a whole number of 0 or more, not -1"),
        ({"knowledge": 9}, "knowledge: expected no more than the first message has parts, not 9"),
        ({"tokens": 1.5}, "tokens: expected a whole number"),
        ({"events": None}, "events: expected a list, not nothing"),
        ({"events": ["hello"]}, r"events\[0\]: expected an object, not 'hello'"),
        ({"events": [{"kind": "song", "body": {}}]}, r"events\[0\]: .*'song'"),
        ({"events": [{"kind": ["text"], "body": {}}]}, r"events\[0\]: kind: expected a text, not a list"),
        ({"events": [{"kind": "text", "body": {"text": "a"}}]}, r"events\[0\]: TextDelta without message_id"),
        ({"events": [{"kind": "text", "body": None}]}, r"events\[0\]: "),
        ({"events": [{"at": 2**70, "kind": "plan", "body": {"entries": []}}]}, r"events\[0\]: at: expected a whole"),
        ({"events": [{"kind": "usage", "body": {"used": 1, "size": float("nan")}}]}, r"events\[0\]: Out of range"),
    ],
)  # fmt: skip
async def test_what_is_wrong_in_a_file_is_said_with_its_place(change, error):
    data = await session_object(WHOLE, telling(at(events()))) | change
    with pytest.raises(NotASessionFile, match=f"^{error}"):
        read_session_file(data)


async def test_the_options_are_also_read_by_their_earlier_name():
    data = await session_object(WHOLE, telling(at(events())))
    assert read_session_file(data)[0].options == WHOLE.options != SessionOptions()
    data["conduct"] = data.pop("options")
    assert read_session_file(data)[0].options == WHOLE.options
    with pytest.raises(NotASessionFile, match=r"^conduct: "):
        read_session_file(data | {"conduct": {"mode": "fast"}})


def nested(levels: int) -> JsonObject:
    data: JsonObject = {}
    for _ in range(levels):
        data = {"x": data}
    return data


WORDS = {"role": "user", "parts": [{"type": "text", "text": "x"}]}


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([WORDS] * (MOST_EVENTS + 1), "messages: expected at most 10,000, not 10,001"),
        ([{"role": "user", "parts": WORDS["parts"] * 200_000}], "session: expected at most 500,000 values"),
        ([WORDS | {"parts": [{"type": "text", "text": "x" * 2**20}]}] * 17, "session: .* 16,777,216 characters"),
        ([WORDS | {"more": nested(100)}], "session: expected at most 100 levels"),
    ],
)
async def test_more_than_anybody_could_use_is_refused_before_it_is_looked_at(messages, error):
    data = await session_object(WHOLE, telling(at(events())))
    with pytest.raises(NotASessionFile, match=f"^{error}"):
        read_session_file(data | {"messages": messages, "knowledge": 0})
    read_session_file(data | {"messages": [WORDS] * (MOST_EVENTS - 1) + [WORDS | {"more": nested(90)}], "knowledge": 0})


KEYS = st.sampled_from(["type", "kind", "at", "body", "id", "cwd", "parts", "role", "text", "message_id"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
MEMBERS = ("record", "options", "tally", "messages", "events", "knowledge")


@given(st.dictionaries(st.sampled_from(MEMBERS), JSON))
def test_a_file_of_anything_is_refused_with_a_reason(data: JsonObject):
    with pytest.raises(NotASessionFile, match=": "):
        read_session_file(
            {"format": "acp-agent-session", "version": 1, "messages": [], "events": [], "record": {}} | data
        )
