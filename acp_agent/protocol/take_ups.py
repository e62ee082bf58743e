"""Requests that come right behind a load or a resume wait until there is a session to ask (A6.3, A12.1)."""

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager

import anyio


class TakeUps:
    """Which sessions are being taken up, by their ids, and who waits for them."""

    def __init__(self) -> None:
        self._under_way = Counter[str]()
        self._over = anyio.Event()
        self._waiting: dict[str, list[anyio.CancelScope]] = {}

    @contextmanager
    def begun(self, session_id: str) -> Generator[Callable[[], None]]:
        """One is being taken up until the body calls what it is given, or is left."""
        self._under_way[session_id] += 1
        under_way = True

        def over() -> None:
            nonlocal under_way
            if not under_way:
                return
            under_way = False
            self._under_way[session_id] -= 1
            self._under_way += Counter()  # forgets those of which there are none
            ended, self._over = self._over, anyio.Event()
            ended.set()

        try:
            yield over
        finally:
            over()

    async def over(self, session_id: str) -> bool:
        """Wait until nobody is taking it up; at once where nobody is. False when `cancel` came meanwhile."""
        if session_id not in self._under_way:
            return True
        waiting = self._waiting.setdefault(session_id, [])
        scope = anyio.CancelScope()
        waiting.append(scope)
        try:
            with scope:
                while session_id in self._under_way:
                    await self._over.wait()
        finally:
            waiting.remove(scope)
            if not waiting:
                self._waiting.pop(session_id, None)
        return not scope.cancel_called

    def cancel(self, session_id: str) -> None:
        """Nobody is to wait for it any more."""
        for scope in self._waiting.get(session_id, ()):
            scope.cancel()
