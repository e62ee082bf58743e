"""CodeCompanion in Neovim, with the file that `acp-agent setup neovim` writes. It wants Neovim 0.11."""

import shutil
import time
from pathlib import Path
from typing import ClassVar

from acp_agent.cli.setup.editors import AgentCommand, editor_setup
from tests.editors.cache import newer, plugin, version_of
from tests.editors.screen import Screen, ScreenDriver
from tests.editors.stage import until

COMMIT = "f1afd02503ac"
INIT = """\
vim.opt.runtimepath:prepend("{plenary}")
vim.opt.runtimepath:prepend("{codecompanion}")
vim.o.swapfile = false
require("codecompanion").setup({{
  adapters = {{ acp = {{ acp_agent = require("acp_agent").codecompanion }} }},
  interactions = {{ chat = {{ adapter = "acp_agent" }} }},
  display = {{ chat = {{ window = {{ layout = "full" }} }} }},
  opts = {{ log_level = "DEBUG" }},
}})
"""


def _nvim() -> str | Path:
    found = shutil.which("nvim")
    return found if found and version_of([found, "--version"]) >= (0, 11) else newer("nvim")


def _plugins() -> dict[str, Path]:
    github = "https://github.com"
    return {
        "codecompanion": plugin("codecompanion.nvim", f"{github}/olimorris/codecompanion.nvim", "CC"),
        "plenary": plugin("plenary.nvim", f"{github}/nvim-lua/plenary.nvim", "PL"),
    }


class CodeCompanion(ScreenDriver):
    """A chat buffer of CodeCompanion that fills Neovim."""

    title: ClassVar[str] = "CodeCompanion"

    @classmethod
    def install(cls) -> str:
        _nvim()
        _plugins()
        return COMMIT

    def start(self) -> None:
        folder = self.stage.home / ".config" / "nvim"
        (folder / "lua").mkdir(parents=True)
        (folder / "init.lua").write_text(INIT.format(**_plugins()))
        settings = editor_setup("neovim", self.stage.environment())
        (folder / "lua" / "acp_agent.lua").write_text(settings.shown(AgentCommand(str(self.stage.program))))
        self._open()

    def _open(self) -> None:
        self.screen = Screen([_nvim(), "+CodeCompanionChat"], self.stage.environment(), self.stage.project)
        until(lambda: self.stage.asked("session/new"), "session/new")
        time.sleep(1)

    def say(self, prompt: str) -> None:
        self.screen.press("Escape", "G", "o")
        self.screen.type(prompt)
        self.screen.press("Escape", "Enter")

    def choose(self, kind: str) -> None:
        self.screen.type("g1" if kind.startswith("allow") else "g3")

    def cancel(self) -> None:
        self.screen.press("Escape", "q")

    def load(self) -> None:
        self.screen.stop()
        self._open()
        self.screen.press("i")
        self.screen.type("/resume")
