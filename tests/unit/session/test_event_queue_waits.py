"""What the queue of a session's events waits for, and what it keeps when the store or the editor fails."""

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.events import Event, Notice, Severity, TextDelta, ToolStarted, UsageChanged, UserMessage
from acp_agent.core.messages import Message, Role, TextPart
from acp_agent.core.sessions import Change, HistoryState, SessionRecord, StoredEvent
from acp_agent.core.types import Diff, ToolKind
from acp_agent.session import transcript, transcript_writer
from acp_agent.session.transcript import EventQueue, Transcript
from acp_agent.session.transcript_writer import TranscriptWriter
from tests.fakes.passing_time import all_tasks_blocked
from tests.fakes.repository import FakeRepository

pytestmark = pytest.mark.anyio

STARTED = ToolStarted("c1", "bash", "ls", ToolKind.EXECUTE, {})
LONG = 60.0  # seconds: a test that waits so long fails


def piece(text: str) -> TextDelta:
    return TextDelta(text, "m1")


@pytest.fixture
def long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript, "_PACE", LONG)


class Here:
    """A queue, what it has shown, and its store. Showing an event in `faulty` raises an error."""

    def __init__(self, background: Callable[[Callable[[], Coroutine[Any, Any, None]]], object]) -> None:
        self.sent: list[Event] = []
        self.faulty: tuple[Event, ...] = ()
        self.repository = FakeRepository()
        self.writer = TranscriptWriter(list[str]().append)
        self.writer.store_in(self.repository)
        self.queue = EventQueue(self.writer, self.show, background)

    async def show(self, event: Event) -> None:
        if event in self.faulty:
            raise ValueError("a bug")
        self.sent.append(event)


@asynccontextmanager
async def queue() -> AsyncIterator[Here]:
    async with anyio.create_task_group() as tasks:
        yield Here(tasks.start_soon)


@pytest.mark.usefixtures("long_pauses")
async def test_whoever_waits_for_what_was_told_ends_the_pause_after_a_piece():
    async with queue() as here:
        await here.queue.tell(piece("a"))
        await all_tasks_blocked()
        await here.queue.tell(piece("b"))
        await here.queue.shown()
        assert here.sent == [piece("a"), piece("b")]
        await here.queue.flush()


@pytest.mark.usefixtures("long_pauses")
async def test_there_is_no_pause_where_somebody_waits_for_the_next_piece_already():
    async with queue() as here:
        here.repository.held = anyio.Event()
        await here.queue.tell(piece("a"))
        await here.repository.waiting.wait()
        await here.queue.tell(piece("b"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(here.queue.shown)
            await all_tasks_blocked()
            here.repository.held.set()
        assert here.sent == [piece("a"), piece("b")]
        await here.queue.flush()


@pytest.mark.usefixtures("long_pauses")
async def test_a_flush_waits_for_no_company():
    async with queue() as here:
        await here.queue.tell(UsageChanged(1, 2))
        await here.queue.flush()
        await here.queue.tell(piece("a"))
        await all_tasks_blocked()
        await here.queue.flush()
        assert here.sent == [UsageChanged(1, 2), piece("a")]


async def test_an_update_that_cannot_be_shown_costs_its_batch_and_no_later_one():
    notices = [Notice(Severity.INFO, text) for text in "ab"]
    async with queue() as here:
        here.faulty = (STARTED,)
        for event in (STARTED, *notices):
            await here.queue.tell(event)
        assert (here.sent, here.repository.kept) == (notices, [STARTED])


async def test_each_time_that_the_store_fails_one_task_tries_again_until_it_no_longer_does(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(transcript, "RETRY", 0.0)
    started = list[Callable[[], Awaitable[None]]]()
    here = Here(started.append)

    async def retries() -> list[Callable[[], Awaitable[None]]]:
        await here.queue.flush()
        await here.queue.save()
        tasks = started.copy()
        started.clear()
        return tasks

    for title in ("a", "b"):
        assert await retries() == []
        here.repository.broken = True
        here.writer.note(Change(title=title))
        (retry,) = await retries()
        here.repository.broken = False
        await retry()
        assert [change.title for change in here.repository.changes][-1] == title


async def test_a_flush_waits_for_a_write_that_is_under_way():
    async with queue() as here:
        here.repository.held = anyio.Event()
        here.writer.note(Change(title="T"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(here.queue.save)
            await here.repository.waiting.wait()
            tasks.start_soon(here.queue.flush)
            await all_tasks_blocked()
            here.repository.held.set()
        assert ([change.title for change in here.repository.changes], here.repository.tries) == (["T"], 1)


async def test_not_all_is_stored_after_a_write_that_failed_or_was_broken_off():
    said = (Message(Role.USER, (TextPart("hi"),)),)

    async def state() -> Change:
        return Change(history=HistoryState(said))

    async with queue() as here:
        here.writer.follow(state)
        here.repository.broken = True
        await here.writer.write(())
        assert not here.writer.done, "the history is not stored"
    async with queue() as here:
        here.repository.held = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(here.writer.write, [STARTED])
            await all_tasks_blocked()
            here.writer.hurry()
        assert (here.writer.done, here.repository.changes) == (False, [])
        here.repository.held = None
        await here.queue.flush()
        assert here.writer.done


async def test_who_no_longer_follows_the_state_still_removes_the_secrets():
    async with queue() as here:
        here.writer.follow(None, lambda text: text.replace("key", "*"))
        here.writer.follow(None)
        await here.queue.tell(ToolStarted("c1", "edit", "a", ToolKind.EDIT, {}, diffs=(Diff("a", None, "the key"),)))
        (event,) = here.repository.kept
        assert isinstance(event, ToolStarted)
        assert event.diffs == (Diff("a", None, "the *"),)


async def test_a_message_is_redacted_as_a_whole_once_where_it_ends_and_a_long_one_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(transcript_writer, "_SHORT", 8)
    redacted = list[tuple[str, bool]]()

    def redact(text: str) -> str:
        redacted.append((text, threading.current_thread() is threading.main_thread()))
        return text.replace("key", "*")

    async with queue() as here:
        here.writer.follow(None, redact)
        next_answer = TextDelta("a k", "m2"), TextDelta("ey", "m2")
        for event in (piece("my "), piece("key! "), STARTED, *next_answer):
            await here.queue.tell(event)
            await all_tasks_blocked()
            await here.queue.shown()
        await here.queue.flush()
        await here.queue.flush()
        assert here.repository.kept == [piece("my "), piece("key! "), STARTED, *next_answer]
        whole = [each for change in here.repository.changes for each in change.replacements]
        assert whole == [piece("my *! "), TextDelta("a *", "m2")]
    assert redacted == [("my key! ", True), ("a key", True)]
    redacted.clear()
    async with queue() as here:
        here.writer.follow(None, redact)
        await here.queue.tell(piece("the key is"))
        await here.queue.flush()
    assert redacted == [("the key is", False)]
    redacted.clear()
    for old, at_once in (("1234", True), ("12345", False)):
        async with queue() as here:
            here.writer.follow(None, redact)
            await here.queue.tell(ToolStarted("c1", "edit", "a", ToolKind.EDIT, {}, diffs=(Diff("a", old, "1234"),)))
        assert redacted == [("a", at_once), (old, at_once), ("1234", at_once)]
        redacted.clear()


async def test_what_is_told_while_nothing_is_stored_is_not_kept_for_later():
    async with queue() as here:
        here.writer.repository = None
        await here.writer.write([STARTED])
        assert here.writer.waiting == ()


class HalfReadable(FakeRepository):
    """A repository that breaks while its events are read."""

    async def events(self) -> AsyncIterator[StoredEvent]:
        yield StoredEvent(1, 1, UserMessage((TextPart("go"),), "u1"))
        raise StoreUnavailable("the disk is gone")


async def test_a_transcript_passes_on_how_long_to_wait_and_stores_a_title_at_once_and_reads_what_it_can():
    shown, started, repository = list[Event](), list[object](), HalfReadable()

    async def show(event: Event) -> None:
        shown.append(event)

    story = Transcript(SessionRecord("s", "/work"), show, started.append, list[str]().append, lambda: 2)
    story.store_in(repository)
    await story.set_title("A name")
    assert [change.title for change in repository.changes] == ["A name"]
    for options, patience in (({"patience": 3.0}, 3.0), ({"within": 5.0}, 0.0)):
        story.rename(f"for {patience}")
        await story.flush(**options)
        assert repository.patience[-1] == patience, options
    repository.broken = True
    await story._writer.write([STARTED])
    events = story.events()
    assert [(await anext(events)).event for _ in range(2)] == [UserMessage((TextPart("go"),), "u1"), STARTED]
    with pytest.raises(StoreUnavailable):
        await anext(events)
