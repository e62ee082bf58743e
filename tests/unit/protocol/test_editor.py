"""A conversation told again looks as it did, and nothing in it spins or refers to what is gone."""

import itertools
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.cli.agent_process import Direction, RecordedFrame, Recording
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.events import (
    CompactionChanged,
    CompactionStatus,
    Event,
    Notice,
    PlanChanged,
    PlanEntry,
    PlanPriority,
    PlanStatus,
    Severity,
    TextDelta,
    ThoughtDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TranscriptEvent,
    UsageChanged,
    UserMessage,
)
from acp_agent.core.messages import LinkPart, ResourcePart, TextPart
from acp_agent.core.sessions import StoredEvent
from acp_agent.core.types import Diff, ImagePart, JsonObject, Location, OutputStats, ToolKind, ToolResult
from acp_agent.protocol.client import Client, EditorPaths
from acp_agent.protocol.editor import CHUNK_LIMIT, replayed
from acp_agent.protocol.updates import Updates, content_block, session_info
from acp_agent.store.session_json import event_from_row, event_row
from tests.fakes.fold import View
from tests.wire import schema

pytestmark = pytest.mark.anyio

AT = 1_767_225_600_000  # 2026-01-01


def updates(client: Client | None = None) -> Updates:
    return Updates(client or Client(), "/w", EditorPaths("/w"))


async def stored(events: Iterable[TranscriptEvent]) -> AsyncIterator[StoredEvent]:
    """Through the words of the store and back."""
    for seq, event in enumerate(events):
        yield StoredEvent(seq, AT + 1000 * seq, event_from_row(*event_row(event)))


async def replay(*events: TranscriptEvent, client: Client | None = None) -> list[dict[str, Any]]:
    return [update async for update in replayed(stored(events), updates(client))]


def violations(sent: Iterable[JsonObject]) -> list[str]:
    recording = Recording()
    for update in sent:
        params: JsonObject = {"sessionId": "s1", "update": update}
        message: JsonObject = {"jsonrpc": "2.0", "method": "session/update", "params": params}
        recording.add(RecordedFrame(Direction.FROM_AGENT, message, 0))
    return schema.violations(recording)


def started(call_id: str = "c1", kind: ToolKind = ToolKind.EXECUTE, **more: Any) -> ToolStarted:
    return ToolStarted(call_id, "bash", "ls", kind, {"command": "ls"}, **more)


# ------------------------------------------------------------------------------------ one by one


async def test_pieces_of_one_message_are_one_chunk_until_something_comes_between() -> None:
    sent = await replay(
        ThoughtDelta("hm", "t1"),
        ThoughtDelta("m", "t1"),
        TextDelta("a", "m1"),
        TextDelta("b", "m1"),
        TextDelta("c", "m2"),
        started(),
        TextDelta("d", "m2"),
    )
    chunks = [(each["messageId"], each["content"]["text"]) for each in sent if "messageId" in each]
    assert chunks == [("t1", "hmm"), ("m1", "ab"), ("m2", "c"), ("m2", "d")]
    assert sent[3]["sessionUpdate"] == "tool_call"


async def test_a_long_message_is_cut_into_chunks_of_a_size() -> None:
    pieces = ["x" * 100_000] * 6 + ["y" * (CHUNK_LIMIT + 1)]
    sent = await replay(*(TextDelta(piece, "m1") for piece in pieces))
    texts = [each["content"]["text"] for each in sent]
    assert max(map(len, texts)) <= CHUNK_LIMIT
    assert "".join(texts) == "".join(pieces)
    assert len(texts) == 5


@pytest.mark.parametrize("client", [Client(), Client(terminal=True), Client(display_terminals=True)], ids=str)
async def test_a_command_is_shown_as_text_with_the_time_of_then_and_no_terminal(client: Client) -> None:
    result = ToolResult("hi\n", envelope={"output": "hi\n", "exit_code": 0})
    start, final = await replay(started(), ToolFinished("c1", "bash", result, 0.5), client=client)
    assert start["_meta"] == {"claudeCode": {"toolName": "bash", "startedAt": "2026-01-01T00:00:00.000Z"}}
    assert "content" not in start
    assert final["content"] == [{"type": "content", "content": {"type": "text", "text": "```\nhi\n```"}}]
    assert final["rawOutput"] == {"output": "hi\n", "exit_code": 0}
    assert final["_meta"] == {"claudeCode": {"toolName": "bash", "elapsedMs": 500}}


