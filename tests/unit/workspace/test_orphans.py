"""Dead children that nobody waits for do not pile up, and nobody's exit status is taken away."""

import os
import subprocess

import anyio
import anyio.to_thread
import pytest

from acp_agent.core.backends import CommandRequest
from acp_agent.workspace.processes import tree as process_tree
from acp_agent.workspace.processes.table import MARK, system_table
from acp_agent.workspace.processes.terminal import LocalTerminal
from acp_agent.workspace.processes.tree import OrphanReaper, ProcessTree, claim, dead_children, release
from tests.unit.workspace.processes import LINUX, subreaper

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not LINUX, reason="orphans fall to us on Linux alone")]


async def test_orphans_that_end_while_no_command_runs_are_reaped():
    with subreaper(on=True):
        before = set(system_table().children(os.getpid()))
        OrphanReaper(patience=0.1).begin()
        await anyio.run_process(["sh", "-c", "for i in 1 2 3 4 5; do (setsid sleep 0.2 &) ; done"])
        assert len(set(system_table().children(os.getpid())) - before) == 5
        with anyio.fail_after(20):
            while True:
                if set(system_table().children(os.getpid())) <= before:
                    break
                await anyio.sleep(0.05)  # nothing tells


async def test_the_shell_of_a_command_is_left_to_whoever_started_it(tmp_path):
    now = [0.0]
    reaper = OrphanReaper(clock=lambda: now[0])
    others = set(dead_children(system_table()))  # of other tests
    running = await LocalTerminal().start(CommandRequest("exit 7", str(tmp_path)))
    leader = running._process.pid
    await anyio.to_thread.run_sync(os.waitid, os.P_PID, leader, os.WEXITED | os.WNOWAIT)
    for now[0] in (0.0, 100.0, 200.0):
        assert not reaper.note([pid for pid in dead_children(system_table()) if pid not in others])

    async def ignore(_: str) -> None:
        pass

    assert (await running.wait(ignore)).exit_code == 7
    assert leader not in process_tree._leaders


def test_a_claimed_child_belongs_to_no_command_and_is_left_to_whoever_started_it():
    tree = ProcessTree()
    child = subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: tree.mark}, start_new_session=True)
    assert tree.living() == [child.pid]
    claim(child.pid)
    assert tree.living() == []
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert child.pid not in dead_children(system_table())
    child.wait()
    release(child.pid)
