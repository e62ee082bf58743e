"""The notes that the model saves for later sessions: one table with a row for each note, shared by all sessions.

A search ranks the notes by words and, if there is an embedding model, by meaning. The rankings are merged by reciprocal
rank. A search waits only briefly for the model, and does not ask a model that failed in the last minute.
"""

import hashlib
import math
import sqlite3
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from operator import mul
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from acp_agent.core.data import frozen
from acp_agent.core.errors import ProviderError, StoreUnavailable, ToolError
from acp_agent.core.services import Remembered
from acp_agent.log import Log
from acp_agent.store.db import Database
from acp_agent.text import lazy_regex

if TYPE_CHECKING:
    from acp_agent.core.ports import Embedder

_COMPARED = 2000  # newest notes whose vectors are compared with the query's
_COMPUTED = 64  # notes without a vector that get one during a search
_BATCH = 8  # notes in one request; each batch is stored, so that little is lost when time is up
_LONGEST = 2000  # characters of a text that the model gets: about what small models accept
_PAUSE = 60.0  # seconds for which a model that failed is not asked
_NEAR = 0.2  # the cosine below which a note counts as unrelated to the query
SECONDS = 3.0
"""A search waits this long at most for the vector of its query, and as long again for vectors of new notes."""

_WITHOUT_VECTOR = """
    SELECT key, content FROM memories
    WHERE NOT EXISTS (SELECT 1 FROM memory_vectors WHERE memory = key AND model = ?)
    ORDER BY recency DESC LIMIT ?
"""
_STORE_VECTOR = (
    "INSERT OR REPLACE INTO memory_vectors (memory, model, vector) SELECT key, ?, ? FROM memories WHERE key = ?"
)
_ALL_VECTORS = """
    SELECT key, vector FROM memories JOIN memory_vectors ON memory = key AND model = ? ORDER BY recency DESC LIMIT ?
"""

_log = Log(__name__)


