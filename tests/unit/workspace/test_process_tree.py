import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest

from acp_agent.workspace.processes.table import (
    MARK,
    LinuxProcessTable,
    NewProcesses,
    ProcessTable,
    PsutilProcessTable,
    Status,
    descendants,
    system_table,
)
from acp_agent.workspace.processes.tree import OrphanReaper, ProcessTree, pidfd_works, signal_and_wait
from acp_agent.workspace.sandbox.bubblewrap import bubblewrap
from tests.unit.workspace.processes import LINUX, Caller, ended, exists, subreaper
from tests.unit.workspace.trees import open_fds

pytestmark = pytest.mark.anyio

linux_only = pytest.mark.skipif(not LINUX, reason="prctl")
REPOSITORY = Path(__file__).parents[3]


def python(code: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )


@linux_only
def test_a_hardened_process_keeps_its_orphans_and_its_memory():
    code = """
import ctypes
from acp_agent.workspace.processes.tree import harden_process, is_subreaper
before = is_subreaper(), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
harden_process()
print(before, (is_subreaper(), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)))
"""
    with python(code) as process:
        assert process.communicate()[0] == "(False, 1) (True, 0)\n"


SHUTDOWN = """
import subprocess, sys
from acp_agent.workspace.processes.tree import harden_process, kill_everything
if sys.argv[1] == "hardened":
    harden_process()
shell = subprocess.Popen(["sh", "-c", sys.argv[2]], start_new_session=True, env={"PATH": sys.argv[3], **MARKED})
sys.stdin.readline()
kill_everything()
shell.returncode = 0
print("ended", flush=True)
sys.stdin.readline()
"""
MARKED = 'import os\nMARKED = {"ACP_COMMAND_ID": f"{os.getpid()}.1"}\n'


@pytest.mark.parametrize("hardened", [pytest.param("hardened", marks=linux_only), "plain"])
async def test_at_shutdown_every_process_ends_daemons_and_stubborn_ones_too(tmp_path: Path, hardened: str):
    child, daemon, orphan = (Caller(tmp_path, name) for name in ("child", "daemon", "orphan"))
    stubborn = Caller(tmp_path, "stubborn", "trap : TERM; while :; do sleep 1000; done")
    callers = [child, daemon, orphan, stubborn]
    tree = f"""
{child.program} &
{stubborn.program} &
setsid {daemon.program} </dev/null >/dev/null 2>&1 &
(setsid sh -c "{orphan.program} &" &) </dev/null >/dev/null 2>&1
wait
"""
    process = python(MARKED + SHUTDOWN, hardened, tree, os.environ["PATH"])
    try:
        pids = [await caller.pid() for caller in callers]
        assert all(exists(pid) for pid in pids)
        process.stdin.write("now\n")
        process.stdin.flush()
        assert await anyio.to_thread.run_sync(process.stdout.readline) == "ended\n"
        # Those that are not below us were reaped by somebody else, who may be a moment late.
        alive = [pid for pid in pids if exists(pid) and not await gone_soon(pid)]
        assert alive == []
    finally:
        process.communicate()


async def gone_soon(pid: int) -> bool:
    await anyio.to_thread.run_sync(lambda: signal_and_wait([pid], 0, 10.0, system_table(), pidfds=pidfd_works()))
    status = system_table().status(pid)
    return status is None or status.zombie


@pytest.mark.parametrize("pidfds", [pytest.param(True, marks=linux_only), False])
def test_signals_reach_all_and_the_wait_ends_with_the_last(pidfds: bool):
    processes = [subprocess.Popen(["sleep", "1000"]) for _ in range(3)]
    signal_and_wait(
        [*(process.pid for process in processes), 2**22 + 1], signal.SIGTERM, 30.0, system_table(), pidfds=pidfds
    )
    assert [process.poll() for process in processes] == [-signal.SIGTERM] * 3


@pytest.mark.parametrize("pidfds", [pytest.param(True, marks=linux_only), False])
def test_a_wait_for_what_does_not_end_gives_up(pidfds: bool):
    with subprocess.Popen(["sleep", "1000"]) as process:
        signal_and_wait([process.pid], 0, 0.02, system_table(), pidfds=pidfds)
        assert process.poll() is None
        process.kill()


