"""The story: a project with a failing test, an agent that mends it, and an editor where one can watch."""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import anyio

import acp_agent
from acp_agent.cli.demo.project import changes, make_project
from acp_agent.cli.demo.steps import STEPS, Evidence
from acp_agent.cli.editor.client import Editor
from acp_agent.cli.editor.connection import AgentGone
from acp_agent.cli.editor.frames import JsonRpcError, Recording, objects_at, text_at
from acp_agent.cli.screen import Screen
from acp_agent.core.types import JsonObject
from acp_agent.execution.process_tree import harden_process

PROMPT = "A test of this inventory fails. Find out why, mend it, and show me that it passes."
MODEL = "scripted:demo"

_LIMIT = 60.0  # seconds; something hangs
_PASSED_ON = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "VIRTUAL_ENV")


def demo(args: argparse.Namespace) -> int:
    """Play the whole story on stdout; 0 when every step happened, else 1 with the missing ones named on stderr."""
    del args  # it has no options
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if callable(reconfigure):
        reconfigure(errors="replace")  # a terminal without ✔ still shows the story
    with tempfile.TemporaryDirectory(prefix="acp-agent-demo-") as folder:
        base = Path(os.path.realpath(folder))
        return _play(base / "home", base / "project")


class Performance:
    """One editor session with somebody watching. `problem` says why it broke off, if it did."""

    def __init__(self, screen: Screen, home: Path, project: Path) -> None:
        self.problem = ""
        self._screen = screen
        self._project = str(project)
        command, cwd = server_start(sys.path[0], str(home))
        self.editor = Editor(
            command,
            _environment(home),
            cwd,
            self._decide,
            on_output=screen.terminal_output,
            recording=Recording(screen.frame),
        )

    async def play(self) -> str:
        """Start the agent and let it answer one prompt; the stop reason, empty when it came to none."""
        stop_reason = ""
        try:
            with anyio.fail_after(_LIMIT):
                async with self.editor.running():
                    await self.editor.initialize()
                    session = await self.editor.new_session(self._project)
                    self._screen.user(PROMPT)
                    stop_reason = await self.editor.prompt(session, PROMPT)
        except* (AgentGone, JsonRpcError, OSError, TimeoutError) as group:
            self.problem = "; ".join(f"{type(error).__name__}: {error}" for error in _leaves(group))
        return stop_reason

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
    performance = Performance(screen, home, project)
    harden_process()  # the agent's commands are our grandchildren: our environment is not theirs to read
    stop_reason = anyio.run(performance.play)
    if has_git:
        screen.heading("\n$ git diff")
        screen.patch(changes(project))
    screen.heading("\nWhat happened")
    seen = Evidence(performance.editor.recording, project, stop_reason)
    missing = [name for name, happened in STEPS if not screen.check(name, passed=happened(seen))]
    screen.note(f"\n{len(seen.recording.frames)} messages, {time.monotonic() - began:.1f} s")
    if missing:
        why = performance.problem or "the turn ended without it"
        print(f"{performance.editor.log}acp-agent demo: did not happen: {'; '.join(missing)}: {why}", file=sys.stderr)
    return 1 if missing else 0


def server_start(first: str, home: str) -> tuple[list[str], str]:
    """The command that starts this very package, and the folder to start it in: `home`, which is the demo's own.

    No folder may hold modules that stand in for others, unless it is the package's own and `first`, where this Python
    looks first: then it was started there, and may find the package nowhere else.
    """
    own = str(Path(acp_agent.__file__).parents[1])
    if first in ("", own):
        return [sys.executable, "-m", "acp_agent"], own
    return [sys.executable, "-P", "-m", "acp_agent"], home


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors themselves, without the task groups they passed."""
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for child in cast("BaseExceptionGroup[BaseException]", error).exceptions:
        yield from _leaves(child)


def _environment(home: Path) -> dict[str, str]:
    """A small one: nothing of the user's configuration, keys or history takes part."""
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return passed_on | {
        "HOME": str(home),
        "ACP_AGENT_DATA_DIR": str(home / "data"),
        "ACP_AGENT_CONFIG": str(home / "config.toml"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TERM": "dumb",
        "PAGER": "",
    }
