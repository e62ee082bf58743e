"""A connection to the database that can do a whole transaction at one go.

aiosqlite hands every statement to its thread and back, a tenth of a millisecond each time; the statement itself takes
a twentieth. What is written with every piece of an answer therefore makes that way once.
"""

import sqlite3
from collections import deque
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Connection(sqlite3.Connection):
    """What aiosqlite is given. Not for two threads at once, as sqlite3 connections are."""

    always_durable: bool = False
    """Whether no commit may be left to the system to write down: without a log (WAL) that could damage the file."""
    _durable: bool = True
    _wait: float = -1.0

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__(path, timeout, isolation_level=None, check_same_thread=False, uri=True)
        self.ahead = deque[Callable[[], None]]()
        """What the next calls of `commit` do first. aiosqlite makes them in its thread; nothing else lets us in."""

    def commit(self) -> None:
        """Commit, after what is to go ahead of it. Raises sqlite3.Error, and what that raises."""
        if self.ahead:
            self.ahead.popleft()()
        super().commit()

    def opening(self, begin: str, *, durable: bool, wait: float) -> str:
        """A script that makes the connection as wanted and begins a transaction with `begin`. To be run at once.

        durable   whether what it commits shall survive a power cut, and not only our death
        wait      seconds a statement waits for a lock
        """
        durable = durable or self.always_durable
        script = begin
        if durable is not self._durable:
            script = f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}; {script}"
        if wait != self._wait:
            script = f"PRAGMA busy_timeout = {int(wait * 1000)}; {script}"
        self._durable, self._wait = durable, wait
        return script

    def transact(self, begin: str, step: Callable[["Connection"], T], *, durable: bool, wait: float) -> T:
        """Do all of a transaction. Blocks. Raises sqlite3.Error and what `step` raises, all of it rolled back."""
        try:
            self.executescript(self.opening(begin, durable=durable, wait=wait))
            value = step(self)
            super().commit()
        except BaseException:
            self.rollback()
            raise
        return value

    def empty_log(self) -> None:
        """Write the log back and leave nothing of it, or leave it when somebody is using it. Raises sqlite3.Error."""
        self._wait = 0
        self.executescript("PRAGMA busy_timeout = 0; PRAGMA wal_checkpoint(TRUNCATE)")
