import os
import resource
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from acp_agent.core.backends import CommandOutcome, CommandRequest
from acp_agent.core.errors import ConfigError, ToolError, ToolErrorCategory
from acp_agent.workspace.processes.table import system_table
from acp_agent.workspace.processes.terminal import LocalTerminal
from acp_agent.workspace.processes.tree import OrphanReaper
from tests.fakes.passing_time import pass_time
from tests.unit.workspace.processes import LINUX, Caller, ended, exists, subreaper

pytestmark = pytest.mark.anyio

GRACE = 0.03  # seconds: where nothing ends by itself, no more need be waited

linux_only = pytest.mark.skipif(not LINUX, reason="pidfds and subreapers")


@pytest.fixture(params=[pytest.param(True, marks=linux_only), False])
def terminal(request: pytest.FixtureRequest) -> LocalTerminal:
    return LocalTerminal(pidfds=request.param, grace=GRACE)


@pytest.fixture(params=[pytest.param(True, marks=linux_only), False])
def orphans_fall_to_us(request: pytest.FixtureRequest) -> Iterator[bool]:
    with subreaper(request.param):
        yield request.param


async def run(
    terminal: LocalTerminal, command: str, cwd: Path, *, deltas: list[str] | None = None, **more: float
) -> CommandOutcome:
    async def hear(delta: str) -> None:
        if deltas is not None:
            deltas.append(delta)

    running = await terminal.start(CommandRequest(command, str(cwd), **more))
    assert running.terminal_id is None
    try:
        with anyio.fail_after(50):
            return await running.wait(hear)
    finally:
        await running.release()


# ------------------------------------------------------------------------------------- the outcome


async def test_streams_come_apart_and_together(terminal: LocalTerminal, tmp_path: Path):
    outcome = await run(terminal, "echo 1; sleep 0.05; echo 2 >&2; sleep 0.05; echo 3", tmp_path)
    assert (outcome.output, outcome.stdout, outcome.stderr) == ("1\n2\n3\n", "1\n3\n", "2\n")


async def test_a_fatal_signal_is_128_plus_its_number_and_has_a_name(terminal: LocalTerminal, tmp_path: Path):
    outcome = await run(terminal, "kill -KILL $$", tmp_path)
    assert (outcome.exit_code, outcome.signal) == (137, "SIGKILL")
    outcome = await run(terminal, "sh -c 'kill -KILL $$'; exit 137", tmp_path)
    assert (outcome.exit_code, outcome.signal) == (137, None)
    if LINUX:
        outcome = await run(terminal, f"kill -{signal.SIGRTMIN + 3} $$", tmp_path)
        assert (outcome.exit_code, outcome.signal) == (128 + signal.SIGRTMIN + 3, f"SIG{signal.SIGRTMIN + 3}")


TRACER = """
import ctypes, os, select, sys, time
shell, seize = int(sys.argv[1]), 0x4206
fd = os.pidfd_open(shell)
sys.exit("may not trace") if ctypes.CDLL(None).ptrace(seize, shell, None, None) else print("traced", flush=True)
poll = select.poll()
poll.register(fd, select.POLLIN)
poll.poll()
time.sleep(0.1)  # the shell has ended, and its parent cannot reap it yet
"""


@linux_only
async def test_a_shell_that_a_debugger_holds_beyond_its_end_has_its_exit_code(tmp_path: Path):
    os.mkfifo(tmp_path / "go")
    os.mkfifo(tmp_path / "pid")
    running = await LocalTerminal(pidfds=True).start(
        CommandRequest("echo $$ > pid; read line < go; exit 3", str(tmp_path))
    )
    shell = (tmp_path / "pid").read_text().strip()
    with subprocess.Popen([sys.executable, "-c", TRACER, shell], stdout=subprocess.PIPE) as tracer:  # noqa: ASYNC220
        assert tracer.stdout is not None
        traced = tracer.stdout.readline()
        (tmp_path / "go").write_text("\n")
        with anyio.fail_after(50):
            outcome = await running.wait(_ignore)
        await running.release()
    if not traced:
        pytest.skip("no process may be traced here")
    assert outcome.exit_code == 3


