"""What a session tells is kept first, then sent, in order."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.events import (
    Event,
    Notice,
    PlanChanged,
    Severity,
    TextDelta,
    ThoughtDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    UsageChanged,
    UserMessage,
)
from acp_agent.core.messages import Message, Role, TextPart
from acp_agent.core.sessions import Change, HistoryState, UsageTotals
from acp_agent.core.types import Diff, ToolKind, ToolResult
from acp_agent.session import transcript, transcript_writer
from acp_agent.session.transcript import EventQueue, joined
from acp_agent.session.transcript_writer import TranscriptWriter
from tests.fakes.passing_time import all_tasks_blocked
from tests.fakes.repository import FakeRepository

pytestmark = pytest.mark.anyio

STARTED = ToolStarted("c1", "bash", "ls", ToolKind.EXECUTE, {})
FINISHED = ToolFinished("c1", "bash", ToolResult("done"), 0.1)
ASKED = UserMessage((TextPart("go"),), "u1")


@pytest.fixture(autouse=True)
def _tried_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (transcript, transcript_writer):
        monkeypatch.setattr(module, "RETRY", 0.01)


@dataclass
class Desk:
    queue: EventQueue
    writer: TranscriptWriter
    repository: FakeRepository
    sent: list[object] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    kept_when_sent: list[int] = field(default_factory=list)


@asynccontextmanager
async def desk() -> AsyncIterator[Desk]:
    async with anyio.create_task_group() as tasks:

        def background(task: Callable[[], Awaitable[None]]) -> None:
            tasks.start_soon(task)

        async def show(event: Event) -> None:
            here.sent.append(event)
            here.kept_when_sent.append(len(here.repository.kept))

        warnings: list[str] = []
        writer = TranscriptWriter(warnings.append)
        here = Desk(EventQueue(writer, show, background), writer, FakeRepository(), warnings=warnings)
        writer.store_in(here.repository)
        yield here


def piece(text: str) -> TextDelta:
    return TextDelta(text, "m1")


async def test_what_belongs_to_the_conversation_is_kept_before_it_is_sent():
    async with desk() as here:
        for event in (STARTED, FINISHED, PlanChanged(())):
            await here.queue.tell(event)
            await all_tasks_blocked()
        assert here.sent == here.repository.kept == [STARTED, FINISHED, PlanChanged(())]
        assert here.kept_when_sent == [1, 2, 3]


async def test_a_diff_is_shown_as_it_is_and_kept_without_secrets():
    secret, hidden = Diff("/hunter2", "hunter2", "x" * 40_000 + "hunter2"), Diff("/*", "*", "x" * 40_000 + "*")
    new = replace(secret, old_text=None, new_text="hunter2")
    async with desk() as here:
        here.writer.follow(None, lambda text: text.replace("hunter2", "*"))
        await here.queue.tell(replace(STARTED, diffs=(secret, new)))
        await here.queue.tell(replace(FINISHED, result=ToolResult("done", diffs=(secret,))))
    assert [event.diffs for event in here.sent if isinstance(event, ToolStarted)] == [(secret, new)]
    started, finished = here.repository.kept
    assert isinstance(started, ToolStarted)
    assert isinstance(finished, ToolFinished)
    assert started.diffs == (hidden, replace(new, path="/*", new_text="*"))
    assert finished.result.diffs == (hidden,)


async def test_notices_and_progress_are_sent_and_not_kept():
    notice, progress = Notice(Severity.INFO, "hm"), ToolProgress("c1", terminal_id="t1")
    async with desk() as here:
        await here.queue.tell(notice)
        await here.queue.tell(progress)
        assert (here.sent, here.repository.kept) == ([notice, progress], [])


async def test_a_flush_in_a_hurry_leaves_later_writes_their_patience():
    async with desk() as here:
        await here.queue.tell(ASKED)
        await here.queue.flush(within=5)
        await here.queue.tell(ASKED)
        await here.queue.shown()
        assert here.repository.patience[-1] != 0


async def test_the_users_words_are_kept_and_not_sent_back():
    async with desk() as here:
        await here.queue.tell(ASKED)
        await here.queue.shown()
        assert (here.sent, here.repository.kept) == ([], [ASKED])


async def test_pieces_that_come_while_a_write_is_under_way_are_one_piece_of_the_next():
    async with desk() as here:
        here.repository.held = anyio.Event()
        await here.queue.tell(piece("a"))
        await here.repository.waiting.wait()
        for text in "bcd":
            await here.queue.tell(piece(text))
        assert here.sent == []
        here.repository.held.set()
        await here.queue.flush()
        assert here.sent == here.repository.kept == [piece("a"), piece("bcd")]
        assert [len(change.events) for change in here.repository.changes] == [1, 1]


async def test_only_adjacent_pieces_of_one_message_become_one():
    thought = ThoughtDelta("hm", "m1")
    told = [piece("a"), piece("b"), thought, thought, piece("c"), TextDelta("d", "m2"), STARTED, FINISHED, piece("e")]
    assert [*joined(told, str.lower)] == [
        piece("ab"),
        ThoughtDelta("hmhm", "m1"),
        piece("c"),
        TextDelta("d", "m2"),
        STARTED,
        FINISHED,
        piece("e"),
    ]


async def test_only_what_must_survive_a_power_cut_is_synced():
    async with desk() as here:
        await here.queue.tell(piece("a"))
        await here.queue.tell(STARTED)
        await here.queue.tell(FINISHED)
        await all_tasks_blocked()
        assert here.repository.durable[-1]
        assert not any(here.repository.durable[:-1])


async def test_what_is_written_at_the_end_of_a_turn_survives_a_power_cut():
    async with desk() as here:
        await here.queue.tell(piece("a"))
        here.writer.note(Change(title="T"))
        await here.queue.flush()
        here.writer.note(Change(title="U"))
        await here.queue.save()
        assert here.repository.durable[-1]
        assert here.repository.changes[-1].title == "U"


async def test_an_answer_that_is_written_with_the_end_of_its_turn_survives_a_power_cut():
    async with desk() as here:
        await here.queue.tell(piece("a whole answer"))
        here.writer.note(Change(touch=True))  # as at the end of a turn
        await here.queue.flush()
        assert here.repository.kept == [piece("a whole answer")]
        assert here.repository.durable[-1]


async def test_a_store_that_fails_costs_nothing_of_the_conversation():
    async with desk() as here:
        here.repository.broken = True
        await here.queue.tell(STARTED)
        await here.queue.tell(FINISHED)
        await here.queue.flush()
        assert here.sent == [STARTED, FINISHED]
        here.repository.broken = False
        await here.queue.tell(PlanChanged(()))
        await here.queue.flush()
        assert here.repository.kept == [STARTED, FINISHED, PlanChanged(())]
        assert [("not stored" in text, "again" in text) for text in here.warnings] == [(True, False), (False, True)]


async def test_what_could_not_be_kept_is_kept_as_soon_as_it_can_be_also_when_nothing_more_is_told():
    async with desk() as here:
        here.repository.broken = True
        await here.queue.tell(STARTED)
        await here.queue.flush()
        here.repository.broken = False
        with anyio.fail_after(10):
            await here.repository.wrote.wait()
            await all_tasks_blocked()
        assert here.repository.kept == [STARTED]
        assert here.writer.done
        assert len(here.warnings) == 2, "it was told, and told again"


async def test_what_is_not_kept_when_a_session_ends_is_tried_no_more():
    async with desk() as here:
        here.repository.broken = True
        await here.queue.tell(STARTED)
        await here.queue.flush()
        await here.queue.end()
    tries = here.repository.tries
    assert here.repository.kept == []
    assert tries > 0


async def test_the_last_write_of_a_session_waits_for_others_also_when_that_was_in_vain_before():
    async with desk() as here:
        here.repository.broken = True
        await here.queue.tell(STARTED)
        await here.queue.flush()
        await here.queue.flush(patience=3.0)
        assert here.repository.patience[-2:] == [0.0, 3.0]
        await here.queue.end()


async def test_a_flush_in_a_hurry_sends_what_the_store_holds_up_and_keeps_it_later():
    async with desk() as here:
        here.repository.held = anyio.Event()
        await here.queue.tell(piece("a"))
        await here.repository.waiting.wait()
        here.writer.note(Change(title="T"))
        with anyio.fail_after(20):
            task_done = anyio.Event()

            async def hurry() -> None:
                await here.queue.flush(within=0.01)
                task_done.set()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hurry)
                while not here.sent:
                    await anyio.lowlevel.checkpoint()
                    await all_tasks_blocked()
                here.repository.held.set()
                await task_done.wait()
        assert here.sent == [piece("a")]
        assert here.repository.kept == [piece("a")]
        assert [change.title for change in here.repository.changes] == ["T"]


async def test_what_a_write_that_was_broken_off_had_with_it_is_written_later():
    async with desk() as here:
        here.repository.held = anyio.Event()
        here.writer.note(Change(title="T"))
        await here.queue.tell(piece("a"))
        await here.repository.waiting.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(here.queue.flush, within=0.01))
            while not here.sent:
                await anyio.lowlevel.checkpoint()
            here.repository.held.set()
        assert here.repository.kept == [piece("a")]
        assert [change.title for change in here.repository.changes] == ["T"]


async def test_a_flush_in_a_hurry_waits_for_an_editor_that_is_slow_all_the_same():
    shown: list[Event] = []

    async def show(event: Event) -> None:
        await anyio.sleep(0.05)
        shown.append(event)

    async with anyio.create_task_group() as tasks:
        queue = EventQueue(TranscriptWriter(list[str]().append), show, tasks.start_soon)
        for text in "abc":
            await queue.tell(TextDelta(text, f"message {text}"))
        await queue.flush(within=0.01)
        assert shown == [TextDelta(text, f"message {text}") for text in "abc"]


async def test_of_two_changes_the_later_one_is_written_when_the_write_of_the_first_fails():
    async with desk() as here:
        here.repository.held, here.repository.broken = anyio.Event(), True
        here.writer.note(Change(title="first"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(here.queue.save)
            await here.repository.waiting.wait()
            here.writer.note(Change(title="second"))
            here.repository.held.set()
        here.repository.broken = False
        await here.queue.flush()
        assert [change.title for change in here.repository.changes] == ["second"]


async def test_history_and_tally_are_written_when_they_have_changed_and_only_then():
    said = (Message(Role.USER, (TextPart("hi"),)),)
    states = [Change(history=HistoryState(said), usage=UsageTotals(used=1))]

    async def latest() -> Change:
        return states[-1]

    async with desk() as here:
        here.writer.follow(latest)
        await here.queue.tell(STARTED)
        await here.queue.tell(FINISHED)
        await all_tasks_blocked()
        states.append(Change(history=HistoryState(said), usage=UsageTotals(used=2)))
        await here.queue.flush()
        await here.queue.flush()
        written = [(change.history is not None, change.usage) for change in here.repository.changes]
        assert written == [(True, UsageTotals(used=1)), (False, None), (False, UsageTotals(used=2))]


async def test_without_a_repository_everything_is_sent():
    async with desk() as here:
        here.writer.repository = None
        await here.queue.tell(STARTED)
        await here.queue.tell(piece("a"))
        await here.queue.flush()
        assert here.sent == [STARTED, piece("a")]


async def test_who_tells_more_than_the_editor_reads_waits():
    async with desk() as here:
        here.repository.held = anyio.Event()
        told = 0

        async def chatter() -> None:
            nonlocal told
            for _ in range(10_000):
                await here.queue.tell(piece("x"))
                told += 1

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(chatter)
            await all_tasks_blocked()
            assert told < 1000
            here.repository.held.set()
        await here.queue.flush()
        assert "".join(event.text for event in here.sent if isinstance(event, TextDelta)) == "x" * 10_000


async def test_what_was_kept_back_is_written_once_when_two_want_to_write():
    async with desk() as here:
        here.repository.broken = True
        await here.queue.tell(STARTED)
        here.repository.broken = False
        here.repository.held = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(here.queue.flush)
            await here.repository.waiting.wait()
            tasks.start_soon(here.queue.tell, FINISHED)
            await all_tasks_blocked()
            here.repository.held.set()
        assert here.repository.kept == [STARTED, FINISHED]


async def test_a_store_that_is_busy_for_a_moment_is_not_worth_a_word():
    async with desk() as here:
        here.repository.broken = True
        await here.queue.tell(STARTED)
        here.repository.broken = False
        await here.queue.tell(FINISHED)
        await here.queue.flush()
        assert (here.repository.kept, here.warnings) == ([STARTED, FINISHED], [])


async def test_a_store_that_has_failed_is_left_alone_for_a_moment(monkeypatch):
    monkeypatch.setattr(transcript_writer, "RETRY", 60)
    async with desk() as here:
        here.repository.broken = True
        await here.queue.tell(STARTED)
        tries = here.repository.tries
        await here.queue.tell(FINISHED)
        await here.queue.shown()
        assert here.repository.tries == tries


async def test_a_change_that_could_not_be_saved_is_saved_by_itself_as_soon_as_it_can_be():
    async with desk() as here:
        here.writer.note(Change(title="a title"))
        here.repository.broken = True
        await here.queue.save()
        here.repository.broken = False
        with anyio.fail_after(10):
            await here.repository.wrote.wait()
        assert [each.title for each in here.repository.changes] == ["a title"]


async def test_nothing_waits_for_another_try_once_the_store_belongs_to_another(monkeypatch):
    monkeypatch.setattr(transcript, "RETRY", 60)
    with anyio.fail_after(10):
        async with desk() as here:
            here.repository.broken = True
            await here.queue.tell(STARTED)
            await here.queue.save()
            await all_tasks_blocked()
            await here.queue.end()


async def test_a_failure_at_the_end_of_a_turn_is_told_unless_it_was_in_a_hurry():
    for hurried in (False, True):
        async with desk() as here:
            here.repository.broken = True
            await here.queue.tell(STARTED)
            if hurried:
                here.writer.hurry()
                await here.writer.write((), transcript_writer.Care.TURN_END)
            else:
                await here.queue.flush()
            assert bool(here.warnings) is not hurried
            await here.queue.end()


async def test_a_store_that_fails_for_too_long_is_given_up_and_the_next_one_is_not_for_that():
    async with desk() as here:
        here.repository.broken = True
        await here.queue.tell(piece("x" * (64 * 1024 * 1024 + 1)))
        await here.queue.flush()
        assert "no longer stored" in here.warnings[-1]
        assert here.writer.waiting == ()
        assert not here.writer.failing
        here.writer.store_in(here.repository)
        await here.queue.tell(STARTED)
        await here.queue.save()
        here.repository.broken = False
        await here.queue.flush()
        assert here.repository.kept == [STARTED]


async def test_much_that_was_kept_back_goes_in_pieces_and_all_else_with_the_last():
    async with desk() as here:
        here.repository.broken = True
        for _ in range(600):
            await here.queue.tell(STARTED)
        here.writer.note(Change(title="T"))
        here.repository.broken = False
        await here.queue.flush()
        assert [len(change.events) for change in here.repository.changes] == [256, 256, 88]
        assert [change.title for change in here.repository.changes] == [None, None, "T"]


async def test_how_full_the_window_is_goes_with_what_comes_next_and_is_never_sent_before_it_is_kept():
    async with desk() as here:
        await here.queue.tell(UsageChanged(1, 2))
        await all_tasks_blocked()
        assert (here.sent, here.repository.changes) == ([], [])
        await here.queue.tell(STARTED)
        assert [change.events for change in here.repository.changes] == [(UsageChanged(1, 2), STARTED)]
        assert (here.sent, here.kept_when_sent) == ([UsageChanged(1, 2), STARTED], [2, 2])


async def test_how_full_the_window_is_is_told_also_when_nothing_follows():
    async with desk() as here:
        await here.queue.tell(UsageChanged(1, 2))
        with anyio.fail_after(20):
            while not here.sent:
                await anyio.lowlevel.checkpoint()
        assert here.kept_when_sent == [1]


async def test_how_full_the_window_is_waits_for_company_also_behind_a_write_that_is_under_way():
    async with desk() as here:
        here.repository.held = anyio.Event()
        await here.queue.tell(FINISHED)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(here.queue.tell, UsageChanged(1, 2))
            await here.repository.waiting.wait()
            await all_tasks_blocked()
            here.repository.held.set()
        await here.queue.tell(STARTED)
        assert [change.events for change in here.repository.changes] == [(FINISHED,), (UsageChanged(1, 2), STARTED)]


async def test_a_secret_that_came_in_pieces_does_not_stay_in_what_is_kept():
    async with desk() as here:
        here.writer.follow(None, lambda text: text.replace("hunter2", "[REDACTED]"))
        for text in ("my word is hun", "ter2", ", said the user"):
            await here.queue.tell(piece(text))
        await here.queue.tell(STARTED)
        await here.queue.tell(TextDelta("nothing", "m2"))
        await here.queue.flush()
        assert here.sent[0] == here.repository.kept[0] == piece("my word is [REDACTED], said the user")


async def test_a_secret_in_pieces_with_which_a_turn_ends_does_not_stay_either():
    async with desk() as here:
        here.writer.follow(None, lambda text: text.replace("hunter2", "[REDACTED]"))
        for text in ("my word is hun", "ter2"):
            await here.queue.tell(piece(text))
            await here.queue.shown()
        await here.queue.flush()
        instead = [message for change in here.repository.changes for message in change.replacements]
        assert instead == [TextDelta("my word is [REDACTED]", "m1")]


@pytest.mark.parametrize("terminal_id", [None, "t1"])
async def test_the_end_of_a_call_holds_nobody_up_and_is_shown_before_what_must_follow_it(terminal_id):
    async with desk() as here:
        await here.queue.tell(STARTED)
        await here.queue.tell(ToolProgress("c1", terminal_id=terminal_id, output="o"))
        await here.queue.shown()
        here.repository.held = anyio.Event()
        with anyio.fail_after(20):
            await here.queue.tell(FINISHED)
        assert FINISHED not in here.sent
        here.repository.held.set()
        await here.queue.shown()  # as the release of a terminal does
        assert here.sent[-1] == FINISHED


async def test_the_state_is_stored_with_the_end_of_a_call_that_shows_its_progress():
    totals = [UsageTotals(calls=1)]

    async def counted() -> Change:
        return Change(usage=totals[-1])

    async with desk() as here:
        here.writer.follow(counted)
        await here.queue.tell(STARTED)
        totals.append(UsageTotals(calls=2))
        await here.queue.tell(ToolProgress("c1", terminal_id="t1"))
        assert [change.usage for change in here.repository.changes] == totals[:1]
        await here.queue.tell(FINISHED)
        await here.queue.shown()
        assert [change.usage for change in here.repository.changes] == totals


async def test_the_state_is_stored_now_and_then_while_a_call_only_shows_its_progress(monkeypatch):
    monkeypatch.setattr(transcript, "_SELDOM", 0.0)
    totals = [UsageTotals(calls=1)]

    async def counted() -> Change:
        return Change(usage=totals[-1])

    async with desk() as here:
        here.writer.follow(counted)
        await here.queue.tell(STARTED)
        totals.append(UsageTotals(calls=2))
        await here.queue.tell(ToolProgress("c1", terminal_id="t1"))
        assert [change.usage for change in here.repository.changes] == totals


async def test_a_call_that_only_looks_begins_beside_the_keeping_and_whoever_must_come_after_it_waits():
    async with desk() as here:
        here.repository.held = anyio.Event()
        looking = replace(STARTED, kind=ToolKind.READ)
        with anyio.fail_after(20):
            await here.queue.tell(UsageChanged(1, 2))
            await here.queue.tell(looking)
        await here.repository.waiting.wait()
        order: list[str] = []

        async def ask() -> None:
            await here.queue.shown()
            order.append(f"asked after {len(here.sent)}")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await all_tasks_blocked()
            assert (order, here.sent) == ([], [])
            here.repository.held.set()
        assert order == ["asked after 2"]
        assert here.kept_when_sent == [2, 2]


async def test_a_call_that_changes_anything_is_on_record_before_it_begins():
    async with desk() as here:
        for kind in ToolKind:
            here.sent.clear()
            await here.queue.tell(replace(STARTED, kind=kind))
            assert bool(here.sent) is (kind not in (ToolKind.READ, ToolKind.SEARCH))
            await here.queue.flush()


async def test_a_message_in_the_middle_of_which_something_else_is_kept_stays_whole():
    async with desk() as here:
        here.writer.follow(None, lambda text: text.replace("hunter2", "[REDACTED]"))
        await here.queue.tell(piece("the beginning, "))
        await here.queue.flush()
        here.writer.note(Change(title="T"))
        await here.queue.save()
        await here.queue.tell(piece("hunter2, "))
        await here.queue.flush()
        await here.queue.tell(piece("the end"))
        await here.queue.tell(STARTED)
        last = [message for change in here.repository.changes for message in change.replacements][-1]
        assert last == TextDelta("the beginning, [REDACTED], the end", "m1")


async def test_a_secret_in_pieces_does_not_stay_while_the_next_message_is_told():
    async with desk() as here:
        here.writer.follow(None, lambda text: text.replace("hunter2", "[REDACTED]"))
        for event in (piece("hun"), piece("ter2"), ThoughtDelta("hm", "t1"), ThoughtDelta(", well", "t1")):
            await here.queue.tell(event)
            await here.queue.shown()
        instead = [message for change in here.repository.changes for message in change.replacements]
        assert instead == [TextDelta("[REDACTED]", "m1")]


async def test_of_a_message_between_whose_pieces_there_are_thoughts_nothing_is_lost():
    async with desk() as here:
        here.writer.follow(None, lambda text: text.replace("hunter2", "[REDACTED]"))
        for event in (piece("the beginning, "), ThoughtDelta("hm", "t1"), piece("hun"), piece("ter2")):
            await here.queue.tell(event)
            await here.queue.shown()
        await here.queue.tell(ThoughtDelta(", well", "t1"))
        await here.queue.flush()
        instead = [message for change in here.repository.changes for message in change.replacements]
        assert instead == [TextDelta("the beginning, [REDACTED]", "m1")]


async def test_of_a_message_during_which_a_call_of_a_sub_agent_is_shown_nothing_is_lost():
    async with desk() as here:
        here.writer.follow(None, lambda text: text.replace("hunter2", "[REDACTED]"))
        for event in (piece("the beginning, "), STARTED, piece("hun"), FINISHED, piece("ter2"), UsageChanged(1, 2)):
            await here.queue.tell(event)
            await here.queue.shown()
        await here.queue.tell(TextDelta("another hunter2", "m2"))
        await here.queue.flush()
        instead = [message for change in here.repository.changes for message in change.replacements]
        assert instead == [TextDelta("the beginning, [REDACTED]", "m1"), TextDelta("another [REDACTED]", "m2")]


async def test_a_cancelled_turn_is_answered_when_its_end_is_kept():
    async with desk() as here:
        await here.queue.tell(STARTED)
        here.writer.note(Change(touch=True))
        with anyio.fail_after(20):
            await here.queue.flush(within=60)
        assert [change.touch for change in here.repository.changes] == [False, True]
        assert here.repository.durable[-1]


async def test_the_end_of_a_cancelled_call_that_shows_a_terminal_is_kept_with_the_end_of_its_turn():
    cancelled = ToolResult.failed(ToolFailure(ToolErrorCategory.CANCELLED, "cancelled"))
    async with desk() as here:
        await here.queue.tell(ToolProgress("c1", terminal_id="t1"))
        await here.queue.tell(replace(FINISHED, result=cancelled))
        here.writer.note(Change(touch=True))
        await here.queue.flush(within=60)
        assert here.sent[-1] == replace(FINISHED, result=cancelled)
        assert [change.touch for change in here.repository.changes] == [True]


async def test_the_end_of_a_failed_call_that_shows_a_terminal_is_shown_before_the_terminal_goes():
    failed = replace(
        FINISHED, result=ToolResult.failed(ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, "exit code 1"))
    )
    async with desk() as here:
        await here.queue.tell(ToolProgress("c1", terminal_id="t1"))
        await here.queue.tell(failed)
        await here.queue.shown()  # as the release does
        assert here.sent[-1] == failed


async def test_pieces_wait_for_company_until_there_are_more_than_a_caller_may_leave_behind(monkeypatch):
    monkeypatch.setattr(transcript, "_PACE", 30)
    with anyio.fail_after(10):
        async with desk() as here:
            await here.queue.tell(piece("first"))
            await here.queue.shown()
            await all_tasks_blocked()
            for _ in range(transcript._BACKLOG):
                await here.queue.tell(piece("."))
            await all_tasks_blocked()
            assert here.sent == [piece("first")]
            await here.queue.tell(piece("."))
            await all_tasks_blocked()
            assert here.sent[1:] == [piece("." * (transcript._BACKLOG + 1))]
            await here.queue.flush()
