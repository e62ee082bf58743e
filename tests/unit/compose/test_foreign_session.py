"""Whatever a session file says, an editor can be told of it."""

import json
from collections.abc import AsyncIterator

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.cli.editor.frames import Direction, Frame, Recording
from acp_agent.compose.foreign_session import sound
from acp_agent.core.conduct import Conduct
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.events import TextDelta, ToolFinished, ToolStarted, UsageChanged, UserMessage
from acp_agent.core.sessions import HistoryState, Saved, SessionRecord, Tally, ToldAt
from acp_agent.core.types import Diff, JsonObject, Location, ToolKind, ToolResult
from acp_agent.protocol.client import Client
from acp_agent.protocol.paths import EditorPaths
from acp_agent.protocol.replay import replayed
from acp_agent.protocol.session_list import timestamp
from acp_agent.protocol.updates import Updates
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


@settings(max_examples=80)
@given(st.lists(events, max_size=5), numbers, numbers)
def test_it_can_be_listed_and_shown_and_what_is_shown_is_of_the_protocol(told, created_at, at):
    foreign = Saved(
        SessionRecord("x", "/p", created_at=created_at), Conduct(), Tally(created_at, at, cost=at), HistoryState()
    )

    saved, mended = sound(foreign, [ToldAt(1, at, event) for event in told], Conduct(), NOW)

    timestamp(saved.record.created_at)
    assert 0 <= saved.tally.size < 2**53
    recording = Recording()
    for update in anyio.run(shown, mended):
        json.dumps(update, allow_nan=False)
        frame = {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}}
        recording.add(Frame(Direction.FROM_AGENT, frame, 0))
    assert schema.violations(recording) == []


async def shown(told: list[ToldAt]) -> list[JsonObject]:
    async def each() -> AsyncIterator[ToldAt]:
        for one in told:
            yield one

    return [update async for update in replayed(each(), Updates(Client(), "/w", EditorPaths("/w")))]
