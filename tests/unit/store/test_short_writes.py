"""Short writes are run on the event loop, unless anything is in their way."""

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.events import TextDelta
from acp_agent.core.messages import ImagePart, Message, Role, TextPart
from acp_agent.core.session_options import SessionOptions
from acp_agent.core.sessions import Change, HistoryState, SessionRecord
from acp_agent.store.db import Database
from acp_agent.store.schema import TransactionConnection
from acp_agent.store.sessions import SessionStore
from tests.fakes.passing_time import all_tasks_blocked
from tests.unit.store.databases import CONVERSATIONS, add, opened, others

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "data" / "agent.db"


@pytest.fixture
def threads(monkeypatch) -> list[threading.Thread]:
    """The thread of each transaction that was begun since."""
    seen: list[threading.Thread] = []
    transact = TransactionConnection.transact

    def noted(connection: TransactionConnection, begin: str, step, *, durable: bool, wait: float):
        seen.append(threading.current_thread())
        return transact(connection, begin, step, durable=durable, wait=wait)

    monkeypatch.setattr(TransactionConnection, "transact", noted)
    return seen


async def test_only_short_writes_stay_in_the_thread_of_the_loop(path, threads):
    here = threading.current_thread()
    async with opened(path) as database:
        await database.write(add("a"))
        for durable, short, stays in (
            (False, True, True),
            (True, True, True),
            (True, False, False),
            (False, False, False),
        ):
            threads.clear()
            await database.write(add(f"{durable}{short}"), durable=durable, short=short)
            assert [thread is here for thread in threads] == [stays]
        assert len(await database.read(CONVERSATIONS)) == 5


async def test_those_that_come_at_the_same_time_become_one_transaction(path, threads):
    async with opened(path) as database:
        await database.write(add("first"))
        threads.clear()
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(lambda number=number: database.write(add(f"{number}"), durable=False, short=True))
        assert threads == [threading.current_thread()]
        assert len(await database.read(CONVERSATIONS)) == 21


async def test_a_timer_is_started_only_for_a_write_whose_group_has_to_wait(path, monkeypatch):
    loop, timers = asyncio.get_running_loop(), list[float]()
    call_at = loop.call_at

    def noted(when: float, *args: Any, **more: Any) -> asyncio.TimerHandle:
        timers.append(when - loop.time())
        return call_at(when, *args, **more)

    async with opened(path, patience=1000) as database:
        await database.write(add("first"))

        async def write(name: str, patience: float | None) -> None:
            await database.write(add(name), durable=False, short=True, patience=patience)

        monkeypatch.setattr(loop, "call_at", noted)
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(write, f"{number}", 0.5)
        assert timers == []

        with closing(others(path)) as other:
            other.execute("BEGIN IMMEDIATE")
            with anyio.fail_after(20):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(write, "patient", None)
                    await all_tasks_blocked()
                    with pytest.raises(StoreUnavailable, match="another process keeps it locked"):
                        await write("hasty", 0)
                    other.execute("ROLLBACK")
        assert [seconds for seconds in timers if 0 < seconds < 0.5] != []
        assert {row[0] for row in await database.read(CONVERSATIONS)} == {"first", *"01234", "patient"}


async def test_a_write_that_is_cancelled_while_its_group_gathers_is_not_done(path):
    async with opened(path) as database:
        await database.write(add("first"))
        scope = anyio.CancelScope()

        async def write() -> None:
            with scope:
                await database.write(add("cancelled"), durable=False, short=True)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(database.write, add("kept"))
            tasks.start_soon(write)
            await anyio.lowlevel.checkpoint()
            scope.cancel()
        assert scope.cancelled_caught
        assert {row[0] for row in await database.read(CONVERSATIONS)} == {"first", "kept"}


async def test_one_that_fails_fails_alone(path):
    outcomes: list[str] = []

    def fails(connection: sqlite3.Connection) -> None:
        add("lost")(connection)
        raise KeyError("mine")

    async with opened(path) as database:
        await database.write(add("first"))

        async def write(name: str) -> None:
            try:
                await database.write(fails if name == "bad" else add(name), durable=False, short=True)
            except KeyError as error:
                outcomes.append(str(error))

        async with anyio.create_task_group() as tasks:
            for name in ("a", "bad", "b"):
                tasks.start_soon(write, name)
        assert outcomes == ["'mine'"]
        assert {row[0] for row in await database.read(CONVERSATIONS)} == {"first", "a", "b"}


async def test_the_loop_goes_on_while_another_process_writes(path, threads):
    async with opened(path, patience=30) as database:
        await database.write(add("a"))
        turns = 0
        with closing(others(path)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: database.write(add("b"), durable=False, short=True))
                while threads[-1] is threading.current_thread() or turns < 10:
                    await anyio.sleep(0.01)
                    turns += 1
                other.execute("COMMIT")
        assert len(await database.read(CONVERSATIONS)) == 2


async def test_the_log_is_written_back_only_in_the_thread(path):
    def pages(connection: sqlite3.Connection) -> int:
        return connection.execute("PRAGMA wal_autocheckpoint").fetchone()[0]

    async with opened(path) as database:
        assert await database.write(pages) == 1_000
        assert await database.write(pages, durable=False, short=True) == 0
        await database.empty_log()
        assert await database.write(pages, durable=False, short=True) == 0
        assert await database.write(pages, durable=False) == 1_000


async def test_long_events_and_messages_are_written_in_the_thread(path, threads):
    here = threading.current_thread()
    short, long = Message(Role.USER, (TextPart("a"),)), Message(Role.USER, (TextPart("a" * 20_000),))
    picture = Message(Role.USER, (ImagePart("image/png", "AAAA"),))
    stays: dict[str, bool] = {}
    database = Database(str(path), print)
    try:
        sessions = SessionStore(database)
        repository = await sessions.create(SessionRecord("s", "/", created_at=1, updated_at=1), SessionOptions())

        async def write(name: str, text: str, *messages: Message) -> None:
            threads.clear()
            await repository.write(Change((TextDelta(text, "m"),), HistoryState(messages)), durable=False)
            stays[name] = threads == [here]

        await write("unknown history", "a")
        await write("short", "a", short)
        await write("long text", "a" * 20_000, short)
        await write("long message", "a", short, long)
        await write("behind it", "a", short, long, short)
        await write("picture", "a", short, picture)
    finally:
        await database.aclose()
    wanted = {"unknown history", "long text", "long message", "behind it", "picture"}
    assert stays == {"short": True, **dict.fromkeys(wanted, False)}


async def test_a_note_that_is_added_to_the_last_message_is_written_in_the_loop(path, threads):
    """A cancelled turn ends with one, and the user waits for its answer."""
    here = threading.current_thread()
    first, answer, asked = (Message(role, (TextPart(role),)) for role in (Role.USER, Role.ASSISTANT, Role.USER))
    noted = Message(Role.USER, (*asked.parts, TextPart("cancelled")))
    database = Database(str(path), print)
    try:
        sessions = SessionStore(database)
        repository = await sessions.create(SessionRecord("s", "/", created_at=1, updated_at=1), SessionOptions())
        for messages, stays in (
            ((first, answer, asked), False),
            ((first, answer, noted), True),
            ((first, noted), False),  # more than the last one has changed
            ((first,), True),
            ((Message(Role.USER, (TextPart("a" * 20_000),)),), False),
        ):
            threads.clear()
            await repository.write(Change(history=HistoryState(messages)), durable=False)
            assert (threads == [here]) is stays
            snapshot = await repository.snapshot()
            assert snapshot is not None
            assert snapshot.history.messages == messages
    finally:
        await database.aclose()
