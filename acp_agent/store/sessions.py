"""The sessions of this user: found, listed, copied, deleted (requirements A5-A10). What is in one: session_keeper."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial

import anyio

from acp_agent.core.conduct import Conduct
from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.sessions import Saved, SessionRecord, Tally, ToldAt
from acp_agent.store.conversations import gone, record_of, was_deleted
from acp_agent.store.db import Database
from acp_agent.store.record_json import dumped, written
from acp_agent.store.session_history import StoredHistory
from acp_agent.store.session_keeper import SessionKeeper
from acp_agent.store.session_told import restore
from acp_agent.store.stored_text import from_column, to_column

_DAY = 24 * 60 * 60 * 1000
_REMEMBERED = 30 * _DAY
"""Milliseconds for which nobody may bring a deleted session back: no process writes to one for so long."""
_BATCH = 100
_BREATH = 0.02
"""Seconds between two batches, in which other processes get the lock."""
_FIRST = (2**63 - 1, "")
"""Where a list begins."""

# A row that only outputs or summaries needed becomes the session's; a session that is there already stays as it is.
_CREATE = """
    INSERT INTO conversations
        (id, cwd, additional, title, created_at, updated_at, prompts, model, conduct, tally)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET
        cwd = excluded.cwd, additional = excluded.additional, title = excluded.title,
        created_at = excluded.created_at, updated_at = excluded.updated_at, prompts = excluded.prompts,
        model = excluded.model, conduct = excluded.conduct, tally = excluded.tally
    WHERE conversations.cwd IS NULL
"""
_FIND = """
    SELECT id, cwd, additional, title, created_at, updated_at, prompts, model
    FROM conversations WHERE id = ? AND cwd IS NOT NULL
"""
_PAGE = """
    SELECT id, cwd, additional, title, created_at, updated_at, prompts, model
    FROM conversations WHERE cwd IS NOT NULL AND (updated_at, id) < (?, ?) AND prompts >= ?
    ORDER BY updated_at DESC, id DESC LIMIT ?
"""
_PAGE_OF_CWD = """
    SELECT id, cwd, additional, title, created_at, updated_at, prompts, model
    FROM conversations WHERE cwd = ? AND (updated_at, id) < (?, ?) AND prompts >= ?
    ORDER BY updated_at DESC, id DESC LIMIT ?
"""
_KNOWN = "UPDATE conversations SET knowledge = ?, tokens = ? WHERE id = ?"
_DELETE = (
    "INSERT INTO deleted_conversations SELECT id, ? FROM conversations WHERE id = ? ON CONFLICT DO NOTHING",
    "DELETE FROM conversations WHERE id = ?",
)
# What goes along with a fork. Its ids of outputs are those of the source: its messages name them.
_FORK_STATE = """
    UPDATE conversations SET (knowledge, tokens, tally, prompts) = (
        SELECT source.knowledge, source.tokens, source.tally, max(source.prompts, conversations.prompts)
        FROM conversations AS source WHERE source.id = ?
    ) WHERE id = ?
"""
_FORK = (
    "INSERT INTO told SELECT ?, seq, at, kind, body FROM told WHERE conversation_id = ?",
    "INSERT INTO messages SELECT ?, seq, role, body FROM messages WHERE conversation_id = ?",
    """
    INSERT INTO tool_overflow (conversation_id, id, created_at, bytes, content)
    SELECT ?, id, created_at, bytes, content FROM tool_overflow WHERE conversation_id = ? ORDER BY seq
    """,
    """
    INSERT INTO summaries (conversation_id, created_at, compaction_method, messages, tokens, text)
    SELECT ?, created_at, compaction_method, messages, tokens, text FROM summaries WHERE conversation_id = ?
    ORDER BY seq
    """,
)
# Outputs have a time of their own to be kept for (overflow.py): what still has some is somebody's.
_UNUSED = """
    SELECT id FROM conversations WHERE id > ? AND CASE
        WHEN cwd IS NOT NULL THEN prompts = 0 AND updated_at < ?
        ELSE created_at < ? AND NOT EXISTS (SELECT 1 FROM tool_overflow WHERE conversation_id = conversations.id)
    END ORDER BY id LIMIT ?
