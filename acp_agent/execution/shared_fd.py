"""A file descriptor that several threads use and one closes."""

import errno
import os
import threading
import weakref
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class SharedFd:
    """An open file descriptor that is closed once, and only after the last use of it has ended.

    A number that is closed while a thread uses it may already mean another file. Without `close`, the descriptor is
    closed together with this object.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._close = weakref.finalize(self, os.close, fd)
        self._lock = threading.Lock()
        self._users = 0
        self._closing = False

    def use(self, action: Callable[[int], T]) -> T:
        """Return what `action` returns for the descriptor. Raises OSError (EBADF) after `close`."""
        with self._lock:
            if self._closing:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            self._users += 1
        try:
            return action(self._fd)
        finally:
            with self._lock:
                self._users -= 1
                is_over = self._closing and not self._users
            if is_over:
                self._close()

    def close(self) -> None:
        """Close the descriptor now, or when the uses under way have ended. Safe to call twice."""
        with self._lock:
            self._closing = True
            is_over = not self._users
        if is_over:
            self._close()
