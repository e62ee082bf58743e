"""What ends commands when nobody else is left to. Letting go of the object closes its pipe, as a killed agent does."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import pytest

from acp_agent.core.backends import CommandRequest
from acp_agent.core.errors import ToolError
from acp_agent.core.process_limits import limits_for_child, tag_of
from acp_agent.workspace.processes.table import MARK
from acp_agent.workspace.processes.terminal import LocalTerminal
from acp_agent.workspace.processes.tree import SCRIPT, CommandWatchdog, pidfd_works
from tests.fakes.held import processes_ended
from tests.unit.workspace.processes import LINUX, Caller, exists

pytestmark = pytest.mark.anyio

linux_only = pytest.mark.skipif(not LINUX, reason="/proc")
OURS, OTHER = f"{os.getpid()}.0123456789abcdef", f"{os.getpid()}.fedcba9876543210"
STUBBORN = "trap '' TERM INT HUP; while :; do sleep 1000; done"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a watchdog wait for its shell as long as a machine with much else to do needs."""
    monkeypatch.setattr("acp_agent.workspace.processes.tree._PATIENCE", 30.0)


@contextmanager
def shell(command: str, mark: str = OURS) -> Generator["subprocess.Popen[bytes]"]:
    """A command's shell; whatever happens, nothing of its group is left."""
    environment = {"PATH": os.environ["PATH"], MARK: mark}
    with limits_for_child(tag_of(mark)):
        started = subprocess.Popen(["sh", "-c", command], env=environment, start_new_session=True)
    with started as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):  # whoever looks after orphans may have reaped it
                os.killpg(process.pid, signal.SIGKILL)


@linux_only
async def test_when_the_pipe_ends_all_of_a_command_is_killed_and_nothing_else(tmp_path: Path):
    child, grandchild, daemon, orphan, scrubbed, bare, other = (
        Caller(tmp_path, name, STUBBORN)
        for name in ("child", "grandchild", "daemon", "orphan", "scrubbed", "bare", "other")
    )
    command = f"""
trap '' TERM
{child.program} &
sh -c '{grandchild.program} & wait' &
env -i PATH="$PATH" {scrubbed.program} &
setsid {daemon.program} </dev/null >/dev/null 2>&1 &
(env -i PATH="$PATH" setsid sh -c '({bare.program} &)' </dev/null >/dev/null 2>&1 &)
(setsid sh -c '{orphan.program} &' &) </dev/null >/dev/null 2>&1
wait
"""
    watchdog = CommandWatchdog()
    with shell(command) as leader, shell(f"env -i setsid {other.program} & wait", OTHER) as unrelated:
        watchdog.watch(OURS, leader.pid)
        pids = [await caller.pid() for caller in (child, grandchild, daemon, orphan, scrubbed, bare)]
        stranger = await other.pid()
        del watchdog
        await processes_ended([leader.pid, *pids])
        assert unrelated.poll() is None
        assert exists(stranger)
        os.kill(stranger, signal.SIGKILL)


@linux_only
async def test_a_command_that_was_only_announced_is_found_by_its_mark():
    watchdog = CommandWatchdog()
    watchdog.watch(OURS)
    with shell("sleep 1000") as process:
        del watchdog
        await processes_ended([process.pid])


async def test_the_group_of_a_process_without_a_mark_is_enough():
    watchdog = CommandWatchdog()
    with shell("sleep 1000", "") as process:
        watchdog.watch(OURS, process.pid)
        del watchdog
        assert process.wait(20) == -signal.SIGKILL


async def test_what_was_dismissed_is_left_alone_and_the_shell_ends():
    watchdog = CommandWatchdog()
    with shell("sleep 1000") as process:
        watchdog.watch(OURS, process.pid)
        watchdog.dismiss(OURS)
        watchdog.dismiss(OTHER)
        pid = watchdog.pid
        del watchdog
        assert pid is not None
        assert not exists(pid)
        assert process.poll() is None


SHELLS = pytest.mark.parametrize(
    ("interpreter", "grep"),
    [
        ("sh", True),
        ("bash", False),
        pytest.param("bash", True, marks=pytest.mark.soak),
        pytest.param("sh", False, marks=pytest.mark.soak),
    ],
)


@linux_only
@SHELLS
async def test_any_shell_finds_marks_also_without_grep(tmp_path: Path, interpreter: str, grep: bool):
    environment = {} if grep else {"PATH": str(tmp_path)}
    with shell("sleep 1000") as wanted, shell("sleep 1000", OTHER) as unwanted:
        done = await anyio.run_process(
            [f"/bin/{interpreter}", "-c", SCRIPT], input=f"{OURS}\n".encode(), env=environment
        )
        await processes_ended([wanted.pid])
        assert unwanted.poll() is None
    assert done.stdout == b""


FAILING = """
ulimit -t 10
read() {
    case $last in Limit*) return 1 ;; esac  # and the variable stays as it was
    builtin read "$@" || { last=$line; return 1; }
    last=$line
}
"""


@linux_only
async def test_a_process_that_ends_while_a_shell_without_grep_reads_about_it_does_not_hold_that_up(tmp_path: Path):
    with shell("sleep 1000") as wanted, anyio.fail_after(20):
        environment = {"PATH": str(tmp_path)}
        await anyio.run_process(["/bin/bash", "-c", FAILING + SCRIPT], input=f"{OURS}\n".encode(), env=environment)
        await processes_ended([wanted.pid])


