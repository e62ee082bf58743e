"""The sessions of a user: found, listed, copied, deleted."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.events import TextDelta, ToolStarted, UsageChanged
from acp_agent.core.messages import Message, Role, TextPart, Usage
from acp_agent.core.services import Compaction, Summary
from acp_agent.core.session_options import AutoApprove, Mode, SessionOptions
from acp_agent.core.sessions import Change, HistoryState, SessionRecord, SessionSnapshot, StoredEvent, UsageTotals
from acp_agent.core.types import JsonObject, ToolKind
from acp_agent.store import conversations, session_rows
from acp_agent.store import sessions as statements
from acp_agent.store.conversations import ConversationSummaries, OverflowStore
from acp_agent.store.db import Database
from acp_agent.store.schema import MIGRATIONS, migrate
from acp_agent.store.sessions import SessionStore
from tests.unit.store.databases import CONVERSATIONS, integrity, opened, others, query

pytestmark = pytest.mark.anyio

DAY = 24 * 60 * 60
HISTORY = HistoryState((Message(Role.USER, (TextPart("hi"),)),), 1, 9)


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "data" / "agent.db"


def record(name: str, at: int = 1_000, cwd: str = "/home/me", prompts: int = 1) -> SessionRecord:
    return SessionRecord(name, cwd, created_at=at, updated_at=at, prompts=prompts)


def overflow_of(database: Database, name: str):
    return OverflowStore(database, max_bytes=0, conversation_bytes=0).of(name)


def names(records: tuple[SessionRecord, ...]) -> list[str]:
    return [each.id for each in records]


async def everything(store: SessionStore, size: int, **named) -> list[str]:
    found: list[str] = []
    after = None
    while page := await store.page(limit=size, after=after, **named):
        found += names(page)
        after = (page[-1].updated_at, page[-1].id)
    return found


# ------------------------------------------------------------------------------------------ creating


@pytest.mark.parametrize("text", ["plain", "half \ud800", "zero\0", ""])
async def test_a_session_is_found_as_it_was_created(path, text):
    async with opened(path) as database:
        store = SessionStore(database, lambda: 7.5)
        given = SessionRecord(f"s{text}", f"/{text}", (text, "/b"), text, 1, 2, 3, text)
        await store.create(given, SessionOptions(Mode.ASK), UsageTotals(calls=5))
        assert await store.find(given.id) == given
        assert await store.page(cwd=given.cwd) == (given,)
        saved = await store.of(given.id).snapshot()
        assert saved is not None
        assert (saved.record, saved.options, saved.usage) == (given, SessionOptions(Mode.ASK), UsageTotals(calls=5))
        await store.create(SessionRecord("now", "/"), SessionOptions())
        assert await store.find("now") == SessionRecord("now", "/", created_at=7_500, updated_at=7_500)
        assert await store.find(f"other{text}") is None


async def test_a_session_that_is_there_already_stays_as_it_is(path):
    async with opened(path) as database:
        store = SessionStore(database)
        await store.create(record("s"), SessionOptions())
        await store.of("s").write(Change((UsageChanged(1, 2),), prompted=1))
        await store.create(record("s", 9_000), SessionOptions(readonly=True))
        assert await store.find("s") == record("s", prompts=2)


async def test_a_session_whose_outputs_came_first_is_created_around_them_and_listed_only_then(path):
    async with opened(path) as database:
        store, overflow = SessionStore(database), overflow_of(database, "s")
        reference = await overflow.put("text")
        await ConversationSummaries(database, "t").add(Summary("x", Compaction.MANUAL, 1, 1))
        assert await store.find("s") is None
        assert await store.page(prompted=False) == ()
        await store.create(record("s"), SessionOptions())
        assert await store.page(prompted=False) == (record("s"),)
        assert await overflow.get(reference) == "text"


# ------------------------------------------------------------------------------------------- listing


async def test_the_list_is_filtered_by_folder_and_by_use(path):
    async with opened(path) as database:
        store = SessionStore(database)
        for number, (cwd, prompts) in enumerate([("/a", 0), ("/b", 1), ("/a", 2), ("/b", 0), ("/a", 1)]):
            await store.create(record(f"{number}", number + 1, cwd, prompts), SessionOptions())
        assert names(await store.page()) == ["4", "2", "1"]
        assert names(await store.page(prompted=False)) == ["4", "3", "2", "1", "0"]
        assert names(await store.page(cwd="/a")) == ["4", "2"]
        assert names(await store.page(cwd="/a", prompted=False)) == ["4", "2", "0"]
        assert names(await store.page(cwd="/A")) == names(await store.page(cwd="/a/")) == []


@pytest.mark.parametrize(
    ("column", "value"),
    [(name, value) for name in ("title", "model", "cwd") for value in ("x'ff41'", "CAST(x'ff41' AS TEXT)", "5")]
    + [
        (name, value)
        for name in ("created_at", "updated_at", "prompts", "knowledge", "tokens")
        for value in ("'x'", "x'ff'", "9e999")
    ]
    + [("updated_at", "2.5")],
)
async def test_a_session_with_a_damaged_row_hides_no_other_one_and_can_be_loaded(path, column, value):
    async with opened(path) as database:
        store = SessionStore(database)
        for name in ("good", "damaged"):
            await store.create(record(name), SessionOptions())
        await database.write(query(f"UPDATE conversations SET {column} = {value} WHERE id = 'damaged'"))
        damaged = await store.find("damaged")
        assert damaged is not None
        listed = await store.page()
        assert sorted(names(listed)) == ["damaged", "good"]
        snapshot = await store.of("damaged").snapshot()
        assert snapshot is not None
        for each in (damaged, snapshot.record, *listed):
            assert all(isinstance(text, str) for text in (each.id, each.cwd, each.title, each.model))
            assert all(isinstance(number, int) for number in (each.created_at, each.updated_at, each.prompts))
        assert isinstance(snapshot.history.knowledge, int)
        assert isinstance(snapshot.history.tokens, int)


async def test_sessions_whose_last_use_is_damaged_are_listed_last_page_by_page_and_are_mended_by_their_next_use(path):
    async with opened(path) as database:
        store = SessionStore(database)
        for number in range(5):
            await store.create(record(f"{number}", number + 1, "/a", 1), SessionOptions())
        for name, value in (("1", "'x'"), ("3", "x'ff'"), ("4", "9e999")):
            await database.write(query(f"UPDATE conversations SET updated_at = {value} WHERE id = '{name}'"))
        for cwd in (None, "/a"):
            found, after = list[str](), None
            while listed := await store.page(cwd=cwd, after=after, limit=2):
                found += names(listed)
                after = listed[-1].updated_at, listed[-1].id
            assert found == ["2", "0", "4", "3", "1"]
        await store.of("3").write(Change(touch=True))
        assert names(await store.page()) == ["3", "2", "0", "4", "1"]


@pytest.mark.parametrize("after", [(10**30, ""), (-(10**30), "x"), (5, "\ud800"), (0, "\0")])
async def test_a_position_nobody_was_ever_at_is_one_all_the_same(path, after):
    async with opened(path) as database:
        store = SessionStore(database)
        await store.create(record("s", 5), SessionOptions())
        assert names(await store.page(after=after)) in (["s"], [])


async def test_ten_thousand_sessions_are_paged_in_order_and_none_twice_while_they_move(path):
    rows = [(f"{number:05}", number // 7, f"/{number % 3}", number % 4) for number in range(10_000)]

    def fill(connection) -> None:
        insert = "INSERT INTO conversations (id, created_at, updated_at, cwd, prompts) VALUES (?, 0, ?, ?, ?)"
        connection.executemany(insert, rows)

    async with opened(path) as database, opened(path) as elsewhere:
        await database.write(fill)
        store, other = SessionStore(database), SessionStore(elsewhere, lambda: 10.0**6)
        newest = [row[0] for row in sorted(rows, key=lambda row: (row[1], row[0]), reverse=True)]
        assert await everything(store, 999, prompted=False) == newest
        of_one = [name for name in newest if int(name) % 3 == 1 and int(name) % 4]
        assert await everything(store, 500, cwd="/1") == of_one
        seen: list[str] = []
        after = None
        while page := await store.page(limit=400, after=after, prompted=False):
            seen += names(page)
            after = (page[-1].updated_at, page[-1].id)
            await other.of(page[0].id).write(Change(touch=True), durable=False)  # one that was listed
            await other.of(newest[-len(seen) // 400]).write(Change(touch=True), durable=False)  # one that was not
            await other.delete(page[1].id)
        listed = set(seen)
        assert len(listed) == len(seen) > 9_900
        assert seen == [name for name in newest if name in listed]


def test_the_lists_use_their_indexes_and_sort_only_damaged_sessions():
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        for statement, index, values in (
            (statements._PAGE_OF_ALL, "sessions_by_use", (1, "", 0, 50)),
            (statements._PAGE_OF_CWD, "sessions_by_cwd", (1, "", 0, 50, "/")),
        ):
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
            merged, left, page, right, damaged, order = plan
            assert (merged, left, right) == ("MERGE (UNION ALL)", "LEFT", "RIGHT")
            assert f"SEARCH conversations USING INDEX {index} (" in page
            assert page.endswith("(updated_at,id)<(?,?))")
            assert f"SEARCH conversations USING INDEX {index} (" in damaged
            assert damaged.endswith("updated_at>?)")
            assert order == "USE TEMP B-TREE FOR ORDER BY", "of the damaged ones"


_TABLES = "conversations|told|messages|texts|tool_overflow|summaries|seen_files|schedule|deleted_conversations"


def every_statement() -> Iterator[tuple[str, str]]:
    """Yield the SQL statements of the modules that keep conversations, by the names of their constants."""
    for module in (statements, session_rows, conversations):
        for name, value in vars(module).items():
            for text in (value,) if isinstance(value, str) else value if isinstance(value, tuple) else ():
                if isinstance(text, str) and re.match(r"\s*(SELECT|UPDATE|DELETE|INSERT)\b", text) and "{" not in text:
                    yield name, text


def test_no_statement_looks_at_the_rows_of_all_conversations():
    """What a turn costs must not depend on how many sessions are kept."""
    found = list(every_statement())
    assert len(found) > 40
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        for name, text in found:
            count = text.count("?") if "?1" not in text else max(map(int, re.findall(r"\?(\d)", text)))
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", [None] * count)]
            assert not [step for step in plan if re.match(rf"SCAN ({_TABLES})\b", step)], (name, plan)
            if name not in {"_PURGE", "_PAGE_OF_ALL", "_PAGE_OF_CWD"}:  # they sort one batch, or the damaged sessions
                assert "USE TEMP B-TREE FOR ORDER BY" not in plan, (name, plan)


# ------------------------------------------------------------------------------------------ deleting


async def test_what_was_said_is_in_no_file_once_it_is_deleted_or_forgotten(path):
    async with opened(path) as database:
        store = SessionStore(database)
        for name in ("s", "t"):
            await store.create(record(name), SessionOptions())
            await store.of(name).write(Change((TextDelta("a", "m"),), HISTORY))
        for removing in (store.of("s").clear, lambda: store.delete("t")):
            await removing()
            assert path.with_name("agent.db-wal").stat().st_size == 0


async def test_a_deleted_session_takes_all_of_its_own_along_and_nobody_brings_it_back(path):
    async with opened(path) as database, opened(path) as elsewhere:
        store = SessionStore(database)
        for name in ("s", "t"):
            await store.create(record(name), SessionOptions())
            await store.of(name).write(Change((TextDelta("a", "m"),), HISTORY))
            await overflow_of(database, name).put("text")
            await ConversationSummaries(database, name).add(Summary("x", Compaction.MANUAL, 1, 1))
        repository, overflow, summaries = (
            SessionStore(elsewhere).of("s"),
            overflow_of(elsewhere, "s"),
            ConversationSummaries(elsewhere, "s"),
        )
        assert await store.delete("s")
        assert not await store.delete("s")
        assert not await store.delete("never")
        for writing in (
            lambda: repository.write(Change((TextDelta("b", "m"),))),
            lambda: overflow.put("more"),
            lambda: summaries.add(Summary("y", Compaction.MANUAL, 1, 1)),
            lambda: store.create(record("s"), SessionOptions()),
        ):
            with pytest.raises(StoreUnavailable, match=r"^this session was deleted$"):
                await writing()
        assert await repository.snapshot() is None
        assert await store.find("s") is None
        for table in ("told", "messages", "tool_overflow", "summaries"):
            assert await database.read(query(f"SELECT conversation_id FROM {table}")) == [("t",)]
        assert await database.read(CONVERSATIONS) == [("t",)]


# ------------------------------------------------------------------------------------------- forking


async def test_a_fork_has_all_of_its_source_and_goes_its_own_way(path):
    async with opened(path) as database:
        store = SessionStore(database)
        tally = UsageTotals(5, 6, Usage(1, 2, 3, 4), 0.5, calls=7)
        await store.create(record("s", prompts=3), SessionOptions(), tally)
        await store.of("s").write(Change((TextDelta("a", "m"), UsageChanged(1, 2)), HISTORY))
        references = [await overflow_of(database, "s").put(text) for text in ("one", "two")]
        await ConversationSummaries(database, "s").add(Summary("x", Compaction.MANUAL, 1, 1))
        conduct = SessionOptions(Mode.ARCHITECT, AutoApprove.AUTO_EDIT)
        target = SessionRecord("t", "/other", ("/x",), "copy", 5_000, 6_000, model="a:b")
        assert await store.fork("s", target, conduct)
        fork = store.of("t")
        saved, source = await fork.snapshot(), await store.of("s").snapshot()
        assert saved is not None
        assert source is not None
        assert saved.record == SessionRecord("t", "/other", ("/x",), "copy", 5_000, 6_000, 3, "a:b")
        assert (saved.options, saved.usage, saved.history) == (conduct, tally, HISTORY)
        assert [each async for each in fork.events()] == [each async for each in store.of("s").events()]
        assert [await overflow_of(database, "t").get(each) for each in references] == ["one", "two"]
        assert await database.read(query("SELECT text FROM summaries WHERE conversation_id = 't'")) == [("x",)]
        await fork.write(Change((UsageChanged(3, 4),), HistoryState()))
        assert await store.of("s").snapshot() == source
        assert len([each async for each in store.of("s").events()]) == 2
        assert await store.delete("s")
        assert [await overflow_of(database, "t").get(each) for each in references] == ["one", "two"]


async def test_a_fork_of_what_is_not_there_or_to_what_is_there_is_none(path):
    async with opened(path) as database:
        store = SessionStore(database)
        await store.create(record("s"), SessionOptions())
        await overflow_of(database, "outputs only").put("x")
        assert not await store.fork("never", record("t"), SessionOptions())
        assert not await store.fork("outputs only", record("t"), SessionOptions())
        assert await store.find("t") is None
        with pytest.raises(StoreUnavailable, match="is there already"):
            await store.fork("s", record("s"), SessionOptions())
        assert await store.find("s") == record("s")


# ------------------------------------------------------------------------------------------- purging


async def test_sessions_nobody_used_go_after_a_while_but_for_those_in_use(path):
    now = [0.0]
    async with opened(path) as database:
        store = SessionStore(database, lambda: now[0])
        for number in range(250):
            await store.create(SessionRecord(f"unused {number:03}", "/"), SessionOptions())
        await store.create(SessionRecord("in use", "/"), SessionOptions())
        await store.create(SessionRecord("prompted", "/"), SessionOptions())
        await store.of("prompted").write(Change(prompted=1))
        await ConversationSummaries(database, "no session", lambda: now[0]).add(Summary("x", Compaction.MANUAL, 1, 1))
        await OverflowStore(database, max_bytes=0, conversation_bytes=0, now=lambda: now[0]).of("outputs").put("x")
        now[0] = 5 * DAY
        await store.create(SessionRecord("young", "/"), SessionOptions())
        assert await store.purge_unused(7, {"in use"}.__contains__) == 0
        now[0] = 8 * DAY
        assert await store.purge_unused(7, {"in use"}.__contains__) == 251
        assert await database.read(CONVERSATIONS) == [("in use",), ("outputs",), ("prompted",), ("young",)]
        with pytest.raises(StoreUnavailable, match="deleted"):
            await store.create(SessionRecord("unused 001", "/"), SessionOptions())
        now[0] = 50 * DAY
        assert await store.purge_unused(365, set[str]().__contains__) == 0
        assert await database.read(query("SELECT count(*) FROM deleted_conversations")) == [(0,)]


async def test_a_session_taken_into_use_while_the_unused_are_removed_stays(path):
    async with opened(path) as database, opened(path) as elsewhere:
        store = SessionStore(database, lambda: 100.0 * DAY)
        for name in ("a", "b"):
            await store.create(record(name, 1, prompts=0), SessionOptions())
        with closing(others(path)) as other:

            def in_use(name: str) -> bool:
                other.execute("UPDATE conversations SET prompts = 1 WHERE id = 'b'")
                return False

            assert await store.purge_unused(7, in_use) == 1
        assert names(await SessionStore(elsewhere).page()) == ["b"]


# ----------------------------------------------------------------------------------------- migrating


async def test_a_file_of_version_2_keeps_what_it_has(path):
    path.parent.mkdir()
    with closing(others(path)) as connection:
        migrate(connection, MIGRATIONS[:2])
        connection.execute("INSERT INTO conversations VALUES ('s', 1234)")
        key = "00000000-0000-4000-8000-000000000000"
        rows = [(number, key[:-1] + str(number), b"text %d" % number) for number in range(3, 0, -1)]
        connection.executemany("INSERT INTO tool_overflow VALUES (?, ?, 's', 1234, 6, ?)", rows)
        connection.execute("INSERT INTO summaries VALUES (9, 's', 1234, 'manual', 1, 2, 'sum')")
    async with opened(path) as database:
        store, overflow = SessionStore(database), overflow_of(database, "s")
        assert await overflow.get(rows[0][1]) == "text 3"
        assert await database.read(query("SELECT seq FROM tool_overflow ORDER BY id")) == [(1,), (2,), (3,)]
        assert await database.read(query("SELECT text FROM summaries")) == [("sum",)]
        assert await database.read(query("SELECT id, created_at FROM conversations")) == [("s", 1_234_000)]
        assert await store.page(prompted=False) == ()
        await store.create(record("s"), SessionOptions())
        saved = await store.of("s").snapshot()
        assert saved is not None
        assert (saved.record, saved.history) == (record("s"), HistoryState())
        assert await store.delete("s")
        assert await database.read(query("SELECT count(*) FROM tool_overflow")) == [(0,)]
    assert integrity(path) == "ok"


async def test_an_id_of_an_output_is_one_conversations_only(path):
    async with opened(path) as database:
        reference = await overflow_of(database, "a").put("mine")
        await overflow_of(database, "b").put("yours")
        copy = "INSERT INTO tool_overflow (id, conversation_id, created_at, bytes, content) VALUES (?, ?, 0, 1, x'41')"
        key = reference.removeprefix("overflow:")
        await database.write(query(copy, key, "b"))
        assert await overflow_of(database, "a").get(reference) == "mine"
        assert await overflow_of(database, "b").get(reference) == "A"
        with pytest.raises(StoreUnavailable, match="UNIQUE"):
            await database.write(query(copy, key, "a"))


# ----------------------------------------------------------------------------------- from elsewhere


async def test_a_session_from_elsewhere_is_kept_with_all_that_is_its_own(path):
    told = [
        StoredEvent(7, 10, TextDelta("a", "m")),
        StoredEvent(9, 20, TextDelta("b", "m")),
        StoredEvent(10, 30, UsageChanged(1, 2)),
    ]
    saved = SessionSnapshot(record("here", prompts=2), SessionOptions(Mode.ASK), UsageTotals(used=5, calls=3), HISTORY)
    async with opened(path) as database:
        store = SessionStore(database)
        await store.import_session(saved, told)
        assert await store.of("here").snapshot() == saved
        kept = [each async for each in store.of("here").events()]
        assert kept == [replace(each, seq=seq) for seq, each in enumerate(told, 1)]
        await store.of("here").write(Change(events=(TextDelta("c", "n"),)))
        assert [each.seq async for each in store.of("here").events()] == [1, 2, 3, 4]


async def test_of_a_session_from_elsewhere_that_cannot_be_kept_nothing_is(path):
    nested: JsonObject = {}
    for _ in range(100_000):
        nested = {"x": nested}
    told = [
        StoredEvent(1, 1, TextDelta("a", "m")),
        StoredEvent(2, 2, ToolStarted("c", "read", "Read", ToolKind.READ, nested)),
    ]
    async with opened(path) as database:
        store = SessionStore(database)
        with pytest.raises(StoreUnavailable, match="cannot be stored as JSON"):
            await store.import_session(SessionSnapshot(record("here"), SessionOptions(), UsageTotals(), HISTORY), told)
        assert await store.find("here") is None
        assert await store.page() == ()
