"""Locks as long as the demands name them: three seconds are waited for, for ever is an error after five."""

import time
from contextlib import closing

import anyio
import anyio.to_thread
import pytest

from acp_agent.core.errors import StoreUnavailable
from tests.unit.store.databases import CONVERSATIONS, add, opened, others

pytestmark = [pytest.mark.anyio, pytest.mark.soak]


async def test_a_lock_of_three_seconds_makes_no_error(tmp_path):
    path = tmp_path / "agent.db"
    async with opened(path) as database:
        await database.write(add("a"))
        with closing(others(path)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(database.write, add(f"{number}"))
                await anyio.sleep(3)
                await anyio.to_thread.run_sync(other.execute, "COMMIT")
        assert len(await database.read(CONVERSATIONS)) == 21


async def test_a_lock_for_ever_is_an_error_after_five_seconds(tmp_path):
    path = tmp_path / "agent.db"
    async with opened(path) as database:
        await database.write(add("a"))
        with closing(others(path)) as other:
            other.execute("BEGIN IMMEDIATE")
            before = time.monotonic()
            with pytest.raises(StoreUnavailable, match="another process keeps it locked"):
                await database.write(add("b"))
            assert 5 <= time.monotonic() - before < 7