async def test_bytes_that_are_no_utf_8_are_windows_1252(terminal: LocalTerminal, tmp_path: Path):
    assert (await run(terminal, r"printf 'a\xff\xc3\xa9\xe2'", tmp_path)).output == "aÿéâ"


@pytest.mark.parametrize(
    ("configured", "asked", "taken"),
    [(0.02, None, 0.02), (0.02, 0.01, 0.01), (0.01, 0.02, 0.02), (0, 0.01, 0.01)],
)
async def test_a_command_has_the_time_its_request_names_else_the_configured_one(
    tmp_path: Path, configured: float, asked: float | None, taken: float
):
    running = await LocalTerminal(default_timeout=configured, grace=GRACE).start(
        CommandRequest("sleep 1000", str(tmp_path), asked)
    )
    with anyio.fail_after(50):
        outcome = await running.wait(_ignore)
    await running.release()
    assert (outcome.timed_out, outcome.timeout) == (True, taken)


@pytest.mark.parametrize("asked", [None, 0])
async def test_where_nobody_sets_a_timeout_there_is_none(tmp_path: Path, asked: float | None):
    running = await LocalTerminal(default_timeout=0).start(CommandRequest("echo done", str(tmp_path), asked))
    outcome = await running.wait(_ignore)
    await running.release()
    assert (outcome.output, outcome.timed_out, outcome.timeout) == ("done\n", False, None)


@pytest.mark.parametrize("pidfds", [pytest.param(True, marks=linux_only), False])
async def test_a_shell_that_traps_the_polite_signal_may_say_goodbye(tmp_path: Path, pidfds: bool):
    terminal = LocalTerminal(pidfds=pidfds, grace=5)
    command = "trap 'echo bye; exit 3' TERM; echo hi; while :; do sleep 0.01; done"
    outcome = await run(terminal, command, tmp_path, timeout=0.2)
    assert (outcome.stdout, outcome.output[-5:]) == ("hi\nbye\n", "\nbye\n")
    assert (outcome.exit_code, outcome.timed_out, outcome.signal) == (124, True, None)


# ----------------------------------------------------------------------------------- the environment


async def test_commands_see_the_allowed_environment_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in (
        "ANTHROPIC_API_KEY",
        "OPENAI_API_KEY",
        "ACP_AGENT_MODEL",
        "AWS_SECRET_ACCESS_KEY",
        "MY_TOKEN",
        "X_API_KEY",
    ):
        monkeypatch.setenv(name, "canary")
    monkeypatch.setenv("WANTED", "yes")
    outcome = await run(LocalTerminal(["WANTED"]), "env", tmp_path)
    assert "canary" not in outcome.output
    variables = dict(line.split("=", 1) for line in outcome.output.splitlines())
    assert variables["WANTED"] == "yes"
    assert variables["PATH"] == os.environ["PATH"]
    assert (variables["TERM"], variables["PAGER"], variables["GIT_PAGER"]) == ("dumb", "cat", "cat")
    assert variables["GIT_TERMINAL_PROMPT"] == "0"
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        LocalTerminal(["OPENAI_API_KEY"])


async def test_git_goes_on_with_the_message_it_has_where_it_would_open_an_editor(tmp_path: Path):
    commit = "git -c user.name=x -c user.email=x@y -c core.editor='cat && false' commit -q --allow-empty"
    outcome = await run(
        LocalTerminal(), f"git init -q; {commit} -m kept && {commit} --amend; git log --format=%s", tmp_path
    )
    assert (outcome.exit_code, outcome.output) == (0, "kept\n")
    outcome = await run(LocalTerminal(), commit, tmp_path)
    assert outcome.exit_code == 1
    assert "empty commit message" in outcome.output


async def test_commands_have_no_terminal_no_input_and_none_of_our_descriptors(terminal: LocalTerminal, tmp_path: Path):
    leak = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(leak, True)
    try:
        outcome = await run(terminal, "ls -l /dev/fd/; (: < /dev/tty) 2>/dev/null || echo no tty", tmp_path)
    finally:
        os.close(leak)
    assert outcome.output.endswith("no tty\n")
    assert "/dev/null" in outcome.output
    assert str(tmp_path) not in outcome.output


