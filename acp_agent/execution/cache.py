"""Answers to reading calls, kept in memory until something changes (requirements O6).

Stands inside the gates, so that a kept answer is no way around a denial, and outside of the output pipeline, so that
what is kept is redacted. What a kept answer leaves out is the tool alone: audit, events and the loop see every call.
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
from acp_agent.gates.facts import CallFacts

_THINKING = "_tafc_think"
"""An argument some models think aloud in: no part of what is asked (O6.3)."""

Stamp: TypeAlias = Callable[[str], Awaitable[str | None]]
"""A text no other state of a file ever has, by the path as a call names it; None where there is none. Never raises."""


@dataclass(frozen=True, slots=True)
class Key:
    """What a call asks, and of which state of the files it reads.

    lasting   whether an answer is good in later turns too: the user may change files between two of them
    """

    tool: str
    digest: str
    lasting: bool


@dataclass(frozen=True, slots=True)
class _Entry:
    """An answer, its size in bytes, and when it was put."""

    result: ToolResult
    size: int
    since: float


class ResultCache:
    """The kept answers of one session; shared with no other. For one event loop, not for threads.

    enabled      when false, nothing is kept
    ttl          seconds an answer is good; 0 = until something changes
    max_entries, max_bytes   beyond these the answers used least recently go
    now          a clock in seconds
    hits, misses   of `get` since the start or the last `clear`
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
        """What an answer must be put with: as it was when the call began."""
        return self._generation

    def get(self, key: Key) -> ToolResult | None:
        """The answer kept for a key, if it is good still."""
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
        """While something changes, and before and after: nothing is known. However it ends."""
        self._forget(lambda _: True)
        self._changing += 1
        try:
            yield
        finally:
            self._changing -= 1
            self._forget(lambda _: True)

    def turn_began(self) -> None:
        """Drop what the user may have changed since the last turn, unseen."""
        self._forget(lambda key: not key.lasting)

    def clear(self) -> None:
        """Forget everything, the counts too (`/clear`)."""
        self._forget(lambda _: True)
        self.hits = self.misses = 0

    def _forget(self, which: Callable[[Key], bool]) -> None:
        self._generation += 1
        for key in [key for key in self._entries if which(key)]:
            self._drop(key)

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size


class CacheExecutor:
    """Answers calls of cacheable tools from what is kept, and marks such a result as `cached`.

    A call that changes something empties the cache before and after it ran (O6.4). What a call reads from files is
    kept under their stamps from before it read: had one changed meanwhile, nobody would ask by the old stamp again. A
    call that reads a file without a stamp is never kept (O6.5).
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
        """None when the call reads a file nobody can tell the state of."""
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
    """SHA-256 over arguments (sorted, O6.2), subjects (the commands a tool has chosen, say) and stamps."""
    arguments = {key: value for key, value in (facts.call.arguments or {}).items() if key != _THINKING}
    asked = (json.dumps(arguments, sort_keys=True), *map(repr, facts.subjects), *stamps)
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


def _size(result: ToolResult) -> int:
    """Bytes of its words and pictures in memory."""
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
