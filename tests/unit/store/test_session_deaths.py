"""Sessions kept by several processes, and by processes that die."""

import subprocess
import sys

import anyio
import pytest

from acp_agent.store.sessions import SessionStore
from tests.sizes import sized
from tests.unit.store.databases import integrity, opened
from tests.unit.store.session_writer import check

pytestmark = pytest.mark.anyio

WRITER = [sys.executable, "-m", "tests.unit.store.session_writer"]


async def test_eight_that_write_in_two_processes_lose_nothing(tmp_path):
    path = tmp_path / "agent.db"
    async with anyio.create_task_group() as tasks:
        for name in ("one", "two"):
            tasks.start_soon(anyio.run_process, [*WRITER, "write", str(path), name, "40"])
    async with opened(path) as database:
        store = SessionStore(database)
        assert len(await store.page()) == 8
        for record in await store.page():
            assert await check(store.of(record.id), 40) == 40
    assert integrity(path) == "ok"


def test_killed_writers_leave_every_change_they_acknowledged_whole_and_once(tmp_path):
    kills = sized(8, 20)
    done = subprocess.run(
        [*WRITER, "kills", tmp_path / "agent.db", str(kills)], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > kills, "few on a busy machine, where a writer gets little done before it is killed"
