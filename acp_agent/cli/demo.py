"""`acp-agent demo`: an editor drives the real agent over pipes, and the agent repairs a small project.

Only the model is a script. The steps are checked against the recorded messages and the files of the project.
"""

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import anyio

import acp_agent
from acp_agent.cli.agent_process import (
    AgentGone,
    AgentProcess,
    AgentRefused,
    Direction,
    Recording,
    SeenCall,
    objects_at,
    problems,
    seen_calls,
    text_at,
)
from acp_agent.cli.screen import Screen
from acp_agent.core.types import JsonObject
from acp_agent.workspace.processes.tree import harden_process

BUGGY = "    return sum(item.price for item in items)\n"
MENDED = "    return sum(item.price * item.quantity for item in items)\n"

STOCK = "inventory/stock.py"
TESTS = "tests/test_stock.py"

_STOCK_TEXT = f'''"""What lies in the warehouse, and what it is worth."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """Pieces of one product; the price is for one piece, in cents."""

    name: str
    price: int
    quantity: int


def total(items):
    """What all the items together are worth, in cents."""
{BUGGY}'''

_TESTS_TEXT = """import unittest

from inventory.stock import Item, total


class StockTest(unittest.TestCase):
    def test_no_items(self):
        self.assertEqual(total([]), 0)

    def test_quantities(self):
        self.assertEqual(total([Item("cup", 450, 2), Item("plate", 800, 3)]), 3300)


if __name__ == "__main__":
    unittest.main()
"""

_FILES = {
    "README.md": "# Inventory\n\nWhat lies in the warehouse. Run the tests with `python3 -m unittest -v`.\n",
    ".gitignore": "__pycache__/\n",
    "inventory/__init__.py": "",
    STOCK: _STOCK_TEXT,
    "tests/__init__.py": "",
    TESTS: _TESTS_TEXT,
}


def make_project(folder: Path) -> bool:
    """Write the project into an empty folder. Return True if it is a git repository, too. Raises OSError."""
    for name, text in _FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if shutil.which("git") is None:
        return False
    author = ("-c", "user.name=Demo", "-c", "user.email=demo@example.invalid")
    commands = (("init", "--quiet"), ("add", "."), (*author, "commit", "--quiet", "--message", "Inventory"))
    return all(_git(folder, *command).returncode == 0 for command in commands)


def changes(folder: Path) -> str:
    """Return the output of `git diff` without context lines."""
    patch = _git(folder, "--no-pager", "diff", "--no-color", "--no-ext-diff", "--unified=0").stdout
    return patch[max(patch.find("---"), 0) :]


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run git without the user's configuration and environment, so without their hooks, signing and repository."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    plain |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    return subprocess.run(["git", *arguments], cwd=folder, check=False, capture_output=True, text=True, env=plain)


class Evidence:
    """The recorded messages, and the project after the turn. `stop_reason` is empty if no turn ended."""

    def __init__(self, recording: Recording, project: Path, stop_reason: str) -> None:
        self.recording = recording
        self.project = project
        self.stop_reason = stop_reason
        self.calls = seen_calls(recording)

    def requests(self, method: str) -> list[int]:
        """Return the indexes in the recording of the agent's requests with this method."""
        return [
            index
            for index, frame in enumerate(self.recording.frames)
            if frame.direction is Direction.FROM_AGENT and frame.is_request and frame.method == method
        ]

    def runs(self) -> list[SeenCall]:
        """Return the commands that ran in a terminal of the editor."""
        return [call for call in self.calls if call.kind == "execute" and call.terminals]


def _listed(seen: Evidence) -> bool:
    listings = [call for call in seen.calls if call.kind in {"search", "other"} and call.status == "completed"]
    return any("inventory" in call.text for call in listings)


