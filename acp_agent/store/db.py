"""The database: a SQLite file that many processes share. In each process one transaction at a time writes to it.

Writes that wait at the same time become one transaction (group commit), so that many busy sessions share its cost. If
one of them fails, each is run in a transaction of its own. Writes run in the connection's thread, apart from short
ones: the way to the thread and back takes longer than they do.

A committed write survives the death of the process (WAL, synchronous=NORMAL). If it is durable, the log is synced some
milliseconds later, and then the write survives a power cut too. No caller waits for that sync: it takes longer than the
write itself.

A writer waits for other processes up to five seconds. Every failure is raised as a StoreUnavailable that names its
cause: errors of sqlite3, aiosqlite and the file system are translated only here.
"""

import asyncio
import os
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

import aiosqlite
import anyio
import anyio.to_thread

from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.new_file import open_folder
from acp_agent.store.schema import (
    STATEMENT_WAIT,
    DatabaseDamaged,
    DatabaseOpener,
    IntegrityCheck,
    TransactionConnection,
    busy,
    cause,
    damaged,
    file_at,
)

T = TypeVar("T")
Step: TypeAlias = Callable[[TransactionConnection], T]
"""A function with the statements of one transaction. It may be repeated.

It runs in the connection's thread, or on the event loop if its write is short.
"""

_WRITING, _READING = "BEGIN IMMEDIATE", "BEGIN; PRAGMA schema_version"

_PAUSE = 0.01
"""Seconds between two attempts, for locks that SQLite itself does not wait for."""
_LEAVE = 0.25
"""Seconds a connection may take to roll back and to close. A slower one is abandoned and ends by itself."""
_END = 5.0
"""Seconds the last connections may take to close. Python would wait for their threads anyway."""
_ATTEMPTS = 10
_SYNC_DELAY = 0.01
"""Seconds between a commit and the sync of the log. Many commits share a sync, and it delays nothing that follows."""
_GROUP = 64
"""The most writes in one transaction. Other processes wait for it."""


class _Moved(OSError):
    """Another file is at the path, or none."""


class _Lane:
    """A connection and the lock that gives tasks their turn on it."""

    def __init__(self, path: str, *, reading: bool) -> None:
        self.path = path
        self.reading = reading
        self.turn = anyio.Lock(fast_acquire=True)
        self._connection: aiosqlite.Connection | None = None
        self._made: TransactionConnection | None = None  # the sqlite3 connection below `_connection`
        self._file: tuple[int, int] | None = None

    async def connection(self, check: IntegrityCheck, warn: Callable[[str], None]) -> aiosqlite.Connection:
        """Return the connection to the file that is at the path now.

        Raises StoreUnavailable, sqlite3.Error, OSError.
        """
        lost = False
        if self._connection is not None:
            # Writes to a file that was removed or set aside would be lost without an error.
            if await anyio.to_thread.run_sync(file_at, self.path) == self._file:
                return self._connection
            lost = True
            await self.drop()
        opening = DatabaseOpener(self.path, check, reading=self.reading)
        with anyio.CancelScope(shield=True):  # short; a cancellation would leave the connection open
            try:
                made = await anyio.to_thread.run_sync(opening)
            finally:  # a file may have been set aside even if the new one is locked
                for message in opening.messages:
                    warn(message)
            self._connection, self._made = await aiosqlite.Connection(lambda: made, 64), made
        assert self._connection is not None, "a shielded scope ends only with what was awaited"
        self._file = opening.file
        if lost and opening.made:
            warn(
                f"the database {self.path} was removed while it was in use, so a new one was created. Earlier sessions "
                "are lost; open sessions are stored from now on"
            )
        return self._connection

    async def run(self, step: Step[T], *, wait: float) -> T:
        """Run a whole transaction in the connection's thread. A write cannot be cancelled.

        Raises _Moved, and what the step raises.
        """
        connection, made = self._open()
        value: list[T] = []
        made.ahead.append(lambda: value.append(self._transact(made, step, wait)))
        with anyio.CancelScope(shield=not self.reading):
            await connection.commit()
        return value[0]

    def run_now(self, step: Step[T]) -> T:
        """Run a whole transaction at once in the caller's thread. The connection's own thread must be idle.

        It waits for no lock, and for the disk only at the first write to a new log. Raises _Moved, what the step
        raises, and sqlite3.Error.
        """
        _, made = self._open()
        if made.always_durable:
            raise sqlite3.OperationalError("every commit waits for the disk")
        return self._transact(made, step, 0.0)

    def _transact(self, made: TransactionConnection, step: Step[T], wait: float) -> T:
        if file_at(self.path) != self._file:
            raise _Moved(f"another file was put in place of {self.path}")
        return made.transact(_READING if self.reading else _WRITING, step, durable=False, wait=wait)

    async def empty_log(self) -> None:
        """Write the log back to the file. Cannot be cancelled. Raises _Moved, sqlite3.Error."""
        connection, made = self._open()
        made.ahead.append(made.empty_log)
        with anyio.CancelScope(shield=True):
            await connection.commit()

    def _open(self) -> tuple[aiosqlite.Connection, TransactionConnection]:
        if self._connection is None or self._made is None:
            raise _Moved("it was closed meanwhile")
        return self._connection, self._made

    @property
    def is_unfinished(self) -> bool:
        """Return whether a transaction is open while the thread is idle."""
        return self._made is not None and self._made.in_transaction

    async def roll_back(self) -> None:
        """End a transaction in any state, also one that still runs.

        A connection that cannot roll back is dropped; the next one is new.
        """
        if self._connection is not None and not await _settled(self._connection):
            await self.drop()

    async def drop(self, within: float = _LEAVE) -> None:
        """Interrupt and close the connection. Its thread ends with it."""
        connection, self._connection, self._made = self._connection, None, None
        if connection is not None:
            await _settled(connection)
            with anyio.move_on_after(within, shield=True), suppress(sqlite3.Error, ValueError):
                await connection.close()


