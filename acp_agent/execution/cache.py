"""Keep the answers to reading calls in memory until something changes.

The cache is inside the gates, so that a kept answer does not get around a denial, and outside of the output pipeline,
so that kept answers are redacted. A kept answer replaces only the tool: audit, events and the loop see every call.
"""

import hashlib
import json
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic
from typing import TypeAlias

from acp_agent.core.types import Access, Json, PathSubject, ToolResult, UrlSubject
from acp_agent.execution.runner import ToolExecutor
from acp_agent.gates.gate import CallFacts

_THINKING = "_tafc_think"
"""An argument in which some models think aloud. It is no part of the question."""

Stamp: TypeAlias = Callable[[str], Awaitable[str | None]]
"""Returns a text that differs for each state of the file at a call's path, or None. It never raises."""


@dataclass(frozen=True, slots=True)
class Key:
    """What a call asks, and the state of the files that it reads.

    lasting   whether an answer is valid in later turns too, since the user may change files between two turns
    """

    tool: str
    digest: str
    lasting: bool


@dataclass(frozen=True, slots=True)
class _Entry:
    """An answer, its size in bytes, and the time at which it was stored."""

    result: ToolResult
    size: int
    since: float


class ResultCache:
    """The kept answers of one session. Only one event loop may use them, no threads.

    enabled      whether answers are kept
    ttl          the seconds for which an answer is valid; 0 until something changes
    max_entries, max_bytes   the limits beyond which the least recently used answers are removed
    now          returns the time in seconds
    hits, misses   the counts of `get` since the start or the last `clear`
    """

    def __init__(
        self,
        *,
        enabled: bool = True,
        ttl: float = 300.0,
        max_entries: int = 256,
        max_bytes: int = 16 * 1024 * 1024,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self.enabled = enabled
        self.hits = 0
        self.misses = 0
        self._ttl = ttl
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._now = now
        self._entries = OrderedDict[Key, _Entry]()
        self._bytes = 0
        self._changing = 0
        self._generation = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def generation(self) -> int:
        """The number of changes so far. An answer is stored with the value from when its call began."""
        return self._generation

    def get(self, key: Key) -> ToolResult | None:
        """Return the kept answer for a key if it is still valid."""
        entry = self._entries.get(key)
        if entry is not None and self._ttl and self._now() - entry.since >= self._ttl:
            self._drop(key)
            entry = None
        if entry is None:
            self.misses += 1
            return None
        self._entries.move_to_end(key)
        self.hits += 1
        return entry.result

    def put(self, key: Key, result: ToolResult, generation: int) -> None:
        """Keep an answer, unless something changed since `generation` or is changing now."""
        size = _size(result)
        if not self.enabled or self._changing or generation != self._generation or size > self._max_bytes:
            return
        self._drop(key)
        self._entries[key] = _Entry(result, size, self._now())
        self._bytes += size
        while len(self._entries) > self._max_entries or self._bytes > self._max_bytes:
            self._drop(next(iter(self._entries)))

    @contextmanager
    def changing(self) -> Generator[None]:
        """Empty the cache before and after the block, and keep nothing meanwhile, since something changes."""
        self._empty()
        self._changing += 1
        try:
            yield
        finally:
            self._changing -= 1
            self._empty()

    def turn_began(self) -> None:
        """Remove the answers that changes of the user since the last turn may have made wrong."""
        self._generation += 1
        for key in [key for key in self._entries if not key.lasting]:
            self._drop(key)

    def clear(self) -> None:
        """Remove everything and reset the counts, for `/clear`."""
        self._empty()
        self.hits = self.misses = 0

    def _empty(self) -> None:
        self._generation += 1
        self._entries.clear()
        self._bytes = 0

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size


class CacheExecutor:
    """Answers calls of cacheable tools from the cache, and marks such a result as `cached`.

    A call that changes something empties the cache before and after it runs. An answer from files is kept under their
    stamps from before the call: if a file changed meanwhile, no later call has the old stamp. The answer of a call that
    reads a file without a stamp is never kept.
    """

    def __init__(self, wrapped: ToolExecutor, cache: ResultCache, stamp: Stamp) -> None:
        self._wrapped = wrapped
        self._cache = cache
        self._stamp = stamp

    async def execute(self, facts: CallFacts) -> ToolResult:
        """Return the kept answer to an equal call, or run the call."""
        if facts.spec.mutates:
            with self._cache.changing():
                return await self._wrapped.execute(facts)
        generation = self._cache.generation
        key = await self._key(facts) if facts.spec.cacheable and self._cache.enabled else None
        if key is None:
            return await self._wrapped.execute(facts)
        kept = self._cache.get(key)
        if kept is not None:
            return replace(kept, cached=True)
        result = await self._wrapped.execute(facts)
        if result.failure is None:
            self._cache.put(key, result, generation)
        return result

    async def _key(self, facts: CallFacts) -> Key | None:
        """Return the key of a call, or None if it reads a file whose state is unknown."""
        stamps: list[str] = []
        lasting = bool(facts.subjects)
        for subject in facts.subjects:
            match subject:
                case PathSubject(path, Access.READ):
                    stamp = await self._stamp(path)
                    if stamp is None:
                        return None
                    stamps.append(stamp)
                case UrlSubject():
                    pass
                case _:
                    lasting = False
        return Key(facts.spec.name, _digest(facts, stamps), lasting)


def _digest(facts: CallFacts, stamps: list[str]) -> str:
    """Return the SHA-256 over sorted arguments, subjects (such as the commands that a tool chose) and stamps."""
    arguments = {key: value for key, value in (facts.call.arguments or {}).items() if key != _THINKING}
    asked = (json.dumps(arguments, sort_keys=True), *map(repr, facts.subjects), *stamps)
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


def _size(result: ToolResult) -> int:
    """Return the bytes of a result's texts and pictures in memory."""
    frame = result.frame
    words = (result.text, result.display or "", *((frame.head, frame.headline, frame.ending) if frame else ()))
    pictures = (image.data for image in result.images)
    return sum(map(sys.getsizeof, (*words, *pictures))) + _json_size(result.envelope)


def _json_size(value: Json) -> int:
    match value:
        case dict():
            return sum(sys.getsizeof(key) + _json_size(each) for key, each in value.items())
        case list():
            return sum(map(_json_size, value))
        case _:
            return sys.getsizeof(value)