async def test_each_command_leads_its_own_session(terminal: LocalTerminal, tmp_path: Path):
    outcome = await run(terminal, "ps -o pid=,pgid=,sid= -p $$ || echo $$ $$ $$", tmp_path)
    pid, group, session = outcome.output.split()
    assert pid == group == session
    assert int(session) != os.getsid(0)


# ------------------------------------------------------------------------------------ what is left


FORKS = {
    "background": "{} &",
    "deep": 'sh -c "sh -c \\"{}; :\\"; :" &',
    "setsid": "setsid {} </dev/null >/dev/null 2>&1 &",
    "double fork": '(setsid sh -c "{} &" </dev/null >/dev/null 2>&1 &)',
    "nohup": "nohup {} </dev/null >/dev/null 2>&1 & disown",
    "without environment": 'env -i PATH="$PATH" sh -c "{} &" </dev/null >/dev/null 2>&1',
    "without anything": '(env -i PATH="$PATH" setsid sh -c "({} &)" </dev/null >/dev/null 2>&1 &)',
}
ON_LINUX = ("without environment", "without anything")
STUBBORN = "trap : TERM INT HUP; while :; do sleep 1000; done"


@pytest.mark.parametrize("how", FORKS)
async def test_a_cancelled_command_takes_its_whole_tree_with_it_however_it_forked(
    tmp_path: Path, orphans_fall_to_us: bool, how: str
):
    if how in ON_LINUX and not LINUX:
        pytest.skip("nothing tells whose it is")
    caller = Caller(tmp_path)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, LocalTerminal(grace=GRACE), FORKS[how].format(caller.program) + "\nsleep 1000", tmp_path)
        pid = await caller.pid()
        tasks.cancel_scope.cancel()
    assert ended(pid)


async def test_a_timeout_takes_the_whole_tree_too(terminal: LocalTerminal, tmp_path: Path, orphans_fall_to_us: bool):
    caller, pids = Caller(tmp_path), list[int]()

    async def listen() -> None:
        pids.append(await caller.pid())
        pass_time(10)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        outcome = await run(terminal, f"{caller.program} & sleep 1000", tmp_path, timeout=10)
    assert outcome.timed_out
    assert ended(pids[0])


async def test_a_shell_does_not_go_on_when_its_command_is_ended(terminal: LocalTerminal, tmp_path: Path):
    ends = list[tuple[str, bool]]()

    async def run_for(timeout: float) -> None:
        outcome = await run(terminal, "sh -c 'sleep 1000; echo inner'; echo outer", tmp_path, timeout=timeout)
        ends.append((outcome.output, outcome.timed_out))

    async with anyio.create_task_group() as tasks:
        for number in range(1, 21):
            tasks.start_soon(run_for, number / 500)
    assert ends == [("", True)] * 20


async def test_processes_that_ignore_the_polite_signal_are_killed(
    terminal: LocalTerminal, tmp_path: Path, orphans_fall_to_us: bool
):
    caller = Caller(tmp_path, then=STUBBORN)
    started = await terminal.start(CommandRequest(f"{caller.program} & {STUBBORN}", str(tmp_path)))
    pid = await caller.pid()
    await started.release()
    assert ended(pid)


@pytest.mark.parametrize("how", FORKS)
async def test_what_a_finished_command_left_behind_is_ended_and_told(
    tmp_path: Path, orphans_fall_to_us: bool, how: str
):
    if how in ON_LINUX and not LINUX:
        pytest.skip("nothing tells whose it is")
    caller = Caller(tmp_path)
    os.mkfifo(tmp_path / "go")
    command = FORKS[how].format(caller.program) + "\ncat go; exit 5"
    running = await LocalTerminal(grace=GRACE).start(CommandRequest(command, str(tmp_path)))
    pid = await caller.pid()
    await anyio.to_thread.run_sync((tmp_path / "go").write_text, "done\n")
    outcome = await running.wait(_ignore)
    assert outcome.exit_code == 5
    assert outcome.stdout == "done\n"
    left = 3 if how == "deep" else 1
    assert outcome.output == f"done\n\n[{left} background process{'es' if left > 1 else ''} ended with the command]\n"
    assert ended(pid)


