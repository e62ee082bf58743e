"""Rows that belong to a conversation: the conversation itself, summaries of older messages, and long outputs.

A conversation's row may be stored before its session, since outputs and summaries need a row to refer to. After a
session was deleted, a process that still writes to it cannot bring it back.
"""

import re
import sqlite3
import time
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import anyio

from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.sessions import OVERFLOW_PREFIX, SessionRecord
from acp_agent.store.db import Database
from acp_agent.store.session_json import from_column, json_from, to_column

if TYPE_CHECKING:
    from acp_agent.core.services import Summary


def record_of(row: Sequence[Any]) -> SessionRecord:
    """Return the session of a row.

    The columns are id, cwd, additional, title, created_at, updated_at, prompts and model, in this order. A list of
    folders that cannot be read counts as empty.
    """
    identity, cwd, additional, title, created_at, updated_at, prompts, model = row
    return SessionRecord(
        from_column(identity),
        from_column(cwd),
        _folders(additional),
        from_column(title),
        created_at,
        updated_at,
        prompts,
        from_column(model),
    )


def was_deleted(connection: sqlite3.Connection, conversation_id: str) -> bool:
    """Return whether there was such a session once."""
    found = "SELECT 1 FROM deleted_conversations WHERE id = ?"
    return connection.execute(found, (to_column(conversation_id),)).fetchone() is not None


def gone(connection: sqlite3.Connection, conversation_id: str) -> StoreUnavailable:
    """Return the error to raise if a session is not stored."""
    deleted = was_deleted(connection, conversation_id)
    return StoreUnavailable("this session was deleted" if deleted else "this session is not in the database")


def hold(connection: sqlite3.Connection, conversation_id: str, now: int) -> None:
    """Make sure that a conversation has a row. `now` is in milliseconds. Raises StoreUnavailable for a deleted one."""
    if was_deleted(connection, conversation_id):
        raise gone(connection, conversation_id)
    connection.execute(
        "INSERT INTO conversations (id, created_at) VALUES (?, ?) ON CONFLICT DO NOTHING",
        (to_column(conversation_id), now),
    )


def _folders(body: bytes) -> tuple[str, ...]:
    try:
        data = json_from(body)
    except ValueError:
        return ()
    return tuple(each for each in data if isinstance(each, str)) if isinstance(data, list) else ()


_KEPT = 50
"""The newest summaries of a conversation that are stored. Each one covers the one before it too."""

_INSERT = """
    INSERT INTO summaries (conversation_id, created_at, compaction_method, messages, tokens, text)
    VALUES (?, ?, ?, ?, ?, ?)
"""
_DROP_OLDEST_SUMMARIES = """
    DELETE FROM summaries WHERE seq IN (
        SELECT seq FROM summaries WHERE conversation_id = ? ORDER BY seq DESC LIMIT -1 OFFSET ?
    )
"""


