"""The sessions of this user in the database, and the repository of each one.

`SessionStore` finds, lists, copies and deletes sessions. `SqliteSessionRepository` reads and writes one session.
"""

import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, TypeVar

import anyio

from acp_agent.core.data import Dataclass
from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.session_options import SessionOptions
from acp_agent.core.sessions import Change, HistoryState, SessionRecord, SessionSnapshot, StoredEvent, UsageTotals
from acp_agent.log import Log
from acp_agent.store import session_rows
from acp_agent.store.conversations import gone, hold, record_of, was_deleted
from acp_agent.store.db import Database
from acp_agent.store.schema import CREATE_SESSION
from acp_agent.store.session_json import (
    event_from_row,
    event_row,
    from_column,
    json_bytes,
    json_from,
    number_from,
    readable_part,
    to_column,
    to_json,
)
from acp_agent.store.session_rows import StoredHistory, StoredSeenFiles

_log = Log(__name__)

_COLUMNS = "cwd, additional, title, created_at, updated_at, prompts, model, conduct, tally, knowledge, tokens"
_ROW = f"SELECT {_COLUMNS} FROM conversations WHERE id = ? AND cwd IS NOT NULL"  # noqa: S608 - ours
_PUT_BACK = f"UPDATE conversations SET ({_COLUMNS}) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE id = ?"  # noqa: S608 - ours
_SET = f"UPDATE conversations SET {{}} WHERE id = ? AND cwd IS NOT NULL RETURNING {_COLUMNS}"  # noqa: S608 - ours
_HAS_SCHEDULE = "SELECT 1 FROM schedule WHERE conversation_id = ? LIMIT 1"
_CHOSEN = "SELECT conduct FROM conversations WHERE id = ? AND cwd IS NOT NULL"
_SPENT = "SELECT tally FROM conversations WHERE id = ? AND cwd IS NOT NULL"
_SHORT = 16 * 1024
"""Bytes of events that are written on the event loop."""
_FORGOTTEN = {"title = ?": "", "knowledge = ?": 0, "tokens = ?": 0}
T = TypeVar("T", bound=Dataclass)


