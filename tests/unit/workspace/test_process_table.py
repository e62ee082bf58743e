import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from acp_agent.workspace.processes.table import (
    MARK,
    LinuxProcessTable,
    ProcessTable,
    PsutilProcessTable,
    _session,
    descendants,
)

LINUX = sys.platform == "linux"
linux_only = pytest.mark.skipif(not LINUX, reason="/proc")


def tables() -> dict[str, ProcessTable]:
    linux = {
        "children-files": LinuxProcessTable(children_files=True),
        "every-process": LinuxProcessTable(children_files=False),
    }
    return {"psutil": PsutilProcessTable(), **(linux if LINUX else {})}


@pytest.fixture(params=tables())
def table(request: pytest.FixtureRequest) -> ProcessTable:
    return tables()[request.param]


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    """A shell with a child of its own, in its own session."""
    command = ["sh", "-c", "sleep 1000 & echo up; wait; :"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={"PATH": os.environ["PATH"], MARK: "12.ab"},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process
        os.killpg(process.pid, 9)


def test_a_process_has_a_parent_and_a_session(table: ProcessTable, child: "subprocess.Popen[bytes]"):
    status = table.status(child.pid)
    assert status is not None
    assert (status.pid, status.parent, status.session, status.zombie) == (child.pid, os.getpid(), child.pid, False)


def test_children_are_found_at_every_depth(table: ProcessTable, child: "subprocess.Popen[bytes]"):
    assert child.pid in table.children(os.getpid())
    below = descendants(table, [child.pid])
    assert below[0] == child.pid
    assert len(below) == 2
    assert descendants(table, []) == []


def test_pids_that_were_used_again_while_they_were_read_lead_in_no_circle():
    below: Any = SimpleNamespace(children=lambda pid: {1: [2], 2: [3, 1]}.get(pid, []))
    assert descendants(below, [1]) == [1, 2, 3]


def test_the_mark_is_what_the_process_was_started_with(table: ProcessTable, child: "subprocess.Popen[bytes]"):
    assert table.mark(child.pid) == "12.ab"
    assert table.mark(os.getpid()) is None
    assert child.pid in table.pids()


def test_a_dead_child_is_a_zombie_until_it_is_reaped_and_then_nothing(table: ProcessTable):
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    status = table.status(process.pid)
    assert status is not None
    assert status.zombie
    assert process.pid in table.children(os.getpid())
    assert table.mark(process.pid) is None
    process.wait()
    assert table.status(process.pid) is None
    assert table.children(process.pid) == []
    assert table.pipes(process.pid) == frozenset()


FIRST_THREAD_ENDS = """
import ctypes, os, threading

def live():
    while ") Z " not in open(f"/proc/{os.getpid()}/stat").read():
        pass
    os.write(1, b"up")
    os.read(0, 1)

threading.Thread(target=live).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@linux_only
def test_a_process_lives_as_long_as_one_of_its_threads():
    """A program could end its first thread and outlive its command."""
    command = [sys.executable, "-c", FIRST_THREAD_ENDS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(2) == b"up"
        status = LinuxProcessTable().status(process.pid)
        process.kill()
    assert status is not None
    assert not status.zombie


@linux_only
def test_a_process_with_a_misleading_name_is_read_right(tmp_path: Path):
    shutil.copy(shutil.which("cat") or "", tmp_path / "a) Z 1 (b")
    with subprocess.Popen([tmp_path / "a) Z 1 (b"], stdin=subprocess.PIPE) as process:
        status = LinuxProcessTable().status(process.pid)
        assert status is not None
        assert (status.parent, status.zombie) == (os.getpid(), False)


@linux_only
def test_a_process_is_known_by_the_pipe_it_writes_to(child: "subprocess.Popen[bytes]"):
    assert child.stdout is not None
    assert os.fstat(child.stdout.fileno()).st_ino in LinuxProcessTable().pipes(child.pid)


@linux_only
def test_a_process_keeps_its_mark_while_it_becomes_another_program():
    table = LinuxProcessTable()
    for _ in range(30):
        with subprocess.Popen(
            ["sh", "-c", "echo up; read go; exec sleep 1000"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], MARK: "12.ab"},
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == b"up\n"
                process.stdin.write(b"go\n")
                process.stdin.flush()
                while not Path(f"/proc/{process.pid}/cmdline").read_bytes().startswith(b"sleep"):
                    assert table.mark(process.pid) == "12.ab"
            finally:
                process.kill()


def test_a_process_that_is_gone_has_no_session():
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    assert _session(gone.pid) == 0
    assert _session(os.getpid()) == os.getsid(0)