async def test_a_call_without_an_end_has_failed_before_the_next_prompt_and_at_the_end() -> None:
    sent = await replay(
        started("c1"), started("c2"), UserMessage((TextPart("go on"),), "u1"), started("c3"), UsageChanged(1, 2)
    )
    assert [(each["sessionUpdate"], each.get("toolCallId"), each.get("status")) for each in sent] == [
        ("tool_call", "c1", "in_progress"),
        ("tool_call", "c2", "in_progress"),
        ("tool_call_update", "c1", "failed"),
        ("tool_call_update", "c2", "failed"),
        ("user_message_chunk", None, None),
        ("tool_call", "c3", "in_progress"),
        ("tool_call_update", "c3", "failed"),
        ("usage_update", None, None),
    ]
    assert sent[2]["content"] == [{"type": "content", "content": {"type": "text", "text": "```\ninterrupted\n```"}}]
    assert violations(sent) == []


async def test_an_end_without_a_beginning_and_a_second_end_are_dropped() -> None:
    end = ToolFinished("c1", "bash", ToolResult("x"), 0)
    assert await replay(end) == []
    assert len(await replay(started(), end, end)) == 2


async def test_of_usage_only_the_last_word_is_said_and_every_plan_in_its_place() -> None:
    first, second = PlanEntry("a"), PlanEntry("b", PlanStatus.COMPLETED, PlanPriority.HIGH)
    sent = await replay(
        UsageChanged(1, 10),
        PlanChanged((first,)),
        TextDelta("x", "m"),
        UsageChanged(2, 10, 0.5),
        PlanChanged((second,)),
    )
    assert [each["sessionUpdate"] for each in sent] == ["plan", "agent_message_chunk", "plan", "usage_update"]
    assert sent[2]["entries"] == [{"content": "b", "priority": "high", "status": "completed"}]
    assert sent[3]["cost"] == {"amount": 0.5, "currency": "USD"}
    assert violations(sent) == []


async def test_open_cards_of_the_live_session_are_left_alone_and_the_store_is_closed() -> None:
    live, closed = updates(), list[bool]()
    live.translate(started("live"))

    async def told() -> AsyncIterator[StoredEvent]:
        try:
            async for each in stored([started("then"), TextDelta("a", "m"), TextDelta("b", "m2")]):
                yield each
        finally:
            closed.append(True)

    sent = replayed(told(), live)
    assert (await anext(sent))["toolCallId"] == "then"
    await sent.aclose()
    assert closed == [True]
    assert len(live.translate(ToolFinished("live", "bash", ToolResult("x"), 0))) == 1


# ------------------------------------------------------------------------------------- all of it

TEXTS = st.sampled_from(["", "a", "b\n", " ", "é", "```\n", "![](https://x/)", "# a\n"])
CLIENTS = st.builds(
    Client, terminal=st.booleans(), display_terminals=st.booleans(), notices=st.booleans(), compaction=st.booleans()
)
DIFFS = st.builds(Diff, st.just("/w/a"), st.none() | TEXTS, TEXTS)
RESULTS = st.builds(
    ToolResult,
    text=TEXTS,
    display=st.none() | TEXTS,
    envelope=st.none() | st.fixed_dictionaries({"output": TEXTS, "exit_code": st.sampled_from([0, 1, None])}),
    diffs=st.lists(DIFFS, max_size=2).map(tuple),
    locations=st.lists(st.just(Location("/w/a", 3)), max_size=1).map(tuple),
    images=st.lists(st.just(ImagePart("QUJD", "image/png")), max_size=1).map(tuple),
    failure=st.none() | st.just(ToolFailure(ToolErrorCategory.TIMEOUT, "late")),
    stats=st.none() | st.just(OutputStats(9, 3, 90, 30)),
)
PARTS = st.one_of(
    st.builds(TextPart, TEXTS.filter(bool)),
    st.just(ImagePart("QUJD", "image/png")),
    st.just(LinkPart("file:///w/a", "a")),
    st.builds(ResourcePart, st.just("file:///w/b"), TEXTS, st.sampled_from(["", "text/x-rust"])),
)
ENTRIES = st.builds(PlanEntry, TEXTS, st.sampled_from(PlanStatus), st.sampled_from(PlanPriority))


@dataclass(frozen=True)
class Titled:
    """The session got a title, or lost it: told with `session_info_update`, kept beside what is told."""

    title: str


