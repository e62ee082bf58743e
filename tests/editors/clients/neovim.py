"""CodeCompanion in Neovim, with the file that `acp-agent setup neovim` writes. It wants Neovim 0.11."""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from acp_agent.cli.setup.editors import AgentCommand, editor_setup
from tests.editors.cache import newer, plugin, version_of
from tests.editors.screen import Screen, ScreenDriver
from tests.editors.stage import until

COMMIT = "f1afd02537c68b3dd6e0d41d4adda5ef538e0473"
PLENARY = "b9fd5226c2f76c951fc8ed5923d85e4de065e509"
INIT = """\
vim.opt.runtimepath:prepend("{plenary}")
vim.opt.runtimepath:prepend("{codecompanion}")
vim.o.swapfile = false
require("codecompanion").setup({{
  adapters = {{ acp = {{ acp_agent = require("acp_agent").codecompanion }} }},
  interactions = {{ chat = {{ adapter = "acp_agent" }} }},
  display = {{ chat = {{ window = {{ layout = "full" }} }} }},
}})
-- /resume as completion plugins run it; Neovim's own completion cannot.
vim.api.nvim_create_user_command("Resume", function()
  local options = {{
    Chat = require("codecompanion").buf_get_chat(0),
    config = require("codecompanion.config").interactions.chat.slash_commands.resume,
  }}
  local resume = require("codecompanion.interactions.chat.slash_commands.builtin.resume")
  require("codecompanion.utils.async").sync(function() resume.new(options):execute() end)()
end, {{}})
"""


def _nvim() -> str | Path:
    found = shutil.which("nvim")
    return found if found and version_of([found, "--version"]) >= (0, 11) else newer("nvim")


def _plugins() -> dict[str, Path]:
    github = "https://github.com"
    return {
        "codecompanion": plugin("codecompanion.nvim", f"{github}/olimorris/codecompanion.nvim", COMMIT),
        "plenary": plugin("plenary.nvim", f"{github}/nvim-lua/plenary.nvim", PLENARY),
    }


class CodeCompanion(ScreenDriver):
    """A chat buffer of CodeCompanion that fills Neovim."""

    title: ClassVar[str] = "CodeCompanion"
    lacks: ClassVar[Mapping[str, str]] = {
        "terminal": "CodeCompanion has no terminals; the agent runs commands itself",
        "output": "CodeCompanion draws the title of a command, not what it printed",
    }

    @classmethod
    def install(cls) -> str:
        _nvim()
        _plugins()
        return COMMIT[:8]

    def start(self) -> None:
        folder = self.stage.home / ".config" / "nvim"
        (folder / "lua").mkdir(parents=True)
        (folder / "init.lua").write_text(INIT.format(**_plugins()))
        settings = editor_setup("neovim", self.stage.environment())
        (folder / "lua" / "acp_agent.lua").write_text(settings.shown(AgentCommand(str(self.stage.program))))
        self._open()

    def _open(self) -> None:
        self.screen = Screen([_nvim(), "+CodeCompanionChat"], self.stage.environment(), self.stage.project)
        until(lambda: "Me" in self.drawn(), "the chat")
        time.sleep(2)

    def say(self, prompt: str) -> None:
        self.screen.press("Escape", "G", "o")
        self.screen.type(prompt)
        self.screen.press("Escape", "Enter")

    def choose(self, kind: str) -> None:
        self.screen.type("g2" if kind.startswith("allow") else "g3")

    def cancel(self) -> None:
        self.screen.press("Escape", "q")

    def load(self) -> None:
        self.screen.stop()
        self._open()
        self.screen.press("Escape")
        self.enter(":Resume")
        until(lambda: "Resume Session" in self.drawn(), "the list of sessions")
        self.enter("1")
