"""The one database: a SQLite file that any number of processes share, written by one task of each at a time.

A write that returned survives our death, and a power cut too where it was to be durable (WAL, synchronous=FULL, which
takes a quarter of a millisecond more). Whoever else writes is waited for, for five seconds. Every failure is a
StoreUnavailable that names its cause: this is the one place where the errors of sqlite3, of aiosqlite and of the file
system become ours.
"""

import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TypeAlias, TypeVar

import aiosqlite
import anyio
import anyio.to_thread

from acp_agent.core.errors import StoreUnavailable
from acp_agent.store.db_opening import (
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
Work: TypeAlias = Callable[[aiosqlite.Connection], Awaitable[T]]
"""Statements of one transaction. It begins and ends outside: no BEGIN, COMMIT or `executescript`, and no other I/O."""
Step: TypeAlias = Callable[[TransactionConnection], T]
"""The same, done at one go in the connection's thread. May be done again after others were in its way."""

_WRITING, _READING = "BEGIN IMMEDIATE", "BEGIN; PRAGMA schema_version"

_PAUSE = 0.01
"""Seconds between two attempts, for locks that SQLite does not wait for itself."""
_LEAVE = 0.25
"""Seconds a connection may take to roll back, and to close. One that takes longer is left to end by itself."""
_END = 5.0
"""Seconds it may take to close when no other comes after it: Python would wait for its thread anyway."""
_ATTEMPTS = 10


class _Moved(OSError):
    """Another file is at the path, or none."""


class _Lane:
    """A connection and the turns on it."""

    def __init__(self, path: str, *, reading: bool) -> None:
        self.path = path
        self.reading = reading
        self.turn = anyio.Lock(fast_acquire=True)
        self._connection: aiosqlite.Connection | None = None
        self._made: TransactionConnection | None = None  # what `_connection` hands its work to
        self._file: tuple[int, int] | None = None

    async def connection(self, check: IntegrityCheck, warn: Callable[[str], None]) -> aiosqlite.Connection:
        """The connection, to the file that is at the path now. Raises StoreUnavailable, sqlite3.Error, OSError."""
        lost = False
        if self._connection is not None:
            # A file that was removed or set aside would take what we write with it, unseen.
            if await anyio.to_thread.run_sync(file_at, self.path) == self._file:
                return self._connection
            lost = True
            await self.drop()
        opening = DatabaseOpener(self.path, check, reading=self.reading)
        with anyio.CancelScope(shield=True):  # short, and a connection nobody waits for would stay open
            try:
                made = await anyio.to_thread.run_sync(opening)
            finally:  # a file may have been set aside, and yet the new one be locked
                for message in opening.messages:
                    warn(message)
            self._connection, self._made = await aiosqlite.Connection(lambda: made, 64), made
        assert self._connection is not None, "a shielded scope ends only with what was awaited"
        self._file = opening.file
        if lost and opening.made:
            warn(
                f"the database {self.path} was removed while it was in use; a new one was made. What was told before "
                "is lost; sessions that are open are kept from here on"
            )
        return self._connection

    async def begin(self, begin: str, *, durable: bool, wait: float) -> None:
        """Begin and take the lock, which the first statement of the work could not wait for: nobody repeats that."""
        connection, made = self._open()
        try:
            await connection.executescript(made.opening(begin, durable=durable, wait=wait))
        except sqlite3.Error:
            await connection.rollback()
            raise

    async def at_once(self, begin: str, step: Step[T], *, durable: bool, wait: float) -> T:
        """Do a whole transaction in the connection's thread. Cannot be cancelled. Raises _Moved, and what it raises."""
        connection, made = self._open()
        value: list[T] = []

        def transact() -> None:
            if file_at(self.path) != self._file:
                raise _Moved(f"another file was put in place of {self.path}")
            value.append(made.transact(begin, step, durable=durable, wait=wait))

        made.ahead.append(transact)
        with anyio.CancelScope(shield=True):
            await connection.commit()
        return value[0]

    async def empty_log(self) -> None:
        """Write the log back. Cannot be cancelled. Raises _Moved, sqlite3.Error."""
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
        """Whether a transaction is open, while the thread has nothing to do."""
        return self._made is not None and self._made.in_transaction

    async def roll_back(self) -> None:
        """End a transaction, whatever it is at. A connection that cannot is given up; the next will be a new one."""
        if self._connection is not None and not await _settled(self._connection):
            await self.drop()

    async def drop(self, within: float = _LEAVE) -> None:
        """Close the connection, breaking off what is under way, after which it and its thread are gone."""
        connection, self._connection, self._made = self._connection, None, None
        if connection is not None:
            await _settled(connection)
            with anyio.move_on_after(within, shield=True), suppress(sqlite3.Error, ValueError):
                await connection.close()


async def _settled(connection: aiosqlite.Connection) -> bool:
    """Break off what a connection is at and roll it back; whether that was possible. Cannot be cancelled."""
    for _ in range(_ATTEMPTS):  # a statement that was only waiting for its thread is not met by the first interrupt
        with anyio.move_on_after(_LEAVE / _ATTEMPTS, shield=True), suppress(sqlite3.Error, ValueError):
            await connection.interrupt()
            await connection.rollback()  # in the thread, behind what was interrupted
            await connection.execute_fetchall("SELECT 1")  # an interrupt that met nothing waits for the next to begin
            return True
    return False


class Database:
    """The database at an absolute path, made and opened at its first use. It belongs to one event loop.

    warn        told in one line what the user should know: a damaged file was set aside, the disk is a network's
    patience    seconds to wait for other processes

    Reads have a connection of their own, so that no write holds them up; one read after another, one write after
    another. `aclose` must be called at the end: each connection has a thread, and Python waits for it.
    """

    def __init__(self, path: str, warn: Callable[[str], None], *, patience: float = 5.0) -> None:
        self.path = path
        self._warn = warn
        self._patience = patience
        self._check = IntegrityCheck.QUICK  # of the next connection
        self._writer = _Lane(path, reading=False)
        self._reader = _Lane(path, reading=True)
        self._closed = False
        self._said: set[str] = set()

    async def write(self, work: Work[T], *, durable: bool = True, patience: float | None = None) -> T:
        """Do work in a transaction, committed when this returns, rolled back when it raises or is cancelled.

        The write lock is held from the beginning, so that what is read here is true until the end.

        durable     whether it survives a power cut, and not only our death
        patience    seconds to wait for other processes; None for as long as the database waits
        Raises StoreUnavailable, and what `work` raises.
        """
        return await self._transaction(self._writer, _WRITING, work, durable=durable, patience=patience)

    async def read(self, work: Work[T]) -> T:
        """Do work that only reads; all of it sees one state. Raises StoreUnavailable, and what `work` raises."""
        return await self._transaction(self._reader, _READING, work)

    async def write_at_once(self, step: Step[T], *, durable: bool = True, patience: float | None = None) -> T:
        """Like `write`, for short work: a fifth of its time, as nothing goes to the thread and back but the whole.

        Can be cancelled while it waits for others; once it is being done it is done, and this returns.
        """
        return await self._at_once(self._writer, _WRITING, step, durable=durable, patience=patience)

    async def read_at_once(self, step: Step[T]) -> T:
        """Like `read`, for short work."""
        return await self._at_once(self._reader, _READING, step)

    async def empty_log(self) -> None:
        """Leave nothing in the log, so that what was deleted is nowhere any more.

        Takes milliseconds and waits for nobody. While another process reads or writes it does nothing.
        """
        with suppress(StoreUnavailable):
            async with self._turn(self._writer, 0):
                await self._connection(self._writer)
                await self._writer.empty_log()

    async def aclose(self) -> None:
        """Close, at once where the disk does. What is under way is rolled back and fails, and so does all after it."""
        self._closed = True
        await self._reader.drop(_END)
        await self._writer.drop(_END)  # the last to go writes the log back

    async def _transaction(
        self, lane: _Lane, begin: str, work: Work[T], *, durable: bool = True, patience: float | None = None
    ) -> T:
        async with self._turn(lane, patience) as seconds:
            connection = await self._patiently(partial(self._connection, lane), seconds)
            try:
                beginning = partial(lane.begin, begin, durable=durable, wait=min(STATEMENT_WAIT, seconds))
                await self._patiently(beginning, seconds)
                value = await work(connection)
                with anyio.CancelScope(shield=True):  # half-way through there is no telling whether it is done
                    await self._patiently(connection.commit, seconds)
            except BaseException:
                await lane.roll_back()
                raise
            return value

    async def _at_once(
        self, lane: _Lane, begin: str, step: Step[T], *, durable: bool = True, patience: float | None = None
    ) -> T:
        async with self._turn(lane, patience) as seconds:
            doing = partial(lane.at_once, begin, step, durable=durable, wait=min(STATEMENT_WAIT, seconds))

            async def attempt() -> T:
                with suppress(_Moved):
                    return await doing()
                await self._connection(lane)
                return await doing()

            try:
                return await self._patiently(attempt, seconds)
            except BaseException:
                if lane.is_unfinished:
                    await lane.roll_back()
                raise

    @asynccontextmanager
    async def _turn(self, lane: _Lane, patience: float | None) -> AsyncGenerator[float]:
        """A lane to ourselves, and the patience we have there. What goes wrong meanwhile is raised as ours."""
        with anyio.move_on_after(None if patience is None else patience + _LEAVE) as limit:
            await lane.turn.acquire()
        if limit.cancelled_caught:  # by a task that itself waits for another process
            raise self._unavailable("another process keeps it locked")
        try:
            yield self._patience if patience is None else patience
        except (DatabaseDamaged, sqlite3.Error, OSError) as error:
            if damaged(error):
                self._check = IntegrityCheck.THOROUGH
                await lane.drop()
            raise self._unavailable(cause(error)) from error
        except ValueError as error:
            if self._closed:  # the word of aiosqlite for it
                raise self._unavailable("it is closed") from error
            raise
        finally:
            lane.turn.release()

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
        """Repeat a step until nobody's lock is in its way, or patience is over."""
        deadline = anyio.current_time() + patience
        while True:
            try:
                return await step()
            except (sqlite3.Error, OSError) as error:
                if not busy(error) or anyio.current_time() >= deadline:
                    raise
            await anyio.sleep(_PAUSE)

    def _warn_once(self, message: str) -> None:
        if message not in self._said:  # both connections meet the same disk
            self._said.add(message)
            self._warn(message)

    def _unavailable(self, why: str) -> StoreUnavailable:
        return StoreUnavailable(f"the database {self.path} cannot be used: {why}")
