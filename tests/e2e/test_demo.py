"""The demo, as a person starts it, and as it must fail."""

import argparse
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from acp_agent.cli import demo
from acp_agent.cli.agent_process import Recording
from acp_agent.cli.demo import STEPS, Evidence, server_start
from tests.fakes.editor import AGENT_CWD
from tests.fakes.forked_agent import CAN_FORK
from tests.fakes.forked_command import ForkedCommand, run_forked

COMMAND = [sys.executable, "-m", "acp_agent", "demo"]


def environment(tmp_path, **extra: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(tmp_path), **extra}


def play(variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    if CAN_FORK:
        return run_forked(["demo"], variables, AGENT_CWD, 50)
    options = {"capture_output": True, "text": True, "timeout": 50}
    return subprocess.run(COMMAND, check=False, cwd=AGENT_CWD, env=variables, **options)


def started(variables: dict[str, str], stdout: int) -> "subprocess.Popen[bytes] | ForkedCommand":
    if CAN_FORK:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": subprocess.DEVNULL}
        return ForkedCommand(["demo"], variables, AGENT_CWD, **pipes)
    return subprocess.Popen(COMMAND, cwd=AGENT_CWD, env=variables, stdout=stdout)


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> subprocess.CompletedProcess[str]:
    home = tmp_path_factory.mktemp("demo")
    return play(environment(home))


def test_the_demo_tells_the_whole_story_and_succeeds(played):
    assert played.returncode == 0, played.stdout + played.stderr
    story = [
        "inventory/stock.py",
        "python3 -m unittest",
        "FAILED (failures=1)",
        "Allow?",
        "-    return sum(item.price for item in items)",
        "+    return sum(item.price * item.quantity for item in items)",
        "[Allow once]",
        "\n    │ OK\n",
        "What happened",
    ]
    position = 0
    for part in story:
        assert part in played.stdout[position:], f"{part!r} after {played.stdout[:position][-200:]!r}"
        position = played.stdout.index(part, position)
    for step, _ in STEPS:
        assert f"✔ {step}" in played.stdout


def test_no_module_of_a_folder_nobody_named_stands_in_for_another(tmp_path):
    bait = tmp_path / "bait"
    bait.mkdir()
    for name in ("json", "uuid", "acp_agent"):
        (bait / f"{name}.py").write_text("raise SystemExit('taken in')")
    command = [sys.executable, "-P", *COMMAND[1:]]  # as the script does that is installed
    variables = environment(tmp_path, PYTHONPATH=AGENT_CWD)
    done = subprocess.run(command, check=False, cwd=bait, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert server_start("/usr/bin", "/home") == ([sys.executable, "-P", "-m", "acp_agent"], "/home")
    for first in ("", AGENT_CWD):
        assert server_start(first, "/home") == ([sys.executable, "-m", "acp_agent"], AGENT_CWD)


def test_the_demo_in_a_pipe_is_plain_and_fits_a_screen(played):
    assert "\x1b" not in played.stdout
    assert max(map(len, played.stdout.splitlines())) <= 100


def test_the_demo_shows_no_path_of_the_machine(played):
    assert "/tmp" not in played.stdout
    assert str(Path.home()) not in played.stdout


@pytest.mark.parametrize("no_color", [False, True])
def test_the_demo_is_coloured_on_a_terminal_unless_no_color_says_otherwise(tmp_path, no_color):
    extra = {"TERM": "xterm", **({"NO_COLOR": "1"} if no_color else {})}
    ours, theirs = pty.openpty()
    with started(environment(tmp_path, **extra), theirs) as demo:
        os.close(theirs)
        shown = b""
        while chunk := _read(ours):
            shown += chunk
        assert demo.wait() == 0
    os.close(ours)
    assert (re.search(rb"\x1b\[[\d;]*m", shown) is None) is no_color


def test_a_step_that_did_not_happen_is_named_and_the_demo_fails(tmp_path):
    fakes = tmp_path / "bin"
    fakes.mkdir()
    (fakes / "python3").write_text("#!/bin/sh\necho broken\nexit 9\n")
    (fakes / "python3").chmod(0o755)
    broken = environment(tmp_path, PATH=f"{fakes}:{os.environ['PATH']}")
    demo = play(broken)
    assert demo.returncode == 1
    assert "✘ the test ran again and passed" in demo.stdout
    assert "did not happen: " in demo.stderr
    assert "the test ran again and passed" in demo.stderr


@pytest.mark.parametrize(("name", "happened"), STEPS, ids=[name for name, _ in STEPS])
@pytest.mark.anyio
async def test_no_step_counts_as_done_when_nothing_happened(tmp_path, name, happened):
    assert not happened(Evidence(Recording(), tmp_path, "end_turn"))


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:  # the other end of a pty is closed
        return b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_demo_that_is_ended_leaves_no_folder(tmp_path, number):
    variables = environment(tmp_path, TMPDIR=str(tmp_path))
    with subprocess.Popen(COMMAND, cwd=AGENT_CWD, env=variables, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(number)
        process.communicate(timeout=50)
    # A shell shows 130 for both. Python ends a `-m` run by SIGINT itself, whatever `main` returns, if the interrupt met
    # code made from a string, as that of a dataclass is.
    assert process.returncode in (130, -signal.SIGINT)
    assert not list(tmp_path.glob("acp-agent-demo-*"))


_INTERRUPTED_IMPORT = """
import importlib.abc, signal, sys, weakref

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            kept = weakref.ref(type(self)(), lambda _: signal.raise_signal(signal.SIGINT))

sys.meta_path.insert(0, Finder())
"""
"""A sitecustomize.py. Its SIGINT comes while a callback runs, where Python prints exceptions and drops them."""


@pytest.mark.parametrize("module", ["acp_agent.cli.screen", "anyio._backends._asyncio", "acp_agent.cli.editor"])
def test_ctrl_c_is_not_lost_while_the_demo_imports_modules(tmp_path, module):
    custom = tmp_path / "custom"
    custom.mkdir()
    (custom / "sitecustomize.py").write_text(_INTERRUPTED_IMPORT.format(module=module))
    variables = environment(tmp_path, TMPDIR=str(tmp_path), PYTHONPATH=str(custom))
    done = subprocess.run(COMMAND, check=False, cwd=AGENT_CWD, env=variables, capture_output=True, timeout=50)
    assert done.returncode in (130, -signal.SIGINT)
    assert b"Exception ignored" not in done.stderr
    assert not list(tmp_path.glob("acp-agent-demo-*"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("keyboard", [signal.default_int_handler, signal.SIG_IGN], ids=["foreground", "background"])
@pytest.mark.parametrize("by_task", [True, False], ids=["task", "body"])
def test_a_signal_ends_the_demo_as_ctrl_c_does_while_a_task_runs_code(monkeypatch, number, keyboard, by_task):
    """It was raised in that task, and a traceback of the task group was printed.

    A shell starts the jobs that it leaves in the background with SIGINT ignored.
    """

    async def ended() -> None:
        signal.raise_signal(number)
        await anyio.sleep_forever()

    async def play() -> None:
        async with anyio.create_task_group() as tasks:
            if by_task:
                tasks.start_soon(ended)
            else:
                await ended()

    monkeypatch.setattr(demo, "_play", lambda *_: anyio.run(play))
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGINT, keyboard)
    try:
        with pytest.raises(KeyboardInterrupt):
            demo.demo(argparse.Namespace())
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
