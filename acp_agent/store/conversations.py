"""Rows of conversations, which all that belongs to one hangs on and goes with.

A row may be there before its session: outputs and summaries need one, too, and a session's own may have to wait. But
once a session was deleted, nobody who still writes to it brings it back.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any

from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.sessions import SessionRecord
from acp_agent.store.record_json import loaded
from acp_agent.store.stored_text import from_column, to_column


def record_of(row: Sequence[Any]) -> SessionRecord:
    """The session of id, cwd, additional, title, created_at, updated_at, prompts and model, the columns in this order.

    A list of folders that cannot be read is taken to be empty.
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
    """Whether there was such a session once."""
    found = "SELECT 1 FROM deleted_conversations WHERE id = ?"
    return connection.execute(found, (to_column(conversation_id),)).fetchone() is not None


def gone(connection: sqlite3.Connection, conversation_id: str) -> StoreUnavailable:
    """What to raise when a session is not there."""
    deleted = was_deleted(connection, conversation_id)
    return StoreUnavailable("this session was deleted" if deleted else "this session is not in the database")


def hold(connection: sqlite3.Connection, conversation_id: str, now: int) -> None:
    """See to it that a conversation has a row; `now` is in milliseconds. Raises StoreUnavailable for a deleted one."""
    if was_deleted(connection, conversation_id):
        raise gone(connection, conversation_id)
    connection.execute(
        "INSERT INTO conversations (id, created_at) VALUES (?, ?) ON CONFLICT DO NOTHING",
        (to_column(conversation_id), now),
    )


def _folders(body: bytes) -> tuple[str, ...]:
    try:
        data = loaded(body)
    except ValueError:
        return ()
    return tuple(each for each in data if isinstance(each, str)) if isinstance(data, list) else ()