class SqliteSessionRepository:
    """A core.sessions.SessionRepository. `now` returns milliseconds since 1970.

    It refers to the messages that it wrote or read last; drop it with the conversation. From them and the last row it
    restores the session in a database that was created anew. Events of the former database are lost.
    """

    def __init__(self, database: Database, session_id: str, now: Callable[[], int]) -> None:
        self._database = database
        self._id = session_id
        self._column = to_column(session_id)
        self._now = now
        self._history = StoredHistory(self._column)
        self._seen = StoredSeenFiles(self._column)
        self._row: tuple[Any, ...] | None = None  # as it is or was, without the id

    async def create(self, row: tuple[object, ...], *, patience: float | None = None) -> None:
        """Write the row of a new session. The row of a stored session stays as it is.

        Raises StoreUnavailable, also if the session was deleted.
        """

        def step(connection: sqlite3.Connection) -> tuple[Any, ...]:
            if was_deleted(connection, self._id):
                raise gone(connection, self._id)
            connection.execute(CREATE_SESSION, row)
            return connection.execute(_ROW, (self._column,)).fetchone()

        self._row = await self._database.write(step, patience=patience)

    async def write(self, change: Change, *, durable: bool = True, patience: float | None = None) -> None:
        """See SessionRepository.write. If it is cancelled, nothing was written."""
        now = self._now()
        # Made now, because the session's options may change while the write waits.
        updates, rows = dict(_updates(change, now)), session_rows.rows_of(change.events)

        def step(connection: sqlite3.Connection) -> tuple[Any, ...]:
            row = self._set(connection, updates) or self._put_back(connection, updates)
            session_rows.append(connection, self._column, rows, now)
            if change.replacements:
                session_rows.replace_messages(connection, self._column, change.replacements)
            if change.history is not None:
                self._history.write(connection, change.history.messages)
            if change.seen is not None:
                self._seen.write(connection, change.seen)
            return row

        short = sum(len(body) for _, body in rows) < _SHORT and not change.replacements and change.seen is None
        short = short and (change.history is None or self._history.appends_little(change.history.messages))
        self._row = await self._database.write(step, durable=durable, patience=patience, short=short)
        if change.history is not None:
            self._history.written(change.history.messages)
        if change.seen is not None:
            self._seen.written(change.seen)

    def _set(self, connection: sqlite3.Connection, values: Mapping[str, int | str | bytes]) -> tuple[Any, ...] | None:
        """Set columns of the session's row with one statement, and return the row, or None if there is none.

        One statement does both, because the event loop and the connection's thread wait for each other at each one.
        """
        if not values:
            return connection.execute(_ROW, (self._column,)).fetchone()
        rows = connection.execute(_SET.format(", ".join(values)), (*values.values(), self._column)).fetchall()
        return rows[0] if rows else None

    def _put_back(self, connection: sqlite3.Connection, values: Mapping[str, int | str | bytes]) -> tuple[Any, ...]:
        """Write the session's row and messages again and set columns. Raises StoreUnavailable for a deleted session."""
        if was_deleted(connection, self._id):
            self._row = None
        if self._row is None:
            raise gone(connection, self._id)
        hold(connection, self._id, 0)
        connection.execute(_PUT_BACK, (*self._row, self._column))
        self._history.put_back(connection)
        self._seen.put_back(connection)
        row = self._set(connection, values)
        assert row is not None, "the row was written just now"
        return row

    async def snapshot(self) -> SessionSnapshot | None:
        """See SessionRepository.snapshot. Options and totals that cannot be read get their defaults."""
        return await self._database.read(self._read)

    async def options(self) -> SessionOptions | None:
        """Return what the user has chosen, in any process, or None if the session is not stored.

        Raises StoreUnavailable.
        """
        row = await self._database.read(lambda connection: connection.execute(_CHOSEN, (self._column,)).fetchone())
        return None if row is None else self._readable(SessionOptions(), row[0])

    async def usage(self) -> UsageTotals | None:
        """Return the session's usage, or None if it is not stored. Raises StoreUnavailable."""
        row = await self._database.read(lambda connection: connection.execute(_SPENT, (self._column,)).fetchone())
        return None if row is None else self._readable(UsageTotals(), row[0])

    async def clear(self) -> None:
        """See SessionRepository.clear. The usage and the number of prompts stay: the session is still listed."""

        def step(connection: sqlite3.Connection) -> tuple[Any, ...]:
            row = self._set(connection, _FORGOTTEN)
            if row is None:
                raise gone(connection, self._id)
            for table in ("told", "messages", "texts", "summaries", "tool_overflow", "seen_files"):
                connection.execute(f"DELETE FROM {table} WHERE conversation_id = ?", (self._column,))  # noqa: S608 - ours
            return row

        self._row = await self._database.write(step)
        self._history, self._seen = StoredHistory(self._column), StoredSeenFiles(self._column)
        await self._database.empty_log()

    async def events(self, after: int = 0) -> AsyncGenerator[StoredEvent]:
        """See SessionRepository.events. No transaction is open between two events. Unreadable events are left out."""
        complain = True
        while rows := await self._page(after):
            for seq, at, kind, body in rows:
                try:
                    event = event_from_row(kind, body)
                except ValueError as error:
                    if complain:
                        _log.warning(
                            "events of a session cannot be read and are left out",
                            session=self._id,
                            first=f"{seq}: {error}",
                        )
                    complain = False
                else:
                    yield StoredEvent(seq, at, event)
            after = rows[-1][0]

    async def _page(self, after: int) -> Sequence[session_rows.EventRow]:
        return await self._database.read(lambda connection: session_rows.page(connection, self._column, after))

    def _read(self, connection: sqlite3.Connection) -> SessionSnapshot | None:
        row = connection.execute(_ROW, (self._column,)).fetchone()
        if row is None:
            return None
        self._row = row
        *record, options, totals, knowledge, tokens = row
        messages, lost = self._history.read(connection)
        took = self._readable(UsageTotals(), totals)
        plan = session_rows.last_plan(connection, self._column)
        return SessionSnapshot(
            record_of((self._column, *record)),
            self._readable(SessionOptions(), options),
            took,
            HistoryState(messages, number_from(knowledge), number_from(tokens), lost),
            plan.entries,
            session_rows.last_user_words(connection, self._column),
            session_rows.last_messages(connection, self._column) if took.under_way else (),
            session_rows.last_finished_calls(connection, self._column) if took.under_way else (),
            self._seen.read(connection),
            plan.tasks,
            connection.execute(_HAS_SCHEDULE, (self._column,)).fetchone() is not None,
        )

    def _readable(self, default: T, body: object) -> T:
        try:
            return readable_part(type(default), json_from(body))
        except ValueError as error:
            _log.warning("the state of a session cannot be read; defaults are used", session=self._id, error=str(error))
            return default


