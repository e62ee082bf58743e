"""Two hundred turns: valid at every model call, summed up more than once, the last no dearer than the first."""

import os
import statistics
import sys
from collections.abc import AsyncIterator
from types import FrameType

import pytest

import acp_agent.agent
from acp_agent.core.messages import ModelEvent, Role, ToolResultPart
from acp_agent.core.ports import ModelRequest
from tests.bench.long_session import ENDS, TURNS, LongSession, Talker
from tests.sizes import sized
from tests.unit.agent.compacting import WireChecked

pytestmark = pytest.mark.anyio

SMALL = 12_000  # tokens of context: the less, the more often it is shortened
_LOOP = os.path.dirname(acp_agent.agent.__file__)


class CountedCalls:
    """Counts calls of functions of the loop while it is entered."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> None:
        self._before = sys.getprofile()
        sys.setprofile(self._profile)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_LOOP):
            self.count += 1


async def test_hundreds_of_model_calls_are_valid_and_no_call_is_lost() -> None:
    turns, talker = sized(100, TURNS), Talker(SMALL)
    checked = WireChecked(talker)
    session = LongSession(talker, checked)
    for number in range(turns):
        await session.turn(number)
        assert session.history.estimate() < SMALL
        last = session.history.messages()[-2]
        assert last.role is Role.USER
        assert [part.id for part in last.parts if isinstance(part, ToolResultPart)] == [f"toolu_{talker.calls}"]
    assert talker.calls == turns
    assert session.summed_up >= 2
    assert session.cleared >= 2
    assert len(session.history.knowledge) == session.summed_up
    assert len(checked.sizes) == 2 * turns
    assert max(checked.sizes) < SMALL * 6  # bytes of JSON; a token is about four


async def test_a_prompt_cache_lives_for_several_turns() -> None:
    """The prefix of the request before is kept, but for the few times something is shortened."""
    kept: list[bool] = []

    class Watching(Talker):
        def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            if request.tools:
                before = self.before
                kept.append(before == request.messages[: len(before)])
                self.before = request.messages
            return super().stream(request)

        before = ()

    session = LongSession(Watching())
    for number in range(TURNS):
        await session.turn(number)
    assert len(session.notices) <= TURNS / 8
    assert kept.count(False) <= len(session.notices)


async def test_the_work_of_the_last_turns_is_that_of_the_first() -> None:
    session, calls = LongSession(Talker()), CountedCalls()
    counts: list[int] = []
    for number in range(TURNS):
        before = calls.count
        with calls:
            await session.turn(number)
        counts.append(calls.count - before)
    first, last = sum(counts[:ENDS]), sum(counts[-ENDS:])
    assert first > 100 * ENDS
    assert last <= 1.5 * first
    assert statistics.median(counts[-ENDS:]) == statistics.median(counts[:ENDS])
    assert max(counts[TURNS // 2 :]) <= 1.5 * max(counts[: TURNS // 2])  # a turn that shortens the conversation
