"""A session told as a person follows it, and as text for a terminal."""

import io
from dataclasses import replace

import pytest

from acp_agent.cli.session_text import (
    NO_ANSWER_TEXT,
    CallItem,
    CallOutcome,
    MessageItem,
    NoAnswerItem,
    SessionItem,
    call_outcome,
    session_items,
    write_text,
)
from acp_agent.core.events import (
    PlanChanged,
    PlanEntry,
    TextDelta,
    ThoughtDelta,
    ToolFinished,
    ToolStarted,
    TranscriptEvent,
    UserMessage,
)
from acp_agent.core.messages import TextPart
from acp_agent.core.types import Diff, ToolKind, ToolResult
from tests.unit.cli.stored_sessions import at, call, events, picture, saved, telling

pytestmark = pytest.mark.anyio


def started(number: str) -> ToolStarted:
    return ToolStarted(number, "read", number, ToolKind.READ, {})


def finished(number: str) -> ToolFinished:
    return ToolFinished(number, "read", ToolResult(number), 1.0)


async def items(*told: TranscriptEvent) -> list[SessionItem]:
    return [item async for item in session_items(telling(at(told)))]


def _word(item: MessageItem | NoAnswerItem) -> str:
    return type(item.event if isinstance(item, MessageItem) else item).__name__


async def errors_about(*told: TranscriptEvent) -> list[str]:
    """Each item in a word: a call's id and how it went, else what was said."""
    return [
        f"{item.started.call_id} {call_outcome(item)[0]}" if isinstance(item, CallItem) else _word(item)
        for item in await items(*told)
    ]


async def test_pieces_of_a_message_become_one_and_other_messages_stay_apart():
    pieces = [
        TextDelta("a", "1"),
        TextDelta("b", "1"),
        TextDelta("c", "2"),
        ThoughtDelta("d", "2"),
        TextDelta("e", "2"),
    ]
    assert [item.event.text for item in await items(*pieces)] == ["ab", "c", "d", "e"]


async def test_calls_stand_where_they_began_though_they_end_in_another_order():
    told = (
        started("1"),
        PlanChanged((PlanEntry("x"),)),
        started("2"),
        finished("2"),
        finished("1"),
        TextDelta("", "m"),
    )
    assert await errors_about(*told) == ["1 done", "PlanChanged", "2 done", "TextDelta"]


async def test_the_calls_of_a_sub_agent_stand_below_its_own_though_others_run_beside_it():
    first, second = started("1"), started("2")
    inner = [replace(started(number), parent=parent) for number, parent in (("3", "2"), ("4", "1"), ("5", "2"))]
    ends = map(finished, "34512")
    text = await text_of(first, second, *inner, *ends)
    shown = [line for line in text.splitlines() if "✔" in line]
    assert [(len(line) - len(line.lstrip()), line.split()[2]) for line in shown] == [
        *((2, "1"), (6, "4"), (2, "2"), (6, "3"), (6, "5")),
    ]


async def test_a_call_that_never_ended_holds_nothing_up_beyond_its_turn():
    assert await errors_about(started("1"), TextDelta("", "m"), UserMessage((), "u"), started("2")) == [
        *("1 lost", "TextDelta"),
        *("UserMessage", "2 lost", "NoAnswerItem"),
    ]


async def test_a_turn_in_which_nothing_was_said_last_is_told_apart_from_one_that_was_answered():
    prompt, said, blank = UserMessage((), "u"), TextDelta("so", "m"), TextDelta(" \n", "n")
    call = (started("1"), finished("1"))
    assert await errors_about(prompt, prompt, said) == ["UserMessage", "NoAnswerItem", "UserMessage", "TextDelta"]
    assert await errors_about(prompt, said, *call) == ["UserMessage", "TextDelta", "1 done", "NoAnswerItem"]
    assert await errors_about(prompt, *call, blank, ThoughtDelta("?", "t"), prompt, said) == [
        *("UserMessage", "1 done", "TextDelta", "ThoughtDelta", "NoAnswerItem"),
        *("UserMessage", "TextDelta"),
    ]
    assert "NoAnswerItem" not in await errors_about(prompt, *call, said, PlanChanged(()), prompt, said)


async def test_the_end_of_a_call_that_is_not_known_is_a_call_of_its_own():
    assert await errors_about(finished("1"), finished("1")) == ["1 done", "1 done"]


async def test_what_waits_for_a_call_is_bounded():
    taken = 0

    async def endless():
        nonlocal taken
        for one in at([started("1"), *(PlanChanged(()) for _ in range(5_000))]):
            taken += 1
            yield one

    first = await anext(session_items(endless()))
    assert isinstance(first, CallItem)
    assert call_outcome(first)[0] is CallOutcome.LOST
    assert taken < 600


# ------------------------------------------------------------------------------------------ as text


async def text_of(*told: TranscriptEvent, **record: object) -> str:
    out = io.StringIO()
    await write_text(saved(**record), telling(at(told)), out)
    return out.getvalue()


async def test_the_text_of_a_session_has_all_that_was_said_and_done():
    text = await text_of(*events())
    for line in (
        "Mend the rounding of the total\n",
        "you     The checkout shows 0.30000000000000004 EUR for three stickers at ten cents.\n",
        "        Please mend the total, with tests.\n",
        f"        [a picture, image/png, {len(picture().data) * 3 // 4:,} bytes]\n",
        "thinks  The user sees a float artefact. I should look at `total` first, then at who\n        calls it.\n",
        "  ✘ read  prices.py  permanent failure, 4 ms\n    │ /projects/shop/prices.py: there is no such file\n",
        "  ✘ bash  python -m pytest -q  exit 1, 1.8 s\n",
        "    -def total(prices, discount=0):\n    +def total(prices: Iterable[Decimal], discount: int = 0):\n",
        "plan    ● Find where the total is computed\n        ◐ Use decimals\n",
        "  ✘ bash  rg 'float|round' shop  did not end\n",
    ):
        assert line in text, line


async def test_the_name_of_a_tool_is_not_repeated_where_the_title_begins_with_it():
    read, listed = (
        replace(started("1"), name="read", title="read a.py"),
        replace(started("2"), name="list_dir", title="list src"),
    )
    text = await text_of(read, listed, finished("1"), finished("2"))
    assert [line.split("  ")[1] for line in text.splitlines() if "✔" in line] == ["✔ read a.py", "✔ list src"]


async def test_the_text_says_where_no_answer_followed():
    prompt = UserMessage((TextPart("hello"),), "u")
    assert f"✘ {NO_ANSWER_TEXT}\n" in await text_of(prompt)
    assert NO_ANSWER_TEXT not in await text_of(prompt, TextDelta("good day", "m"))


async def test_nothing_in_the_text_is_acted_on_by_a_terminal_or_hidden():
    hostile = "a\x1b[2Jb\x9b1m\u202ec\x07\rd\u200b"
    result = ToolResult(hostile, diffs=(Diff(hostile, hostile, hostile + "e"),))
    text = await text_of(
        UserMessage((TextPart(hostile), picture()), "u"),
        TextDelta(hostile, "m"),
        ThoughtDelta(hostile, "t"),
        *call(hostile, hostile, ToolKind.EXECUTE, {}, result, 1.0),
        PlanChanged((PlanEntry(hostile),)),
        title=hostile,
        cwd=hostile,
        model=hostile,
    )
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "a\\u001b[2Jb" in text
