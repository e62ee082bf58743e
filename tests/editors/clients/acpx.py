"""acpx, a client without a screen of its own: each prompt is a command of a shell."""

import shlex
import subprocess
import time
from collections.abc import Mapping
from typing import ClassVar

from tests.editors import story
from tests.editors.cache import npm
from tests.editors.screen import Screen, ScreenDriver

VERSION = "0.19.1"
IDLE = 4
"""Seconds after which acpx ends an agent that has nothing to do."""


class Acpx(ScreenDriver):
    """A shell in which the user types `acpx prompt ...`. What acpx answers to questions is said with the prompt."""

    title: ClassVar[str] = "acpx"
    lacks: ClassVar[Mapping[str, str]] = {"diff": "acpx names the file of a change and counts its lines"}

    @classmethod
    def install(cls) -> str:
        npm("acpx", f"acpx@{VERSION}")
        return VERSION

    def start(self) -> None:
        self._open()
        self.enter(f"{self.acpx} sessions new")

    def _open(self) -> None:
        modules = npm("acpx", f"acpx@{VERSION}")
        path = f"{modules / '.bin'}:{self.stage.environment()['PATH']}"
        self.env = self.stage.environment(PATH=path)
        self.acpx = f"acpx --ttl {IDLE} --agent {shlex.quote(str(self.stage.program))}"
        self.screen = Screen(["sh", "-i"], self.env, self.stage.project)

    def say(self, prompt: str) -> None:
        answer = "--approve-reads" if prompt == story.REJECTED_EDIT else "--approve-all"
        self.enter(f"{self.acpx} {answer} prompt {shlex.quote(prompt)}")

    def choose(self, kind: str) -> None:
        """Do nothing: acpx has answered already."""

    def cancel(self) -> None:
        self._beside("cancel")

    def _beside(self, command: str) -> None:
        """Run a command as in a second shell."""
        line = f"{self.acpx} {command}"
        subprocess.run(line, shell=True, env=self.env, cwd=self.stage.project, check=False, capture_output=True)

    def load(self) -> None:
        self.screen.stop()
        time.sleep(IDLE + 2)
        self._open()
        self.enter(f"{self.acpx} sessions history")  # it keeps the past itself, and asks the agent with the next prompt
        self.say(story.HELLO)

    def stop(self) -> None:
        if hasattr(self, "screen"):
            self._beside("sessions close")
        super().stop()
