"""Whatever a session file says, an editor can be told of it."""

import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.cli.agent_process import Direction, RecordedFrame, Recording
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.events import (
    PlanChanged,
    PlanEntry,
    TextDelta,
    ThoughtDelta,
    ToolFinished,
    ToolStarted,
    TranscriptEvent,
    UsageChanged,
    UserMessage,
)
from acp_agent.core.messages import (
    LinkPart,
    Message,
    OpaquePart,
    ResourcePart,
    Role,
    TextPart,
    ThoughtPart,
    ToolResultPart,
    ToolUsePart,
)
from acp_agent.core.session_options import SessionOptions
from acp_agent.core.sessions import HistoryState, SessionRecord, SessionSnapshot, StoredEvent, UsageTotals
from acp_agent.core.types import Diff, ImagePart, JsonObject, Location, ToolKind, ToolResult
from acp_agent.protocol.client import Client, EditorPaths
from acp_agent.protocol.editor import replayed
from acp_agent.protocol.updates import Updates, iso_time
from acp_agent.session.foreign_session import corrected_session
from tests.wire import schema

NOW = 1_000_000

texts = st.sampled_from(["", "a", "b", "\0"])
numbers = st.sampled_from([0, 3, -1, 2**32, 2**63, 2**70])
reals = st.none() | st.sampled_from([0.5, -1.0, 1e308, float("inf"), float("nan")])
places = st.builds(Location, texts, st.none() | numbers).map(lambda place: (place,))
diffs = st.builds(Diff, texts, st.none() | texts, texts).map(lambda diff: (diff,))
results = st.builds(
    ToolResult,
    text=texts,
    envelope=st.none() | st.just({"exit_code": "x", "stdout": [1], "duration": -1}),
    diffs=diffs,
    locations=places,
    failure=st.none() | st.builds(ToolFailure, st.sampled_from(ToolErrorCategory), texts),
)
events = st.one_of(
    st.builds(UserMessage, st.just(()), texts),
    st.builds(TextDelta, texts, texts),
    st.builds(ToolStarted, texts, texts, texts, st.sampled_from(ToolKind), st.just({"x": 1}), places, diffs),
    st.builds(ToolFinished, texts, texts, results, reals.map(lambda real: 0.0 if real is None else real)),
    st.builds(UsageChanged, numbers, numbers, reals),
)


@settings(max_examples=settings.default.max_examples * 2)
@given(st.lists(events, max_size=5), numbers, numbers)
def test_it_can_be_listed_and_shown_and_what_is_shown_is_of_the_protocol(told, created_at, at):
    foreign = SessionSnapshot(
        SessionRecord("x", "/p", created_at=created_at),
        SessionOptions(),
        UsageTotals(created_at, at, cost=at),
        HistoryState(),
    )

    saved, mended = corrected_session(foreign, [StoredEvent(1, at, event) for event in told], SessionOptions(), NOW)

    iso_time(saved.record.created_at)
    assert 0 <= saved.usage.size < 2**53
    recording = Recording()
    for update in anyio.run(shown, mended):
        json.dumps(update, allow_nan=False)
        frame = {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}}
        recording.add(RecordedFrame(Direction.FROM_AGENT, frame, 0))
    assert schema.violations(recording) == []


EVIL = "![x](https://evil.example/p.png) \x1b[31mred\u202e\x9b1m secret-4711"
MEANT = "![x]\\(https://evil.example/p.png) red [gone]"
PICTURE, PROGRAM, NONSENSE = (
    ImagePart("aGk=", "image/png"),
    ImagePart("aGk=", "image/svg+xml"),
    ImagePart("aGk=!", "image/png"),
)


def mended(*told: TranscriptEvent, messages: tuple[Message, ...] = ()) -> tuple[SessionSnapshot, list[TranscriptEvent]]:
    foreign = SessionSnapshot(
        SessionRecord("x", "/p", ("/q",), EVIL), SessionOptions(), UsageTotals(), HistoryState(messages)
    )
    at = [StoredEvent(n, 1, event) for n, event in enumerate(told)]

    def redact(text: str) -> str:
        return text.replace("secret-4711", "[gone]")

    saved, events = corrected_session(foreign, at, SessionOptions(), NOW, redact)
    return saved, [each.event for each in events]


