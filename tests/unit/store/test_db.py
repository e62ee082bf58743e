"""The database against all that can be wrong with it."""

import gc
import hashlib
import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread
import pytest

from acp_agent.core.errors import StoreUnavailable
from acp_agent.store import schema as db_opening
from acp_agent.store.db import Database, Step
from acp_agent.store.schema import (
    MIGRATIONS,
    VERSION,
    TransactionConnection,
    local_devices,
    migrate,
    network_file_system,
)
from tests.fakes.passing_time import all_tasks_blocked
from tests.unit.store.databases import CONVERSATIONS, add, integrity, opened, others, query

pytestmark = pytest.mark.anyio

ROOT_USER = os.geteuid() == 0

ALL = "SELECT id FROM conversations ORDER BY id"
INSERT = "INSERT INTO conversations (id, created_at) VALUES (?, 0)"
SYNCHRONOUS = query("PRAGMA synchronous")


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "data" / "agent.db"


@pytest.fixture(autouse=True, scope="module")
def _what_others_left() -> None:
    """What hundreds of tests before these have left need no collection here look at: it would take most of the time."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_thread_stays() -> Iterator[None]:
    before = threading.active_count()
    yield
    gc.collect()
    for thread in threading.enumerate():
        if "_connection_worker_thread" in thread.name:
            thread.join(5)
            assert not thread.is_alive()
    deadline = time.monotonic() + 5  # those of anyio end by themselves, soon after their last call
    while threading.active_count() > before + 1 and time.monotonic() < deadline:
        time.sleep(0.005)
    assert threading.active_count() <= before + 1, "a thread of anyio may stay for a while"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def settings(database, lane: str) -> dict[str, object]:
    def work(connection: sqlite3.Connection) -> dict[str, object]:
        names = ("journal_mode", "synchronous", "foreign_keys", "auto_vacuum", "query_only", "user_version")
        return {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names}

    return await getattr(database, lane)(work)


# ------------------------------------------------------------------------------------ as it should be


async def test_nothing_is_made_before_the_first_use(path):
    async with opened(path):
        assert not path.parent.exists()


async def test_a_new_database_and_all_beside_it_are_nobody_elses(path):
    old = os.umask(0)
    try:
        async with opened(path) as database:
            await database.write(add("a"))
            assert mode(path.parent) == 0o700
            names = {entry.name: mode(entry) for entry in path.parent.iterdir()}
    finally:
        os.umask(old)
    assert names == dict.fromkeys(("agent.db", "agent.db-wal", "agent.db-shm", "agent.db.lock"), 0o600)


async def test_every_connection_is_set_up(path):
    async with opened(path) as database:
        writer, reader = await settings(database, "write"), await settings(database, "read")
    expected = {"journal_mode": "wal", "synchronous": 1, "foreign_keys": 1, "auto_vacuum": 1, "user_version": VERSION}
    assert writer == {**expected, "query_only": 0}
    assert reader == {**expected, "query_only": 1}


async def test_what_was_written_is_there_after_a_restart_whatever_the_path_is_called(tmp_path):
    path = tmp_path / "50%?#é \udcff" / "a;b&mode=ro.db"
    async with opened(path) as database:
        await database.write(add("a"))
    async with opened(path) as database:
        assert await database.read(CONVERSATIONS) == [("a",)]


async def test_the_last_to_close_leaves_one_whole_file(path):
    async with opened(path) as database:
        await database.write(add("a"))
        await database.read(CONVERSATIONS)
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["agent.db", "agent.db.lock"]


async def test_what_was_deleted_is_neither_in_the_log_nor_in_the_file_once_the_log_is_emptied(path):
    def holding() -> set[str]:
        return {entry.name for entry in path.parent.iterdir() if b"obviously-secret" in entry.read_bytes()}

    async with opened(path) as database:
        await database.write(add("obviously-secret"))
        await database.read(CONVERSATIONS)
        await database.write(query("DELETE FROM conversations"))
        with closing(others(path)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM conversations").fetchall()
            await database.empty_log()
            assert path.with_name("agent.db-wal").stat().st_size, "nobody is waited for"
        await database.empty_log()
        await database.write(add("b"))
        assert await database.read(CONVERSATIONS) == [("b",)]
        await database.empty_log()
        assert path.with_name("agent.db-wal").stat().st_size == 0
    await database.empty_log()
    assert holding() == set()


async def test_a_file_that_others_could_read_is_closed_to_them(path):
    async with opened(path) as database:
        await database.write(add("a"))
    path.chmod(0o644)
    async with opened(path) as database:
        assert await database.read(CONVERSATIONS) == [("a",)]
    assert mode(path) == 0o600


async def test_who_reads_cannot_write(path):
    async with opened(path) as database:
        with pytest.raises(StoreUnavailable, match="read-only"):
            await database.read(add("a"))


async def test_a_mistake_in_the_statement_is_named(path):
    async with opened(path) as database:
        with pytest.raises(StoreUnavailable, match="no such table: nowhere"):
            await database.read(query("SELECT * FROM nowhere"))


async def test_reads_are_not_held_up_by_a_write_and_see_one_state(path):
    async with opened(path) as database, anyio.create_task_group() as tasks:
        began, go_on = threading.Event(), threading.Event()

        def slow(connection: sqlite3.Connection) -> None:
            connection.execute(INSERT, ("slow",))
            began.set()
            go_on.wait()

        tasks.start_soon(database.write, slow)
        await anyio.to_thread.run_sync(began.wait)
        assert await database.read(CONVERSATIONS) == []
        go_on.set()


async def test_writes_of_many_tasks_all_arrive(path):
    async with opened(path) as database:
        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(database.write, add(f"{number:02}"))
        assert len(await database.read(CONVERSATIONS)) == 50


# -------------------------------------------------------------------------------------------- at once


async def test_what_is_done_at_once_is_done_whole_or_not_at_all(path):
    def fails(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO conversations (id, created_at) VALUES ('lost', 0)")
        raise KeyError("mine")

    async with opened(path) as database:
        assert await database.write(lambda connection: connection.execute(INSERT, ("a",)).rowcount) == 1
        with pytest.raises(KeyError, match="mine"):
            await database.write(fails)
        with pytest.raises(StoreUnavailable, match="no such table: nowhere"):
            await database.write(lambda connection: connection.execute("DELETE FROM nowhere"))
        with pytest.raises(StoreUnavailable, match="read-only"):
            await database.read(lambda connection: connection.execute(INSERT, ("b",)).rowcount)
        assert await database.read(lambda connection: connection.execute(ALL).fetchall()) == [("a",)]
        await database.write(add("c"))
    with pytest.raises(StoreUnavailable, match="it is closed"):
        await database.write(lambda connection: None)


class Disk:
    """What was synced: the log or its folder. A sync waits until the disk is `free`, and fails with `error`."""

    def __init__(self) -> None:
        self.synced: list[str] = []
        self._changed = threading.Condition()
        self.free = threading.Event()
        self.free.set()
        self.error: OSError | None = None

    def sync(self, fd: int) -> None:
        self.free.wait()
        if self.error is not None:
            raise self.error
        with self._changed:
            self.synced.append("folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "log")
            self._changed.notify_all()

    async def has_synced(self, times: int, kind: str = "log") -> None:
        """Wait until the log, or its folder, was synced so often."""

        def wait() -> None:
            with self._changed:
                assert self._changed.wait_for(lambda: self.synced.count(kind) >= times, 30)

        await anyio.to_thread.run_sync(wait)


class Told(list[str]):
    """Warnings. `any` is set by the first."""

    def __init__(self) -> None:
        super().__init__()
        self.any = anyio.Event()

    def append(self, warning: str) -> None:
        super().append(warning)
        self.any.set()


async def test_only_what_must_survive_a_power_cut_is_synced_behind_its_commit(path):
    disk = Disk()
    async with opened(path, sync=disk.sync) as database:
        await database.write(add("a"), durable=False)
        await database.write(add("b"), durable=False, short=True)
        assert disk.synced == []
        await database.write(add("c"))
        await disk.has_synced(1, "folder")
        assert disk.synced == ["log", "folder"], "the new log has its name on the disk"
        await database.write(add("d"), short=True)
        await disk.has_synced(2)
        await database.write(add("e"))
        await disk.has_synced(3)


async def test_nobody_waits_for_the_disk_and_it_is_asked_once_for_all_that_comes_meanwhile(path):
    disk = Disk()
    async with opened(path, sync=disk.sync) as database:
        disk.free.clear()
        with anyio.fail_after(10):
            for number in range(20):
                await database.write(add(f"{number:02}"))
        assert len(await database.read(CONVERSATIONS)) == 20
        disk.free.set()
    assert disk.synced.count("log") <= 3


async def test_a_commit_just_before_the_end_is_synced(path):
    disk = Disk()
    async with opened(path) as other:  # whose connection keeps the log
        await other.write(add("first"), durable=False)
        async with opened(path, sync=disk.sync) as database:
            await database.write(add("last"))
        assert "log" in disk.synced


async def test_a_write_that_ends_while_the_database_is_closed_is_told_as_what_it_is(path):
    async with opened(path) as database:
        await database.write(add("first"))
        began, go_on = threading.Event(), threading.Event()
        told = list[object]()

        def slow(connection: sqlite3.Connection) -> None:
            add("slow")(connection)
            began.set()
            go_on.wait(0.2)

        async def write() -> None:
            try:
                told.append(await database.write(slow))
            except StoreUnavailable as error:
                told.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            await anyio.to_thread.run_sync(began.wait)
            await database.aclose()
    async with opened(path) as database:
        stored = ("slow",) in await database.read(CONVERSATIONS)
    assert [outcome is None for outcome in told] == [stored]


async def test_without_a_thread_for_the_disk_a_write_counts_and_the_next_one_is_synced(path, monkeypatch):
    disk, warnings = Disk(), Told()

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with opened(path, warnings, sync=disk.sync) as database:
        await database.write(add("a"), durable=False)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", no_thread)
            await database.write(add("b"), short=True)
            await warnings.any.wait()
        await database.write(add("c"))
        await disk.has_synced(1)
    assert warnings == [f"the database {path} is not synced: can't start new thread"]


async def test_a_log_that_cannot_be_opened_is_told(path, monkeypatch):
    warnings, opens = Told(), os.open

    def full(name: Any, *more: Any) -> int:
        if str(name).endswith("-wal"):
            raise OSError(24, "Too many open files")
        return opens(name, *more)

    async with opened(path, warnings) as database:
        monkeypatch.setattr(os, "open", full)
        await database.write(add("a"))
        await warnings.any.wait()
    assert warnings == [f"the database {path} is not synced: [Errno 24] Too many open files"]


async def test_a_disk_that_cannot_be_synced_is_told_once_and_the_writes_count(path):
    disk, warnings = Disk(), Told()
    disk.error = OSError(5, "Input/output error")
    async with opened(path, warnings, sync=disk.sync) as database:
        for name in "ab":
            await database.write(add(name))
            await all_tasks_blocked()
            await warnings.any.wait()
        assert await database.read(CONVERSATIONS) == [("a",), ("b",)]
    assert warnings == [f"the database {path} is not synced: [Errno 5] Input/output error"]


async def test_who_has_no_patience_does_not_wait_for_another_process_nor_for_who_does(path):
    async with opened(path, patience=1000) as database:

        async def write(name: str) -> None:
            await database.write(add(name), patience=0)

        await write("a")
        with closing(others(path)) as other:
            other.execute("BEGIN IMMEDIATE")
            with anyio.fail_after(10):
                with pytest.raises(StoreUnavailable, match="another process keeps it locked"):
                    await write("b")
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(database.write, add("c"))
                    await all_tasks_blocked()
                    with pytest.raises(StoreUnavailable, match="another process keeps it locked"):
                        await write("d")
                    other.execute("ROLLBACK")
        await write("e")
        assert await database.read(CONVERSATIONS) == [("a",), ("c",), ("e",)]


async def test_what_is_done_at_once_goes_into_the_file_that_is_there(path):
    warnings: list[str] = []
    async with opened(path, warnings) as database:
        await database.write(lambda connection: connection.execute(INSERT, ("lost",)).rowcount)
        path.unlink()
        await database.write(lambda connection: connection.execute(INSERT, ("kept",)).rowcount)
        assert await database.read(lambda connection: connection.execute(ALL).fetchall()) == [("kept",)]
    assert len(warnings) == 1


async def test_closing_ends_what_is_being_done_at_once(path):
    async with opened(path) as database:
        began, failed = threading.Event(), anyio.Event()

        def count(connection: sqlite3.Connection) -> None:
            connection.execute(INSERT, ("open",))
            began.set()
            connection.execute(LONG).fetchall()

        async def write() -> None:
            with pytest.raises(StoreUnavailable, match="closed"):
                await database.write(count)
            failed.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            await anyio.to_thread.run_sync(began.wait)
            await database.aclose()
            await failed.wait()
    async with opened(path) as database:
        assert await database.read(CONVERSATIONS) == []


# ----------------------------------------------------------------------------------- group commit


@pytest.fixture
def begun(monkeypatch) -> list[bool]:
    """Whether each transaction since was durable."""
    transact, seen = TransactionConnection.transact, list[bool]()

    def noted(connection: TransactionConnection, begin: str, step, *, durable: bool, wait: float):
        seen.append(durable)
        return transact(connection, begin, step, durable=durable, wait=wait)

    monkeypatch.setattr(TransactionConnection, "transact", noted)
    return seen


@asynccontextmanager
async def behind_a_write(database: Database, *, durable: bool = True) -> AsyncIterator[anyio.abc.TaskGroup]:
    """Tasks whose writes wait for one that runs, until the body is left."""
    began, go_on = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection) -> None:
        began.set()
        go_on.wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(database.write, slow, durable=durable))
        await anyio.to_thread.run_sync(began.wait)
        try:
            yield tasks
            await all_tasks_blocked()
        finally:
            go_on.set()


async def test_writes_that_wait_at_the_same_time_become_one_transaction(path, begun):
    async with opened(path) as database:
        async with behind_a_write(database) as tasks:
            for number in range(50):
                tasks.start_soon(database.write, add(f"{number:02}"))
        assert len(begun) == 2
        assert len(await database.read(CONVERSATIONS)) == 50


async def test_a_transaction_is_synced_if_one_of_its_writes_must_be(path):
    disk = Disk()
    async with opened(path, sync=disk.sync) as database:
        await database.write(add("a"), durable=False)
        async with behind_a_write(database, durable=False) as tasks:
            for name in "bc":
                tasks.start_soon(lambda name=name: database.write(add(name), durable=name == "c"))
        await disk.has_synced(1)

    disk.synced.clear()
    async with opened(path, sync=disk.sync) as database, behind_a_write(database, durable=False) as tasks:
        for name in "de":
            tasks.start_soon(lambda name=name: database.write(add(name), durable=False))
    assert disk.synced == []


async def test_a_write_that_fails_fails_alone(path):
    outcomes = dict[str, object]()

    def fails(connection: sqlite3.Connection) -> None:
        add("lost")(connection)
        raise KeyError("mine")

    async with opened(path) as database:

        async def write(name: str, step: Step[object]) -> None:
            try:
                outcomes[name] = await database.write(step)
            except (KeyError, StoreUnavailable) as error:
                outcomes[name] = str(error)

        async with behind_a_write(database) as tasks:
            tasks.start_soon(write, "a", add("a"))
            tasks.start_soon(write, "b", fails)
            tasks.start_soon(write, "c", query("DELETE FROM nowhere"))
            tasks.start_soon(write, "d", add("d"))
        assert (outcomes["a"], outcomes["b"], outcomes["d"]) == ([], "'mine'", [])
        assert "no such table: nowhere" in str(outcomes["c"])
        assert await database.read(CONVERSATIONS) == [("a",), ("d",)]


async def test_a_write_that_is_cancelled_while_it_waits_is_not_done_and_the_others_are(path):
    async with opened(path) as database:
        async with behind_a_write(database) as tasks:
            first = anyio.CancelScope()

            async def write() -> None:
                with first:
                    await database.write(add("cancelled"))

            tasks.start_soon(write)
            tasks.start_soon(database.write, add("a"))
            await all_tasks_blocked()
            first.cancel()
        assert first.cancelled_caught
        assert await database.read(CONVERSATIONS) == [("a",)]


async def test_a_write_that_is_cancelled_while_it_runs_with_others_returns(path):
    async with opened(path) as database:
        began, go_on, scope, returned = threading.Event(), threading.Event(), anyio.CancelScope(), list[object]()

        def slow(connection: sqlite3.Connection) -> None:
            began.set()
            go_on.wait()

        async def write() -> None:
            with scope:
                returned.append(await database.write(add("a")))

        async with behind_a_write(database) as tasks:
            tasks.start_soon(database.write, slow)
            await all_tasks_blocked()
            tasks.start_soon(write)
            tasks.start_soon(_cancelled_once_begun, began, scope, go_on)
        assert returned == [[]]
        assert await database.read(CONVERSATIONS) == [("a",)]


async def _cancelled_once_begun(began: threading.Event, scope: anyio.CancelScope, go_on: threading.Event) -> None:
    await anyio.to_thread.run_sync(began.wait)
    scope.cancel()
    await all_tasks_blocked()
    go_on.set()


async def test_a_write_that_led_and_was_cancelled_leaves_the_others_to_one_of_them(path):
    async with opened(path, patience=1000) as database:
        await database.write(add("a"))
        with closing(others(path)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with anyio.create_task_group() as tasks:
                with anyio.move_on_after(0.05) as scope:
                    tasks.start_soon(database.write, add("c"))
                    await database.write(add("b"))
                assert scope.cancelled_caught
                other.execute("ROLLBACK")
        assert await database.read(CONVERSATIONS) == [("a",), ("c",)]


@pytest.mark.parametrize("seed", range(3))
async def test_what_was_written_is_stored_and_what_failed_or_was_cancelled_is_not(path, seed):
    chance, over, stored = Random(seed), anyio.Event(), set[str]()

    async def lock() -> None:
        with closing(others(path)) as other:
            while not over.is_set():
                await anyio.sleep(chance.random() * 0.02)
                with suppress(sqlite3.OperationalError):
                    other.execute("BEGIN IMMEDIATE")
                    await anyio.sleep(chance.choice([0.001, 0.001, 0.05]))
                    other.execute("ROLLBACK")

    async def write(name: str) -> None:
        fails, patience = chance.random() < 0.1, chance.choice([None, 0, 0.01])

        def step(connection: sqlite3.Connection) -> str:
            add(name)(connection)
            if fails:
                raise KeyError(name)
            return name

        with anyio.move_on_after(chance.choice([None, 0, 0.002, 0.02])), suppress(KeyError, StoreUnavailable):
            stored.add(await database.write(step, durable=False, patience=patience))

    async def work(worker: int) -> None:
        for number in range(20):
            await write(f"{worker:02}-{number:02}")
            await anyio.sleep(chance.random() * 0.002)

    async with opened(path) as database:
        await database.write(add("first"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lock)
            async with anyio.create_task_group() as workers:
                for worker in range(10):
                    workers.start_soon(work, worker)
            over.set()
        assert await database.read(CONVERSATIONS) == [(name,) for name in sorted(stored | {"first"})]


# --------------------------------------------------------------------------------------- cancellation

LONG = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
"""Counts for ever."""


async def test_a_cancelled_read_leaves_the_connection_usable(path):
    async with opened(path) as database:
        await database.write(add("a"))
        with anyio.move_on_after(0.05) as scope:
            await database.read(query(LONG))
        assert scope.cancelled_caught
        assert await database.read(CONVERSATIONS) == [("a",)]


async def test_a_write_that_waits_for_a_lock_can_be_cancelled_and_the_database_closed(path):
    async with opened(path, patience=1000) as database:
        await database.write(add("a"))
        with closing(others(path)) as other:
            other.execute("BEGIN IMMEDIATE")
            with anyio.move_on_after(0.05) as scope:
                await database.write(add("b"))
            assert scope.cancelled_caught
            assert await database.read(CONVERSATIONS) == [("a",)]


async def test_after_closing_all_that_follows_says_so(path):
    async with opened(path) as database:
        await database.write(add("a"))
        await database.aclose()
        for use in (database.read, database.write):
            with pytest.raises(StoreUnavailable, match="it is closed"):
                await use(CONVERSATIONS)
        await database.aclose()


async def test_closing_waits_for_a_disk_that_takes_its_time(path, monkeypatch):
    begun, disk = threading.Event(), threading.Event()
    close = TransactionConnection.close

    def slow(connection: TransactionConnection) -> None:
        begun.set()
        disk.wait()
        close(connection)

    monkeypatch.setattr(TransactionConnection, "close", slow)
    monkeypatch.setattr("acp_agent.store.db._Lane.drop.__defaults__", (0.05,))
    database = Database(str(path), print)
    await database.write(add("a"))
    closed = anyio.Event()

    async def end() -> None:
        await database.aclose()
        closed.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(end)
        await anyio.to_thread.run_sync(begun.wait)
        with anyio.move_on_after(0.1):  # longer than a connection has that another one follows
            await closed.wait()
        early = closed.is_set()
        disk.set()
        await closed.wait()
    assert not early


async def test_closing_while_the_file_is_being_opened_leaves_nothing_open(path):
    async with opened(path) as database, anyio.create_task_group() as tasks:

        async def write() -> None:
            with pytest.raises(StoreUnavailable, match="closed"):
                await database.write(add("a"))

        tasks.start_soon(write)
        await anyio.lowlevel.checkpoint()
        await database.aclose()


# ------------------------------------------------------------------------------------ other processes


async def test_a_lock_that_ends_in_time_is_waited_for(path):
    async with opened(path) as database:
        await database.write(add("a"))
        with closing(others(path)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(database.write, add("b"))
                await anyio.sleep(0.3)
                await anyio.to_thread.run_sync(other.execute, "COMMIT")
        assert await database.read(CONVERSATIONS) == [("a",), ("b",)]


async def test_a_lock_that_does_not_end_is_an_error_that_says_so(path):
    async with opened(path, patience=0.2) as database:
        await database.write(add("a"))
        with closing(others(path)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="another process keeps it locked"):
                await database.write(add("b"))
            assert await database.read(CONVERSATIONS) == [("a",)]
        await database.write(add("c"))


async def test_a_lock_on_all_of_the_file_is_waited_for_when_it_is_opened_too(path):
    path.parent.mkdir()
    with closing(others(path)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        other.execute("CREATE TABLE mine(x)")
        async with opened(path, patience=0.2) as database:
            with pytest.raises(StoreUnavailable, match="another process keeps it locked"):
                await database.read(CONVERSATIONS)
        async with opened(path) as database, anyio.create_task_group() as tasks:
            tasks.start_soon(database.write, add("a"))
            await anyio.sleep(0.15)
            await anyio.to_thread.run_sync(other.close)


async def test_many_that_open_a_new_database_at_once_agree_on_it(path):
    warnings: list[str] = []

    async def use(number: int) -> None:
        async with opened(path, warnings) as database:
            await database.write(add(str(number)))

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(use, number)
    async with opened(path, warnings) as database:
        assert len(await database.read(CONVERSATIONS)) == 8
    assert warnings == []


# ------------------------------------------------------------------------------------------- damage


async def filled(path: Path, rows: int = 2000) -> None:
    def work(connection: sqlite3.Connection) -> None:
        connection.executemany(
            "INSERT INTO conversations (id, created_at) VALUES (?, 0)",
            [(f"{number:05}" + "x" * 200,) for number in range(rows)],
        )

    async with opened(path) as database:
        await database.write(work)


def zero(path: Path, start: int, end: int) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(b"\xa5" * (end - start))


def set_aside(path: Path) -> list[Path]:
    return sorted(entry for entry in path.parent.iterdir() if ".corrupt-" in entry.name)


@pytest.mark.parametrize("wrong", ["header", "middle", "truncated", "text", "schema"])
async def test_a_damaged_file_is_set_aside_and_a_new_one_made(path, wrong):
    await filled(path)
    match wrong:
        case "header":
            zero(path, 0, 100)
        case "middle":
            zero(path, 60 * 4096, 90 * 4096)
        case "truncated":
            os.truncate(path, path.stat().st_size // 2)
        case "schema":  # SQLite's message repeats it, and is no UTF-8 then
            path.write_bytes(path.read_bytes().replace(b"CREATE TABLE memories", b"CREATE TAB\xffE memories"))
        case _:
            path.write_text("My notes\n" * 1000)
    damaged, warnings = path.read_bytes(), list[str]()
    async with opened(path, warnings) as database:
        await database.write(add("new"))
        assert await database.read(CONVERSATIONS) == [("new",)]
    (aside,) = set_aside(path)
    assert re.fullmatch(r"agent\.db\.corrupt-\d{8}T\d{6}Z", aside.name)
    assert aside.read_bytes() == damaged
    (warning,) = warnings
    assert str(aside) in warning
    assert "it is damaged" in warning or "it is no database" in warning
    async with opened(path, warnings) as database:
        assert await database.read(CONVERSATIONS) == [("new",)]
    assert len(warnings) == 1


async def test_the_log_goes_with_the_damaged_file_and_is_not_believed_by_the_new_one(path):
    await filled(path)
    with closing(others(path)) as other:
        other.execute("INSERT INTO conversations (id, created_at) VALUES ('in the log', 0)")
        zero(path, 60 * 4096, 90 * 4096)
        async with opened(path) as database:
            assert await database.read(CONVERSATIONS) == []
            await database.write(add("new"))
            other.execute("INSERT INTO conversations (id, created_at) VALUES ('in the old log', 0)")
        assert [entry.name.partition("Z")[2] for entry in set_aside(path)] == ["", "-shm", "-wal"]
    async with opened(path) as database:
        assert await database.read(CONVERSATIONS) == [("new",)]


async def test_two_files_damaged_within_a_second_are_both_kept(path):
    for _ in range(2):
        await filled(path, 10)
        zero(path, 0, 100)
        async with opened(path) as database:
            await database.write(add("new"))
        path.write_text("x" * 5000)
    async with opened(path) as database:
        await database.write(add("new"))
    assert len(set_aside(path)) >= 3


async def test_damage_met_while_running_is_an_error_and_then_a_new_file(path):
    await filled(path)
    warnings: list[str] = []
    async with opened(path, warnings) as database:
        await database.write(query("SELECT 1"))
        zero(path, 60 * 4096, 90 * 4096)
        with pytest.raises(StoreUnavailable, match="it is damaged"):
            await database.read(query("SELECT sum(length(id)) FROM conversations NOT INDEXED"))
        assert await database.read(CONVERSATIONS) == []
        await database.write(add("new"))
        assert await database.read(CONVERSATIONS) == [("new",)]
    assert len(warnings) == 1


async def test_a_large_file_is_looked_through_only_when_a_statement_met_damage(path):
    await filled(path)
    zero(path, 60 * 4096, 90 * 4096)
    os.truncate(path, db_opening.CHECKED_BYTES + 1)  # sparse; SQLite goes by the number of pages in its header
    warnings: list[str] = []
    async with opened(path, warnings) as database:
        await database.read(query("SELECT 1"))
        assert warnings == []
        with pytest.raises(StoreUnavailable, match="it is damaged"):
            await database.read(query("SELECT sum(length(id)) FROM conversations NOT INDEXED"))
        assert await database.read(CONVERSATIONS) == []
    assert len(warnings) == 1


async def test_two_that_find_the_same_damage_set_it_aside_once(path):
    await filled(path)
    zero(path, 0, 100)
    warnings: list[str] = []

    async def use(number: int) -> None:
        async with opened(path, warnings) as database:
            await database.write(add(str(number)))

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(use, number)
    async with opened(path, warnings) as database:
        assert len(await database.read(CONVERSATIONS)) == 4
    assert len(warnings) == 1


# ------------------------------------------------------------------------------------------ versions


async def test_a_newer_database_is_refused_by_name_and_left_as_it_is(path):
    await filled(path, 10)
    with closing(others(path)) as other:
        other.execute(f"PRAGMA user_version = {VERSION + 7}")
    before = path.read_bytes()
    async with opened(path) as database:
        for use in (database.read, database.write):
            with pytest.raises(StoreUnavailable, match=rf"is {VERSION + 7}, .* up to {VERSION};"):
                await use(CONVERSATIONS)
    assert path.read_bytes() == before
    assert set_aside(path) == []


def test_a_file_of_any_age_is_brought_up_to_date_and_keeps_what_it_has():
    steps = (*MIGRATIONS, ("CREATE TABLE later (x)", "INSERT INTO later VALUES (7)"), ("ALTER TABLE later ADD y",))
    for age in range(len(steps) + 1):
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            migrate(connection, steps[:age])
            if age:
                connection.execute("INSERT INTO conversations (id, created_at) VALUES ('kept', 0)")
            migrate(connection, steps)
            migrate(connection, steps)
            assert connection.execute("SELECT x, y FROM later").fetchall() == [(7, None)]
            assert connection.execute("PRAGMA user_version").fetchone() == (len(steps),)
            assert connection.execute("SELECT count(*) FROM conversations").fetchone() == (min(age, 1),)


def test_a_migration_that_fails_leaves_the_file_as_it_was():
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            migrate(connection, (*MIGRATIONS, ("INSERT INTO nowhere VALUES (1)",)))
        assert connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)
        assert connection.execute("PRAGMA user_version").fetchone() == (0,)


RELEASED = (
    "f74342a913336ae7",
    "a6e5a92a35f4da78",
    "0980ca51ddf13b02",
    "80606bd2d8e84ea3",
    "1eb5f75f1fd3eec5",
    "f0c4754b3081d7c8",
)


def test_no_migration_that_files_have_behind_them_was_changed():
    assert [hashlib.sha256("\0".join(steps).encode()).hexdigest()[:16] for steps in MIGRATIONS] == list(RELEASED)


# --------------------------------------------------------------------------- the file and its folder


async def test_a_file_removed_while_in_use_is_made_anew_and_said(path):
    warnings: list[str] = []
    async with opened(path, warnings) as database:
        await database.write(add("lost"))
        assert await database.read(CONVERSATIONS) == [("lost",)]
        path.unlink()
        await database.write(add("kept"))
        assert await database.read(CONVERSATIONS) == [("kept",)]
    assert [warning for warning in warnings if "removed while it was in use" in warning] == warnings
    assert len(warnings) == 1
    assert integrity(path) == "ok"


async def test_a_folder_removed_while_in_use_is_made_anew(path):
    async with opened(path) as database:
        await database.write(add("lost"))
        shutil.rmtree(path.parent)
        await database.write(add("kept"))
    async with opened(path) as database:
        assert await database.read(CONVERSATIONS) == [("kept",)]


async def test_two_processes_go_on_with_one_file_after_it_was_removed(path):
    async with opened(path) as one, opened(path) as two:
        await one.write(add("lost"))
        await two.write(add("lost too"))
        path.unlink()
        await one.write(add("one"))
        await two.write(add("two"))
        await one.write(add("one again"))
        assert await two.read(CONVERSATIONS) == [("one",), ("one again",), ("two",)]
    assert integrity(path) == "ok"


async def test_a_link_in_place_of_the_file_is_refused(path, tmp_path):
    await filled(tmp_path / "elsewhere.db", 1)
    path.parent.mkdir()
    path.symlink_to(tmp_path / "elsewhere.db")
    async with opened(path) as database:
        with pytest.raises(StoreUnavailable, match=r"a link stands in place of .*agent\.db"):
            await database.write(add("a"))


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal", ".lock"])
async def test_a_link_in_place_of_a_file_beside_it_is_refused(path, tmp_path, suffix):
    await filled(path, 1)
    target = tmp_path / "target"
    target.write_text("precious")
    Path(f"{path}{suffix}").unlink(missing_ok=True)
    Path(f"{path}{suffix}").symlink_to(target)
    async with opened(path) as database:
        with pytest.raises(StoreUnavailable, match="a link stands in"):
            await database.write(add("a"))
    assert target.read_text() == "precious"


async def test_a_folder_or_a_pipe_in_place_of_the_file_is_refused(path):
    for make in (os.mkdir, os.mkfifo):
        path.parent.mkdir()
        make(path)
        async with opened(path) as database:
            with pytest.raises(StoreUnavailable, match="is not a regular file"):
                await database.write(add("a"))
        shutil.rmtree(path.parent)


@pytest.mark.skipif(not ROOT_USER, reason="only root can give files away")
async def test_a_file_of_somebody_else_is_refused(path):
    await filled(path, 1)
    os.chown(path, 12345, 12345)
    async with opened(path) as database:
        with pytest.raises(StoreUnavailable, match="belongs to another user"):
            await database.write(add("a"))


async def test_a_file_in_place_of_the_folder_is_an_error_that_says_so(path):
    path.parent.write_text("")
    async with opened(path) as database:
        with pytest.raises(StoreUnavailable, match=r"File exists|Not a directory"):
            await database.read(CONVERSATIONS)


AS_NOBODY = """
import anyio, os, sys
from pathlib import Path
from acp_agent.core.errors import StoreUnavailable
from tests.unit.store.databases import CONVERSATIONS, add, opened
async def main():
    if os.geteuid() == 0:  # after the imports: the interpreter may be root's own
        os.setgroups([])
        os.setgid(12345)
        os.setuid(12345)
    async with opened(Path(sys.argv[1])) as database:
        for use, work in ((database.read, CONVERSATIONS), (database.write, add("b"))):
            try:
                print("done", await use(work))
            except StoreUnavailable as error:
                print("unavailable:", error)