def _updates(change: Change, now: int) -> Iterator[tuple[str, int | str | bytes]]:
    """Yield the columns of a session's row that a change sets, and their values."""
    if change.prompted:
        yield "prompts = prompts + ?", change.prompted
    if change.touch:
        # The list never moves backwards. A damaged time, which is larger than every number, is replaced.
        yield "updated_at = max(iif(updated_at > 9223372036854775807, 0, updated_at), ?)", now
    for setting, text in (("title = ?", change.title), ("model = ?", change.model), ("cwd = ?", change.cwd)):
        if text is not None:
            yield setting, to_column(text)
    if change.additional is not None:
        yield "additional = ?", json_bytes(list(change.additional))
    if change.options is not None:
        yield "conduct = ?", json_bytes(to_json(change.options))
    if change.usage is not None:
        yield "tally = ?", json_bytes(to_json(change.usage))
    if change.history is not None:
        yield "knowledge = ?", change.history.knowledge
        yield "tokens = ?", change.history.tokens


_DAY = 24 * 60 * 60 * 1000
_REMEMBERED = 30 * _DAY
"""Milliseconds for which a deleted session is remembered, so that no process that still writes to it brings it back."""
_BATCH = 100
_BREATH = 0.02
"""Seconds between two batches, in which other processes get the lock."""
_FIRST = (2**63 - 1, "")
"""The position before the first session of a list."""

