"""The clock of the event loop, put forward by a test that waited for something else than time; a wait for tasks."""

import asyncio
from typing import Any


def pass_time(seconds: float) -> None:
    """Let so much time pass at once for all that waits in the running event loop."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds


async def all_tasks_blocked() -> None:
    """Wait until all other tasks wait. That of anyio does the same, but sleeps for 0.1 s between two looks."""
    await asyncio.sleep(0)
    while any(map(_is_ready, asyncio.all_tasks() - {asyncio.current_task()})):  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0)


def _is_ready(task: "asyncio.Task[Any]") -> bool:
    waiter: asyncio.Future[Any] | None = getattr(task, "_fut_waiter")  # noqa: B009 - no type checker knows it
    return waiter is None or waiter.done()
