"""What is kept of one session."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.agent.history import History
from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.events import (
    BoardTask,
    PlanChanged,
    PlanEntry,
    PlanPriority,
    PlanStatus,
    TextDelta,
    ThoughtDelta,
    ToolFinished,
    ToolStarted,
    TranscriptEvent,
    UsageChanged,
    UserMessage,
)
from acp_agent.core.messages import LinkPart, Message, ResourcePart, Role, TextPart, ToolResultPart, ToolUsePart, Usage
from acp_agent.core.session_options import AutoApprove, Mode, SessionOptions
from acp_agent.core.sessions import Change, HistoryState, SeenFile, SessionRecord, SessionRepository, UsageTotals
from acp_agent.core.types import ToolKind, ToolResult
from acp_agent.store import session_rows
from acp_agent.store.conversations import hold
from acp_agent.store.db import Database
from acp_agent.store.schema import migrate
from acp_agent.store.sessions import SessionStore, SqliteSessionRepository
from tests.unit.store.databases import opened, others, query
from tests.unit.store.records import EVENTS

pytestmark = pytest.mark.anyio

RECORD = SessionRecord("s", "/home/me", ("/more",), "title", 1_000, 2_000)


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "data" / "agent.db"


class Clock:
    def __init__(self) -> None:
        self.seconds = 5.0

    def __call__(self) -> float:
        return self.seconds


@asynccontextmanager
async def kept(path: Path, clock=lambda: 5.0) -> AsyncIterator[tuple[Database, SqliteSessionRepository]]:
    async with opened(path) as database:
        store = SessionStore(database, clock)
        await store.create(RECORD, SessionOptions())
        yield database, store.of("s")


async def told(repository: SessionRepository) -> list[TranscriptEvent]:
    return [each.event async for each in repository.events()]


@pytest.fixture
def log():
    lines: list[dict] = []

    def keep(_logger: object, level: str, event) -> None:
        lines.append({"level": level, **event})
        raise structlog.DropEvent

    structlog.configure(processors=[keep])
    yield lines
    structlog.reset_defaults()


# --------------------------------------------------------------------------------------------- state


async def test_every_part_of_a_change_is_there_after_a_restart(path):
    clock = Clock()
    conduct = SessionOptions(Mode.ASK, AutoApprove.AUTO_EDIT, True, "a:b", "on", "precise")
    tally = UsageTotals(5, 100, Usage(1, 2, 3, 4), 0.25, False, 7, 8)
    messages = (Message(Role.USER, (TextPart("hi"),)), Message(Role.ASSISTANT, (TextPart("half \ud800"),)))
    history = HistoryState(messages, 1, 77)
    async with kept(path, clock) as (_, repository):
        change = Change(
            (UserMessage((TextPart("hi"),), "m"), TextDelta("he", "n")),
            history,
            conduct,
            tally,
            "new \udc80",
            "a:b",
            prompted=True,
            touch=True,
            cwd="/elsewhere",
            additional=("/x", "/\ud800"),
        )
        await repository.write(change)
        conduct.mode = Mode.CODE
    async with kept(path) as (_, repository):
        saved = await repository.snapshot()
        assert saved is not None
        assert saved.record == SessionRecord("s", "/elsewhere", ("/x", "/\ud800"), "new \udc80", 1_000, 5_000, 1, "a:b")
        assert (saved.options, saved.usage, saved.history) == (replace(conduct, mode=Mode.ASK), tally, history)
        assert [each.at async for each in repository.events()] == [5_000, 5_000]
        assert await told(repository) == list(change.events)


FILES = {"/a": SeenFile("d", "s", "text \ud800\n" * 100), "/\udc80": SeenFile("e", "")}


async def test_the_files_that_a_session_saw_are_there_after_a_restart_and_in_a_copy_and_gone_with_the_conversation(
    path,
):
    async with kept(path) as (database, repository):
        await repository.write(Change(seen=FILES | {"/gone": SeenFile("f", "")}))
        await repository.write(Change(seen=FILES | {"/b": SeenFile("b", "")}))
        await repository.write(Change(seen=FILES))
        await SessionStore(database).fork("s", replace(RECORD, id="copy"), SessionOptions())
    async with kept(path) as (database, repository):
        for each in (repository, SessionStore(database).of("copy")):
            saved = await each.snapshot()
            assert saved is not None
            assert saved.seen == FILES
        await repository.write(Change(seen=FILES | {"/b": SeenFile("b", "")}))
        await repository.write(Change(seen=FILES))
        saved = await SessionStore(database).of("s").snapshot()
        assert saved is not None
        assert saved.seen == FILES
        changed = {"/a": SeenFile("new", "t")}
        await repository.write(Change(seen=changed))
        fresh = SessionStore(database).of("s")
        await fresh.write(Change(seen=changed))  # it does not know what is stored
        saved = await fresh.snapshot()
        assert saved is not None
        assert saved.seen == changed
        await fresh.clear()
        assert await database.read(query("SELECT conversation_id FROM seen_files GROUP BY 1")) == [("copy",)]


async def test_what_a_change_does_not_name_stays_as_it_is(path):
    async with kept(path) as (_, repository):
        await repository.write(Change(history=HistoryState((Message(Role.USER, (TextPart("hi"),)),), 0, 5), prompted=1))
        before = await repository.snapshot()
        await repository.write(Change((TextDelta("a", "m"),)), durable=False, patience=0)
        assert await repository.snapshot() == before


async def test_a_session_used_when_the_clock_was_set_back_does_not_move_down_the_list(path):
    clock = Clock()
    async with kept(path, clock) as (_, repository):
        clock.seconds = 1.0
        await repository.write(Change(touch=True))
        saved = await repository.snapshot()
        assert saved is not None
        assert saved.record.updated_at == 2_000


async def test_a_state_that_cannot_be_read_is_that_of_a_new_session_and_logged(path, log):
    async with kept(path) as (database, repository):
        await database.write(query("UPDATE conversations SET conduct = '{', tally = x'ff', additional = '7'"))
        saved = await repository.snapshot()
        assert saved is not None
        assert (saved.options, saved.usage, saved.record.additional) == (SessionOptions(), UsageTotals(), ())
        assert [line["level"] for line in log] == ["warning", "warning"]


async def test_a_session_that_is_not_there_is_said_not_to_be(path):
    async with opened(path) as database:
        repository = SessionStore(database).of("nobody")
        assert await repository.snapshot() is None
        assert await told(repository) == []
        with pytest.raises(StoreUnavailable, match="this session is not in the database"):
            await repository.write(Change((TextDelta("a", "m"),)))


# ---------------------------------------------------------------------------------------------- told


async def test_pieces_of_one_message_that_come_together_are_one_row(path):
    pieces = [
        TextDelta("a", "m"),
        TextDelta("b", "m"),
        ThoughtDelta("c", "m"),
        TextDelta("d", "m"),
        TextDelta("e", "n"),
    ]
    usage = UsageChanged(1, 2)
    async with kept(path) as (_, repository):
        await repository.write(Change((*pieces, usage, usage)))
        await repository.write(Change((TextDelta("f", "n"),)))
        rows = [each async for each in repository.events()]
    joined = [TextDelta("ab", "m"), ThoughtDelta("c", "m"), TextDelta("d", "m"), TextDelta("e", "n")]
    assert [row.event for row in rows] == [*joined, usage, usage, TextDelta("f", "n")]
    assert [row.seq for row in rows] == [1, 2, 3, 4, 5, 6, 7]


@settings(max_examples=settings.default.max_examples // 3)
@given(changes=st.lists(st.lists(EVENTS, max_size=4), max_size=4))
def test_whatever_is_told_comes_back_in_order(tmp_path_factory, changes):
    async def run() -> None:
        async with kept(tmp_path_factory.mktemp("told") / "agent.db") as (_, repository):
            for change in changes:
                await repository.write(Change(change), durable=False)
            events = [
                event for change in changes for event in change if not isinstance(event, TextDelta | ThoughtDelta)
            ]
            back = await told(repository)
            assert [event for event in back if not isinstance(event, TextDelta | ThoughtDelta)] == events
            assert _words(back) == _words([event for change in changes for event in change])

    anyio.run(run)


def _words(events: list[TranscriptEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta | ThoughtDelta))


async def test_rows_that_cannot_be_read_are_passed_over_with_one_warning(path, log):
    async with kept(path) as (database, repository):
        await repository.write(Change([UsageChanged(number, 9) for number in range(6)]))
        await database.write(query("UPDATE told SET kind = 'hologram' WHERE seq = 2"))
        await database.write(query("UPDATE told SET body = x'ff7b' WHERE seq = 4"))
        await database.write(query("UPDATE told SET body = 5 WHERE seq = 6"))
        assert [event.used for event in await told(repository) if isinstance(event, UsageChanged)] == [0, 2, 4]
    (line,) = log
    assert line["level"] == "warning"
    assert line["first"].startswith("2: unknown kind")


@pytest.mark.parametrize("at", ["'x'", "x'ff'", "9e999"])
async def test_an_event_whose_time_cannot_be_read_is_told_all_the_same(path, at):
    async with kept(path) as (database, repository):
        await repository.write(Change([UsageChanged(1, 9)]))
        await database.write(query(f"UPDATE told SET at = {at}"))
        assert [each.at async for each in repository.events()] == [0]


async def test_a_long_session_is_read_piece_by_piece_while_others_write(path):
    async with kept(path) as (database, repository):
        await repository.write(Change([UsageChanged(number, 0) for number in range(600)]))
        await repository.write(Change([UserMessage((TextPart("x" * 600_000),), f"{number}") for number in range(5)]))
        largest: list[int] = []
        page = repository._page

        async def watched(after: int):
            rows = await page(after)
            largest.append(sum(len(row[3]) for row in rows))
            return rows

        repository._page = watched
        seen = 0
        async for _ in repository.events():
            seen += 1
            if seen == 10:
                await database.write(query("INSERT INTO conversations (id, created_at) VALUES ('other', 0)"))
                with closing(others(path)) as other:  # a reader left open would keep the log from being written back
                    busy, *_ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                    assert not busy
        assert seen == 605
        assert len(largest) >= 5
        assert max(largest) < 2_000_000


async def test_a_change_that_cannot_be_written_whole_is_not_written_at_all(path):
    async with kept(path) as (_, repository):
        deep: list = []
        for _ in range(100_000):
            deep = [deep]
        message = Message(Role.ASSISTANT, (ToolUsePart("1", "x", {"deep": deep}),))
        with pytest.raises(StoreUnavailable, match="cannot be stored as JSON"):
            await repository.write(Change((UsageChanged(1, 2),), HistoryState((message,)), touch=True))
        assert await told(repository) == []
        with closing(others(path)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="another process keeps it locked"):
                await repository.write(Change((UsageChanged(1, 2),)), patience=0)
        await repository.write(Change((UsageChanged(3, 4),)))
        assert await told(repository) == [UsageChanged(3, 4)]


# ------------------------------------------------------------------------------------------- history


def user(text: str) -> Message:
    return Message(Role.USER, (TextPart(text),))


def answer(text: str) -> Message:
    return Message(Role.ASSISTANT, (TextPart(text),))


async def stored(repository: SessionRepository) -> tuple[Message, ...]:
    saved = await repository.snapshot()
    assert saved is not None
    return saved.history.messages


async def writes(path: Path, repository: SessionRepository, messages: tuple[Message, ...]) -> list[int]:
    """Numbers of the messages that a write of these writes."""
    with closing(others(path)) as other:
        other.execute("UPDATE messages SET role = 'user' || role")  # what is not written stays so
        await repository.write(Change(history=HistoryState(messages)))
        rows = other.execute("SELECT seq FROM messages WHERE role NOT LIKE 'user_%' ORDER BY seq").fetchall()
        other.execute("UPDATE messages SET role = substr(role, 5) WHERE role LIKE 'user_%'")
        return [row[0] for row in rows]


async def test_of_a_history_only_what_is_new_or_changed_is_written(path):
    async with kept(path) as (_, repository):
        messages = (user("a"), answer("b"), user("c"))
        assert await writes(path, repository, messages) == [0, 1, 2]
        assert await writes(path, repository, messages) == []
        longer = (*messages[:2], user("c and d"), answer("e"))
        assert await writes(path, repository, longer) == [2, 3]
        assert await writes(path, repository, longer[:1]) == []
        assert await stored(repository) == longer[:1]
        assert await writes(path, repository, (user("summary"), answer("f"))) == [0, 1]
        assert await stored(repository) == (user("summary"), answer("f"))
        assert await writes(path, repository, ()) == []
        assert await stored(repository) == ()


async def test_what_was_loaded_is_not_written_again_by_a_conversation_that_goes_on_from_it(path):
    async with kept(path) as (database, first):
        calls = Message(Role.ASSISTANT, (ToolUsePart("1", "read", {"path": "a"}),))
        messages = (user("a"), calls, Message(Role.USER, (ToolResultPart("1", "text"),)), answer("b"))
        await first.write(Change(history=HistoryState(messages)))
        repository = SessionStore(database).of("s")
        history = History(await stored(repository))
        history.append(user("c"))
        assert await writes(path, repository, history.messages()) == [4]
        blind = SessionStore(database).of("s")  # one that knows nothing writes all
        assert await writes(path, blind, history.messages()) == [0, 1, 2, 3, 4]
        assert await stored(first) == history.messages()


async def test_a_message_that_cannot_be_read_is_left_out_and_written_over(path, log):
    async with kept(path) as (database, repository):
        await repository.write(Change(history=HistoryState((user("a"), answer("b"), user("c")))))
        await database.write(query('UPDATE messages SET body = \'[{"type":"hologram"}]\' WHERE seq = 1'))
        left = await stored(repository)
        assert left == (user("a"), user("c"))
        assert [line["level"] for line in log] == ["warning"]
        await repository.write(Change(history=HistoryState((*left, answer("d")))))
        assert await stored(repository) == (user("a"), user("c"), answer("d"))


async def test_a_cancelled_write_wrote_nothing_or_came_back(path):
    async with kept(path) as (_, repository):
        done = []
        with closing(others(path)) as other:
            for number in range(20):
                if locked := number % 4 == 0:
                    other.execute("BEGIN IMMEDIATE")
                with anyio.move_on_after(number / 10_000):
                    await repository.write(Change((UsageChanged(number, 0),)), durable=False)
                    done.append(number)
                if locked:
                    other.execute("ROLLBACK")
        assert [event.used for event in await told(repository) if isinstance(event, UsageChanged)] == done


def test_rows_of_one_session_are_found_by_the_key():
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {session_rows._PAGE}", ("s", 1, 1))]
    assert plan == ["SEARCH told USING PRIMARY KEY (conversation_id=? AND seq>?)"]


async def test_a_message_told_again_as_a_whole_takes_the_place_of_its_pieces(path):
    async with kept(path) as (_, repository):
        await repository.write(Change((TextDelta("other", "m0"), TextDelta("a", "m"))))
        await repository.write(Change((TextDelta("b", "m"),)))
        await repository.write(
            Change((ThoughtDelta("c", "m"),), replacements=(TextDelta("whole", "m"), TextDelta("x", "none")))
        )
        assert await told(repository) == [TextDelta("other", "m0"), TextDelta("whole", "m"), ThoughtDelta("c", "m")]


# --------------------------------------------------------------------------- what goes on with it


async def test_the_plan_the_user_saw_last_is_there_after_a_restart(path):
    entries = (PlanEntry("do A"), PlanEntry("do B"))
    async with kept(path) as (_, repository):
        await repository.write(Change(events=[PlanChanged(entries[:1]), PlanChanged(entries), TextDelta("x", "1")]))
        saved = await repository.snapshot()
        assert saved is not None
        assert saved.plan == entries
        await repository.clear()
        saved = await repository.snapshot()
        assert saved is not None
        assert (saved.plan, saved.user_words) == ((), ())


async def test_the_board_of_the_last_plan_is_there_after_a_restart_and_in_a_copy_and_its_long_texts_are_stored_once(
    path,
):
    first = BoardTask("a", "do A", "long " * 400, PlanPriority.HIGH, result="\ud800")
    second = BoardTask("b", "do B", after=("a",), status=PlanStatus.IN_PROGRESS, owner="general-1", note="x")
    async with kept(path) as (database, repository):
        for tasks in ((first,), (first, second), (first, replace(second, owner="general-2"))):
            await repository.write(Change(events=[PlanChanged((PlanEntry("x"),), tasks)]))
        await SessionStore(database).fork("s", replace(RECORD, id="copy"), SessionOptions())
    async with kept(path) as (database, repository):
        for each in (repository, SessionStore(database).of("copy")):
            saved = await each.snapshot()
            assert saved is not None
            assert saved.tasks == (first, replace(second, owner="general-2"))
        assert await database.read(query("SELECT count(*) FROM texts WHERE conversation_id = 's'")) == [(1,)]


async def test_what_the_user_typed_is_there_and_nothing_others_said(path):
    first = (TextPart("read https://a.example"), ResourcePart("file:///r", "https://evil.example"))
    second = (LinkPart("https://b.example", "b"),)
    async with kept(path) as (_, repository):
        said: list[TranscriptEvent] = [
            UserMessage(first, "1"),
            TextDelta("https://evil.example", "2"),
            UserMessage(second, "3"),
        ]
        await repository.write(Change(events=said))
        saved = await repository.snapshot()
        assert saved is not None
        assert saved.user_words == ("read https://a.example", "https://b.example")


async def test_what_was_being_told_when_a_turn_was_cut_off_is_found_whole(path):
    before = (UserMessage((TextPart("go"),), "u"), TextDelta("Well.", "a"), UsageChanged(1, 2))
    async with kept(path) as (_, repository):
        for event in (*before, ThoughtDelta("h", "t"), TextDelta("I w", "b"), ThoughtDelta("m", "t")):
            await repository.write(Change((event,), usage=UsageTotals(under_way=True)))
        await repository.write(Change((TextDelta("ill ", "b"), TextDelta("lo", "b"))))
        saved = await repository.snapshot()
        assert saved is not None
        assert saved.usage.under_way
        assert saved.unfinished_messages == (ThoughtDelta("hm", "t"), TextDelta("I will lo", "b"))
        await repository.write(Change((UsageChanged(2, 2),)))
        saved = await repository.snapshot()
        assert saved is not None
        assert saved.unfinished_messages == (), "the answer was whole, and is in the history"
        await repository.write(Change((TextDelta("The end.", "c"),), usage=UsageTotals()))
        saved = await repository.snapshot()
        assert saved is not None
        assert saved.unfinished_messages == (), "the turn came to its end"


async def test_what_a_sub_agent_did_meanwhile_does_not_cut_the_answer_that_was_cut_off(path):
    card = ToolStarted("c", "agent", "explore-1", ToolKind.THINK, {})
    answer = (ended("before", "use"), TextDelta("I w", "b"), card, TextDelta("ill ", "b"), ended("c", ""))
    async with kept(path) as (_, repository):
        told = (UserMessage((TextPart("go"),), "u"), TextDelta("Well.", "a"), UsageChanged(1, 2), *answer)
        await repository.write(Change(told, usage=UsageTotals(under_way=True)))
        saved = await repository.snapshot()
        assert saved is not None
        assert saved.unfinished_messages == (TextDelta("I will ", "b"),)
        await repository.write(Change((TextDelta("look", "b"),)))
        saved = await repository.snapshot()
        assert saved is not None
        assert saved.unfinished_messages == (TextDelta("I will look", "b"),)


def ended(call_id: str, use_id: str) -> ToolFinished:
    return ToolFinished(call_id, "bash", ToolResult(call_id), 0.1, use_id)


async def test_the_calls_of_a_turn_that_was_cut_off_are_found_and_none_of_an_earlier_one_with_the_same_id(path):
    prompt = UserMessage((TextPart("go"),), "u")
    earlier, mine, one, two = (ended("a", "call_0"), ended("b", ""), ended("c", "call_0"), ended("d", "call_1"))
    async with kept(path) as (_, repository):
        told: list[TranscriptEvent] = [prompt, earlier, prompt, one, mine, two, TextDelta("I ", "a")]
        await repository.write(Change(told, usage=UsageTotals(under_way=True)))
        saved = await repository.snapshot()
        assert saved is not None
        assert saved.finished_calls == (one, two)
        await repository.write(Change(usage=UsageTotals()))
        saved = await repository.snapshot()
        assert saved is not None
        assert saved.finished_calls == ()


async def test_of_much_that_was_typed_the_latest_is_there(path):
    async with kept(path) as (_, repository):
        told = [UserMessage((TextPart(f"{n} " + "x" * 100_000),), str(n)) for n in range(9)]
        await repository.write(Change(events=told))
        saved = await repository.snapshot()
        assert saved is not None
        assert [text.split()[0] for text in saved.user_words] == ["6", "7", "8"]


async def test_messages_that_cannot_be_read_are_counted(path):
    messages = (Message(Role.USER, (TextPart("go"),)), Message(Role.ASSISTANT, (TextPart("Done."),)))
    async with kept(path) as (_, repository):
        await repository.write(Change(history=HistoryState(messages)))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE messages SET body = 'x' WHERE seq = 0")
    async with opened(path) as database:
        saved = await SessionStore(database).of("s").snapshot()
        assert saved is not None
        assert saved.history == HistoryState(messages[1:], lost=1)


# ------------------------------------------------------------------------------------- a file that went


def removed(path: Path) -> None:
    for name in ("", "-wal", "-shm"):
        Path(f"{path}{name}").unlink(missing_ok=True)


SAID = (Message(Role.USER, (TextPart("hi"),)), Message(Role.ASSISTANT, (TextPart("yes"),)))


@pytest.mark.parametrize("others_were_faster", [False, True])
async def test_a_session_whose_database_was_removed_is_put_back_with_all_but_what_was_told(path, others_were_faster):
    conduct, tally = SessionOptions(Mode.ASK), UsageTotals(5, 100, Usage(1, 2))
    async with opened(path) as database:
        store = SessionStore(database)
        await store.create(RECORD, SessionOptions())
        repository = store.of("s")
        told_before = (UserMessage((TextPart("before"),), "u1"),)
        before = Change(told_before, HistoryState(SAID, 0, 7), conduct, tally, "T", "a:b", prompted=1, seen=FILES)
        await repository.write(before)
        conduct.mode = Mode.CODE  # the session's own, and it goes on
        removed(path)
        if others_were_faster:
            await database.write(lambda connection: hold(connection, "s", 1))
        event = UserMessage((TextPart("after"),), "u2")
        more = (*SAID, Message(Role.USER, (TextPart("more"),)))
        await repository.write(Change((event,), HistoryState(more, 0, 9), prompted=1))
        await repository.write(Change(title="U"))
        saved = await store.of("s").snapshot()
        assert saved is not None
        assert saved.record == replace(RECORD, title="U", model="a:b", prompts=2)
        assert (saved.options, saved.usage) == (SessionOptions(Mode.ASK), tally)
        assert saved.history == HistoryState(more, 0, 9)
        assert saved.seen == FILES
        assert await told(repository) == [event]


async def test_a_session_that_was_only_read_is_put_back_too_also_by_a_change_of_something_else(path):
    async with kept(path) as (database, repository):
        await repository.write(Change(history=HistoryState(SAID, 0, 7), title="T"))
        other = SessionStore(database).of("s")
        before = await other.snapshot()
        removed(path)
        await other.write(Change())
        assert await other.snapshot() == before


async def test_neither_a_deleted_session_nor_what_was_forgotten_is_put_back(path):
    async with kept(path) as (database, repository):
        await repository.write(Change(history=HistoryState(SAID, 0, 7), title="T"))
        await repository.clear()
        removed(path)
        await repository.write(Change(model="a:b"))
        saved = await repository.snapshot()
        assert saved is not None
        assert (saved.record.title, saved.record.model, saved.history) == ("", "a:b", HistoryState())
        await SessionStore(database).delete("s")
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=r"deleted|not in the database"):
                await repository.write(Change(title="X"))
            removed(path)
