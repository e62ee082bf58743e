"""A client on the official TypeScript SDK, as its documentation builds one: typescript_sdk.mjs."""

import shutil
from pathlib import Path
from typing import ClassVar

from tests.editors.cache import npm, program
from tests.editors.screen import Screen, ScreenDriver
from tests.editors.stage import until

VERSION = "2.4.0"
HERE = Path(__file__).parent
SCRIPTS = (HERE / "typescript_sdk.mjs", HERE.parents[1] / "interop" / "serving.mjs")


class TypeScriptSdk(ScreenDriver):
    """A conversation in lines: what is typed is a prompt, the kind of an option, or /cancel."""

    title: ClassVar[str] = "TypeScript SDK"

    @classmethod
    def install(cls) -> str:
        npm("sdk", f"@agentclientprotocol/sdk@{VERSION}")
        return VERSION

    def start(self) -> None:
        self._open("new")

    def _open(self, how: str) -> None:
        folder = npm("sdk", f"@agentclientprotocol/sdk@{VERSION}").parent
        for script in SCRIPTS:  # beside the SDK, where they find it
            shutil.copy(script, folder)
        words = [program("node", "version 20 or later"), folder / SCRIPTS[0].name, how, self.stage.program]
        self.screen = Screen(words, self.stage.environment(), self.stage.project)
        until(lambda: "ready" in self.drawn(), "a session")

    def say(self, prompt: str) -> None:
        self.enter(prompt)

    def choose(self, kind: str) -> None:
        self.enter(kind)

    def cancel(self) -> None:
        self.enter("/cancel")

    def load(self) -> None:
        self.screen.stop()
        self._open("load")
