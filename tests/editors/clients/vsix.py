"""An extension for VS Code that others wrote, which `VSIX` names: in code-server, as our own extension's tour."""

import json
import os
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from tests.editors.browser import Page, WebDriver, browser_ready, free_port
from tests.editors.cache import NotHereError, program, run
from tests.editors.stage import CHECKOUT, until

_KNOWN = "formulahendry.acp-client"
_TOOLS = CHECKOUT / "editors" / "vscode" / "test" / "tools.mjs"
_SETTINGS = {
    "security.workspace.trust.enabled": False,
    "workbench.startupEditor": "none",
    "telemetry.telemetryLevel": "off",
    "extensions.ignoreRecommendations": True,
}


def _manifest(file: Path) -> dict[str, str]:
    """Return what an extension says of itself. Raises NotHereError."""
    if not file.is_file():
        raise NotHereError(f"there is no file {file}, which VSIX names")
    try:
        with zipfile.ZipFile(file) as archive:
            return json.loads(archive.read("extension/package.json"))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise NotHereError(f"VSIX={file} is no extension for VS Code: {error}") from error


def _code_server(*words: str | Path) -> list[str | Path]:
    """Return the command of code-server. Raises NotHereError where it cannot be installed."""
    node = program("node", "version 20")
    tools = Path(run([node, _TOOLS]).strip())
    return [node, tools / "node_modules" / "code-server" / "out" / "node" / "entry.js", *words]


class VsCodeExtension(WebDriver):
    """ACP Client. Its chat is a view in the side bar, its questions are picked from a list.

    It draws no diffs. The change is told in a thought and in the question's title.
    """

    title: ClassVar[str] = "VS Code extension"
    lacks: ClassVar[Mapping[str, str]] = {
        "output": "ACP Client's cards are titles only, and its terminal stays empty until it is opened",
    }

    @classmethod
    def install(cls) -> str:
        file = Path(os.environ.get("VSIX", ""))
        if not file.name:
            raise NotHereError("VSIX=PATH names no extension")
        manifest = _manifest(file)
        name = f"{manifest.get('publisher')}.{manifest.get('name')}"
        if name != _KNOWN:
            raise NotHereError(f"{file.name} is {name}; only {_KNOWN} can be driven")
        browser_ready()
        _code_server()
        return f"{manifest.get('displayName')} {manifest.get('version')}"

    def start(self) -> None:
        code = self.stage.folder / "code"
        settings = {**_SETTINGS, "acp.agents": {"shop-agent": {"command": str(self.stage.program)}}}
        for each in ("User", "Machine"):
            (code / each).mkdir(parents=True)
            (code / each / "settings.json").write_text(json.dumps(settings))
        folders = ["--user-data-dir", code, "--extensions-dir", self.stage.folder / "extensions"]
        env = self.stage.environment(PASSWORD="", SHELL="/bin/bash")
        run(_code_server(*folders, "--install-extension", Path(os.environ["VSIX"]).resolve()), env)
        port = free_port()
        serving = [
            "--auth",
            "none",
            "--bind-addr",
            f"127.0.0.1:{port}",
            "--disable-telemetry",
            "--disable-update-check",
        ]
        self.serve(_code_server(*folders, *serving), env, "HTTP server listening")
        self._address = f"http://127.0.0.1:{port}/?folder={quote(str(self.stage.project))}"
        self.page = Page()
        self._open()

    def _open(self) -> None:
        """Open the window anew and connect, which begins a new session."""
        self.page.goto(self._address)
        self.page.wait(".monaco-workbench .activitybar", 60)
        mark = self.stage.mark()
        self.page.click('.activitybar [aria-label^="ACP Client"]')
        self.page.wait('.monaco-list-row:has-text("shop-agent")', 60)
        self.page.press("F1")
        self.page.wait(".quick-input-widget input")
        self.page.type("ACP: Connect to Agent")
        self._pick("ACP: Connect to Agent")
        self._pick("shop-agent")
        created = until(lambda: self.stage.asked("session/new", mark), "session/new")
        until(lambda: self.stage.answer(created), "the answer to session/new")
        time.sleep(2)

    def _pick(self, text: str) -> None:
        self.page.click(f'.quick-input-list .monaco-list-row:has-text("{text}")')

    def say(self, prompt: str) -> None:
        self.page.click("#promptInput")
        self.page.type(prompt)
        self.page.press("Enter")

    def choose(self, kind: str) -> None:
        self._pick("Allow once" if kind.startswith("allow") else "Reject once")

    def cancel(self) -> None:
        self.page.click("#sendStopBtn.stop")

    def load(self) -> None:
        self._open()
        self.page.click('.monaco-list-row:has-text("shop-agent") .monaco-tl-twistie')
        self.page.click('.monaco-list-row:has-text("Say hello, please.")')
