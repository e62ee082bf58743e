"""The clock of the event loop, put forward by a test that waited for something else than time."""

import asyncio


def pass_time(seconds: float) -> None:
    """Let so much time pass at once for all that waits in the running event loop."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds
