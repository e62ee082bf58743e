"""When a server's tools are to be listed again: soon after it says so, not too often, and before the next call."""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

_SETTLE: Final = 0.5
"""Seconds after the server said its tools changed: it often says so several times."""
_REST: Final = 5.0
"""Seconds between two lists."""


class Relist:
    """What is known of a server's tools holds only while a list is not `due`. One for each conversation."""

    def __init__(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._sleep = sleep
        self._asked = anyio.Event()
        self._wanted = anyio.Event()
        self._done = anyio.Event()
        self.due = False

    def ask(self) -> None:
        """The server says that its tools changed."""
        self.due = True
        self._asked.set()

    async def asked(self) -> None:
        """Wait until there is something to list."""
        await self._asked.wait()

    async def settle(self) -> None:
        """The server may say it again."""
        await self._pause(_SETTLE)

    async def rest(self) -> None:
        """A list was read: the next one has time."""
        await self._pause(_REST)

    async def _pause(self, seconds: float) -> None:
        """Wait, but no longer once a call waits for the list: each call cuts one pause short."""
        async with anyio.create_task_group() as tasks:

            async def sleep() -> None:
                await self._sleep(seconds)
                tasks.cancel_scope.cancel()

            tasks.start_soon(sleep)
            await self._wanted.wait()
            tasks.cancel_scope.cancel()

    def begin(self) -> None:
        """The list is about to be asked for: whatever the server says from now on is about the next one."""
        self._asked, self._wanted = anyio.Event(), anyio.Event()

    def end(self) -> None:
        """The list is there."""
        self.due = self._asked.is_set()
        self.wake()

    def wake(self) -> None:
        """Have those who wait look again; there may be no list any more."""
        done, self._done = self._done, anyio.Event()
        done.set()

    async def known(self) -> None:
        """Wait until something has happened to the list that is due."""
        self._wanted.set()
        await self._done.wait()