def test_a_dead_child_that_nobody_claims_is_reaped_in_the_end():
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    now = [100.0]
    reaper = OrphanReaper(clock=lambda: now[0])
    for now[0] in (100.0, 101.0, 104.0):
        assert reaper.note([process.pid])
        assert exists(process.pid)
    now[0] = 106.0
    assert not reaper.note([process.pid])
    assert not exists(process.pid)
    process.wait()


def marked_shell(command: str, mark: str) -> "subprocess.Popen[bytes]":
    environment = {"PATH": os.environ["PATH"], MARK: mark}
    return subprocess.Popen(["sh", "-c", command], start_new_session=True, env=environment)


@pytest.mark.parametrize("orphans_fall_to_us", [pytest.param(True, marks=linux_only), False])
@pytest.mark.parametrize("make_table", [system_table, PsutilProcessTable])
async def test_a_tree_is_found_by_any_table_and_ended_with_its_daemons(
    tmp_path: Path, make_table: Callable[[], ProcessTable], orphans_fall_to_us: bool
):
    child, daemon = Caller(tmp_path, "child"), Caller(tmp_path, "daemon")
    with subreaper(orphans_fall_to_us):
        tree = ProcessTree(table=make_table())
        command = f"{child.program} &\n(setsid {daemon.program} </dev/null >/dev/null 2>&1 &)\nwait"
        shell = marked_shell(command, tree.mark)
        tree.started(shell.pid, frozenset())
        pids = [await child.pid(), await daemon.pid()]
        found = tree.living()  # perhaps with the subshell that started the daemon
        while not {shell.pid, *pids} <= set(found):  # a process in the middle of exec shows no environment
            found = tree.living()
        assert found.index(shell.pid) < found.index(pids[0])
        assert tree.end() >= 3
        shell.wait()
        assert tree.living() == []
        assert all(ended(pid) for pid in pids)