_FIND = """
    SELECT id, cwd, additional, title, created_at, updated_at, prompts, model
    FROM conversations WHERE id = ? AND cwd IS NOT NULL
"""
# SQLite orders texts and blobs behind all numbers. A session whose time of last use is such a value, because the file
# is damaged, counts as used in 1970.
_PAGE = """
    SELECT id, cwd, additional, title, created_at, updated_at, prompts, model
    FROM conversations WHERE {0} AND (updated_at, id) < (?1, ?2) AND prompts >= ?3
    UNION ALL
    SELECT id, cwd, additional, title, created_at, 0, prompts, model
    FROM conversations WHERE {0} AND updated_at > 9223372036854775807 AND (0, id) < (?1, ?2) AND prompts >= ?3
    ORDER BY updated_at DESC, id DESC LIMIT ?4
"""
_PAGE_OF_ALL, _PAGE_OF_CWD = _PAGE.format("cwd IS NOT NULL"), _PAGE.format("cwd = ?5")
_KNOWN = "UPDATE conversations SET knowledge = ?, tokens = ? WHERE id = ?"
_DELETE = (
    "INSERT INTO deleted_conversations SELECT id, ? FROM conversations WHERE id = ? ON CONFLICT DO NOTHING",
    "DELETE FROM conversations WHERE id = ?",
)
# What a fork copies. Outputs keep their ids, since the copied messages refer to them.
_FORK_STATE = """
    UPDATE conversations SET (knowledge, tokens, tally, prompts) = (
        SELECT source.knowledge, source.tokens, source.tally, max(source.prompts, conversations.prompts)
        FROM conversations AS source WHERE source.id = ?
    ) WHERE id = ?
"""
_FORK = (
    "INSERT INTO told SELECT ?, seq, at, kind, body FROM told WHERE conversation_id = ?",
    "INSERT INTO messages SELECT ?, seq, role, body FROM messages WHERE conversation_id = ?",
    "INSERT INTO texts (conversation_id, digest, text) SELECT ?, digest, text FROM texts WHERE conversation_id = ?",
    """
    INSERT INTO tool_overflow (conversation_id, id, created_at, bytes, content)
    SELECT ?, id, created_at, bytes, content FROM tool_overflow WHERE conversation_id = ? ORDER BY seq
    """,
    """
    INSERT INTO summaries (conversation_id, created_at, compaction_method, messages, tokens, text)
    SELECT ?, created_at, compaction_method, messages, tokens, text FROM summaries WHERE conversation_id = ?
    ORDER BY seq
    """,
    "INSERT INTO seen_files SELECT ?, path, digest, stamp, text FROM seen_files WHERE conversation_id = ?",
)
# Outputs expire by themselves (conversations.py), so a row that still has some is in use.
_UNUSED = """
    SELECT id FROM conversations WHERE id > ? AND CASE
        WHEN cwd IS NOT NULL THEN prompts = 0 AND updated_at < ?
        ELSE created_at < ? AND NOT EXISTS (SELECT 1 FROM tool_overflow WHERE conversation_id = conversations.id)
    END ORDER BY id LIMIT ?
"""


