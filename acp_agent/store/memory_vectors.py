"""The search of notes by meaning: a vector for each note and model, compared one by one.

Notes are found by their words as well, so every failure here is tolerated: a search waits only briefly for the
embedding model, and a model that failed is not asked again for a minute.
"""

import math
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from operator import mul

import aiosqlite
import anyio
from anyio import to_thread

from acp_agent.core.errors import ProviderError, StoreUnavailable
from acp_agent.core.ports import Embedder
from acp_agent.log import Log
from acp_agent.store.db import Database

_COMPARED = 2000  # notes, the newest
_CAUGHT_UP = 64  # notes that get their vector in one search
_BATCH = 8  # of them in one request: what came before time was up is kept
_LONGEST = 2000  # characters of a text that is placed: about what small models take
_PAUSE = 60.0  # seconds a model that has failed is not asked
_NEAR = 0.2  # cosine below which a note has nothing to do with a query

SECONDS = 3.0
"""A search waits this long at most for the vector of its query, and as long again for vectors of new notes."""

_LACKING = """
    SELECT key, content FROM memories
    WHERE NOT EXISTS (SELECT 1 FROM memory_vectors WHERE memory = key AND model = ?)
    ORDER BY recency DESC LIMIT ?
"""
_KEEP = "INSERT OR REPLACE INTO memory_vectors (memory, model, vector) SELECT key, ?, ? FROM memories WHERE key = ?"
_ALL = """
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
        embedder: Embedder,
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
        placed: Sequence[Sequence[float]] = ()
        with anyio.move_on_after(self._seconds):
            placed = await self._place([query])
        if not placed:
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
            rows = await self._database.read(self._all)
        except StoreUnavailable as error:
            _log.warning("the vectors of notes cannot be read; searching by words alone", error=str(error))
            return []
        return await to_thread.run_sync(_nearest, placed[0], rows, limit, abandon_on_cancel=True)

    async def _catch_up(self) -> None:
        """Compute vectors of notes that have none of this model.

        Pause if none could be computed. Raises StoreUnavailable.
        """
        pause = self._clock() + _PAUSE
        with anyio.move_on_after(self._seconds):
            lacking = await self._database.read(self._lacking)
            for start in range(0, len(lacking), _BATCH):
                batch = lacking[start : start + _BATCH]
                placed = await self._place([content for _, content in batch])
                if not placed:
                    break
                await self._keep(batch, placed)
                pause = -math.inf
            pause = pause if lacking else -math.inf
        self._catch_up_from = pause

    async def _keep(self, notes: Sequence[tuple[int, str]], vectors: Sequence[Sequence[float]]) -> None:
        """Store the vectors of notes. Raises StoreUnavailable."""

        async def keep(connection: aiosqlite.Connection) -> None:
            for (key, _), vector in zip(notes, vectors, strict=True):
                await connection.execute_fetchall(_KEEP, (self.model, _bytes(vector), key))

        await self._database.write(keep)

    async def _place(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return a vector for each text, or nothing if the model fails or its answer does not fit."""
        try:
            placed = await self._embedder.embed([text[:_LONGEST] for text in texts])
        except ProviderError as error:
            _log.warning("the embedding model failed", model=self.model, error=str(error))
            return ()
        sizes = {len(vector) for vector in placed}
        finite = all(map(math.isfinite, (number for vector in placed for number in vector)))
        fits = len(placed) == len(texts) and len(sizes) == 1 and 0 not in sizes and finite
        return placed if fits else ()

    async def _lacking(self, connection: aiosqlite.Connection) -> list[tuple[int, str]]:
        return [(row[0], row[1]) for row in await connection.execute_fetchall(_LACKING, (self.model, _CAUGHT_UP))]

    async def _all(self, connection: aiosqlite.Connection) -> list[tuple[int, bytes]]:
        return [(row[0], row[1]) for row in await connection.execute_fetchall(_ALL, (self.model, _COMPARED))]


def _nearest(query: Sequence[float], rows: Sequence[tuple[int, bytes]], limit: int) -> list[int]:
    """Return the keys whose vectors have the smallest angle to the query's. Of two equal ones the first stays first."""
    found: list[tuple[float, int]] = []
    length = math.hypot(*query)
    for key, data in rows:
        vector = _floats(data)
        if len(vector) != len(query):  # of a model that changed under its name
            continue
        size = length * math.hypot(*vector)
        near = sum(map(mul, query, vector)) / size if size else 0.0
        if near >= _NEAR:
            found.append((-near, key))
    found.sort(key=lambda pair: pair[0])
    return [key for _, key in found[:limit]]


def _bytes(vector: Sequence[float]) -> bytes:
    return _little_endian(array("f", vector)).tobytes()


def _floats(data: bytes) -> "array[float]":
    floats = array("f")
    floats.frombytes(data[: len(data) // 4 * 4])
    return _little_endian(floats)


def _little_endian(floats: "array[float]") -> "array[float]":
    if sys.byteorder == "big":
        floats.byteswap()
    return floats
