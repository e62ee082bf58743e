"""What was told in a session: a row an event, but for pieces of one message that came together."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import groupby
from typing import TypeAlias, cast

from acp_agent.core.events import TextDelta, ThoughtDelta, Told
from acp_agent.core.sessions import ToldAt
from acp_agent.store.told_json import told_row

_PAGE_ROWS = 256
_PAGE_BYTES = 1024 * 1024
_PAGE = """
    SELECT seq, at, kind, CAST(body AS BLOB) FROM told WHERE conversation_id = ? AND seq > ? ORDER BY seq LIMIT ?
"""

ToldRow: TypeAlias = tuple[int, int, str, bytes]
"""Sequence number, milliseconds since 1970, kind, JSON."""


def rows_of(told: Iterable[Told]) -> list[tuple[str, bytes]]:
    """Kinds and JSON of events. Pieces of a message that follow each other become one. Raises StoreUnavailable."""
    return [told_row(_joined(list(run))) for _, run in groupby(told, _message)]


def append(connection: sqlite3.Connection, session: str | bytes, rows: Sequence[tuple[str, bytes]], now: int) -> None:
    """Put rows behind those of a session. Raises sqlite3.Error."""
    if not rows:
        return
    greatest = "SELECT coalesce(max(seq), 0) FROM told WHERE conversation_id = ?"
    (last,) = connection.execute(greatest, (session,)).fetchone()
    connection.executemany(
        "INSERT INTO told (conversation_id, seq, at, kind, body) VALUES (?, ?, ?, ?, ?)",
        [(session, seq, now, kind, body) for seq, (kind, body) in enumerate(rows, last + 1)],
    )


def restore(connection: sqlite3.Connection, session: str | bytes, told: Iterable[ToldAt]) -> None:
    """Give a session without any what was told elsewhere, at its times. Raises sqlite3.Error, StoreUnavailable."""
    connection.executemany(
        "INSERT INTO told (conversation_id, seq, at, kind, body) VALUES (?, ?, ?, ?, ?)",
        ((session, seq, one.at, *told_row(one.event)) for seq, one in enumerate(told, 1)),
    )


def page(connection: sqlite3.Connection, session: str | bytes, after: int) -> list[ToldRow]:
    """The next rows behind a sequence number: a megabyte of them, or one that is larger. Raises sqlite3.Error."""
    rows: list[ToldRow] = []
    size = 0
    with closing(connection.execute(_PAGE, (session, after, _PAGE_ROWS))) as cursor:
        for row in cast("Iterator[ToldRow]", cursor):
            rows.append(row)
            size += len(row[3])
            if size > _PAGE_BYTES:
                break
    return rows


def _message(event: Told) -> object:
    """Equal for pieces of one message, and for nothing else."""
    return (type(event), event.message_id) if isinstance(event, TextDelta | ThoughtDelta) else object()


def _joined(run: list[Told]) -> Told:
    first = run[0]
    if len(run) == 1 or not isinstance(first, TextDelta | ThoughtDelta):
        return first
    return replace(first, text="".join(each.text for each in run if isinstance(each, TextDelta | ThoughtDelta)))
