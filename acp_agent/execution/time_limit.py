"""How long one search may take, and how far it came: a tree may be too large, or made to be slow (T4.24)."""

from collections.abc import Callable
from time import monotonic

SEARCH_SECONDS = 20.0


class TimeLimit:
    """Runs from its making on, for so many seconds. A search asks at every step, in the order of the paths.

    stopped   the absolute path at which the time was first found to be over: nothing behind it was searched
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds
        self.stopped: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether the time is used up."""
        return self.stopped is not None or self._clock() >= self._end

    def stops_at(self, path: str) -> bool:
        """Whether to go no further than this absolute path."""
        if self.stopped is None and self.is_over:
            self.stopped = path
        return self.stopped is not None