@pytest.mark.parametrize("pidfds", [pytest.param(True, marks=linux_only), False])
async def test_what_ends_by_itself_a_moment_later_is_waited_for(tmp_path: Path, pidfds: bool):
    outcome = await run(LocalTerminal(pidfds=pidfds, grace=20), "(sleep 0.05; echo late) & echo early", tmp_path)
    assert outcome.output == "early\nlate\n"


async def test_a_daemon_that_keeps_only_our_pipe_is_found_by_it(terminal: LocalTerminal, tmp_path: Path):
    if not LINUX:
        pytest.skip("/proc")
    with subreaper(on=True):
        caller = Caller(tmp_path)
        os.mkfifo(tmp_path / "go")
        command = f"env -i PATH=$PATH setsid {caller.program} & cat go"
        running = await terminal.start(CommandRequest(command, str(tmp_path)))
        pid = await caller.pid()
        await anyio.to_thread.run_sync((tmp_path / "go").write_text, "")
        await running.wait(_ignore)
        assert ended(pid)


@pytest.mark.parametrize("how", ["double fork", pytest.param("without anything", marks=linux_only)])
async def test_another_commands_processes_are_left_alone(
    terminal: LocalTerminal, tmp_path: Path, orphans_fall_to_us: bool, how: str
):
    caller = Caller(tmp_path)
    command = f"{FORKS[how].format(caller.program)}; sleep 1000"
    other = await terminal.start(CommandRequest(command, str(tmp_path)))
    pid = await caller.pid()
    assert (await run(terminal, "sleep 1000 & true", tmp_path)).exit_code == 0
    assert (await run(terminal, "sleep 1000", tmp_path, timeout=0.03)).timed_out
    assert exists(pid)
    await other.release()
    assert ended(pid)


async def test_a_process_of_ours_that_is_no_command_is_left_alone(
    terminal: LocalTerminal, tmp_path: Path, orphans_fall_to_us: bool
):
    async with await anyio.open_process(["cat"], start_new_session=True, env={}) as server:
        await run(terminal, "sleep 1000 & setsid sleep 1000 & true", tmp_path)
        assert server.returncode is None
        await server.stdin.send(b"alive\n")
        assert await server.stdout.receive() == b"alive\n"
        await server.stdin.aclose()


DAEMON = '(setsid sh -c "sleep 1000 &" </dev/null >/dev/null 2>&1 &); sleep 0.1'


def zombies() -> set[int]:
    """Children of ours that have ended and were not reaped."""
    table = system_table()
    statuses = [table.status(pid) for pid in table.children(os.getpid())]
    return {status.pid for status in statuses if status is not None and status.zombie}


async def test_no_zombie_and_no_descriptor_is_left(terminal: LocalTerminal, tmp_path: Path, orphans_fall_to_us: bool):
    OrphanReaper(patience=0.1).begin()  # as the agent does
    await run(terminal, "true", tmp_path)
    before, others = len(os.listdir("/dev/fd")), zombies()  # orphans of agents that other tests have killed
    for command in (
        "true",
        "sleep 0 & true",
        "setsid true & sleep 0.1",
        "sleep 1000 & true",
        DAEMON,
        "exec 2>&-; exec >&-",
    ):
        await run(terminal, command, tmp_path)
    await run(terminal, "sleep 1000", tmp_path, timeout=0.03)
    assert len(os.listdir("/dev/fd")) == before
    with anyio.fail_after(20):  # one that died unseen while its shell did is reaped later
        while True:
            if zombies() <= others:
                break
            await anyio.sleep(0.05)  # nothing tells


# ----------------------------------------------------------------------------------- a lot of output


