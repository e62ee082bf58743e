"""What the writer of a transcript makes one write of, how long it waits, and what it weighs."""

from math import inf
from typing import Any

import anyio
import pytest

from acp_agent.core.events import PlanChanged, TextDelta, ThoughtDelta, ToolFinished, ToolStarted, UserMessage
from acp_agent.core.messages import ImagePart, Message, Role, TextPart
from acp_agent.core.session_options import SessionOptions
from acp_agent.core.sessions import Change, HistoryState, SeenFile, UsageTotals
from acp_agent.core.types import Diff, ToolKind, ToolResult
from acp_agent.session import transcript_writer
from acp_agent.session.transcript_writer import _NOTHING, Care, TranscriptWriter, _is_durable, _merged, _same, _weight
from tests.fakes.repository import FakeRepository

pytestmark = pytest.mark.anyio

STARTED = ToolStarted("c1", "bash", "ls", ToolKind.EXECUTE, {})
FINISHED = ToolFinished("c1", "bash", ToolResult("done"), 0.1)
ASKED = UserMessage((TextPart("go"),), "u1")
SAID = (Message(Role.USER, (TextPart("hi"),)),)
SEEN = SeenFile("digest", "stamp", "x")


def change(number: int, **other: Any) -> Change:
    """A change of everything."""
    fields: dict[str, Any] = {
        "events": (TextDelta(f"{number}", "m"),),
        "history": HistoryState(SAID, tokens=number),
        "options": SessionOptions(agent=f"agent {number}"),
        "usage": UsageTotals(used=number),
        "title": f"title {number}",
        "model": f"model {number}",
        "prompted": number,
        "touch": True,
        "cwd": f"/{number}",
        "additional": (f"/more/{number}",),
        "replacements": (TextDelta(f"{number}", "r"),),
        "seen": {f"/{number}": SEEN},
    }
    return Change(**(fields | other))


def test_of_two_changes_the_later_value_counts_and_what_adds_up_is_added():
    one, two, unchanged = change(1), change(2), Change()
    both = change(
        2,
        events=(*one.events, *two.events),
        prompted=3,
        replacements=(*one.replacements, *two.replacements),
    )
    empty = Change(title="", additional=(), seen={})
    assert _merged(one, two) == both
    for first, second in ((one, unchanged), (unchanged, one), (one, _NOTHING), (_NOTHING, one)):
        assert _merged(first, second) == one
    assert _merged(one, empty) == change(1, title="", additional=(), seen={}), "empty values are values"


def test_the_weight_of_an_event_is_that_of_its_texts():
    diffs = (Diff("a", "12", "345"), Diff("b", None, "6"))
    image = ImagePart("1234", "image/png")
    for event, weight in (
        (PlanChanged(()), 0),
        (TextDelta("12", "m"), 2),
        (ThoughtDelta("123", "m"), 3),
        (STARTED, 0),
        (ToolStarted("c", "edit", "a", ToolKind.EDIT, {}, diffs=diffs), 6),
        (ToolFinished("c", "edit", ToolResult("12", display="345", images=(image,), diffs=diffs), 0.1), 15),
    ):
        assert _weight(event) == 500 + weight, event


def test_a_prompt_the_end_of_a_call_a_plan_and_every_write_without_events_survive_a_power_cut():
    for told, care, durable in (
        ((STARTED,), None, False),
        ((TextDelta("a", "m"), STARTED), None, False),
        ((STARTED, FINISHED), None, True),
        ((ASKED, STARTED), None, True),
        ((PlanChanged(()),), None, True),
        ((), Care.TURN_END, True),
        ((), Care.BACKGROUND, True),
    ):
        assert _is_durable(told, care) is durable, (told, care)


