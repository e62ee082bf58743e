"""A task that is cancelled while it starts a process, and what is then left of the process."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from tests.fakes.held import PATIENCE

_LATE = 0.02


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that calls `on_start` while it starts a process, and hears late of its end, as on a busy machine.

    running   how many processes have started whose end it has not heard of
    """

    on_start: Callable[[], object] = staticmethod(lambda: None)
    running = 0

    async def subprocess_exec(self, *args: Any, **kwargs: Any) -> Any:
        self.call_soon(self.on_start)
        self.running += 1
        try:
            return await super().subprocess_exec(*args, **kwargs)
        except OSError:
            self.running -= 1
            raise

    def _child_watcher_callback(self, *args: Any) -> None:
        self.call_later(_LATE, self._hear, *args)

    def _hear(self, *args: Any) -> None:
        super()._child_watcher_callback(*args)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        self.running -= 1


def left_of_a_cancelled_start(work: Callable[[], Awaitable[object]]) -> int:
    """Do the work in an event loop of its own, and cancel it while its first process starts.

    Return how many processes the work has left to nobody. Without a start, AssertionError is raised.
    """
    started = list[bool]()

    async def cancelled() -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _Loop)
        with anyio.CancelScope() as scope:
            loop.on_start = lambda: (started.append(True), scope.cancel())
            await work()
        left = loop.running
        with anyio.fail_after(PATIENCE):
            while loop.running:  # noqa: ASYNC110 - nobody tells of those that are left
                await anyio.sleep(_LATE)
        return left

    left = anyio.run(cancelled, backend_options={"loop_factory": _Loop})
    assert started
    return left
