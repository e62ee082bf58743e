"""Agents that are killed while they make the network of a sandbox."""

import random
import subprocess
import sys
import time

import psutil
import pytest

from acp_agent.workspace.sandbox.bubblewrap import bubblewrap
from tests.fakes.held import processes_ended
from tests.soak.case import running_below
from tests.unit.workspace.processes import subreaper

pytestmark = [pytest.mark.anyio, pytest.mark.soak, pytest.mark.timeout(600)]

MAKER = """
import sys
from acp_agent.workspace.sandbox.bubblewrap import SessionNetwork
print("ready", flush=True)
sys.stdin.readline()
SessionNetwork()
sys.stdin.read()
"""


def kill_a_maker(after: float) -> None:
    """Kill a process so many seconds after it began to make a network."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", MAKER], **pipes) as maker:
        maker.stdout.readline()
        maker.stdin.write(b"\n")
        maker.stdin.flush()
        while not psutil.Process(maker.pid).children():
            time.sleep(0)  # bubblewrap takes milliseconds
        time.sleep(after)
        maker.kill()


@pytest.mark.skipif(not bubblewrap(), reason="no sandbox can be built on this machine")
async def test_a_hundred_killed_agents_leave_no_network():
    chance = random.Random(1)
    before = set(running_below())
    with subreaper(True):
        for _ in range(100):
            kill_a_maker(chance.uniform(0, 0.006))
            await processes_ended([pid for pid in running_below() if pid not in before], within=20)
