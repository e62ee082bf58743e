"""A stream that wraps another one, and ends it."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

_T = TypeVar("_T")


@asynccontextmanager
async def closing(events: AsyncIterator[_T]) -> AsyncGenerator[AsyncIterator[_T]]:
    """Close the inner stream, and so its connection, however the outer one ends."""
    try:
        yield events
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()
