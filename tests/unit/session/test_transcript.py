"""What is told of a session is kept, told again, and goes on where it was left."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.events import Event, Notice, Severity, TextDelta, ToolStarted, UserMessage
from acp_agent.core.messages import Message, Role, TextPart
from acp_agent.core.session_options import SessionOptions
from acp_agent.core.sessions import Change, HistoryState, SessionRecord, UsageTotals
from acp_agent.core.types import ToolKind
from acp_agent.session.manager import DeferredRepository
from acp_agent.session.transcript import ANSWER_BEGINS, Transcript
from acp_agent.store.sessions import SessionStore
from tests.fakes.passing_time import all_tasks_blocked, pass_time
from tests.fakes.repository import FakeRepository
from tests.unit.store.databases import opened, others

pytestmark = pytest.mark.anyio

RECORD = SessionRecord("s", "/work", created_at=1, updated_at=1)
ASKED = UserMessage((TextPart("go"),), "u1")


@dataclass
class Told:
    transcript: Transcript
    sent: list[Event] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@asynccontextmanager
async def telling(record: SessionRecord = RECORD) -> AsyncIterator[Told]:
    async with anyio.create_task_group() as tasks:

        def background(task: Callable[[], Awaitable[None]]) -> None:
            tasks.start_soon(task)

        async def show(event: Event) -> None:
            here.sent.append(event)

        here: Any = None
        warnings: list[str] = []
        transcript = Transcript(record, show, background, warnings.append, lambda: 2)
        here = Told(transcript, warnings=warnings)
        yield here
        await transcript.flush()
        await transcript.end()


@asynccontextmanager
async def stored(path: Path) -> AsyncIterator[SessionStore]:
    async with opened(path / "agent.db", patience=0.1) as database:
        store = SessionStore(database)
        await store.create(RECORD, SessionOptions())
        yield store


async def test_what_the_record_says_is_what_the_store_has(tmp_path: Path) -> None:
    async with stored(tmp_path) as store, telling() as here:
        here.transcript.store_in(store.of("s"))
        await here.transcript.tell(ASKED)
        await here.transcript.tell(ASKED)
        await here.transcript.set_title("A name")
        here.transcript.move("/elsewhere")
        await here.transcript.flush(touch=True)
        found = await store.find("s")
        assert found is not None
        assert (found.prompts, found.title, found.cwd) == (2, "A name", "/elsewhere")
        assert found.updated_at > 1
        record = here.transcript.record
        assert (record.prompts, record.title, record.cwd) == (2, "A name", "/elsewhere")
        assert here.transcript.stored


async def test_a_prompt_moves_the_session_to_the_head_of_the_list_before_its_turn_ends(tmp_path: Path) -> None:
    async with stored(tmp_path) as store, telling() as here:
        here.transcript.store_in(store.of("s"))
        await here.transcript.tell(ASKED)
        await here.transcript.shown()
        found = await store.find("s")
        assert found is not None
        assert found.updated_at > 1


async def test_a_clock_that_was_set_back_makes_no_session_older() -> None:
    async with telling(replace(RECORD, updated_at=9)) as here:
        await here.transcript.tell(ASKED)
        assert here.transcript.record.updated_at == 9


@pytest.mark.parametrize("ended", [False, True])
async def test_the_state_is_kept_soon_unless_the_turn_has_ended_by_then(ended: bool) -> None:
    asked = list[Change]()

    async def state() -> Change:
        asked.append(Change(model="m"))
        return asked[-1]

    async with anyio.create_task_group() as tasks:
        made = Transcript(RECORD, lambda _: anyio.lowlevel.checkpoint(), tasks.start_soon, print, lambda: 2)
        made.store_in(FakeRepository())
        made.follow(state)
        made.save_soon()
        if ended:
            await made.flush()
        assert len(asked) == ended
        pass_time(ANSWER_BEGINS)
        await anyio.lowlevel.checkpoint()  # the timer is due
        await all_tasks_blocked()
        assert len(asked) == 1


async def test_what_is_only_shown_is_not_kept(tmp_path: Path) -> None:
    async with stored(tmp_path) as store, telling() as here:
        here.transcript.store_in(store.of("s"))
        await here.transcript.tell(Notice(Severity.INFO, "by the way"))
        await here.transcript.tell(TextDelta("said", "m"))
        await here.transcript.flush()
        told = [each.event async for each in here.transcript.events()]
        assert told == [TextDelta("said", "m")]
        assert len(here.sent) == 2


async def test_nothing_kept_is_nothing_told_again_and_nothing_to_go_on_with() -> None:
    async with telling() as here:
        await here.transcript.tell(TextDelta("said", "m"))
        assert [each async for each in here.transcript.events()] == []
        assert await here.transcript.reload() is None
        await here.transcript.clear()
        assert not here.transcript.stored


async def test_a_store_that_cannot_be_read_is_no_empty_conversation(tmp_path: Path) -> None:
    """Who took it for one would write over what was said."""
    async with stored(tmp_path) as store, telling() as here:
        here.transcript.store_in(store.of("s"))
        (tmp_path / "agent.db").rename(tmp_path / "away")
        (tmp_path / "agent.db").symlink_to(tmp_path / "away")
        with pytest.raises(StoreUnavailable):
            await here.transcript.reload()
        (tmp_path / "agent.db").unlink()
        (tmp_path / "away").rename(tmp_path / "agent.db")
        assert (await here.transcript.reload()) is not None


async def test_what_goes_on_takes_the_record_as_others_have_left_it(tmp_path: Path) -> None:
    async with stored(tmp_path) as store, telling() as here:
        here.transcript.store_in(store.of("s"))
        await store.of("s").write(Change(title="Theirs", prompted=1))
        await here.transcript.reload()
        assert (here.transcript.record.title, here.transcript.record.prompts) == ("Theirs", 1)


async def test_another_repository_gets_all_of_the_state_again(tmp_path: Path) -> None:
    async with stored(tmp_path) as store, telling() as here:
        history = HistoryState((Message(Role.USER, (TextPart("go"),)),), 0, 5)

        async def state() -> Change:
            return Change(history=history, usage=UsageTotals(calls=1), model="p:m")

        here.transcript.follow(state)
        here.transcript.store_in(store.of("s"))
        await here.transcript.flush()
        await store.of("s").write(Change(model="other:m", usage=UsageTotals(calls=9), history=HistoryState()))
        here.transcript.store_in(store.of("s"))
        await here.transcript.flush()
        saved = await store.of("s").snapshot()
        assert saved is not None
        assert (saved.record.model, saved.usage.calls, saved.history) == ("p:m", 1, history)


async def test_a_secret_in_a_message_that_was_cut_off_is_taken_out_of_what_is_kept_of_it(tmp_path: Path) -> None:
    async with stored(tmp_path) as store, telling() as here:
        repository = store.of("s")
        for piece in ("the key is pass", "word, and"):
            await repository.write(Change((TextDelta(piece, "a"),), usage=UsageTotals(under_way=True)))
        here.transcript.store_in(repository)
        saved = await here.transcript.reload()
        assert saved is not None
        await here.transcript.redact_unfinished(saved.unfinished_messages, lambda text: text.replace("password", "***"))
        assert [each.event async for each in repository.events()] == [TextDelta("the key is ***, and", "a")]


async def test_a_secret_in_a_message_that_was_cut_off_is_taken_out_even_if_the_prompt_is_cancelled() -> None:
    repository = FakeRepository()
    async with telling() as here:
        here.transcript.store_in(repository)
        with anyio.CancelScope() as prompt:
            prompt.cancel()
            await here.transcript.redact_unfinished([TextDelta("password", "a")], lambda _: "***")
        await here.transcript.flush()
    assert repository.changes == [Change(replacements=(TextDelta("***", "a"),))]


async def test_whether_all_is_kept_is_known() -> None:
    repository = FakeRepository()
    async with telling() as here:
        assert not here.transcript.stored, "nobody keeps it"
        here.transcript.store_in(repository)
        assert here.transcript.stored, "nothing was told"
        repository.broken = True
        await here.transcript.tell(ASKED)
        assert not here.transcript.stored
        await here.transcript.flush()
        assert not here.transcript.stored
        repository.broken = False
        await here.transcript.flush()
        assert here.transcript.stored
        repository.held = anyio.Event()
        here.transcript.store(Change(title="A name"))
        await repository.waiting.wait()
        assert not here.transcript.stored, "it is being written"
        repository.held.set()
        await here.transcript.flush()
        assert here.transcript.stored


async def test_a_move_closes_the_cards_of_before() -> None:
    async with telling() as here:
        await here.transcript.tell(ToolStarted("c1", "bash", "ls", ToolKind.EXECUTE, {}))
        here.transcript.move("/elsewhere")
        assert here.transcript.record.cwd == "/elsewhere"


async def test_forgetting_removes_what_was_said_and_the_title_and_the_session_goes_on(tmp_path: Path) -> None:
    async with stored(tmp_path) as store, telling() as here:
        here.transcript.store_in(store.of("s"))
        await here.transcript.tell(ASKED)
        await here.transcript.set_title("A name")
        await here.transcript.clear()
        assert (here.transcript.record.title, here.transcript.record.prompts) == ("", 1)
        await here.transcript.tell(TextDelta("new", "m"))
        await here.transcript.flush()
        assert [each.event async for each in here.transcript.events()] == [TextDelta("new", "m")]


async def test_a_session_that_was_not_written_at_first_is_written_with_what_comes(tmp_path: Path) -> None:
    async with opened(tmp_path / "agent.db", patience=0.05) as database, telling() as here:
        store = SessionStore(database)
        assert await store.find("s") is None
        blocker = others(tmp_path / "agent.db")
        blocker.execute("BEGIN IMMEDIATE")
        repository = DeferredRepository(store, RECORD, SessionOptions())
        with pytest.raises(StoreUnavailable):
            await repository.make(patience=0)
        here.transcript.store_in(repository)
        await here.transcript.tell(ASKED)
        assert await repository.snapshot() is None
        blocker.close()
        await here.transcript.flush()
        found = await store.find("s")
        assert found is not None
        assert found.prompts == 1
        assert len([each async for each in repository.events()]) == 1
        await repository.clear()
        assert [each async for each in repository.events()] == []


async def test_a_session_that_is_not_written_yet_and_was_deleted_never_comes_to_be(tmp_path: Path) -> None:
    async with opened(tmp_path / "agent.db") as database, telling() as here:
        store = SessionStore(database)
        await store.create(RECORD, SessionOptions())
        await store.delete("s")
        here.transcript.store_in(DeferredRepository(store, RECORD, SessionOptions()))
        await here.transcript.tell(ASKED)
        await here.transcript.flush()
        assert await store.find("s") is None
        assert len(here.warnings) == 1
        assert "deleted" in here.warnings[0]


async def test_what_the_user_sent_is_read_again_oldest_first(tmp_path: Path) -> None:
    async with stored(tmp_path) as store, telling() as here:
        assert [each async for each in here.transcript.prompts()] == []
        here.transcript.store_in(store.of("s"))
        await here.transcript.tell(ASKED)
        await here.transcript.tell(TextDelta("no", "a1"))
        await here.transcript.tell(UserMessage((TextPart("a"), TextPart("b")), "u2"))
        await here.transcript.flush()
        assert [each async for each in here.transcript.prompts()] == ["go", "a\nb"]
