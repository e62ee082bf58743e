"""`acp-agent run "PROMPT"`: one turn in this folder, driven by a small editor without files and terminals of its own.

It starts the real server and speaks to it over pipes, so it shows what every editor shows.
"""

import argparse
import os
import signal
import sys
import termios
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from acp_agent.cli.agent_process import (
    AgentGone,
    AgentProcess,
    AgentRefused,
    Recording,
    at,
    objects_at,
    problems,
    text_at,
)
from acp_agent.cli.commands import server_flags
from acp_agent.cli.screen import Screen, plain
from acp_agent.core.types import JsonObject
from acp_agent.workspace.processes.tree import harden_process

if TYPE_CHECKING:
    from acp_agent.cli.editor import Editor

_SETTLE = 0.3  # seconds after a question in which keys are ignored: nobody reads and answers that fast
_KEYS = {"y": "allow_once", "a": "allow_always", "n": "reject_once", "v": "reject_always"}
_CANCELLED = 130


def run(args: argparse.Namespace) -> int:
    """Run one turn. Exit codes: 0 the turn ended normally, 1 it did not, 130 the user cancelled it with Ctrl-C."""
    try:
        cwd = os.getcwd()
    except OSError as error:
        print(f"acp-agent: the current folder cannot be used, go to one that exists: {error.strerror}", file=sys.stderr)
        return 1
    harden_process()  # the agent's commands must not read our environment
    return anyio.run(_Headless(args, cwd).run)


class _Headless:
    """One editor session with a user at a terminal, or without one."""

    def __init__(self, args: argparse.Namespace, cwd: str) -> None:
        self._args = args
        self._cwd = cwd
        self._screen = Screen(sys.stdout, cwd)
        self._cancelled = False
        self._asking = anyio.Lock()  # one question at a time
        self._agent = AgentProcess(_server_command(args, cwd), os.environ, cwd, Recording(self._screen.frame))

    async def run(self) -> int:
        code = 1
        try:
            async with self._agent.running():
                code = await self._converse()
        except* (AgentGone, AgentRefused, OSError) as group:
            self._screen.end()
            for problem in problems(group):
                print(f"acp-agent: {plain(problem)}", file=sys.stderr)
            print(end=plain(self._agent.log), file=sys.stderr)
        return code

    async def _converse(self) -> int:
        from acp_agent.cli.editor import Editor  # noqa: PLC0415 - the agent starts while the SDK is loaded

        async with Editor(self._agent, self._decide) as editor:
            await editor.initialize()
            session = await editor.new_session(self._cwd)
            code = 1
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._heed_interrupts, editor, session)
                answer = await editor.prompt(session, self._args.prompt)
                self._screen.end()
                if self._cancelled:
                    code = _CANCELLED
                elif answer.stop_reason == "end_turn" and at(answer.field_meta, "acp_agent", "failure") is None:
                    code = 0
                tasks.cancel_scope.cancel()
        return code

    async def _heed_interrupts(self, editor: "Editor", session: str) -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as interrupts:
            async for _ in interrupts:
                if self._cancelled:  # the second Ctrl-C ends the process at once
                    os._exit(_CANCELLED)
                self._cancelled = True
                await editor.cancel(session)

    async def _decide(self, params: JsonObject) -> str | None:
        options = {text_at(option, "kind"): text_at(option, "optionId") for option in objects_at(params, "options")}
        async with self._asking:
            # The content of a pipe was written before the question, so it is never an answer.
            if not (sys.stdin.isatty() and sys.stdout.isatty()):
                self._screen.question(params, options["reject_once"])
                self._screen.note(
                    "    refused: stdin or stdout is no terminal, so nobody can be asked; --yes allows without asking"
                )
                return options["reject_once"]
            self._screen.question(params, "")
            chosen = await _chosen_kind()
        return options.get(chosen) if chosen else None


def _server_command(args: argparse.Namespace, cwd: str) -> list[str]:
    """Return the command that starts the server with this Python. Its flags take precedence over all other sources."""
    # Python must not import modules from the user's folder, unless it was started to look there.
    safe = [] if cwd in sys.path or "" in sys.path else ["-P"]
    return [sys.executable, *safe, "-m", "acp_agent", "acp", *server_flags(args)]


async def _chosen_kind() -> str:
    """Ask for a key, and return the kind of the option that the user chose, or "" at the end of the input.

    Keys that were typed before the question and in the first moment after it do not count.
    """
    await anyio.sleep(_SETTLE)
    with suppress(termios.error):  # the terminal is gone, which the next read reports
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    while True:
        print("    [y]es once, [a]lways, [n]o, ne[v]er: ", end="", flush=True)
        line = await _typed_line()
        if not line:
            return ""
        chosen = _KEYS.get(line.strip().lower()[:1])
        if chosen is not None:
            return chosen


async def _typed_line() -> str:
    """Return the next line that is typed. At the end of the input it is incomplete or empty.

    No thread reads the line, because it would keep the process alive after Ctrl-C.
    """
    fd, line = sys.stdin.fileno(), b""
    while not line.endswith(b"\n"):
        await anyio.wait_readable(fd)
        try:
            typed = os.read(fd, 4096)  # a terminal returns at most one line
        except OSError:  # the terminal is gone
            return ""
        if not typed:
            break
        line += typed
    return line.decode("utf-8", "replace")
