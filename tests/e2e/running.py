"""`acp-agent run` in a home and a folder of its own, forked or cold, in pipes or at a terminal."""

import fcntl
import json
import os
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import psutil

from tests.fakes.editor import AGENT_CWD
from tests.fakes.forked_agent import CAN_FORK
from tests.fakes.forked_command import ForkedCommand, run_forked
from tests.fakes.held import PATIENCE
from tests.fakes.home import Home
from tests.fakes.model_script import Script, write_script
from tests.fakes.short_waits import VARIABLE

COMMAND = [sys.executable, "-m", "acp_agent"]
LIMIT = 50  # seconds; something hangs


class Folder:
    """A home and a folder to work in."""

    def __init__(self, base: Path) -> None:
        self.home = Home(base / "home", {"PYTHONPATH": AGENT_CWD})
        self.work = base / "work"
        self.work.mkdir()
        (self.work / "a.txt").write_text("one\n")

    def model(self, script: Script) -> None:
        self.home.config.write_text(f'[llm]\nmodel = "{write_script(self.home.root, script)}"\n')

    def run(
        self, *arguments: str, start: list[str] | None = None, cwd: Path | None = None, short_waits: bool = False
    ) -> "subprocess.CompletedProcess[str]":
        """Return a run to its end; forked, unless `start` says how to start it. Its agent may have `short_waits`."""
        if start is None and CAN_FORK:
            environment = self.home.environment() | ({VARIABLE: "1"} if short_waits else {})
            return run_forked(["run", *arguments], environment, str(cwd or self.work), LIMIT)
        start = start or COMMAND
        return subprocess.run(
            [*start, "run", *arguments],
            check=False, cwd=cwd or self.work, env=self.home.environment(), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=LIMIT,
        )  # fmt: skip

    def call(self, *arguments: str) -> str:
        """What another subcommand prints."""
        if CAN_FORK:
            return run_forked(arguments, self.home.environment(), str(self.work), LIMIT).stdout
        given = {"cwd": self.work, "env": self.home.environment(), "timeout": LIMIT}
        return subprocess.check_output([*COMMAND, *arguments], text=True, **given)

    def sessions(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.call("sessions", "list", "--json").splitlines()]

    @contextmanager
    def started(
        self, *arguments: str, cold: bool = False, short_waits: bool = True, **options
    ) -> "Iterator[subprocess.Popen[bytes] | ForkedCommand]":
        """A run under way; its output in a pipe. `cold` starts the interpreter anew, as a child of this process.

        short_waits   let the command, where it is forked, take keys soon after a question, and its agent wait less
        """
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        where = {"cwd": str(self.work), "env": self.home.environment()}
        if cold or not CAN_FORK:
            made = subprocess.Popen([*COMMAND, "run", *arguments], **where, **pipes)
        else:
            where["env"] |= {VARIABLE: "1"} if short_waits else {}
            made = ForkedCommand(["run", *arguments], **where, **pipes)
        with made as process:
            try:
                yield process
            finally:
                process.kill()


async def shown(fd: int, text: bytes) -> bytes:
    """Wait until a terminal was sent a text. Return all it was sent."""
    seen = b""
    with anyio.fail_after(PATIENCE):
        while text not in seen:
            await anyio.wait_readable(fd)
            seen += os.read(fd, 4096)
    return seen


def server_of(process: "subprocess.Popen[bytes] | ForkedCommand") -> int:
    """The agent of a run: its only child, or, if both were forked by one server, the other process of its folder."""
    run = psutil.Process(process.pid)
    if isinstance(process, ForkedCommand):
        cwd, siblings = run.cwd(), psutil.Process(run.ppid()).children()
        (agent,) = [each for each in siblings if each != run and each.cwd() == cwd]
    else:
        (agent,) = run.children()
    return agent.pid


class Terminal:
    """A pseudo terminal, on which a test types. `seen` is all that was shown and not yet waited for."""

    def __init__(self) -> None:
        self.ours, self.theirs = os.openpty()
        self.seen = b""

    def type(self, keys: str) -> None:
        """Type keys, such as `\\x03` for Ctrl-C."""
        os.write(self.ours, keys.encode())

    async def until(self, text: str) -> str:
        """Wait until the terminal shows a text. Return what it was shown before and with it, and forget that."""
        wanted = text.encode()
        with anyio.fail_after(PATIENCE):
            while wanted not in self.seen:
                await anyio.wait_readable(self.ours)
                self.seen += os.read(self.ours, 4096)
        end = self.seen.index(wanted) + len(wanted)
        shown, self.seen = self.seen[:end], self.seen[end:]
        return shown.decode()

    def resize(self, columns: int) -> None:
        """Give the terminal another width."""
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def rest(self) -> str:
        """Return all that was shown, after the last process has ended."""
        os.set_blocking(self.ours, False)
        try:
            while piece := os.read(self.ours, 65536):
                self.seen += piece
        except OSError:
            pass
        return self.seen.decode()


@contextmanager
def at_terminal(
    folder: Folder,
    *arguments: str,
    command: str = "run",
    cold: bool = False,
    term: str = "dumb",
    short_waits: bool = True,
) -> "Iterator[tuple[Terminal, subprocess.Popen[bytes] | ForkedCommand]]":
    """Start a command whose controlling terminal is a pseudo terminal, so that Ctrl-C is a signal there.

    It is forked, unless it is `cold`: then it is a child of this process, and its agent is a child of it.
    `short_waits` is as in `Folder.started`.
    """
    terminal = Terminal()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal.theirs)
    where = {"cwd": str(folder.work), "env": folder.home.environment() | {"TERM": term}}
    words = [*command.split(), *arguments]
    if cold or not CAN_FORK:
        own = {"preexec_fn": lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0), "start_new_session": True}
        made = subprocess.Popen([*COMMAND, *words], **own, **where, **streams)
    else:
        where["env"] |= {VARIABLE: "1"} if short_waits else {}
        made = ForkedCommand(words, **where, **streams)
    with made as process:
        try:
            yield terminal, process
        finally:
            process.kill()
    os.close(terminal.theirs)
    os.close(terminal.ours)