def _read_through_the_editor(seen: Evidence) -> bool:
    asked = [text_at(seen.recording.frames[index].params, "path") for index in seen.requests("fs/read_text_file")]
    read = [call for call in seen.calls if call.kind == "read" and call.status == "completed"]
    return bool(read) and any(path.endswith(STOCK) for path in asked)


def _failed_first(seen: Evidence) -> bool:
    runs = seen.runs()
    return len(runs) > 1 and runs[0].status == "failed" and "FAILED" in _printed(runs[0])


def _asked_with_a_diff(seen: Evidence) -> bool:
    edits = {call.id for call in seen.calls if call.kind == "edit"}
    questions = [seen.recording.frames[index].params for index in seen.requests("session/request_permission")]
    return any(
        text_at(question, "toolCall", "toolCallId") in edits
        and any(item.get("type") == "diff" for item in objects_at(question, "toolCall", "content"))
        for question in questions
    )


def _edited(seen: Evidence) -> bool:
    edited = [call for call in seen.calls if call.kind == "edit" and call.status == "completed" and call.diffs]
    return bool(edited) and (seen.project / STOCK).read_text(encoding="utf-8").endswith(MENDED)


def _passed_last(seen: Evidence) -> bool:
    runs = seen.runs()
    return bool(runs) and runs[-1].status == "completed" and "OK" in _printed(runs[-1]).splitlines()


def _all_finished(seen: Evidence) -> bool:
    return bool(seen.calls) and all(call.end >= 0 for call in seen.calls) and seen.stop_reason == "end_turn"


def _all_released(seen: Evidence) -> bool:
    released = {text_at(seen.recording.frames[i].params, "terminalId"): i for i in seen.requests("terminal/release")}
    shown = [(call.end, terminal) for call in seen.runs() for terminal in call.terminals]
    return bool(shown) and all(released.get(terminal, -1) > end for end, terminal in shown)


def _printed(call: SeenCall) -> str:
    raw = call.final.get("rawOutput")
    return raw if isinstance(raw, str) else text_at(raw, "output") or text_at(raw, "stdout")


STEPS: tuple[tuple[str, Callable[[Evidence], bool]], ...] = (
    ("the agent listed the project", _listed),
    ("it read the source through the editor", _read_through_the_editor),
    ("the test ran in the editor's terminal and failed", _failed_first),
    ("it asked before the edit, showing the diff", _asked_with_a_diff),
    ("the edit is on the disk", _edited),
    ("the test ran again and passed", _passed_last),
    ("every tool call ended before the turn did", _all_finished),
    ("every terminal was released after its last update", _all_released),
)
"""The steps that must have happened, in order, each with its description and its check."""


PROMPT = "A test of this inventory fails. Find out why, mend it, and show me that it passes."
MODEL = "scripted:demo"

_LIMIT = 60.0  # seconds after which the demo is given up
_TICK = 0.1  # seconds between two updates of the progress line
_PASSED_ON = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "VIRTUAL_ENV")


