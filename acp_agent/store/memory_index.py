"""Which notes hold which words: an FTS5 table beside the notes, or a look through all of them where SQLite has none.

The table repeats the notes' text and is made anew from it where something is missing, so that a process without FTS5
may share the file.
"""

import sqlite3
from collections.abc import Sequence

import aiosqlite

from acp_agent.store.memory_terms import Terms

_TABLE = "memory_words"
_TOKENS = "porter unicode61 remove_diacritics 2"
_FORGET = f"DELETE FROM {_TABLE} WHERE rowid NOT IN (SELECT key FROM memories)"  # noqa: S608 - our own name
_LEARN = f"""
    INSERT INTO {_TABLE} (rowid, content)
    SELECT key, content FROM memories WHERE key NOT IN (SELECT rowid FROM {_TABLE})
"""  # noqa: S608 - our own name
_FIND = f"""
    SELECT key FROM {_TABLE} JOIN memories ON key = {_TABLE}.rowid
    WHERE {_TABLE} MATCH ? ORDER BY bm25({_TABLE}), recency DESC LIMIT ?
"""  # noqa: S608 - our own name


class MemoryIndex:
    """Finds notes by words. Its methods are parts of a transaction. `engine` is SQLite's module; tests name none."""

    def __init__(self, engine: str = "fts5") -> None:
        self._engine = engine

    async def update(self, connection: aiosqlite.Connection) -> None:
        """Follow what became of the notes in this transaction, and in those of processes without FTS5."""
        try:
            await connection.execute_fetchall(
                f"CREATE VIRTUAL TABLE IF NOT EXISTS {_TABLE} USING {self._engine}(content, tokenize = '{_TOKENS}')"
            )
            await connection.execute_fetchall(_FORGET)
            await connection.execute_fetchall(_LEARN)
        except sqlite3.OperationalError as error:
            if not _unknown(error):
                raise

    async def find(self, connection: aiosqlite.Connection, terms: Terms, limit: int) -> list[list[int]]:
        """Rankings of keys, best first, each of at most `limit`; of two that fit alike the newer comes first."""
        rankings = list[list[int]]()
        pieces = terms.pieces
        if terms.words:
            try:
                rows = await connection.execute_fetchall(_FIND, (terms.match, limit))
                rankings.append([row[0] for row in rows])
            except sqlite3.OperationalError as error:
                if not _unknown(error):
                    raise
                pieces = (*terms.words, *pieces)
        if pieces:
            rankings.append(await _holding(connection, pieces, limit))
        return rankings


async def _holding(connection: aiosqlite.Connection, pieces: Sequence[str], limit: int) -> list[int]:
    """The notes that hold most of the pieces. Looks at every one; case matters beyond ASCII."""
    hits = " + ".join("(instr(lower(content), ?) > 0)" for _ in pieces)
    statement = f"""
        SELECT key FROM (SELECT key, recency, {hits} AS hits FROM memories)
        WHERE hits > 0 ORDER BY hits DESC, recency DESC LIMIT ?
    """  # noqa: S608 - only a count of marks
    return [row[0] for row in await connection.execute_fetchall(statement, (*pieces, limit))]


def _unknown(error: sqlite3.OperationalError) -> bool:
    """Whether SQLite has no FTS5, or no note was ever kept by one that has."""
    return str(error).startswith(("no such module", f"no such table: {_TABLE}"))