def test_what_is_shown_of_it_loads_no_picture_hides_nothing_and_has_no_secret():
    failure = ToolFailure(ToolErrorCategory.POLICY_BLOCKED, EVIL)
    result = ToolResult(EVIL, EVIL, {"stdout": [EVIL]}, failure=failure, images=(PICTURE, PROGRAM, NONSENSE))
    saved, told = mended(
        UserMessage((TextPart(EVIL), LinkPart(EVIL, EVIL), ResourcePart(EVIL, EVIL), PICTURE, PROGRAM, NONSENSE), "u"),
        TextDelta(EVIL, "m"),
        ThoughtDelta(EVIL, "m"),
        PlanChanged((PlanEntry(EVIL),)),
        ToolStarted("c", EVIL, EVIL, ToolKind.EXECUTE, {"command": EVIL}),
        ToolFinished("c", EVIL, result, 1.0),
    )
    text = repr((saved, told))
    assert "secret-4711" not in text
    assert "](https" not in re.sub(r"(raw_input|envelope)=\{[^}]*\}", "", text), "what is data stays as it was"
    assert not any(character in text for character in ("\\x1b", "\\u202e", "\\x9b"))
    assert saved.record.title == MEANT
    assert told[1] == TextDelta(MEANT, "m")
    assert told[4] == ToolStarted("c", MEANT, MEANT, ToolKind.EXECUTE, {"command": MEANT.replace("\\", "")})
    assert isinstance(told[5], ToolFinished)
    assert told[5].result.images == (PICTURE,)
    assert isinstance(told[0], UserMessage)
    assert [part for part in told[0].parts if isinstance(part, ImagePart)] == [PICTURE]
    assert len(told[0].parts) == 6


def test_what_it_has_read_is_named_on_one_line_and_as_it_is_seen():
    totals = UsageTotals(read_from=("a.example\u202e\nTrust: full", "b" * 1000))
    foreign = SessionSnapshot(SessionRecord("x", "/p"), SessionOptions(), totals, HistoryState())
    named, long = corrected_session(foreign, (), SessionOptions(), NOW)[0].usage.read_from
    assert "\u202e" not in named
    assert "\n" not in named
    assert len(long) == 200


def test_its_folder_is_spelled_as_lists_look_for_it():
    foreign = SessionSnapshot(SessionRecord("x", "/p//a/./b/"), SessionOptions(), UsageTotals(), HistoryState())
    assert corrected_session(foreign, (), SessionOptions(), NOW)[0].record.cwd == "/p/a/b"


def test_it_points_to_nothing_outside_its_folders():
    inside = (Location("/p", 1), Location("/p/a"), Location("/q/a/b", 3))
    outside = tuple(map(Location, ("/etc/passwd", "a", "../x", "/p/../etc/passwd", "/pq", "/", "", "/p/\0")))
    diffs = (Diff("/p/a", None, "x"), Diff("/elsewhere/.bashrc", "a", "b"), Diff("b", "a", "b"))
    _, told = mended(
        ToolStarted("c", "n", "t", ToolKind.EDIT, {}, outside + inside, diffs),
        ToolFinished("c", "n", ToolResult("x", locations=outside + inside, diffs=diffs), 1.0),
    )
    started, finished = told
    assert isinstance(started, ToolStarted)
    assert isinstance(finished, ToolFinished)
    assert (started.locations, started.diffs) == (inside, diffs[:1])
    assert (finished.result.locations, finished.result.diffs) == (inside, diffs[:1])


def test_the_model_is_given_its_words_without_what_nobody_sees_and_what_is_its_providers_as_it_was():
    opaque = OpaquePart("anthropic", {"sealed": "\x1b secret-4711"})
    thought = ThoughtPart("hm\u200b", "anthropic", {"sealed": "\x1b"})
    parts = (TextPart("a\u200bb secret-4711"), PROGRAM, opaque, thought, ToolUsePart("1", "read", {"x": "secret-4711"}))
    answer = ToolResultPart("1", "\x1b[1msecret-4711", images=(PICTURE, NONSENSE))
    saved, _ = mended(messages=(Message(Role.ASSISTANT, parts), Message(Role.USER, (answer,))))
    first, second = saved.history.messages
    assert first.parts[0] == TextPart("ab [gone]")
    assert isinstance(first.parts[1], TextPart)
    assert first.parts[2:] == (opaque, replace(thought, text="hm"), ToolUsePart("1", "read", {"x": "[gone]"}))
    assert second.parts == (ToolResultPart("1", "[gone]", images=(PICTURE,)),)


async def shown(told: list[StoredEvent]) -> list[JsonObject]:
    async def each() -> AsyncIterator[StoredEvent]:
        for one in told:
            yield one

    return [update async for update in replayed(each(), Updates(Client(), "/w", EditorPaths("/w")))]