@st.composite
def calls(draw: st.DrawFn, number: int) -> list[Event]:
    """One call from its beginning to its end."""
    call_id = f"c{number}"
    kind = draw(st.sampled_from([ToolKind.EXECUTE, ToolKind.EXECUTE, ToolKind.READ, ToolKind.EDIT, ToolKind.OTHER]))
    begun = started(call_id, kind, diffs=tuple(draw(st.lists(DIFFS, max_size=1))))
    output = st.builds(ToolProgress, st.just(call_id), st.none(), TEXTS)
    terminal = [ToolProgress(call_id, "term")] if kind is ToolKind.EXECUTE and draw(st.booleans()) else []
    return [begun, *terminal, *draw(st.lists(output, max_size=2)), ToolFinished(call_id, "bash", draw(RESULTS), 0.25)]


@st.composite
def turns(draw: st.DrawFn, number: int) -> list[Event | Titled]:
    """A prompt, then calls side by side with all else."""
    words = st.one_of(
        st.builds(TextDelta, TEXTS, st.sampled_from([f"m{number}", f"n{number}"])),
        st.builds(ThoughtDelta, TEXTS, st.just(f"t{number}")),
    )
    asides = st.one_of(
        st.builds(PlanChanged, st.lists(ENTRIES, max_size=2).map(tuple)),
        st.builds(UsageChanged, st.integers(0, 9), st.just(10), st.none() | st.just(0.5)),
        st.builds(Titled, st.sampled_from(["", "A title"])),
        st.builds(Notice, st.sampled_from(Severity), st.just("careful")),
        st.builds(CompactionChanged, st.just("k"), st.sampled_from(CompactionStatus), TEXTS, TEXTS),
    )
    strands: list[list[Any]] = [draw(st.lists(words, max_size=8)), draw(st.lists(asides, max_size=3))]
    strands += [draw(calls(10 * number + each)) for each in range(draw(st.integers(0, 2)))]
    order = draw(st.permutations([index for index, strand in enumerate(strands) for _ in strand]))
    following = [iter(strand) for strand in strands]
    parts = tuple(draw(st.lists(PARTS, min_size=1, max_size=2)))
    return [UserMessage(parts, f"u{number}"), *(next(following[index]) for index in order)]


CONVERSATIONS = (
    st.integers(1, 3)
    .flatmap(lambda count: st.tuples(*(turns(number) for number in range(count))))
    .map(lambda each: list(itertools.chain(*each)))
)
_ASIDE = (Notice, CompactionChanged)


def live(events: Sequence[Event | Titled], client: Client) -> View:
    """What a client saw that was there all the time."""
    view, translator = View(client.terminal or client.display_terminals), updates(client)
    for event in events:
        match event:
            case Titled(title):
                view.take(session_info(title, AT))
            case ToolProgress(terminal_id=str()) if not client.terminal:
                pass  # such a client has none
            case UserMessage(parts, message_id):
                view.sent(map(content_block, parts), message_id)
            case _:
                for update in translator.translate(event):
                    assert event.__class__ in _ASIDE or view.take(update) is None
    return view


@given(CONVERSATIONS, CLIENTS)
async def test_what_is_loaded_looks_as_it_did_live(events: list[Event | Titled], client: Client) -> None:
    view = View(client.terminal or client.display_terminals)
    titles = [event.title for event in events if isinstance(event, Titled)]
    for update in await replay(*(event for event in events if isinstance(event, TranscriptEvent)), client=client):
        view.take(update)
    if titles:
        view.take(session_info(titles[-1], AT))
    assert view.seen() == live(events, client).seen()


@given(CONVERSATIONS, CLIENTS, st.integers(0))
@settings(max_examples=settings.default.max_examples // 3)
async def test_wherever_the_process_was_killed_no_card_spins_and_every_frame_is_valid(
    events: list[Event | Titled], client: Client, survivors: int
) -> None:
    told = [event for event in events if isinstance(event, TranscriptEvent)]
    sent = await replay(*told[: survivors % (len(told) + 1)], client=client)
    assert violations(sent) == []
    assert all(item["type"] != "terminal" for each in sent if "toolCallId" in each for item in each.get("content", ()))
    ends = [each["toolCallId"] for each in sent if each["sessionUpdate"] == "tool_call_update"]
    assert sorted(ends) == sorted(each["toolCallId"] for each in sent if each["sessionUpdate"] == "tool_call")
    assert all(each["status"] != "in_progress" for each in sent if each["sessionUpdate"] == "tool_call_update")