class SessionStore:
    """All sessions. `now` returns seconds since 1970. Every method raises StoreUnavailable."""

    def __init__(self, database: Database, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._seconds = now

    def of(self, session_id: str) -> SqliteSessionRepository:
        """Return the repository of a session, which need not be stored yet."""
        return SqliteSessionRepository(self._database, session_id, self._now)

    async def create(
        self,
        record: SessionRecord,
        options: SessionOptions,
        totals: UsageTotals | None = None,
        *,
        patience: float | None = None,
    ) -> SqliteSessionRepository:
        """Store a new session and return its repository.

        A stored session stays as it is; a deleted one is refused. A time of 0 means now.
        """
        repository = self.of(record.id)
        await repository.create(self._row(record, options, totals or UsageTotals()), patience=patience)
        return repository

    async def find(self, session_id: str) -> SessionRecord | None:
        row = await self._database.read(
            lambda connection: connection.execute(_FIND, (to_column(session_id),)).fetchone()
        )
        return None if row is None else record_of(row)

    async def page(
        self,
        *,
        cwd: str | None = None,
        after: tuple[int, str] | None = None,
        limit: int = 50,
        prompted: bool = True,
    ) -> tuple[SessionRecord, ...]:
        """Return sessions, the last used first. No session is on two pages, even if sessions are used meanwhile.

        Sessions whose time of last use is damaged come last, until they are used again.

        cwd        only sessions of this folder, as the client wrote it
        after      `updated_at` and `id` of the last session of the page before
        prompted   leaves out sessions without a prompt
        """
        updated_at, session_id = after or _FIRST
        position = (max(min(updated_at, _FIRST[0]), -_FIRST[0]), to_column(session_id))
        given = (*position, int(prompted), limit, *(() if cwd is None else (to_column(cwd),)))
        statement = _PAGE_OF_ALL if cwd is None else _PAGE_OF_CWD
        rows = await self._database.read(lambda connection: connection.execute(statement, given).fetchall())
        return tuple(record_of(row) for row in rows)

    async def delete(self, session_id: str) -> bool:
        """Delete a session with all that belongs to it. Return whether it was stored. Later writes to it fail."""
        key, now = to_column(session_id), self._now()
        was_there = await self._database.write(lambda connection: _remove(connection, key, now))
        await self._database.empty_log()
        return was_there

    async def fork(self, source: str, target: SessionRecord, options: SessionOptions) -> bool:
        """Copy a session as it is now, with its usage, to a new one. Return whether the source is stored.

        Raises StoreUnavailable, also if the target is stored already.
        """
        row = self._row(target, options, UsageTotals())
        keys = to_column(source), to_column(target.id)

        def step(connection: sqlite3.Connection) -> bool:
            if connection.execute(_FIND, (keys[0],)).fetchone() is None:
                return False
            if connection.execute(_FIND, (keys[1],)).fetchone() is not None:
                raise StoreUnavailable("a session cannot be copied to one that is there already")
            _insert(connection, target.id, row)
            connection.execute(_FORK_STATE, keys)
            for statement in _FORK:
                connection.execute(statement, keys[::-1])
            return True

        return await self._database.write(step)

    async def import_session(self, snapshot: SessionSnapshot, events: Sequence[StoredEvent]) -> None:
        """Store a session of another store under a new id, whole or not at all. A time of 0 means now."""
        row, key = self._row(snapshot.record, snapshot.options, snapshot.usage), to_column(snapshot.record.id)
        history = snapshot.history

        def step(connection: sqlite3.Connection) -> None:
            _insert(connection, snapshot.record.id, row)
            connection.execute(_KNOWN, (history.knowledge, history.tokens, key))
            for one in events:
                session_rows.append(connection, key, [event_row(one.event)], one.at)
            StoredHistory(key).write(connection, history.messages)

        await self._database.write(step)

    async def purge_unused(self, days: int, in_use: Callable[[str], bool]) -> int:
        """Delete sessions without a prompt and rows of sessions that were never created. Return how many were deleted.

        It works in small transactions for use in the background; other processes get the lock between two.

        days     how long the sessions were not used
        in_use   returns whether a process has the session open
        """
        now = self._now()
        before, last, total = now - days * _DAY, to_column(""), 0
        while found := await self._database.read(partial(_unused, last, before)):
            free = {each for each in found if not in_use(from_column(each))}
            if free:
                total += await self._database.write(partial(_remove_unused, last, before, free, now))
                await anyio.sleep(_BREATH)
            last = found[-1]
        forget = "DELETE FROM deleted_conversations WHERE deleted_at < ?"
        await self._database.write(lambda connection: connection.execute(forget, (now - _REMEMBERED,)).rowcount)
        return total

    def _now(self) -> int:
        return int(self._seconds() * 1000)

    def _row(self, record: SessionRecord, options: SessionOptions, totals: UsageTotals) -> tuple[object, ...]:
        now = self._now()
        return (
            to_column(record.id),
            to_column(record.cwd),
            json_bytes(list(record.additional)),
            to_column(record.title),
            record.created_at or now,
            record.updated_at or now,
            record.prompts,
            to_column(record.model),
            json_bytes(to_json(options)),
            json_bytes(to_json(totals)),
        )


def _insert(connection: sqlite3.Connection, session_id: str, row: tuple[object, ...]) -> None:
    if was_deleted(connection, session_id):
        raise gone(connection, session_id)
    connection.execute(CREATE_SESSION, row)


def _remove(connection: sqlite3.Connection, key: str | bytes, now: int) -> bool:
    remember, delete = _DELETE
    connection.execute(remember, (now, key))
    return connection.execute(delete, (key,)).rowcount > 0


def _unused(last: str | bytes, before: int, connection: sqlite3.Connection) -> list[str | bytes]:
    return [row[0] for row in connection.execute(_UNUSED, (last, before, before, _BATCH))]


def _remove_unused(
    last: str | bytes, before: int, free: AbstractSet[str | bytes], now: int, connection: sqlite3.Connection
) -> int:
    """Delete those sessions that are free and still unused. Return how many were deleted."""
    return sum(_remove(connection, each, now) for each in _unused(last, before, connection) if each in free)