async def test_a_hundred_megabytes_cost_little_memory_and_few_updates(tmp_path: Path):
    deltas: list[str] = []
    started = anyio.current_time()
    command = f"{sys.executable} -c \"import os\nfor _ in range(1600): os.write(1, b'x' * 65536)\"; echo end"
    tracemalloc.start()
    try:
        outcome = await run(LocalTerminal(), command, tmp_path, deltas=deltas, output_limit=1_000_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    elapsed = anyio.current_time() - started
    assert outcome.truncated
    assert len(outcome.output) < 1_000_100
    assert outcome.output.endswith("xend\n")
    assert peak < 8_000_000
    assert all(len(delta.encode()) <= 64 * 1024 for delta in deltas)
    assert len(deltas) <= 10 * elapsed + 2


async def test_a_hundred_thousand_lines_come_whole(terminal: LocalTerminal, tmp_path: Path):
    outcome = await run(terminal, "seq 1 100000", tmp_path)
    assert outcome.output == "".join(f"{number}\n" for number in range(1, 100_001))
    assert not outcome.truncated


async def test_a_listener_that_is_slow_does_not_hold_the_command_up(tmp_path: Path):
    heard: list[str] = []
    release = anyio.Event()

    async def slow(delta: str) -> None:
        await release.wait()
        heard.append(delta)

    running = await LocalTerminal().start(
        CommandRequest("echo start; sleep 0.3; seq 1 200000; echo > done", str(tmp_path))
    )
    os.mkfifo(tmp_path / "done")

    async def free() -> None:
        await anyio.to_thread.run_sync((tmp_path / "done").read_text)  # the command got to its end
        release.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(free)
        outcome = await running.wait(slow)
    await running.release()
    assert outcome.output.endswith("200000\n")
    assert heard[0] == "start\n"
    assert heard[-1].endswith("200000\n")


# ----------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("command", "cwd", "word", "category"),
    [
        ("a\0b", "/", "NUL", ToolErrorCategory.INVALID_PARAMETERS),
        ("echo \ud800", "/", "surrogate", ToolErrorCategory.INVALID_PARAMETERS),
        ("true", "relative", "absolute", ToolErrorCategory.INVALID_PARAMETERS),
        ("true", "", "absolute", ToolErrorCategory.INVALID_PARAMETERS),
        ("true", "/nowhere/at/all", "/nowhere/at/all: no such file", ToolErrorCategory.PERMANENT_FAILURE),
        ("true", "/dev/null", "/dev/null: not a directory", ToolErrorCategory.PERMANENT_FAILURE),
        ("true " + "x" * 3_000_000, "/", "too long", ToolErrorCategory.INVALID_PARAMETERS),
    ],
)
async def test_what_cannot_be_started_is_an_error_that_says_why(
    terminal: LocalTerminal, command: str, cwd: str, word: str, category: ToolErrorCategory
):
    await run(terminal, "true", Path("/"))  # starts the watchdog
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(ToolError, match=word) as raised:
        await terminal.start(CommandRequest(command, cwd))
    assert raised.value.failure.category is category
    assert len(os.listdir("/dev/fd")) == before


@contextmanager
def path_is(value: str) -> Iterator[None]:
    before = os.environ["PATH"]
    os.environ["PATH"] = value
    try:
        yield
    finally:
        os.environ["PATH"] = before


async def test_sh_stands_in_for_bash_and_without_either_there_is_an_error(tmp_path: Path):
    (tmp_path / "sh").symlink_to("/bin/sh")
    with path_is(str(tmp_path)):
        assert (await run(LocalTerminal(), "echo $0", tmp_path)).output.endswith("/sh\n")
    (tmp_path / "sh").unlink()
    with path_is(str(tmp_path)):
        terminal = LocalTerminal()
    with pytest.raises(ToolError, match="neither bash nor sh"):
        await terminal.start(CommandRequest("true", str(tmp_path)))


async def test_too_many_open_files_are_an_error_and_not_the_end(terminal: LocalTerminal, tmp_path: Path):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open("/dev/null", os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 3, limits[1]))
    try:
        with pytest.raises(ToolError, match="too many open files"):
            await terminal.start(CommandRequest("true", str(tmp_path)))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert (await run(terminal, "echo again", tmp_path)).output == "again\n"


async def _ignore(_: str) -> None:
    return