async def _settled(connection: aiosqlite.Connection) -> bool:
    """Interrupt a connection and roll it back. Return whether that was possible. Cannot be cancelled."""
    for _ in range(_ATTEMPTS):  # the first interrupt does not reach a statement that waits for the thread
        with anyio.move_on_after(_LEAVE / _ATTEMPTS, shield=True), suppress(sqlite3.Error, ValueError):
            await connection.interrupt()
            await connection.rollback()  # in the thread, behind what was interrupted
            await connection.execute_fetchall("SELECT 1")  # an interrupt that reached no statement ends this one
            return True
    return False


class _LogSync:
    """The thread that syncs the log of a database to the disk after its commits.

    sync     syncs an open file. Raises OSError
    failed   called with the error of a sync
    """

    def __init__(self, path: str, sync: Callable[[int], None], failed: Callable[[BaseException], None]) -> None:
        self._log, self._folder = f"{path}-wal", os.path.dirname(path)
        self._sync_file = sync
        self._failed = failed
        self._thread = ThreadPoolExecutor(1, "sync of the database")
        self._asked = False
        self._timer: asyncio.TimerHandle | None = None
        self._synced: tuple[int, int] | None = None  # the log file whose folder was synced, so its name is on the disk

    def soon(self) -> None:
        """Sync what was committed until now, after some milliseconds."""
        if not self._asked:
            self._asked = True
            self._timer = asyncio.get_running_loop().call_later(_SYNC_DELAY, self.now)

    def now(self) -> None:
        """Sync at once what `soon` was asked to sync."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        try:
            self._thread.submit(self._sync_or_tell, asyncio.get_running_loop())
        except RuntimeError as error:  # no thread can be started
            self._asked = False
            self._failed(error)

    def _sync_or_tell(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sync the log, and wake the event loop only if that fails."""
        try:
            self._sync()
        except Exception as error:  # noqa: BLE001 - the disk fails, not the thread
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._failed, error)

    def _sync(self) -> None:
        self._asked = False  # commits from here on need another sync
        try:
            fd = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return  # the log was written back to the database, which SQLite syncs
        try:
            self._sync_file(fd)
            found = os.fstat(fd)
        finally:
            os.close(fd)
        if (found.st_dev, found.st_ino) != self._synced:
            with open_folder(self._folder) as folder:
                self._sync_file(folder)
            self._synced = found.st_dev, found.st_ino

    def close(self) -> None:
        """End the thread after the requested syncs. Blocks."""
        self._thread.shutdown()


class _Write(Generic[T]):
    """A write that waits for its transaction. `called` is set at its end, or when its task must run the next group."""

    def __init__(self, step: Step[T], *, durable: bool, short: bool) -> None:
        self.step = step
        self.short = short
        self.durable = durable
        self.called = asyncio.Event()
        self.given_up = False  # it fails if its transaction cannot begin; otherwise it would wait for the next one
        self._values: list[T] = []
        self._error: Exception | None = None

    def end(self, value: T) -> None:
        self._values.append(value)
        self.called.set()

    def fail(self, error: Exception) -> None:
        """Set the error that `value` raises."""
        self._error = error
        self.called.set()

    def value(self) -> T:
        if self._error is not None:
            raise self._error
        if not self._values:
            raise StoreUnavailable("the write was interrupted")
        return self._values[0]


