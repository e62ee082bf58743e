"""A process that saves notes, to be run beside others or killed.

python -m tests.unit.store.memory_writer write PATH PREFIX COUNT   saves so many notes
python -m tests.unit.store.memory_writer kills PATH COUNT          starts so many writers and kills each with SIGKILL
"""

import os
import random
import select
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio

from acp_agent.store.memories import MemoryStore
from tests.unit.store.databases import integrity, opened


async def save(path: str, prefix: str, count: int, acknowledge: Callable[[str], object]) -> None:
    async with opened(Path(path)) as database:
        memories = MemoryStore(database, max_notes=40, max_bytes=8192)
        for number in range(count):
            acknowledge((await memories.save(f"{prefix} note {number} {'word ' * (number % 300)}"))[0].id)


def notes(path: str) -> dict[str, str]:
    """All notes, as another program sees them."""
    with closing(sqlite3.connect(path)) as connection:
        return {str(key): content for key, content in connection.execute("SELECT key, content FROM memories")}


def indexed(path: str) -> dict[str, str]:
    """All notes the index of words knows."""
    with closing(sqlite3.connect(path)) as connection:
        return {str(key): content for key, content in connection.execute("SELECT rowid, content FROM memory_words")}


def kills(path: str, count: int) -> None:
    """Prints how many notes were acknowledged."""
    chance, last = random.Random(count), 0
    anyio.run(save, path, "first", 1, print)
    for number in range(count):
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            anyio.run(save, path, f"writer {number}", 10_000, lambda key, fd=tell: os.write(fd, f"{key}\n".encode()))
            os._exit(1)
        os.close(tell)
        with open(told, "rb") as pipe:
            select.select([told], [], [])
            select.select([], [], [], chance.uniform(0, 0.03))
            os.kill(child, signal.SIGKILL)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, "it ended by itself"
            keys = [int(line) for line in pipe.read().splitlines()]
        assert integrity(Path(path)) == "ok"
        there = notes(path)
        assert indexed(path) == there
        assert len(there) <= 40
        last = keys[-1]
        assert {str(key) for key in keys[-30:]} <= set(there), "an acknowledged note is gone"
    print(last)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        anyio.run(save, sys.argv[2], sys.argv[3], int(sys.argv[4]), print)
    else:
        kills(sys.argv[2], int(sys.argv[3]))
