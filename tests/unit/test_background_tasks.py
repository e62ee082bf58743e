"""The tasks of the process: they end before it, and none of them takes the others with it."""

from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from acp_agent.app import BackgroundTasks
from tests.fakes.passing_time import all_tasks_blocked

pytestmark = pytest.mark.anyio


def never(error: BaseException) -> None:
    raise AssertionError(f"no task was expected to fail: {error!r}")


async def until_cancelled(ended: list[str]) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.lowlevel.checkpoint()
        ended.append("cleaned up")


def waiting(ended: list[str]) -> Callable[[], Awaitable[None]]:
    return lambda: until_cancelled(ended)


async def test_the_block_ends_when_all_tasks_have_ended_also_those_that_tasks_start():
    tasks, ended = BackgroundTasks(never), list[str]()

    async def second() -> None:
        await anyio.lowlevel.checkpoint()
        ended.append("second")

    async def first() -> None:
        tasks.start(second)
        ended.append("first")

    async with tasks:
        tasks.start(first)
        assert ended == []
    assert ended == ["first", "second"]


async def test_an_error_of_a_task_is_passed_on_and_leaves_the_others_running():
    errors, ended = list[BaseException](), list[str]()
    tasks = BackgroundTasks(errors.append)

    async def broken() -> None:
        raise KeyboardInterrupt

    async with tasks:
        tasks.start(waiting(ended))
        tasks.start(broken)
        await all_tasks_blocked()
        assert list(map(type, errors)) == [KeyboardInterrupt]
        assert ended == []
        tasks.cancel()
    assert ended == ["cleaned up"]


async def test_cancelled_tasks_may_clean_up_and_no_later_task_gets_to_work():
    tasks, ended = BackgroundTasks(never), list[str]()

    async def late() -> None:
        await anyio.lowlevel.checkpoint()
        ended.append("worked")

    async with tasks:
        tasks.start(waiting(ended))
        await all_tasks_blocked()
        tasks.cancel()
        tasks.start(late)
    assert ended == ["cleaned up"]


async def test_an_error_in_the_block_cancels_the_tasks_and_is_raised_after_their_end():
    tasks, ended = BackgroundTasks(never), list[str]()

    async def block() -> None:
        async with tasks:
            tasks.start(waiting(ended))
            await all_tasks_blocked()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await block()
    assert ended == ["cleaned up"]


async def test_a_block_that_is_cancelled_while_it_waits_cancels_the_tasks_and_waits_for_their_end():
    tasks, ended = BackgroundTasks(never), list[str]()
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def block() -> None:
                async with tasks:
                    tasks.start(waiting(ended))

            group.start_soon(block)
            await all_tasks_blocked()
            scope.cancel()
    assert scope.cancelled_caught
    assert ended == ["cleaned up"]


async def test_one_job_may_be_spared_while_the_others_are_cancelled():
    ended, crashes = list[str](), list[BaseException]()

    async def spared() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("spared")

    async def other() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("other")

    tasks = BackgroundTasks(crashes.append)
    async with tasks:
        tasks.start(spared)
        tasks.start(other)
        await all_tasks_blocked()
        tasks.cancel(spared)
        await all_tasks_blocked()
        assert ended == ["other"]
        tasks.cancel()
    assert (ended, crashes) == (["other", "spared"], [])