class MemoryVectors:
    """A search of notes by meaning.

    seconds   see SECONDS
    clock     returns seconds of a monotonic clock
    """

    def __init__(
        self,
        database: Database,
        embedder: "Embedder",
        *,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._embedder = embedder
        self._seconds = seconds
        self._clock = clock
        self._paused_until = -math.inf
        self._catch_up_from = -math.inf

    @property
    def model(self) -> str:
        """Return the embedding model that computes the vectors."""
        return self._embedder.model

    @property
    def paused(self) -> bool:
        """Return whether the model failed less than a minute ago, so that it is not asked."""
        return self._clock() < self._paused_until

    async def find(self, query: str, limit: int) -> list[int]:
        """Return the keys of the notes nearest to a query, nearest first; none if the model or the database fails."""
        if self.paused:
            return []
        vectors: Sequence[Sequence[float]] = ()
        with anyio.move_on_after(self._seconds):
            vectors = await self._embed([query])
        if not vectors:
            _log.warning(
                "the embedding model gave no vector for a query; searching by words alone",
                model=self.model,
                pause=_PAUSE,
            )
            self._paused_until = self._clock() + _PAUSE
            return []
        try:
            if self._clock() >= self._catch_up_from:
                await self._catch_up()
            rows = await self._rows(_ALL_VECTORS, _COMPARED)
        except StoreUnavailable as error:
            _log.warning("the vectors of notes cannot be read; searching by words alone", error=str(error))
            return []
        return await to_thread.run_sync(_nearest, vectors[0], rows, limit, abandon_on_cancel=True)

    async def _catch_up(self) -> None:
        """Compute vectors of notes that have none of this model.

        Pause if none could be computed. Raises StoreUnavailable.
        """
        pause = self._clock() + _PAUSE
        with anyio.move_on_after(self._seconds):
            without_vector = await self._rows(_WITHOUT_VECTOR, _COMPUTED)
            for start in range(0, len(without_vector), _BATCH):
                batch = without_vector[start : start + _BATCH]
                vectors = await self._embed([content for _, content in batch])
                if not vectors:
                    break
                await self._keep(batch, vectors)
                pause = -math.inf
            pause = pause if without_vector else -math.inf
        self._catch_up_from = pause

    async def _keep(self, notes: Sequence[tuple[int, str]], vectors: Sequence[Sequence[float]]) -> None:
        """Store the vectors of notes. Raises StoreUnavailable."""

        def keep(connection: sqlite3.Connection) -> None:
            for (key, _), vector in zip(notes, vectors, strict=True):
                connection.execute(_STORE_VECTOR, (self.model, _little_endian(array("f", vector)).tobytes(), key))

        await self._database.write(keep)

    async def _rows(self, statement: str, limit: int) -> list[tuple[int, Any]]:
        """Return the rows that a statement about this model finds. Raises StoreUnavailable."""
        return await self._database.read(
            lambda connection: connection.execute(statement, (self.model, limit)).fetchall()
        )

    async def _embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return a vector for each text, or no vectors if the model fails or its answer does not fit the texts."""
        try:
            vectors = await self._embedder.embed([text[:_LONGEST] for text in texts])
        except ProviderError as error:
            _log.warning("the embedding model failed", model=self.model, error=str(error))
            return ()
        sizes = {len(vector) for vector in vectors}
        finite = all(map(math.isfinite, (number for vector in vectors for number in vector)))
        fits = len(vectors) == len(texts) and len(sizes) == 1 and 0 not in sizes and finite
        return vectors if fits else ()


def _nearest(query: Sequence[float], rows: Sequence[tuple[int, bytes]], limit: int) -> list[int]:
    """Return the keys whose vectors have the smallest angle to the query's. Of two equal ones the first stays first."""
    found: list[tuple[float, int]] = []
    length = math.hypot(*query)
    for key, data in rows:
        vector = array("f")
        vector.frombytes(data[: len(data) // 4 * 4])
        _little_endian(vector)
        if len(vector) != len(query):  # the vector of another model that had the same name
            continue
        size = length * math.hypot(*vector)
        near = sum(map(mul, query, vector)) / size if size else 0.0
        if near >= _NEAR:
            found.append((-near, key))
    found.sort(key=lambda pair: pair[0])
    return [key for _, key in found[:limit]]


def _little_endian(floats: "array[float]") -> "array[float]":
    if sys.byteorder == "big":
        floats.byteswap()
    return floats


_LONGEST_QUERY = 10_000  # characters that are looked at
_LONGEST_WORD = 64  # characters; the rest of a word is not searched
_MOST_TERMS = 32  # of each kind
_WORD = lazy_regex(r"[^\W_]+")
# Scripts that put no blank between words: Thai to Burmese, Khmer, kana, ideographs.
_UNSPACED = lazy_regex(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)


@frozen
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
        pieces += (pair for run in runs for pair in (run[at : at + 2] for at in range(max(len(run) - 1, 1))))
        words += filter(None, _UNSPACED.split(word))
    return Terms(_first(word[:_LONGEST_WORD] for word in words), _first(pieces))


def _first(found: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(found))[:_MOST_TERMS]


_TABLE = "memory_words"
_TOKENS = "porter unicode61 remove_diacritics 2"
_UNINDEX = f"DELETE FROM {_TABLE} WHERE rowid NOT IN (SELECT key FROM memories)"  # noqa: S608 - our own name
_INDEX = f"""
    INSERT INTO {_TABLE} (rowid, content)
    SELECT key, content FROM memories WHERE key NOT IN (SELECT rowid FROM {_TABLE})
"""  # noqa: S608 - our own name
_FIND = f"""
    SELECT key FROM {_TABLE} JOIN memories ON key = {_TABLE}.rowid
    WHERE {_TABLE} MATCH ? ORDER BY bm25({_TABLE}), recency DESC LIMIT ?
"""  # noqa: S608 - our own name


class MemoryIndex:
    """The index of words: an FTS5 table beside the notes, or a scan of all notes if SQLite has no FTS5.

    The table repeats the text of the notes. A process without FTS5 may share the file and change only the notes, so
    each update compares the two tables. The methods are parts of a transaction. `engine` is the name of SQLite's
    module; tests give one that does not exist.
    """

    def __init__(self, engine: str = "fts5") -> None:
        self._engine = engine

    def update(self, connection: sqlite3.Connection) -> None:
        """Make the index equal to the notes, which this transaction or a process without FTS5 has changed."""
        try:
            connection.execute(
                f"CREATE VIRTUAL TABLE IF NOT EXISTS {_TABLE} USING {self._engine}(content, tokenize = '{_TOKENS}')"
            )
            connection.execute(_UNINDEX)
            connection.execute(_INDEX)
        except sqlite3.OperationalError as error:
            if not _has_no_index(error):
                raise

    def find(self, connection: sqlite3.Connection, terms: Terms, limit: int) -> list[list[int]]:
        """Return rankings of keys, best first, each of at most `limit`. Of two equal notes the newer comes first."""
        rankings = list[list[int]]()
        pieces = terms.pieces
        if terms.words:
            try:
                rankings.append([row[0] for row in connection.execute(_FIND, (terms.match, limit))])
            except sqlite3.OperationalError as error:
                if not _has_no_index(error):
                    raise
                pieces = (*terms.words, *pieces)
        if pieces:
            rankings.append(_holding(connection, pieces, limit))
        return rankings


def _holding(connection: sqlite3.Connection, pieces: Sequence[str], limit: int) -> list[int]:
    """Return the notes that contain a piece, those with most pieces first. Every note is scanned.

    Case matters beyond ASCII.
    """
    hits = " + ".join("(instr(lower(content), ?) > 0)" for _ in pieces)
    statement = f"""
        SELECT key FROM (SELECT key, recency, {hits} AS hits FROM memories)
        WHERE hits > 0 ORDER BY hits DESC, recency DESC LIMIT ?
    """  # noqa: S608 - only a count of marks
    return [row[0] for row in connection.execute(statement, (*pieces, limit))]


def _has_no_index(error: sqlite3.OperationalError) -> bool:
    """Return whether SQLite has no FTS5, or no process with FTS5 has stored a note yet."""
    return str(error).startswith(("no such module", f"no such table: {_TABLE}"))


_RANKED = 100  # notes of each ranking that are merged
_LONGEST_KEY = 18  # digits of a note's number: more do not fit into SQLite's 64 bits
_DAMPING = 60  # the constant k of reciprocal rank fusion: with a large one, the first ranks stand out less
_NEWEST = "SELECT key, created_at, recency, content FROM memories ORDER BY recency DESC LIMIT ?"
_MAKE_ROOM = "DELETE FROM memories WHERE key NOT IN (SELECT key FROM memories ORDER BY recency DESC LIMIT ?)"


class MemoryStore:
    """The notes of a user (core.services.Memories).

    max_notes   the most notes; the ones saved longest ago make room
    max_bytes   the most bytes of UTF-8 of one note
    embedder    computes vectors of texts; None = search by words alone
    seconds     see SECONDS
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
        embedder: "Embedder | None" = None,
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
        if self._vectors is None:
            return "words"
        model = self._vectors.model
        return f"words only ({model} failed)" if self._vectors.paused else f"words and meaning ({model})"

    async def save(self, content: str) -> tuple[Remembered, bool]:
        """Store a note. White space around it does not count."""
        text = content.strip().encode("utf-8", "replace").decode()
        size = len(text.encode())
        if not text:
            raise ToolError.invalid("a note cannot be blank")
        if size > self._max_bytes:
            raise ToolError.invalid(
                f"the note has {size} bytes, more than the {self._max_bytes} a note may have",
                "Keep what matters, or save several notes.",
            )
        return await self._database.write(lambda connection: self._keep(connection, text))

    async def search(self, query: str, limit: int) -> tuple[Remembered, ...]:
        """Return the notes that fit best. A query without a word gives the newest notes."""
        terms = terms_of(query)
        near = await self._vectors.find(query, _RANKED) if self._vectors and terms else []
        return await self._database.read(lambda connection: self._find(connection, terms, near, limit))

    async def delete(self, note: str) -> Remembered | None:
        """Delete the note with this id for good. Return it, or None if there is none. Raises StoreUnavailable."""
        if not (note.isascii() and note.isdecimal() and len(note) <= _LONGEST_KEY):
            return None
        return await self._database.write(lambda connection: self._remove(connection, int(note)))

    def _remove(self, connection: sqlite3.Connection, key: int) -> Remembered | None:
        remove = "DELETE FROM memories WHERE key = ? RETURNING created_at, content"
        rows = connection.execute(remove, (key,)).fetchall()
        self._index.update(connection)
        return next((Remembered(str(key), content, created_at) for created_at, content in rows), None)

    def _keep(self, connection: sqlite3.Connection, text: str) -> tuple[Remembered, bool]:
        digest, now = hashlib.sha256(" ".join(text.split()).encode()).digest(), int(self._now())
        (recency,) = connection.execute("SELECT coalesce(max(recency), 0) + 1 FROM memories").fetchone()
        renew = "UPDATE memories SET created_at = ?, recency = ? WHERE digest = ? RETURNING key, content"
        for key, content in connection.execute(renew, (now, recency, digest)).fetchall():
            return Remembered(str(key), content, now), False
        insert = "INSERT INTO memories (digest, created_at, recency, content) VALUES (?, ?, ?, ?)"
        key = connection.execute(insert, (digest, now, recency, text)).lastrowid
        connection.execute(_MAKE_ROOM, (self._max_notes,))
        self._index.update(connection)
        return Remembered(str(key), text, now), True

    def _find(
        self, connection: sqlite3.Connection, terms: Terms, near: Sequence[int], limit: int
    ) -> tuple[Remembered, ...]:
        if not terms:
            rows = connection.execute(_NEWEST, (limit,))
            return tuple(Remembered(str(key), content, created_at) for key, created_at, _, content in rows)
        scores = _merged((*self._index.find(connection, terms, _RANKED), near))
        marks = ", ".join("?" for _ in scores)
        found = f"SELECT key, created_at, recency, content FROM memories WHERE key IN ({marks})"  # noqa: S608 - marks only
        rows = connection.execute(found, tuple(scores))
        best = sorted(rows, key=lambda row: (-scores[row[0]], -row[2]))[:limit]
        return tuple(Remembered(str(key), content, created_at, scores[key]) for key, created_at, _, content in best)


def _merged(rankings: Iterable[Sequence[int]]) -> dict[int, float]:
    """Return scores by key. A note that several rankings contain, and contain near the top, scores best."""
    scores = dict[int, float]()
    for ranking in rankings:
        for place, key in enumerate(ranking):
            scores[key] = scores.get(key, 0.0) + 1 / (_DAMPING + place)
    return scores