def test_a_history_is_the_same_if_its_messages_are_the_same_object_and_all_else_is_equal():
    state = HistoryState(SAID, tokens=1)
    for other, same in (
        (HistoryState(SAID, tokens=1), True),
        (HistoryState((*SAID, *SAID)[:1], tokens=1), False),
        (HistoryState(SAID, knowledge=1, tokens=1), False),
        (HistoryState(SAID, tokens=2), False),
        (None, False),
    ):
        assert _same(state, other) is _same(other, state) is same, other
    assert _same(None, None)


async def test_of_the_state_only_what_has_changed_is_written():
    states = [Change(history=HistoryState(SAID), usage=UsageTotals(used=1), model="m", seen={"/a": SEEN})]
    repository, writer = FakeRepository(), TranscriptWriter(list[str]().append)
    writer.store_in(repository)

    async def latest() -> Change:
        return states[-1]

    writer.follow(latest)
    await writer.write(())
    await writer.write(())
    assert repository.changes == states
    fields = {"history": HistoryState(SAID, tokens=1), "usage": UsageTotals(used=2), "model": "n", "seen": {"/b": SEEN}}
    before: dict[str, Any] = {name: getattr(states[0], name) for name in fields}
    for name, value in fields.items():
        before[name] = value
        states.append(Change(**before))
        await writer.write(())
        assert repository.changes[-1] == Change(**{name: value}), name
    assert len(repository.changes) == 1 + len(fields)


async def test_how_long_a_write_waits_for_others_hangs_on_its_kind():
    repository, writer = FakeRepository(), TranscriptWriter(list[str]().append)
    writer.store_in(repository)
    for care, asked, patience in (
        (None, None, transcript_writer._PATIENCE),
        (Care.BACKGROUND, None, transcript_writer._PATIENCE),
        (Care.TURN_END, None, None),
        (Care.TURN_END, 3.0, 3.0),
        (Care.BACKGROUND, inf, None),
    ):
        await writer.write([STARTED], care, patience=asked)
        assert repository.patience[-1] == patience, (care, asked)
    writer.hurry()
    for care, asked, patience in ((Care.TURN_END, None, 0.0), (None, None, 0.0), (Care.TURN_END, 3.0, 3.0)):
        await writer.write([STARTED], care, patience=asked)
        assert repository.patience[-1] == patience, (care, asked)


async def test_a_change_whose_write_is_cancelled_by_its_caller_is_written_by_the_next_one():
    repository, writer = FakeRepository(), TranscriptWriter(list[str]().append)
    writer.store_in(repository)
    repository.held = anyio.Event()
    writer.note(Change(title="A name"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.write, (), Care.BACKGROUND)
        await repository.waiting.wait()
        writer.note(Change(model="m"))
        tasks.cancel_scope.cancel()
    repository.held = None
    assert not writer.done
    await writer.write((), Care.BACKGROUND)
    assert repository.changes == [Change(title="A name", model="m")]


async def test_only_what_waits_for_the_store_counts_against_the_room_for_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transcript_writer, "_MOST_HELD_BACK", 2 * _weight(STARTED))
    repository, warnings = FakeRepository(), list[str]()
    writer = TranscriptWriter(warnings.append)
    writer.store_in(repository)
    for _ in range(3):
        await writer.write([STARTED])
    repository.broken = True
    await writer.write([STARTED, STARTED])
    assert (writer.waiting, warnings) == ((STARTED, STARTED), [])
    await writer.write([STARTED], Care.BACKGROUND)
    assert writer.waiting == ()
    assert ["no longer stored" in warning for warning in warnings] == [True]


async def test_a_failure_is_told_once_when_it_has_lasted(monkeypatch: pytest.MonkeyPatch):
    repository, warnings = FakeRepository(), list[str]()
    writer = TranscriptWriter(warnings.append)
    writer.store_in(repository)
    repository.broken = True
    for lasting, told in ((60.0, 0), (-1.0, 1), (-1.0, 1)):
        monkeypatch.setattr(transcript_writer, "_LASTING", lasting)
        await writer.write([STARTED], Care.BACKGROUND)
        assert ["not stored for now" in warning for warning in warnings] == [True] * told