@linux_only
@SHELLS
async def test_any_shell_finds_tags_also_without_grep(tmp_path: Path, interpreter: str, grep: bool):
    environment = {} if grep else {"PATH": str(tmp_path)}
    command = "env -i sleep 1000"
    with shell(command, "1.a") as wanted, shell(command, "1.b") as unwanted:
        line = f"+{tag_of('1.a')}\n".encode()
        done = await anyio.run_process([f"/bin/{interpreter}", "-c", SCRIPT], input=line, env=environment)
        await processes_ended([wanted.pid])
        assert unwanted.poll() is None
    assert done.stdout == b""


@pytest.mark.parametrize("told", [b"", b"\n", b"%s\n\n", b"\n%s"])
async def test_nothing_is_killed_when_nothing_is_watched_or_only_half_a_line_came(told: bytes):
    with shell("sleep 1000") as process:
        line = told.replace(b"%s", OURS.encode())
        await anyio.run_process(["/bin/sh", "-c", SCRIPT], input=line, env={})
        assert process.poll() is None


@linux_only
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_shell_that_was_lost_is_replaced_and_told_all(how: signal.Signals):
    watchdog = CommandWatchdog()
    with shell("sleep 1000") as first, shell("sleep 1000", OTHER) as second:
        watchdog.watch(OURS, first.pid)
        lost = watchdog.pid
        assert lost is not None
        os.kill(lost, how)
        while watchdog.pid == lost:  # one that was stopped is noticed when its pipe is full
            watchdog.watch(OTHER, second.pid)
        assert not exists(lost)
        assert first.poll() is None
        del watchdog
        await processes_ended([first.pid, second.pid])


async def test_where_no_shell_can_be_had_nothing_fails_and_the_next_command_tries_again():
    watchdog = CommandWatchdog()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = len(os.listdir("/dev/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        watchdog.watch(OURS)
        assert watchdog.pid is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert len(os.listdir("/dev/fd")) == before
    watchdog.watch(OURS)
    assert watchdog.pid is not None


@linux_only
async def test_it_holds_nothing_of_ours_open_knows_nothing_and_no_terminal_reaches_it(tmp_path: Path):
    leak = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(leak, True)
    try:
        watchdog = CommandWatchdog()
        watchdog.watch(OURS)
    finally:
        os.close(leak)
    pid = watchdog.pid
    assert pid is not None
    assert os.getsid(pid) == os.getpgid(pid) == pid
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert Path(f"/proc/{pid}/environ").read_bytes() == b""
    with anyio.fail_after(20):
        while True:
            if len(opened := files_of(pid)) == 3:  # not its libraries any more, which it loads
                break
            await anyio.sleep(0.01)  # nothing tells
    assert opened[0].startswith("pipe:")
    assert opened[1:] == ["/dev/null", "/dev/null"]


def files_of(pid: int) -> list[str]:
    """What a process has open, but for what it closes just now."""
    files: list[str] = []
    for fd in sorted(os.listdir(f"/proc/{pid}/fd")):
        with suppress(FileNotFoundError):
            files.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return files


SHUTDOWN = """
import os, subprocess
from acp_agent.workspace.processes.tree import CommandWatchdog
from acp_agent.workspace.processes.tree import kill_everything
watchdog = CommandWatchdog()
watchdog.watch("1.a")
child = subprocess.Popen(["sleep", "1000"])
kill_everything(spared=watchdog.pid)
child.returncode = 0
os.kill(watchdog.pid, 0)
print(child.pid, watchdog.pid, flush=True)
os._exit(0)
"""


async def test_the_end_of_everything_spares_it_and_it_ends_with_us():
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = await anyio.run_process([sys.executable, "-c", SHUTDOWN], env=environment)
    child, watchdog = map(int, done.stdout.split())
    assert not exists(child)
    await processes_ended([watchdog])


class Recording(CommandWatchdog):
    """The real one, noting what it is told and whether the command's shell is unreaped then."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []
        self._last = 0

    def watch(self, mark: str, group: int | None = None) -> None:
        self.told.append("announced" if group is None else "started")
        self._last = group or 0
        super().watch(mark, group)

    def dismiss(self, mark: str) -> None:
        self.told.append("over" if self._last and exists(self._last) else "reaped")
        super().dismiss(mark)


@pytest.mark.parametrize("command", ["true", "sleep 1000 & true", "sleep 1000"])
async def test_a_command_is_announced_and_dismissed_before_its_number_is_free(tmp_path: Path, command: str):
    watchdog = Recording()
    terminal = LocalTerminal(watchdog=watchdog, default_timeout=0.2, grace=0.03)
    for _ in range(2):
        running = await terminal.start(CommandRequest(command, str(tmp_path)))
        await running.wait(_ignore)
        await running.release()
    assert watchdog.told == ["announced", "started", "over" if pidfd_works() else "reaped"] * 2


async def test_a_command_that_cannot_be_started_is_not_watched_any_longer():
    watchdog = Recording()
    with pytest.raises(ToolError):
        await LocalTerminal(watchdog=watchdog).start(CommandRequest("true", "/nowhere/at/all"))
    assert watchdog.told == ["announced", "reaped"]


async def _ignore(_: str) -> None:
    return