def demo(args: argparse.Namespace) -> int:
    """Run the demo on stdout. Return 0 if every step happened, else 1 after naming the missing ones on stderr."""
    del args  # it has no options
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)  # ends the demo as Ctrl-C does, and its folder is removed
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts its background jobs with SIGINT ignored. Then an event loop does not cancel the main task at
        # SIGINT: it does so only in place of Python's own handler.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="acp-agent-demo-") as folder:
        base = Path(os.path.realpath(folder))
        return _play(base / "home", base / "project")


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Do what Ctrl-C does now: in an event loop it cancels the main task, so that no task sees a KeyboardInterrupt."""
    del number
    handler = signal.getsignal(signal.SIGINT)
    (handler if callable(handler) else signal.default_int_handler)(signal.SIGINT, frame)


class DemoSession:
    """One editor session that is drawn on the screen. `problem` is the reason if it broke off, else empty."""

    def __init__(self, screen: Screen, home: Path, project: Path) -> None:
        self.problem = ""
        self._screen = screen
        self._project = str(project)
        self._environment = _environment(home)
        command, cwd = server_start(sys.path[0], str(home))
        self.agent = AgentProcess(command, self._environment, cwd, Recording(screen.frame))

    async def play(self) -> str:
        """Start the agent and send it one prompt. Return the stop reason, or "" if the turn did not end."""
        stop_reason = ""
        try:
            with anyio.fail_after(_LIMIT):
                async with anyio.create_task_group() as tasks, self.agent.running():
                    # The agent starts while the SDK is loaded.
                    from acp_agent.cli.editor import DemoEditor, EditorTerminals  # noqa: PLC0415

                    terminals = EditorTerminals(tasks, self._environment, self._screen.terminal_output)
                    async with DemoEditor(self.agent, self._decide, terminals) as editor:
                        await editor.initialize()
                        session = await editor.new_session(self._project)
                        self._screen.user(PROMPT)
                        tasks.start_soon(self._tick)
                        stop_reason = (await editor.prompt(session, PROMPT)).stop_reason
                    tasks.cancel_scope.cancel()
        except* (AgentGone, AgentRefused, OSError, TimeoutError) as group:
            self.problem = "; ".join(problems(group))
        return stop_reason

    async def _tick(self) -> None:
        self._screen.begin()
        while True:
            await anyio.sleep(_TICK)
            self._screen.tick()

    async def _decide(self, params: JsonObject) -> str | None:
        options = {text_at(option, "kind"): text_at(option, "optionId") for option in objects_at(params, "options")}
        chosen = options.get("allow_once")
        self._screen.question(params, chosen or "")
        return chosen


def _play(home: Path, project: Path) -> int:
    began = time.monotonic()
    home.mkdir()
    (home / "config.toml").write_text(f'[llm]\nmodel = "{MODEL}"\n', encoding="utf-8")
    project.mkdir()
    has_git = make_project(project)
    screen = Screen(sys.stdout, str(project))
    screen.heading("acp-agent demo")
    screen.note("An editor starts the agent and talks to it over pipes. Only the model is a script.")
    demo_session = DemoSession(screen, home, project)
    harden_process()  # the agent's commands must not read our environment
    # `anyio.run` would import its backend before the loop handles Ctrl-C, and Python drops a KeyboardInterrupt in a
    # callback of its importer.
    stop_reason = asyncio.run(demo_session.play())
    screen.end()
    if has_git:
        screen.heading("\n$ git diff")
        screen.patch(changes(project))
    screen.heading("\nWhat happened")
    seen = Evidence(demo_session.agent.recording, project, stop_reason)
    missing = [name for name, happened in STEPS if not screen.check(name, passed=happened(seen))]
    screen.note(f"\n{len(seen.recording.frames)} messages, {time.monotonic() - began:.1f} s")
    if missing:
        why = demo_session.problem or "the turn ended before it"
        print(f"{demo_session.agent.log}acp-agent demo: did not happen: {'; '.join(missing)}: {why}", file=sys.stderr)
    return 1 if missing else 0


def server_start(first: str, home: str) -> tuple[list[str], str]:
    """Return the command that starts this package, and the folder to start it in, normally the demo's own `home`.

    Python must not import modules from the start folder. The exception is the package's own folder, if it is the
    `first` entry of the module path: then the package may not be found anywhere else.
    """
    own = str(Path(acp_agent.__file__).parents[1])
    if first in ("", own):
        return [sys.executable, "-m", "acp_agent"], own
    return [sys.executable, "-P", "-m", "acp_agent"], home


def _environment(home: Path) -> dict[str, str]:
    """Return a small environment without the user's configuration, keys and history."""
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return passed_on | {
        "HOME": str(home),
        "ACP_AGENT_DATA_DIR": str(home / "data"),
        "ACP_AGENT_CONFIG": str(home / "config.toml"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TERM": "dumb",
        "PAGER": "",
    }