anyio.run(main)
"""


@pytest.mark.parametrize("what", ["file", "folder"])
async def test_what_is_read_only_is_an_error_that_says_so(path, tmp_path, what):
    await filled(path, 1)
    path.chmod(0o400)
    path.parent.chmod(0o500 if what == "folder" else 0o700)
    if ROOT_USER:  # who may write everything gives it away and becomes somebody else
        for parent in (tmp_path, *tmp_path.parents):
            if parent.stat().st_uid == 0 and not parent.stat().st_mode & 0o001:
                parent.chmod(0o711)
        for entry in (path.parent, *path.parent.iterdir()):
            os.chown(entry, 12345, 12345)
    if what == "folder":
        Path(f"{path}.lock").unlink()
    done = await anyio.run_process([sys.executable, "-c", AS_NOBODY, str(path)])
    path.parent.chmod(0o700)
    read, write = done.stdout.decode().splitlines()
    if what == "folder":
        assert "Permission denied" in read
        assert "Permission denied" in write
    else:
        assert read.startswith("done [('0000")
        assert "it is read-only" in write


# ---------------------------------------------------------------------------------------- a full disk


async def test_a_full_database_is_an_error_that_says_so_and_what_was_there_stays(path):
    async with opened(path) as database:
        await database.write(add("kept"))

        def too_much(connection: sqlite3.Connection) -> None:
            connection.execute("PRAGMA max_page_count = 20")
            connection.execute(INSERT, ("x" * 1_000_000,))

        with pytest.raises(StoreUnavailable, match="the disk is full"):
            await database.write(too_much)
        assert await database.read(CONVERSATIONS) == [("kept",)]
        await database.write(add("more"))
    assert integrity(path) == "ok"


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A disk of 2 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("no disk can be mounted here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)


async def test_a_disk_that_is_full_loses_nothing_and_works_again_when_there_is_room(small_disk):
    path = small_disk / "data" / "agent.db"
    kept: list[str] = []
    async with opened(path) as database:
        with pytest.raises(StoreUnavailable, match="the disk is full"):  # noqa: PT012 - at some point on the way
            while True:
                await database.write(add(f"{len(kept):03}" + "x" * 20_000))
                kept.append(f"{len(kept):03}")
        assert kept
        assert [row[0][:3] for row in await database.read(CONVERSATIONS)] == kept
    async with opened(path) as database:
        assert [row[0][:3] for row in await database.read(CONVERSATIONS)] == kept
    await anyio.run_process(["mount", "-o", "remount,size=8m", str(small_disk)])
    async with opened(path) as database:
        await database.write(add("999" + "x" * 20_000))
        assert [row[0][:3] for row in await database.read(CONVERSATIONS)] == [*kept, "999"]
    assert integrity(path) == "ok"


async def test_a_disk_with_no_room_at_all_is_an_error_that_says_so(small_disk):
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    async with opened(small_disk / "data" / "agent.db") as database:
        with pytest.raises(StoreUnavailable, match=r"the disk is full|No space left|cannot be read or written"):
            await database.write(add("a"))
        filler.unlink()
        await database.write(add("b"))
        assert await database.read(CONVERSATIONS) == [("b",)]


# ------------------------------------------------------------------------------- disks of elsewhere

MOUNTS = """22 1 254:1 / / rw,relatime - ext4 /dev/vda1 rw
31 22 {device} / /home rw,relatime shared:3 master:1 - {kind} server:/home rw,vers=4.2
broken
"""


def mounts(folder: Path, kind: str) -> str:
    device = folder.stat().st_dev
    file = folder / "mountinfo"
    file.write_text(MOUNTS.format(device=f"{os.major(device)}:{os.minor(device)}", kind=kind))
    return str(file)


def test_a_network_file_system_is_told_by_its_device(tmp_path):
    assert network_file_system(str(tmp_path), mounts(tmp_path, "nfs4")) == "nfs4"
    assert network_file_system(str(tmp_path), mounts(tmp_path, "9p")) == "9p"
    assert network_file_system(str(tmp_path), mounts(tmp_path, "btrfs")) is None
    assert network_file_system(str(tmp_path), str(tmp_path / "nothing")) is None


def test_folders_are_on_devices_that_answer_at_once_if_the_kernel_lists_no_network_under_them(tmp_path):
    there, missing = str(tmp_path), str(tmp_path / "not" / "yet")
    assert local_devices((there, missing), mounts(tmp_path, "btrfs")) == {tmp_path.stat().st_dev}
    for kind in ("nfs4", "fuse.gcsfuse", "fuse", "autofs"):
        for folder in (there, missing):
            assert local_devices((folder,), mounts(tmp_path, kind)) == frozenset(), kind
    assert local_devices((there,), str(tmp_path / "nothing")) == frozenset(), "nobody tells"


async def test_on_a_network_file_system_there_is_a_journal_and_a_warning(path, tmp_path, monkeypatch):
    listing = mounts(tmp_path, "nfs4")
    monkeypatch.setattr(db_opening, "network_file_system", lambda folder: network_file_system(folder, listing))
    await filled(path, 5)
    warnings: list[str] = []
    async with opened(path, warnings) as database:
        await database.write(add("a"))
        assert len(await database.read(CONVERSATIONS)) == 6
        assert (await settings(database, "write"))["journal_mode"] == "delete"
        assert not Path(f"{path}-wal").exists()
        assert await database.write(SYNCHRONOUS, durable=False) == [(2,)], "without a log that could damage the file"
        assert (await settings(database, "read"))["journal_mode"] == "delete"
    (warning,) = warnings
    assert "is on a network file system (nfs4)" in warning