class Counting(LinuxProcessTable):
    """The real table, counting what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.questions: list[str] = []

    def status(self, pid: int) -> Status | None:
        self.questions.append("status")
        return super().status(pid)

    def children(self, pid: int) -> list[int]:
        self.questions.append("children")
        return super().children(pid)

    def mark(self, pid: int) -> str | None:
        self.questions.append("mark")
        return super().mark(pid)

    def pids(self) -> list[int]:
        self.questions.append("pids")
        return super().pids()


@linux_only
def test_where_nothing_is_left_one_look_is_enough():
    with subreaper(on=True):
        table = Counting()
        others = table.children(os.getpid())
        tree = ProcessTree(table=table)
        with subprocess.Popen(["true"], start_new_session=True) as process:
            tree.started(process.pid, frozenset())
        table.questions.clear()
        assert tree.living() == []
        looks = table.questions.count("children")
        now = [LinuxProcessTable().status(pid) for pid in others]
        over = any(each is None or each.zombie for each in now)
        assert looks == 1 or over, "one that another test has left may end meanwhile"
        assert table.questions.count("status") <= looks * len(others)
        assert "pids" not in table.questions


class Listed(LinuxProcessTable):
    """The real table, with the lists of processes that a test sets. The last one stays."""

    def __init__(self, *listed: list[int]) -> None:
        super().__init__()
        self.listed = [*listed]

    def pids(self) -> list[int]:
        return self.listed.pop(0) if len(self.listed) > 1 else self.listed[0]

    def newest(self) -> int:
        return 0


class Numbered(LinuxProcessTable):
    """The real table, with lists of processes and newest numbers that a test sets. The last ones stay."""

    def __init__(self, *newest: int, pids: list[int]) -> None:
        super().__init__()
        self.numbers = [*newest]
        self.listed = pids
        self.lists = 0

    def pids(self) -> list[int]:
        self.lists += 1
        return self.listed

    def newest(self) -> int:
        return self.numbers.pop(0) if len(self.numbers) > 1 else self.numbers[0]


@linux_only
def test_a_command_elsewhere_has_surely_ended_only_where_no_living_process_is_new():
    living, gone = os.getpid(), 2**22 + 1
    with subprocess.Popen(["true"]) as zombie:
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        for before, later, ended in (
            ([1, 2], [[1, 2]], True),
            ([1, 2], [[2]], True),
            ([1, 2], [[1, 2, living]], False),
            ([1, 2], [[1, 2, zombie.pid]], True),
            ([1, 2], [[1, 2, gone], [1, 2]], True),
            ([1, 2], [[1, 2, gone], [1, 2, living]], False),  # which `gone` has started
            ([1, 2], [[1, zombie.pid], [1, living, zombie.pid]], False),
        ):
            tree = ProcessTree(table=Listed(before, *later), elsewhere=True)
            assert tree.surely_ended() is ended, later
    with subreaper(on=True):
        assert not ProcessTree(table=Listed([])).surely_ended()


@linux_only
def test_no_process_is_listed_where_the_numbers_since_a_short_command_tell_that_nothing_lives():
    own = os.getpid()
    with subprocess.Popen(["true"]) as zombie:
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        for numbers, ended, lists in (
            ([zombie.pid - 1, zombie.pid], True, 0),
            ([own - 1, own], False, 1),  # it lives
            ([zombie.pid - 1, zombie.pid, own], False, 1),  # which another one has started
            ([2**22, 2**22 + 64], True, 0),
            ([2**22, 2**22 + 65], True, 1),  # too many to look at each
            ([2**22], False, 1),  # a command has at least one process, so the system does not tell
            ([2**22, 3], False, 1),  # the numbers have begun anew
        ):
            table = Numbered(*numbers, pids=[1, own])
            new = NewProcesses(table)
            assert new.all_ended() is ended, numbers
            assert table.lists == lists, numbers


@linux_only
def test_the_numbers_of_new_processes_count_for_a_moment_only_and_what_was_noted_then_for_ever():
    now = [0.0]

    def made(*, noted: float | None) -> NewProcesses:
        now[0] = 100.0
        new = NewProcesses(Numbered(6, 8, pids=[1, 5, 7, 8]), clock=lambda: now[0])
        if noted is not None:
            now[0] += noted
            new.note_others()
        return new

    assert made(noted=None).pids() == {7, 8}
    late = made(noted=None)
    now[0] += 1
    assert late.pids() == {1, 5, 7, 8}
    noted = made(noted=0.1)
    now[0] += 1000
    assert noted.pids() == {7, 8}
    assert made(noted=1.0).pids() == {1, 5, 7, 8}
    assert NewProcesses(Numbered(0, pids=[1, 5])).pids() == set()


@linux_only
def test_a_thread_of_another_process_is_no_new_process():
    release = threading.Event()
    new = NewProcesses(LinuxProcessTable())
    thread = threading.Thread(target=release.wait)
    thread.start()
    try:
        assert thread.native_id not in new.pids()
    finally:
        release.set()
        thread.join()


@linux_only
@pytest.mark.parametrize("late", [0.0, 1000.0])
def test_of_a_command_in_a_namespace_only_processes_in_a_namespace_are_looked_for(late: float):
    class WithoutOtherTests(LinuxProcessTable):
        def pids(self) -> list[int]:
            return [pid for pid in super().pids() if pid in mine]

    now, mine = [0.0], {os.getpid()}
    new = NewProcesses(WithoutOtherTests(), clock=lambda: now[0])
    other = subprocess.Popen(["sleep", "1000"])
    mine.add(other.pid)
    try:
        if late:
            new.note_others()
        now[0] = late
        assert not new.all_ended()
        assert new.all_ended(nested=True)
    finally:
        other.kill()
        other.wait()


@linux_only
@pytest.mark.skipif(not bubblewrap(), reason="needs bubblewrap")
def test_a_process_in_a_namespace_is_told_from_others():
    table = LinuxProcessTable()
    new = NewProcesses(table)
    command = [bubblewrap(), "--unshare-pid", "--ro-bind", "/", "/", "sh", "-c", "echo; exec sleep 1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as outer:
        outer.stdout.read(1)
        below = descendants(table, [outer.pid])
        assert [table.is_nested(pid) for pid in below] == [False, True, True]
        assert not new.all_ended(nested=True)
        outer.kill()
        for pid in below[1:]:
            os.kill(pid, signal.SIGKILL)
    assert table.is_nested(2**22 + 1), "of a process that is gone nothing is known"


@linux_only
@pytest.mark.skipif(not bubblewrap(), reason="needs bubblewrap")
@pytest.mark.parametrize("late", [False, True])
def test_left_overs_of_a_contained_command_elsewhere_are_known_only_when_its_shell_has_ended(late: bool):
    lists = list[int]()

    class Counted(LinuxProcessTable):
        def pids(self) -> list[int]:
            lists.append(1)
            return super().pids()

    tree = ProcessTree(table=Counted(), elsewhere=True, long=late)
    script = "sleep 1000 <&- >&- & env -i sleep 1000 <&- >&- & echo; read line; exit 3"
    command = [
        bubblewrap(),
        "--unshare-pid",
        "--bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "sh",
        "-c",
        script,
    ]
    pipe = subprocess.PIPE
    environment = {**os.environ, MARK: tree.mark}
    with subprocess.Popen(
        ["sh", "-c", '"$@"; exit $?', "sh", *command], env=environment, stdin=pipe, stdout=pipe
    ) as outer:
        assert not tree.left_behind()
        outer.stdout.readline()
        assert tree.living()
        assert not tree.left_behind()
        lists.clear()
        assert not tree.left_behind()
        assert not lists, "one look at the outer process is enough"
        outer.stdin.close()
        assert outer.wait() == 3
        assert tree.living()
        assert tree.left_behind()
        tree.end(0)
        assert not tree.left_behind()


@linux_only
@pytest.mark.skipif(not bubblewrap(), reason="needs bubblewrap")
def test_a_namespace_whose_parent_began_with_the_command_or_has_its_mark_is_not_left_behind():
    own = os.getpid()
    tree = ProcessTree(elsewhere=True, long=True)
    command = [bubblewrap(), "--unshare-pid", "--bind", "/", "/", "sh", "-c", "echo; read line"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as outer:
        outer.stdout.readline()
        (first,) = LinuxProcessTable().children(outer.pid)

        class Seen(LinuxProcessTable):
            """The real table, in which only the first process of the namespace has the mark, and perhaps its parent."""

            def __init__(self, *marked: int, others: Sequence[int]) -> None:
                super().__init__()
                self.marked, self.others, self.listed = marked, others, False

            def mark(self, pid: int) -> str | None:
                return tree.mark if pid in self.marked else None

            def pids(self) -> list[int]:
                if not self.listed:
                    self.listed = True
                    return [*self.others]
                return [own, outer.pid, first]

        def left_behind(*marked: int, others: Sequence[int]) -> bool:
            other = ProcessTree(table=Seen(*marked, others=others), elsewhere=True, long=True)
            other.mark = tree.mark
            return other.left_behind()

        assert left_behind(first, others=[own, outer.pid]), "its parent seems to be an older process"
        assert not left_behind(first, others=[own])
        assert not left_behind(first, outer.pid, others=[own, outer.pid])
        outer.stdin.close()


@linux_only
def test_what_a_command_elsewhere_leaves_is_found_by_the_numbers_and_without_them():
    for late in (0.0, 1000.0):
        now = [0.0]
        new = NewProcesses(LinuxProcessTable(), clock=lambda now=now: now[0])
        with subprocess.Popen(["sleep", "1000"]) as left:
            now[0] = late
            assert left.pid in new.pids()
            assert not new.all_ended()
            left.kill()


def test_whether_descriptors_for_processes_work_is_tried_and_leaves_none_open(monkeypatch: pytest.MonkeyPatch):
    def refuse(pid: int) -> int:
        raise OSError(38, "Function not implemented")

    pidfd_works.cache_clear()
    before = open_fds()
    pidfd_works()
    assert open_fds() == before
    pidfd_works.cache_clear()
    with monkeypatch.context() as old_kernel:
        old_kernel.setattr(os, "pidfd_open", refuse, raising=False)
        assert not pidfd_works()
    pidfd_works.cache_clear()
