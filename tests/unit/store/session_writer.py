"""A process that keeps sessions, to be run beside others or killed.

python -m tests.unit.store.session_writer write PATH PREFIX COUNT   four sessions at once, so many changes each
python -m tests.unit.store.session_writer kills PATH COUNT          starts so many writers and kills each with SIGKILL
"""

import os
import random
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import anyio

from acp_agent.core.events import TextDelta, ToolFinished, UsageChanged
from acp_agent.core.messages import Message, Role, TextPart, ToolResultPart
from acp_agent.core.session_options import SessionOptions
from acp_agent.core.sessions import Change, HistoryState, SessionRecord, SessionRepository, UsageTotals
from acp_agent.core.types import ToolResult
from acp_agent.store.sessions import SessionStore
from tests.unit.store.databases import integrity, opened


def result(number: int) -> str:
    return f"{number} {'long ' * 500}"


def messages(count: int) -> tuple[Message, ...]:
    """The conversation after so many changes; every seventh one has shortened it.

    It ends with a result. The event of the result is stored by the same change, by the one before or by the next.
    """
    roles = (Role.USER, Role.ASSISTANT)
    texts = [Message(roles[number % 2], (TextPart(f"{count // 7}: {number}"),)) for number in range(count % 7 + 1)]
    return (*texts, Message(Role.USER, (ToolResultPart("1", result(count - 1 + count % 3)),)))


def change(number: int) -> Change:
    """The change with this number, the first being 1: some rows of told, the conversation and the tally as they are."""
    told = (
        TextDelta(f"{number} ", "m"),
        TextDelta("x" * (number % 50) * 100, "m"),
        ToolFinished(str(number), "bash", ToolResult(result(number), envelope={"stdout": result(number)}), 0.0),
        UsageChanged(number, 0),
    )
    history = HistoryState(messages(number), 0, number)
    return Change(told, history, usage=UsageTotals(calls=number), prompted=1, touch=True)


async def keep(repository: SessionRepository, numbers: range, acknowledge: Callable[[int], object]) -> None:
    for number in numbers:
        await repository.write(change(number), durable=number % 5 == 0)
        acknowledge(number)


async def check(repository: SessionRepository, acknowledged: int) -> int:
    """How many changes there are: all that were acknowledged, each whole and once, and the one under way or not."""
    saved = await repository.snapshot()
    assert saved is not None
    count = saved.usage.calls
    assert count in (acknowledged, acknowledged + 1)
    assert saved.record.prompts == saved.history.tokens == count
    assert saved.history.messages == (messages(count) if count else ())
    told = [each.event async for each in repository.events()]
    assert [event.used for event in told if isinstance(event, UsageChanged)] == [*range(1, count + 1)]
    results = [event.result for event in told if isinstance(event, ToolFinished)]
    assert [each.text for each in results] == [result(number) for number in range(1, count + 1)]
    assert all(each.envelope == {"stdout": each.text} for each in results)
    texts = [event.text for event in told if isinstance(event, TextDelta)]
    assert texts == [f"{number} " + "x" * (number % 50) * 100 for number in range(1, count + 1)]
    return count


async def write(path: str, prefix: str, count: int) -> None:
    async with opened(Path(path), patience=30) as database, anyio.create_task_group() as tasks:
        store = SessionStore(database)
        for number in range(4):
            await store.create(SessionRecord(f"{prefix} {number}", "/"), SessionOptions())
            tasks.start_soon(keep, store.of(f"{prefix} {number}"), range(1, count + 1), lambda _: None)


async def go_on(path: str, first: int, tell: int) -> None:
    async with opened(Path(path)) as database:
        repository = SessionStore(database).of("killed")
        await repository.snapshot()
        await keep(repository, range(first, 10**9), lambda _: os.write(tell, b"x"))


def killed(path: str, first: int, seconds: float) -> int:
    """How many changes a child acknowledged that was killed so long after the first."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        anyio.run(go_on, path, first, tell)
        os._exit(1)
    os.close(tell)
    with open(told, "rb") as pipe:
        select.select([told], [], [])
        select.select([], [], [], seconds)
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, "it ended by itself"
        return len(pipe.read())


def kills(path: str, count: int) -> None:
    """Prints how many changes were acknowledged."""
    chance, session, done, total = random.Random(count), SessionRecord("killed", "/"), 0, 0

    async def create() -> None:
        async with opened(Path(path)) as database:
            store = SessionStore(database)
            await store.delete("killed")
            await database.write(lambda connection: connection.execute("DELETE FROM deleted_conversations"))
            await store.create(session, SessionOptions())

    async def look(acknowledged: int) -> int:
        async with opened(Path(path)) as database:
            return await check(SessionStore(database).of("killed"), acknowledged)

    anyio.run(create)
    for _ in range(count):
        acknowledged = killed(path, done + 1, chance.uniform(0, 0.03))
        assert integrity(Path(path)) == "ok"
        done = anyio.run(look, done + acknowledged)
        total += acknowledged
        if done > 1500:  # looking at it takes longer and longer
            anyio.run(create)
            done = 0
    print(total)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        anyio.run(write, sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        kills(sys.argv[2], int(sys.argv[3]))
