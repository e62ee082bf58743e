"""The time of day and dates, also beyond what Python can represent.

Python keeps the time of day in 64 bits of nanoseconds and raises OverflowError after April 2262. A datetime ends with
the year 9999. Neither a wrong clock nor a damaged record may stop the agent.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime

_LAST_NS = 2**63 - 1
_FIRST = datetime(1, 1, 1, tzinfo=UTC)
_LAST = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)


def now_ns(read: Callable[[], int] = time.time_ns) -> int:
    """Return nanoseconds since 1970, or the last moment that Python can represent."""
    try:
        return read()
    except OverflowError:
        return _LAST_NS


def now_ms(read: Callable[[], int] = time.time_ns) -> int:
    """Return milliseconds since 1970, or the last moment that Python can represent."""
    return now_ns(read) // 1_000_000


def utc(seconds: float) -> datetime:
    """Return the datetime of a number of seconds since 1970, or the first or last datetime that there is."""
    try:
        return min(datetime.fromtimestamp(seconds, UTC), _LAST)
    except (ValueError, OverflowError, OSError):
        return _FIRST if seconds < 0 else _LAST