class Database:
    """The database at an absolute path. It is created and opened at its first use and belongs to one event loop.

    warn        called with one line for the user: a damaged file was set aside, or the file is on a network
    patience    most seconds that any work waits for other processes
    sync        syncs an open file to the disk

    Reads have a connection of their own, so a write does not delay them. There is one read and one write at a time.
    Call `aclose` at the end: each connection has a thread, and Python waits for it.
    """

    def __init__(
        self,
        path: str,
        warn: Callable[[str], None],
        *,
        patience: float = 5.0,
        sync: Callable[[int], None] = os.fsync,
    ) -> None:
        self.path = path
        self._warn = warn
        self._patience = patience
        self._check = IntegrityCheck.QUICK  # how to check the file at the next connection
        self._writer = _Lane(path, reading=False)
        self._reader = _Lane(path, reading=True)
        self._log_sync = _LogSync(
            path, sync, lambda error: self._warn_once(f"the database {path} is not synced: {error}")
        )
        self._closed = False
        self._said: set[str] = set()
        self._waiting: list[_Write[Any]] = []
        self._leader: _Write[Any] | None = None  # the write whose task runs the transaction of all waiting writes

    async def write(
        self, step: Step[T], *, durable: bool = True, patience: float | None = None, short: bool = False
    ) -> T:
        """Run a transaction. It is committed when this returns, and rolled back if it raises.

        The write lock is held from the beginning, so what the step reads stays true until the end. It can be cancelled
        while it waits for others. Once it runs, it ends and this returns.

        durable     True if the write must soon survive a power cut, and not only the death of this process
        patience    seconds to wait for other processes, at most the database's own patience, which None means
        short       True if the step takes less than a millisecond: it may run on the event loop

        Raises:
            StoreUnavailable: The database cannot be used. Errors of `step` are raised too.

        """
        write = _Write(step, durable=durable, short=short)
        self._waiting.append(write)
        try:
            if self._leader is None:
                self._leader = write
            else:
                await self._called(write, patience)
            if self._leader is write and not await self._written_now(write):
                async with self._turn(self._writer, patience) as seconds:
                    await self._attempt(self._writer, self._write_group, seconds)
        finally:
            if write in self._waiting:
                self._waiting.remove(write)
            if self._leader is write:
                self._leader = next(iter(self._waiting), None)
                if self._leader is not None:
                    self._leader.called.set()
        return write.value()

    async def read(self, step: Step[T]) -> T:
        """Run a transaction that only reads and can be cancelled. All of it sees one state. Raises like `write`."""
        async with self._turn(self._reader, None) as seconds:
            return await self._attempt(self._reader, partial(self._reader.run, step), seconds)

    async def empty_log(self) -> None:
        """Empty the log, so that deleted data is gone from the disk.

        This takes milliseconds and waits for no other process. It does nothing while another process reads or writes.
        """
        with suppress(StoreUnavailable):
            async with self._turn(self._writer, 0):
                await self._connection(self._writer)
                await self._writer.empty_log()

    async def aclose(self) -> None:
        """Close the connections, without delay if the disk allows.

        Work under way is rolled back and fails, as does all later work.
        """
        self._closed = True
        await self._reader.drop(_END)
        await self._writer.drop(_END)  # the last connection that is closed writes the log back
        self._log_sync.now()
        with anyio.move_on_after(_END, shield=True):
            await anyio.to_thread.run_sync(self._log_sync.close, abandon_on_cancel=True)

    async def _called(self, write: _Write[Any], patience: float | None) -> None:
        """Wait until `write.called` is set. Raises StoreUnavailable after `patience`, unless the write runs already."""
        limit = None if patience is None else min(patience, self._patience) + _LEAVE
        try:
            await asyncio.sleep(0)  # short writes have run by then, without a timer for each
            if not write.called.is_set():
                with anyio.move_on_after(limit):
                    await write.called.wait()
        except anyio.get_cancelled_exc_class():
            if write in self._waiting:
                raise
        if write.called.is_set():
            return
        if write in self._waiting:
            raise self._unavailable("another process keeps it locked")
        write.given_up = True
        with anyio.CancelScope(shield=True):  # its transaction runs
            await write.called.wait()

    async def _written_now(self, write: _Write[Any]) -> bool:
        """Run the waiting writes on the event loop if all are short and no lock is held. Return whether they ran."""
        if not write.short or self._writer.turn.locked():
            return False
        await asyncio.sleep(0)  # let other sessions that are about to write join the group
        group = self._waiting[:_GROUP]
        if self._writer.turn.locked() or not all(each.short for each in group):
            return False
        try:
            values = self._writer.run_now(lambda connection: [each.step(connection) for each in group])
        except Exception:  # noqa: BLE001 - the thread repeats them, waits if it must, and meets the same error
            return False
        del self._waiting[: len(group)]
        self._end(group, values)
        return True

    async def _write_group(self, *, wait: float) -> None:
        """Run the waiting writes in one transaction, or each in its own if one fails.

        Raises _Moved and errors of locks; then the writes wait again. A single write raises all its errors.
        """
        group = self._waiting[:_GROUP]
        del self._waiting[:_GROUP]
        try:
            values = await self._writer.run(lambda connection: [write.step(connection) for write in group], wait=wait)
        except Exception as error:
            if isinstance(error, sqlite3.Error | OSError) and (isinstance(error, _Moved) or busy(error)):
                for write in group:
                    if write.given_up:
                        write.fail(self._unavailable(cause(error)))
                self._waiting[:0] = [write for write in group if not write.given_up]
                raise
            if len(group) == 1:
                raise
            await self._write_each(group)
        else:
            self._end(group, values)
        finally:
            for write in group:
                if write not in self._waiting:
                    write.called.set()  # also if this task was cancelled at the end of the process

    def _end(self, group: Sequence[_Write[Any]], values: Sequence[Any]) -> None:
        """Hand out the values of a transaction, and sync it if it must be durable."""
        for write, value in zip(group, values, strict=True):
            write.end(value)
        if any(write.durable for write in group):
            self._log_sync.soon()

    async def _write_each(self, group: Sequence[_Write[Any]]) -> None:
        """Run each write in a transaction of its own."""
        with anyio.CancelScope(shield=True):
            for write in group:
                run = partial(self._writer.run, write.step)
                try:
                    async with self._translated(self._writer):
                        self._end([write], [await self._attempt(self._writer, run, STATEMENT_WAIT)])
                except Exception as error:  # noqa: BLE001 - its caller gets it
                    write.fail(error)

    async def _attempt(self, lane: _Lane, run: Callable[..., Awaitable[T]], seconds: float) -> T:
        """Run a transaction, and open the file before if needed. It waits at most `seconds` for other processes."""

        async def attempt() -> T:
            with suppress(_Moved):
                return await run(wait=min(STATEMENT_WAIT, seconds))
            await self._connection(lane)
            return await run(wait=min(STATEMENT_WAIT, seconds))

        try:
            return await self._patiently(attempt, seconds)
        except BaseException as error:
            # A read that is cancelled still runs; a transaction that could not even be rolled back is open.
            if isinstance(error, anyio.get_cancelled_exc_class()) or lane.is_unfinished:
                await lane.roll_back()
            raise

    @asynccontextmanager
    async def _turn(self, lane: _Lane, patience: float | None) -> AsyncGenerator[float]:
        """Wait for the lane, and yield the seconds that its work may wait. Raise errors as StoreUnavailable."""
        seconds = self._patience if patience is None else min(patience, self._patience)
        with anyio.move_on_after(None if patience is None else seconds + _LEAVE) as limit:
            await lane.turn.acquire()
        if limit.cancelled_caught:  # the task that holds the lane waits for another process
            raise self._unavailable("another process keeps it locked")
        try:
            async with self._translated(lane):
                yield seconds
        finally:
            lane.turn.release()

    @asynccontextmanager
    async def _translated(self, lane: _Lane) -> AsyncGenerator[None]:
        """Raise errors as StoreUnavailable. A damaged file is checked before it is used again."""
        try:
            yield
        except (DatabaseDamaged, UnicodeDecodeError, sqlite3.Error, OSError) as error:
            if damaged(error):
                self._check = IntegrityCheck.THOROUGH
                await lane.drop()
            raise self._unavailable(cause(error)) from error
        except ValueError as error:
            if self._closed:  # aiosqlite raises ValueError then
                raise self._unavailable("it is closed") from error
            raise

    async def _connection(self, lane: _Lane) -> aiosqlite.Connection:
        if self._closed:
            raise self._unavailable("it is closed")
        connection = await lane.connection(self._check, self._warn_once)
        if self._closed:
            await lane.drop()
            raise self._unavailable("it is closed")
        self._check = IntegrityCheck.NONE
        return connection

    async def _patiently(self, step: Callable[[], Awaitable[T]], patience: float) -> T:
        """Repeat a step until no lock of another process is in its way, or the seconds are over."""
        deadline = anyio.current_time() + patience
        while True:
            try:
                return await step()
            except (sqlite3.Error, OSError) as error:
                if not busy(error) or anyio.current_time() >= deadline:
                    raise
            await anyio.sleep(_PAUSE)

    def _warn_once(self, message: str) -> None:
        if message not in self._said:  # both connections may find the same problem
            self._said.add(message)
            self._warn(message)

    def _unavailable(self, why: str) -> StoreUnavailable:
        return StoreUnavailable(f"the database {self.path} cannot be used: {why}")
