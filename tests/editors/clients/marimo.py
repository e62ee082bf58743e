"""marimo's agent panel, over stdio-to-ws, with what `acp-agent setup marimo` writes."""

import time
from collections.abc import Mapping
from typing import ClassVar

from acp_agent.cli.setup.editors import AgentCommand, editor_setup
from tests.editors.browser import Page, WebDriver, browser_ready, free_port
from tests.editors.cache import npm, program, venv
from tests.editors.stage import until

VERSION = "0.25.2"
BRIDGE = "stdio-to-ws@0.2.0"


class Marimo(WebDriver):
    """The panel beside a notebook."""

    title: ClassVar[str] = "marimo"
    lacks: ClassVar[Mapping[str, str]] = {"terminal": "marimo has no terminals; the agent runs commands itself"}

    @classmethod
    def install(cls) -> str:
        browser_ready()
        npm("marimo", BRIDGE)
        venv("marimo", f"marimo=={VERSION}")
        return VERSION

    def start(self) -> None:
        settings = self.stage.home / ".config" / "marimo" / "marimo.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text(editor_setup("marimo", self.stage.environment()).shown(AgentCommand("")))
        (self.stage.project / "notebook.py").write_text("import marimo\napp = marimo.App()\n")
        self.port = free_port()
        self.page = Page()
        self._open()
        self._begin()

    def _open(self) -> None:
        node = program("node", "version 20 or later")
        main = npm("marimo", BRIDGE) / "stdio-to-ws" / "dist" / "main.js"
        env = self.stage.environment()
        self.serve([node, main, str(self.stage.program), "--port", "3023"], env, "3023")
        words = [venv("marimo", f"marimo=={VERSION}") / "marimo", "edit", "notebook.py"]
        options = ["--headless", "--no-token", "--skip-update-check", "--port", str(self.port)]
        self.serve([*words, *options], env, f":{self.port}")
        self.page.goto(f"http://127.0.0.1:{self.port}/")

    def _begin(self) -> None:
        self.page.click("svg[class*=lucide-bot]")
        self.page.press("Escape")  # the icon can be dragged as well, and takes a click for that
        self.page.click('button[role=tab]:has-text("Agents")')
        self.page.click('button:has-text("New session")')
        self.page.click('[role=menuitem]:has-text("OpenCode")')
        until(lambda: self.stage.asked("session/new"), "session/new")
        self.page.wait("text=Agent is connected")
        time.sleep(2)

    def say(self, prompt: str) -> None:
        self.page.click('.cm-content:near(:text("Ask First"), 200) >> nth=0')
        self.page.press("Control+A")  # the last prompt stays there for a moment
        self.page.type(prompt)
        self.page.press("Enter")

    def choose(self, kind: str) -> None:
        label = "Allow once" if kind.startswith("allow") else "Reject once"
        self.page.click(f'button:has-text("{label}")')

    def cancel(self) -> None:
        self.page.click('button:has-text("Stop")')

    def load(self) -> None:
        self.end_servers()
        self._open()  # in the same browser, which remembers the panel and its session
