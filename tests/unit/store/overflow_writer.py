"""A process that keeps texts, to be run beside others or killed.

python -m tests.unit.store.overflow_writer write PATH COUNT      keeps so many texts; prints each reference and its seed
python -m tests.unit.store.overflow_writer kills PATH COUNT      starts so many writers and kills each with SIGKILL
python -m tests.unit.store.overflow_writer births FOLDER COUNT   kills so many while they make a new database
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

from tests.unit.store.databases import integrity, overflows

CONVERSATION = "killed"


def text_of(seed: int) -> str:
    """From a few bytes to a megabyte or two, and not only ASCII."""
    chance = random.Random(seed)
    size = int(10 ** chance.uniform(0, 5.5))
    return f"{seed}:" + chance.choice(["x", "é\n", "日本", "\0\x1b["]) * size


async def keep(path: str, seeds: range, acknowledge: Callable[[str, int], object]) -> None:
    async with overflows(Path(path)) as store:
        conversation = store.of(CONVERSATION)
        for seed in seeds:
            acknowledge(await conversation.put(text_of(seed)), seed)


def write(path: str, count: int) -> None:
    def acknowledge(reference: str, seed: int) -> None:
        print(reference, seed, flush=True)

    anyio.run(keep, path, range(count), acknowledge)


def killed(path: str, seeds: range, until: Callable[[int], object]) -> dict[str, int]:
    """What a child acknowledged before it was killed. `until` waits for the moment, given the pipe it tells by."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        anyio.run(keep, path, seeds, lambda reference, seed: os.write(tell, f"{reference} {seed}\n".encode()))
        os._exit(1)
    os.close(tell)
    with open(told, "rb") as pipe:
        until(told)
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, "it ended by itself"
        return {(parts := line.split())[0].decode(): int(parts[1]) for line in pipe.read().splitlines()}


def kept(path: str) -> dict[str, bytes]:
    """All that is in a database, as another program sees it."""
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT 'overflow:' || id, content FROM tool_overflow"))


def kills(path: str, count: int) -> None:
    """Prints how many texts were acknowledged, and how many more there are."""
    chance, acknowledged = random.Random(count), dict[str, int]()
    anyio.run(keep, path, range(0), print)
    for number in range(count):
        seconds = chance.uniform(0, 0.06)

        def until(pipe: int, seconds: float = seconds) -> None:
            select.select([pipe], [], [])  # it writes; now anywhere in it
            select.select([], [], [], seconds)

        acknowledged |= killed(path, range(number * 10_000, (number + 1) * 10_000), until)
        assert integrity(Path(path)) == "ok"
        there = kept(path)
        for reference, seed in acknowledged.items():
            assert there[reference] == text_of(seed).encode(), f"{reference} is not what was kept"
        for content in there.values():  # also what was never acknowledged is whole
            assert content.decode() == text_of(int(content.partition(b":")[0]))
        if len(there) > 150:  # a text that was looked at often enough
            anyio.run(forget, path)
            acknowledged, done = {}, len(acknowledged)
            print(done, len(there) - done)
    print(len(acknowledged), len(kept(path)) - len(acknowledged))


async def forget(path: str) -> None:
    async with overflows(Path(path), now=lambda: 10.0**11) as store:
        await store.purge(1)


def births(folder: str, count: int) -> None:
    """Kills writers anywhere in the making of a new database; prints how often it was made and found whole."""
    chance = random.Random(count)
    for number in range(count):
        path = os.path.join(folder, str(number), "agent.db")
        seconds = chance.uniform(0, 0.04)
        acknowledged = killed(path, range(1, 10_000), lambda _, for_=seconds: select.select([], [], [], for_))
        anyio.run(keep, path, range(1), acknowledged.__setitem__)
        assert integrity(Path(path)) == "ok"
        there = kept(path)
        assert all(there[reference] == text_of(seed).encode() for reference, seed in acknowledged.items())
    print(count)


if __name__ == "__main__":
    {"write": write, "kills": kills, "births": births}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
