"""Jupyter AI in JupyterLab, with the persona that `acp-agent setup jupyter` writes."""

import time
from contextlib import suppress
from typing import ClassVar

from acp_agent.cli.setup.editors import AgentCommand, editor_setup
from tests.editors.browser import Page, WebDriver, browser_ready, free_port
from tests.editors.cache import venv
from tests.editors.stage import NotSeenError

PACKAGES = ("jupyter-ai==3.2.0", "jupyter-ai-acp-client==0.3.3", "jupyterlab==4.6.6")

_INPUT = '[placeholder*="Type a chat"], textarea >> nth=0'
_STOP = ".jp-jai-stopButton"


class JupyterAi(WebDriver):
    """A chat of JupyterLab."""

    title: ClassVar[str] = "Jupyter AI"

    @classmethod
    def install(cls) -> str:
        browser_ready()
        venv("jupyter", *PACKAGES)
        return PACKAGES[0].partition("==")[2]

    def start(self) -> None:
        file = self.stage.project / ".jupyter" / "personas" / "acp_agent_persona.py"
        file.parent.mkdir(parents=True)
        settings = editor_setup("jupyter", self.stage.environment(), str(file))
        file.write_text(settings.shown(AgentCommand(str(self.stage.program))))
        (self.stage.project / "talk.chat").write_text("{}")
        self._open()

    def _open(self) -> None:
        port = free_port()
        words = [venv("jupyter", *PACKAGES) / "jupyter-lab", "--no-browser", "--allow-root", f"--port={port}"]
        path = f"{venv('jupyter', *PACKAGES)}:{self.stage.environment()['PATH']}"
        self.serve([*words, "--IdentityProvider.token="], self.stage.environment(PATH=path), "is running at")
        self.page = Page()
        self.page.goto(f"http://127.0.0.1:{port}/lab/tree/talk.chat")
        self.page.wait("text=Ask first", 60)  # the agent's mode, in the toolbar of the chat
        with suppress(NotSeenError):  # a question about news lies over the buttons
            self.page.click('button:has-text("No")', 3)

    def say(self, prompt: str) -> None:
        self.page.click(_INPUT)
        self.page.type(prompt)
        time.sleep(0.5)  # a menu of mentions may close
        self.page.press("Enter")

    def choose(self, kind: str) -> None:
        label = "Allow once" if kind.startswith("allow") else "Reject once"
        self.page.click(f'button:has-text("{label}") >> nth=-1')

    def cancel(self) -> None:
        self.page.click(_STOP)

    def load(self) -> None:
        self.stop()
        self._open()
