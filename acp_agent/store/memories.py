"""The notes that the model saves for later sessions: one table with a row for each note, shared by all sessions.

A search ranks the notes by words and, with an embedding model, by meaning. The rankings are merged by reciprocal rank.
"""

import hashlib
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import aiosqlite

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.ports import Embedder
from acp_agent.core.services import Remembered
from acp_agent.store.db import Database
from acp_agent.store.memory_vectors import SECONDS, MemoryVectors

_LONGEST_QUERY = 10_000  # characters that are looked at
_LONGEST_WORD = 64
_MOST = 32

_WORD = re.compile(r"[^\W_]+")
# Scripts that put no blank between words: Thai to Burmese, Khmer, kana, ideographs.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a search: at most 32 of each kind, in lower case, without duplicates.

    words    letters and digits only
    pieces   pairs of neighbouring characters of scripts without blanks, which are searched inside words
    """

    words: tuple[str, ...]
    pieces: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.words or self.pieces)

    @property
    def match(self) -> str:
        """Return an FTS5 query for any of the words."""
        return " OR ".join(f'"{word}"' for word in self.words)


def terms_of(query: str) -> Terms:
    """Return the terms of a query of any length. Nothing that a model writes can become part of the query's syntax."""
    words, pieces = list[str](), list[str]()
    for word in _WORD.findall(query[:_LONGEST_QUERY].lower()):
        runs = _UNSPACED.findall(word)
        pieces += (pair for run in runs for pair in _pairs(run))
        words += filter(None, _UNSPACED.split(word))
    return Terms(_first(word[:_LONGEST_WORD] for word in words), _first(pieces))


def _pairs(run: str) -> Iterator[str]:
    yield from (run[at : at + 2] for at in range(max(len(run) - 1, 1)))


def _first(found: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(found))[:_MOST]


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
    """The index of words: an FTS5 table beside the notes, or a scan of all notes if SQLite has no FTS5.

    The table repeats the text of the notes and is completed from it, so that a process without FTS5 may share the file.
    The methods are parts of a transaction. `engine` is SQLite's module; tests name a missing one.
    """

    def __init__(self, engine: str = "fts5") -> None:
        self._engine = engine

    async def update(self, connection: aiosqlite.Connection) -> None:
        """Apply to the index what this transaction, and processes without FTS5, changed in the notes."""
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
        """Return rankings of keys, best first, each of at most `limit`. Of two equal notes the newer comes first."""
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
    """Return the notes that contain most of the pieces. Every note is scanned; case matters beyond ASCII."""
    hits = " + ".join("(instr(lower(content), ?) > 0)" for _ in pieces)
    statement = f"""
        SELECT key FROM (SELECT key, recency, {hits} AS hits FROM memories)
        WHERE hits > 0 ORDER BY hits DESC, recency DESC LIMIT ?
    """  # noqa: S608 - only a count of marks
    return [row[0] for row in await connection.execute_fetchall(statement, (*pieces, limit))]


def _unknown(error: sqlite3.OperationalError) -> bool:
    """Return whether SQLite has no FTS5, or no process with FTS5 has stored a note yet."""
    return str(error).startswith(("no such module", f"no such table: {_TABLE}"))


_RANKED = 100  # places of each ranking that count
_LONGEST_KEY = 18  # digits: more do not fit into a key
_DAMPING = 60  # of reciprocal rank: how little the very first places stand out

_NEWEST = "SELECT key, created_at, recency, content FROM memories ORDER BY recency DESC LIMIT ?"
_MAKE_ROOM = "DELETE FROM memories WHERE key NOT IN (SELECT key FROM memories ORDER BY recency DESC LIMIT ?)"