"""


class SessionStore:
    """All sessions. `now` gives seconds since 1970. Everything raises StoreUnavailable."""

    def __init__(self, database: Database, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._seconds = now

    def of(self, session_id: str) -> SessionKeeper:
        """What is kept of one session, which need not be there yet."""
        return SessionKeeper(self._database, session_id, self._now)

    async def create(
        self, record: SessionRecord, conduct: Conduct, tally: Tally | None = None, *, patience: float | None = None
    ) -> None:
        """Keep a new session; one that is there stays as it is. A time of 0 is now. Never one that was deleted."""
        row = self._row(record, conduct, tally or Tally())
        await self._database.write_at_once(lambda connection: _insert(connection, record.id, row), patience=patience)

    async def find(self, session_id: str) -> SessionRecord | None:
        """The session, if it is there."""
        row = await self._database.read_at_once(
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
        """Sessions, the last used first. Who asks page by page is given none twice, whatever is used meanwhile.

        cwd        only those of this folder, as the client wrote it
        after      `updated_at` and `id` of the last one on the page before
        prompted   leaves out those the user never sent anything to
        """
        updated_at, session_id = after or _FIRST
        position = (max(min(updated_at, _FIRST[0]), -_FIRST[0]), to_column(session_id))
        values = (*position, int(prompted), limit)
        statement, given = (_PAGE, values) if cwd is None else (_PAGE_OF_CWD, (to_column(cwd), *values))
        rows = await self._database.read_at_once(lambda connection: connection.execute(statement, given).fetchall())
        return tuple(record_of(row) for row in rows)

    async def delete(self, session_id: str) -> bool:
        """Remove a session with all that is its own; whether it was there. Who still writes to it is told."""
        key, now = to_column(session_id), self._now()
        was_there = await self._database.write_at_once(lambda connection: _remove(connection, key, now))
        await self._database.empty_log()
        return was_there

    async def fork(self, source: str, target: SessionRecord, conduct: Conduct) -> bool:
        """Copy a session as it is at this moment, its tally too, to a new one; whether the source was there."""
        row = self._row(target, conduct, Tally())
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

        return await self._database.write_at_once(step)

    async def take_in(self, saved: Saved, told: Sequence[ToldAt]) -> None:
        """Keep a session from elsewhere under an id of its own, whole or not at all. A time of 0 is now."""
        row, key = self._row(saved.record, saved.conduct, saved.tally), to_column(saved.record.id)
        history = saved.history

        def step(connection: sqlite3.Connection) -> None:
            _insert(connection, saved.record.id, row)
            connection.execute(_KNOWN, (history.knowledge, history.tokens, key))
            restore(connection, key, told)
            StoredHistory(key).write(connection, history.messages)

        await self._database.write_at_once(step)

    async def purge_unused(self, days: int, in_use: Callable[[str], bool]) -> int:
        """Remove sessions that got no prompt, and what is left of ones that never came to be; returns how many went.

        For the background: it works in small transactions, and others get their turn between any two.

        days     how long they were not used
        in_use   whether a process has the session open
        """
        now = self._now()
        before, last, total = now - days * _DAY, to_column(""), 0
        while found := await self._database.read_at_once(partial(_unused, last, before)):
            free = {each for each in found if not in_use(from_column(each))}
            if free:
                total += await self._database.write_at_once(partial(_remove_unused, last, before, free, now))
                await anyio.sleep(_BREATH)
            last = found[-1]
        forget = "DELETE FROM deleted_conversations WHERE deleted_at < ?"
        await self._database.write_at_once(lambda connection: connection.execute(forget, (now - _REMEMBERED,)).rowcount)
        return total

    # -----------------------------------------------------------------------------------------------

    def _now(self) -> int:
        return int(self._seconds() * 1000)

    def _row(self, record: SessionRecord, conduct: Conduct, tally: Tally) -> tuple[object, ...]:
        now = self._now()
        return (
            to_column(record.id),
            to_column(record.cwd),
            dumped(list(record.additional)),
            to_column(record.title),
            record.created_at or now,
            record.updated_at or now,
            record.prompts,
            to_column(record.model),
            dumped(written(conduct)),
            dumped(written(tally)),
        )


def _insert(connection: sqlite3.Connection, session_id: str, row: tuple[object, ...]) -> None:
    if was_deleted(connection, session_id):
        raise gone(connection, session_id)
    connection.execute(_CREATE, row)


def _remove(connection: sqlite3.Connection, key: str | bytes, now: int) -> bool:
    remember, delete = _DELETE
    connection.execute(remember, (now, key))
    return connection.execute(delete, (key,)).rowcount > 0


def _unused(last: str | bytes, before: int, connection: sqlite3.Connection) -> list[str | bytes]:
    return [row[0] for row in connection.execute(_UNUSED, (last, before, before, _BATCH))]


def _remove_unused(
    last: str | bytes, before: int, free: AbstractSet[str | bytes], now: int, connection: sqlite3.Connection
) -> int:
    """Remove those that are free, and are unused still."""
    return sum(_remove(connection, each, now) for each in _unused(last, before, connection) if each in free)
