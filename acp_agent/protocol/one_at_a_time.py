"""What happens to one session happens one thing after another."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio


class OneAtATime:
    """A lock for each key, which is gone when nobody wants it."""

    def __init__(self) -> None:
        self._locks: dict[str, anyio.Lock] = {}
        self._ended = anyio.Event()

    def __contains__(self, key: str) -> bool:
        """Whether something happens to it just now, or is about to."""
        return key in self._locks

    @asynccontextmanager
    async def of(self, key: str) -> AsyncGenerator[None]:
        """Nothing else happens to `key` while the body runs. Not to be nested for one key."""
        lock = self._locks.setdefault(key, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            statistics = lock.statistics()
            if not statistics.locked and not statistics.tasks_waiting:
                self._locks.pop(key, None)
            ended, self._ended = self._ended, anyio.Event()
            ended.set()

    async def one_ended(self) -> None:
        """Wait until something has ended that happens to any of them."""
        await self._ended.wait()
