"""Toad, a client of the terminal on Textual. It wants Python 3.14."""

import re
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from tests.editors.cache import CACHE, newer, run
from tests.editors.screen import Screen, ScreenDriver
from tests.editors.stage import NotSeenError, until

VERSION = "0.6.20"
_MAIN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from toad.cli import main; main()"


def _python() -> str | Path:
    return shutil.which("python3.14") or newer("python3.14")


def _packages() -> Path:
    return CACHE / "toad"


class Toad(ScreenDriver):
    """Toad in a terminal."""

    title: ClassVar[str] = "Toad"

    @classmethod
    def install(cls) -> str:
        done = _packages() / ".done"
        if not done.is_file() or done.read_text() != VERSION:
            shutil.rmtree(_packages(), ignore_errors=True)
            run(
                [
                    "python3",
                    "-m",
                    "pip",
                    "--python",
                    _python(),
                    "install",
                    "--quiet",
                    "--target",
                    _packages(),
                    "--only-binary=:all:",
                    f"batrachian-toad=={VERSION}",
                ]
            )
            done.write_text(VERSION)
        return VERSION

    def start(self) -> None:
        self._open("acp", self.stage.program, self.stage.project)
        until(lambda: "How can I help" in self.drawn(), "Toad's conversation")
        time.sleep(2)  # the prompt is drawn before it takes keys

    def _open(self, *words: str | Path) -> None:
        command = [_python(), "-c", _MAIN, _packages(), *words]
        self.screen = Screen(command, self.stage.environment(), self.stage.project, columns=150, rows=50)

    def say(self, prompt: str) -> None:
        mark = self.stage.mark()
        self.enter(prompt)
        for _ in range(5):  # Toad drops keys while it is busy with something else
            with suppress(NotSeenError):
                until(lambda: self.stage.asked("session/prompt", mark), "the prompt", 4)
                return
            if prompt in self.screen.text(past=False):
                self.screen.press("Enter")
            else:
                self.enter(prompt)

    def choose(self, kind: str) -> None:
        until(lambda: "Allow once" in self.screen.text(past=False), "the question")
        time.sleep(1)  # until it takes keys
        self.screen.press("a" if kind.startswith("allow") else "r")

    def cancel(self) -> None:
        self.screen.press("Escape")
        time.sleep(0.5)
        self.screen.press("Escape")  # the first one only says that a second one cancels

    def load(self) -> None:
        self.screen.stop()
        self._open("run", self.stage.project)
        until(lambda: "Resume" in self.drawn(), "Toad's first page")
        self.screen.press("C-r")
        until(lambda: "Last Used" in self.drawn(), "the list of sessions")
        self.screen.press("Enter")

    def drawn(self) -> str:
        return re.sub("[\u2500-\u259f]", "", super().drawn())  # lines around texts
