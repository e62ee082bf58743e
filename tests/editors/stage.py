"""A stage for one client: a home, a project, the agent as a program, and every frame between the two."""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.editors import story

CHECKOUT = Path(__file__).resolve().parents[2]
PATIENCE = float(os.environ.get("PATIENCE", "45"))
"""Seconds until what did not happen counts as failed."""


class NotSeenError(Exception):
    """Something that a part of the tour waits for did not happen."""


@dataclass(frozen=True)
class Frame:
    """A message between client and agent, as the agent's frame log has it."""

    agent: str
    number: int
    to_agent: bool
    message: dict[str, Any]

    @property
    def method(self) -> str:
        return self.message.get("method", "")

    @property
    def params(self) -> dict[str, Any]:
        return self.message.get("params") or {}

    @property
    def update(self) -> dict[str, Any]:
        """What a session/update tells, else an empty dict."""
        return self.params.get("update") or {} if self.method == "session/update" else {}


def until(seen: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Return the first true value of `seen`. Raises NotSeenError after `seconds`."""
    end = time.monotonic() + seconds
    while not (value := seen()):
        if time.monotonic() > end:
            raise NotSeenError(f"not seen in {seconds:.0f} s: {what}")
        time.sleep(0.1)
    return value


@dataclass
class Stage:
    """The folders of one client's drive. All of it lies in `folder`, which stays as the drive's artefact."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True)
        story.write_project(self.project)
        subprocess.run(["git", "init", "-q", str(self.project)], check=True)
        self._write_program()

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def project(self) -> Path:
        return self.folder / "shop"

    @property
    def program(self) -> Path:
        """The agent as clients start it: this checkout's, with the scripted model and a frame log a process."""
        return self.folder / "acp-agent"

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of the client: a home of its own, and nothing of this machine's settings."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        return {"LANG": "C.UTF-8", **kept, "HOME": str(self.home), "TERM": "xterm-256color", **more}

    def _write_program(self) -> None:
        variables = {
            "ACP_AGENT_MODEL": story.write_model(self.folder / "model.json"),
            "ACP_AGENT_DATA_DIR": str(self.folder / "data"),
            "ACP_AGENT_CONFIG": str(self.folder / "config.toml"),
            "ACP_AGENT_MEMORY__SESSIONS__TITLES": "prompt",
        }
        told = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
        (self.folder / "config.toml").touch()
        log = shlex.quote(str(self.folder))
        agent = Path(sys.executable).with_name("acp-agent")
        self.program.write_text(
            f'#!/bin/sh\nexport {told} ACP_AGENT_LOG_FRAMES={log}/frames-$$.jsonl\nexec {shlex.quote(str(agent))} "$@"'
            f" 2>>{log}/stderr.txt\n"
        )
        self.program.chmod(0o755)

    # ------------------------------------------------------------------------------------------- frames

    def frames(self, since: Mapping[str, int] | None = None) -> list[Frame]:
        """Return the frames of all agents that came after `since`."""
        found: list[Frame] = []
        for file in sorted(self.folder.glob("frames-*.jsonl"), key=lambda each: each.stat().st_mtime):
            lines = file.read_text(encoding="utf-8").splitlines()
            for number, line in enumerate(lines):
                if since is None or number >= since.get(file.name, 0):
                    entry = json.loads(line)
                    found.append(Frame(file.name, number, entry["direction"] == "in", entry.get("frame") or {}))
        return found

    def asked(self, method: str, since: Mapping[str, int] | None = None) -> Frame | None:
        """Return the first request of this method, if it has come."""
        return next((frame for frame in self.frames(since) if frame.method == method), None)

    def mark(self) -> dict[str, int]:
        """Return what to give to `frames` for all that comes later."""
        return {
            file.name: len(file.read_text(encoding="utf-8").splitlines()) for file in self.folder.glob("frames-*.jsonl")
        }

    def answer(self, request: Frame, since: Mapping[str, int] | None = None) -> Frame | None:
        """Return the response to a request, if it has come."""
        for frame in self.frames(since):
            same = frame.agent == request.agent and frame.to_agent != request.to_agent and not frame.method
            if same and frame.message.get("id") == request.message.get("id"):
                return frame
        return None