class ConversationSummaries:
    """The summaries of one conversation (core.services.Summaries). They are deleted with it.

    Its session need not be stored yet. `now` returns seconds since 1970.
    """

    def __init__(self, database: Database, conversation_id: str, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._conversation = conversation_id
        self._now = now

    async def add(self, summary: "Summary") -> None:
        """Store a summary; see core.services.Summaries.add. Unpaired surrogates become question marks."""
        now = self._now()
        text = summary.text.encode("utf-8", "replace").decode()
        row = (self._conversation, int(now), summary.method.value, summary.messages, summary.tokens, text)

        def step(connection: sqlite3.Connection) -> None:
            hold(connection, self._conversation, int(now * 1000))
            connection.execute(_INSERT, row)
            connection.execute(_DROP_OLDEST_SUMMARIES, (self._conversation, _KEPT))

        await self._database.write(step)


_REFERENCE = re.compile(rf"(?:{OVERFLOW_PREFIX})?([0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}})")
_DAY = 24 * 60 * 60
_BATCH_ROWS = 200
_BATCH_BYTES = 16 * 1024 * 1024
_BREATH = 0.02
"""Seconds between two batches in which other processes get the lock. SQLite retries every few milliseconds."""

_ENCODING, _ERRORS = "utf-8", "surrogatepass"
"""A text comes back unchanged, also with lone surrogates from JSON."""

_PUT = "INSERT INTO tool_overflow (id, conversation_id, created_at, bytes, content) VALUES (?, ?, ?, ?, ?)"
_GET = "SELECT content FROM tool_overflow WHERE id = ? AND conversation_id = ?"
# The newest texts that fit into the limit stay; all older ones are deleted.
_DROP_OLDEST_OUTPUTS = """
    DELETE FROM tool_overflow WHERE seq IN (
        SELECT seq FROM (
            SELECT seq, sum(bytes) OVER (ORDER BY seq DESC) AS total FROM tool_overflow WHERE conversation_id = ?
        ) WHERE total > ?
    )
"""

# The oldest rows that fit into a batch, and at least one.
_PURGE = """
    DELETE FROM tool_overflow WHERE seq IN (
        SELECT seq FROM (
            SELECT seq, sum(bytes) OVER (ORDER BY created_at, seq) - bytes AS before FROM (
                SELECT seq, bytes, created_at FROM tool_overflow WHERE created_at < ?
                ORDER BY created_at, seq LIMIT ?
            )
        ) WHERE before < ?
    )
"""


class OverflowStore:
    """The long outputs of all conversations.

    An output is read and written as a whole: SQLite reads a whole value to cut a piece from it, so a piece of 10 MB
    takes 5 ms and the whole 7 ms.

    max_bytes            the most bytes of UTF-8 of one text; 0 = no limit
    conversation_bytes   the most bytes of one conversation; its oldest texts make room for a new one; 0 = no limit
    now                  returns seconds since 1970
    """

    def __init__(
        self,
        database: Database,
        *,
        max_bytes: int,
        conversation_bytes: int,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.database = database
        self.max_bytes = max_bytes
        self.conversation_bytes = conversation_bytes
        self.now = now

    def of(self, conversation_id: str) -> "ConversationOverflow":
        """Return the outputs of one conversation (core.services.Overflow). Its session need not be stored yet."""
        return ConversationOverflow(self, conversation_id)

    async def purge(self, days: int) -> int:
        """Delete texts older than so many days and return how many were deleted.

        It works in small transactions for use in the background; other processes get the lock between two. The disk
        space is freed. Raises StoreUnavailable; what was deleted before stays deleted.
        """
        before = int(self.now()) - days * _DAY
        total = 0
        while removed := await self.database.write(
            lambda connection: connection.execute(_PURGE, (before, _BATCH_ROWS, _BATCH_BYTES)).rowcount
        ):
            total += removed
            await anyio.sleep(_BREATH)
        return total


class ConversationOverflow:
    """The long outputs of one conversation."""

    def __init__(self, store: OverflowStore, conversation_id: str) -> None:
        self._store = store
        self._conversation = conversation_id

    async def put(self, text: str) -> str:
        """Store a text; see core.services.Overflow.put."""
        content = text.encode(_ENCODING, _ERRORS)
        for limit, whose in (
            (self._store.max_bytes, "one output may have"),
            (self._store.conversation_bytes, "one conversation may keep"),
        ):
            if limit and len(content) > limit:
                raise StoreUnavailable(f"the output has {len(content)} bytes, more than the {limit} that {whose}")
        key = str(uuid.uuid4())
        await self._store.database.write(lambda connection: self._insert(connection, key, content))
        return OVERFLOW_PREFIX + key

    async def get(self, reference: str) -> str | None:
        """Return the text of a reference; see core.services.Overflow.get."""
        key = _key(reference)
        found = (key, self._conversation)
        row = await self._store.database.read(lambda connection: connection.execute(_GET, found).fetchone())
        return None if row is None else row[0].decode(_ENCODING, _ERRORS)

    def _insert(self, connection: sqlite3.Connection, key: str, content: bytes) -> None:
        now, size = self._store.now(), len(content)
        hold(connection, self._conversation, int(now * 1000))
        if self._store.conversation_bytes:
            room = self._store.conversation_bytes - size
            connection.execute(_DROP_OLDEST_OUTPUTS, (self._conversation, room))
        connection.execute(_PUT, (key, self._conversation, int(now), size, content))


def _key(reference: str) -> str:
    match = _REFERENCE.fullmatch(reference.strip().lower())
    if match is None:
        raise ValueError("id must be a valid UUID")
    return match.group(1)
