"""agent-shell in Emacs, with the file that `acp-agent setup emacs` writes. It wants Emacs 29."""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from acp_agent.cli.setup.editors import AgentCommand, editor_setup
from tests.editors.cache import newer, plugin, version_of
from tests.editors.screen import Screen, ScreenDriver
from tests.editors.stage import until

COMMITS = {
    "acp.el": "4d7d58dc39870e9390e94617e13d7ada175d7945",
    "shell-maker": "ab4f8ebaf4ef7a7db4762c5d5075baea580044ba",
    "agent-shell": "264dc76e674bf38e5e42370a1a706e3785f90678",
}
INIT = """\
{paths}
(setq inhibit-startup-screen t agent-shell-session-strategy '{strategy} agent-shell-prefer-session-resume nil
      agent-shell-tool-use-expand-by-default t agent-shell-show-welcome-message nil make-backup-files nil
      agent-shell-header-style nil agent-shell-show-busy-indicator nil)
(require 'agent-shell)
(load "{settings}")
(setq agent-shell-preferred-agent-config 'acp-agent)
(agent-shell)
(delete-other-windows)
"""


def _emacs() -> str | Path:
    found = shutil.which("emacs")
    return found if found and version_of([found, "--version"]) >= (29, 1) else newer("emacs")


def _plugins() -> list[Path]:
    github = "https://github.com/xenodium"
    return [plugin(name, f"{github}/{name}", commit) for name, commit in COMMITS.items()]


class AgentShell(ScreenDriver):
    """A shell of agent-shell that fills Emacs."""

    rejecting_cancels: ClassVar[bool] = True
    title: ClassVar[str] = "agent-shell"
    lacks: ClassVar[Mapping[str, str]] = {"terminal": "agent-shell has no terminals; the agent runs commands itself"}

    @classmethod
    def install(cls) -> str:
        _emacs()
        head = (_plugins()[-1] / "agent-shell.el").read_text(encoding="utf-8")
        return head.partition(";; Version: ")[2].partition("\n")[0]

    def start(self) -> None:
        self._open("new")

    def _open(self, strategy: str) -> None:
        settings = self.stage.folder / "acp-agent.el"
        setup = editor_setup("emacs", self.stage.environment())
        settings.write_text(setup.shown(AgentCommand(str(self.stage.program))))
        paths = "\n".join(f'(add-to-list (quote load-path) "{each}")' for each in _plugins())
        init = self.stage.folder / f"init-{strategy}.el"
        init.write_text(INIT.format(paths=paths, strategy=strategy, settings=settings))
        words = [_emacs(), "-nw", "-Q", "-l", init]
        self.screen = Screen(words, self.stage.environment(), self.stage.project, rows=50)
        until(lambda: "acp-agent>" in self.drawn(), "the shell")
        time.sleep(2)

    def say(self, prompt: str) -> None:
        time.sleep(1)  # while it is busy it takes no prompt
        self.screen.press("M->")
        self.enter(prompt)

    def choose(self, kind: str) -> None:
        screen = self.screen
        until(lambda: "Allow once" in screen.text(past=False) or "y accept" in screen.text(past=False), "the question")
        time.sleep(1)
        if kind.startswith("allow"):
            screen.press("y")
            return
        for _ in range(8):  # a button a key; C-c C-c would end the turn too
            if "to Reject once" in screen.text(past=False):
                break
            screen.press("Tab")
            time.sleep(0.3)
        screen.press("Enter")

    def review(self) -> None:
        self.screen.press("v")

    def cancel(self) -> None:
        self.screen.press("M->", "C-c", "C-c")
        time.sleep(1)
        self.screen.press("y")  # "Interrupt?"

    def load(self) -> None:
        self.screen.stop()
        self._open("latest")