class MemoryStore:
    """The notes of a user (core.memory.Memories).

    max_notes   the most notes; the ones saved longest ago make room
    max_bytes   the most bytes of UTF-8 of one note
    embedder    computes vectors of texts; None = search by words alone
    seconds     a search waits for the embedder, at most twice
    now         returns seconds since 1970
    clock       returns seconds of a monotonic clock
    index       finds words
    """

    def __init__(
        self,
        database: Database,
        *,
        max_notes: int,
        max_bytes: int,
        embedder: Embedder | None = None,
        seconds: float = SECONDS,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        index: MemoryIndex | None = None,
    ) -> None:
        self._database = database
        self._max_notes = max_notes
        self._max_bytes = max_bytes
        self._vectors = None if embedder is None else MemoryVectors(database, embedder, seconds=seconds, clock=clock)
        self._now = now
        self._index = index or MemoryIndex()

    @property
    def method(self) -> str:
        """Return how searches find; see core.memory.Memories.method."""
        if self._vectors is None:
            return "words"
        model = self._vectors.model
        return f"words ({model} gave no meaning)" if self._vectors.paused else f"words and meaning ({model})"

    async def save(self, content: str) -> tuple[Remembered, bool]:
        """Store a note; see core.memory.Memories.save. Notes that differ only in white space count as one."""
        text = content.strip().encode("utf-8", "replace").decode()
        size = len(text.encode())
        if not text:
            raise ToolError(ToolErrorCategory.INVALID_PARAMETERS, "a note cannot be blank")
        if size > self._max_bytes:
            raise ToolError(
                ToolErrorCategory.INVALID_PARAMETERS,
                f"the note has {size} bytes, more than the {self._max_bytes} a note may have",
                "Keep what matters, or save several notes.",
            )
        return await self._database.write(lambda connection: self._keep(connection, text))

    async def search(self, query: str, limit: int) -> tuple[Remembered, ...]:
        """Return the notes that fit best; see core.memory.Memories.search.

        A query without a word gives the newest notes.
        """
        terms = terms_of(query)
        near = await self._vectors.find(query, _RANKED) if self._vectors and terms else []
        return await self._database.read(lambda connection: self._find(connection, terms, near, limit))

    async def delete(self, note: str) -> Remembered | None:
        """Delete the note with this id for good. Return it, or None if there is none. Raises StoreUnavailable."""
        if not (note.isascii() and note.isdecimal() and len(note) <= _LONGEST_KEY):
            return None
        return await self._database.write(lambda connection: self._remove(connection, int(note)))

    async def _remove(self, connection: aiosqlite.Connection, key: int) -> Remembered | None:
        rows = await connection.execute_fetchall(
            "DELETE FROM memories WHERE key = ? RETURNING created_at, content", (key,)
        )
        await self._index.update(connection)
        return next((Remembered(str(key), content, created_at) for created_at, content in rows), None)

    async def _keep(self, connection: aiosqlite.Connection, text: str) -> tuple[Remembered, bool]:
        digest, now = hashlib.sha256(" ".join(text.split()).encode()).digest(), int(self._now())
        (recency,) = next(iter(await connection.execute_fetchall("SELECT coalesce(max(recency), 0) + 1 FROM memories")))
        renewed = list(
            await connection.execute_fetchall(
                "UPDATE memories SET created_at = ?, recency = ? WHERE digest = ? RETURNING key, content",
                (now, recency, digest),
            )
        )
        if renewed:
            return Remembered(str(renewed[0][0]), renewed[0][1], now), False
        async with connection.execute(
            "INSERT INTO memories (digest, created_at, recency, content) VALUES (?, ?, ?, ?)",
            (digest, now, recency, text),
        ) as cursor:
            key = cursor.lastrowid
        await connection.execute_fetchall(_MAKE_ROOM, (self._max_notes,))
        await self._index.update(connection)
        return Remembered(str(key), text, now), True

    async def _find(
        self, connection: aiosqlite.Connection, terms: Terms, near: Sequence[int], limit: int
    ) -> tuple[Remembered, ...]:
        if not terms:
            rows = await connection.execute_fetchall(_NEWEST, (limit,))
            return tuple(Remembered(str(key), content, created_at) for key, created_at, _, content in rows)
        scores = _merged((*await self._index.find(connection, terms, _RANKED), near))
        marks = ", ".join("?" for _ in scores)
        rows = await connection.execute_fetchall(
            f"SELECT key, created_at, recency, content FROM memories WHERE key IN ({marks})",  # noqa: S608 - marks only
            tuple(scores),
        )
        best = sorted(rows, key=lambda row: (-scores[row[0]], -row[2]))[:limit]
        return tuple(Remembered(str(key), content, created_at, scores[key]) for key, created_at, _, content in best)


def _merged(rankings: Iterable[Sequence[int]]) -> dict[int, float]:
    """Return scores by key. A note that several rankings contain, and contain near the top, scores best."""
    scores = dict[int, float]()
    for ranking in rankings:
        for place, key in enumerate(ranking):
            scores[key] = scores.get(key, 0.0) + 1 / (_DAMPING + place)
    return scores
