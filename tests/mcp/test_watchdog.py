"""What is left of a server when nobody is left to end it."""

import contextlib
import os
import signal
import sys
from pathlib import Path

import anyio
import psutil
import pytest
from anyio.abc import Process

from acp_agent.workspace.processes.tree import CommandWatchdog
from tests.fakes.fork_server import PREPARED_BY
from tests.fakes.forked_agent import CAN_FORK, fork_agent
from tests.mcp.stage import HOSTILE

pytestmark = pytest.mark.anyio
AGENT = str(Path(__file__).with_name("agent_like.py"))
ROOT = str(Path(__file__).parents[2])


async def started(*server: str) -> Process:
    """Start a process that runs one connection to a server as the agent does."""
    environment = {**os.environ, "PYTHONPATH": ROOT}
    if CAN_FORK:
        return await fork_agent({**environment, PREPARED_BY: "tests.mcp.agent_like"}, ROOT, server)
    return await anyio.open_process([sys.executable, AGENT, *server], stdin=None, stderr=None, env=environment)


def alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def gone(processes: list[psutil.Process]) -> None:
    with anyio.fail_after(20):
        while any(map(alive, processes)):  # noqa: ASYNC110 - they are not our children
            await anyio.sleep(0.01)


@pytest.mark.parametrize("behaviour", ["stubborn", "stubborn_parent"])
async def test_nothing_is_left_of_a_server_when_the_agent_is_killed(behaviour):
    async with await started(sys.executable, "-I", "-S", "-B", HOSTILE, behaviour) as agent:
        assert agent.stdout is not None
        with anyio.fail_after(20):
            assert await agent.stdout.receive() == b"ready\n"
        family = psutil.Process(agent.pid).children(recursive=True)
        try:
            assert len(family) == (3 if behaviour == "stubborn_parent" else 2)  # a watchdog among them
            agent.send_signal(signal.SIGKILL)
            await gone(family)
        finally:
            for process in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()


@pytest.mark.parametrize("killed", [False, True])
async def test_a_watchdog_that_is_closed_harms_nobody_and_one_that_was_killed_is_no_trouble(killed):
    async with await anyio.open_process(["sleep", "60"], start_new_session=True) as program:
        try:
            before = psutil.Process().children()
            watchdog = CommandWatchdog()
            watchdog.watch("1.a", program.pid)
            (shell,) = [each for each in psutil.Process().children() if each not in before]
            if killed:
                shell.kill()
            watchdog.close()
            assert not alive(shell)
            assert program.returncode is None
        finally:
            program.kill()
