"""The editors that can be set up: where each keeps its settings, and what starts an agent there.

`editors/NAME/README.md` has the sources of these facts.
"""

import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from importlib.resources import files
from typing import cast

from acp_agent.cli.setup.jsonc import JsoncNode, is_bare, node_at, value_at, with_value, without_value
from acp_agent.core.data import frozen
from acp_agent.core.errors import AgentError
from acp_agent.core.types import Json, JsonObject
from acp_agent.core.untrusted import toml_table

NAME = "acp-agent"  # the agent's name in the settings of editors


@frozen
class AgentCommand:
    """The command that starts an agent: a program with its arguments, and variables added to the environment."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def words(self) -> list[str]:
        """The command line."""
        return [self.command, *self.args]

    def as_json(self) -> JsonObject:
        """Return the command as an object in the form that most editors use."""
        return {"command": self.command, "args": list(self.args)}


@frozen
class EditorSetup:
    """One editor.

    title     its name, for the user
    file      the file that is written; empty if nothing can be written for this editor
    evidence  programs and folders. At least one exists if the editor is installed
    note      what the user has still to do; empty for nothing
    """

    title: str
    file: str
    evidence: Sequence[str]
    note: str = field(default="", kw_only=True)

    def shown(self, launch: AgentCommand) -> str:
        """Return the settings as the user would type them."""
        return self.applied(None, launch)

    def applied(self, text: str | None, launch: AgentCommand) -> str:
        """Return the file's text with the settings in it. `text` is None if there is no file."""
        raise NotImplementedError

    def withdrawn(self, text: str, before: str | None) -> str | None:
        """Return the text without the settings, or None to remove the file. `before` is the text of the backup."""
        raise NotImplementedError

    def launch_in(self, text: str) -> AgentCommand | None:
        """Return the command that the file starts, or None if the settings are not in it."""
        raise NotImplementedError

    def remaining(self, launch: AgentCommand) -> str:
        """Return what the user has still to do, or "" for nothing."""
        del launch
        return self.note


@frozen
class JsonSettings(EditorSetup):
    """An editor whose settings are JSON, with comments or without.

    path    the keys of the entry that starts the agent
    extra   members of the entry beside the command and its arguments
    alone   the key of a setting that holds only the path of the program; empty if there is none
    """

    path: tuple[str, ...]
    extra: Mapping[str, str] = field(default_factory=dict[str, str])
    alone: str = ""

    def _entries(self, launch: AgentCommand) -> Iterator[tuple[tuple[str, ...], Json]]:
        if self.alone:
            yield (self.alone,), launch.command
        yield self.path, {**self.extra, **launch.as_json()}

    def applied(self, text: str | None, launch: AgentCommand) -> str:
        text = text or ""
        for path, value in self._entries(launch):
            text = with_value(text, path, value)
        return text

    def withdrawn(self, text: str, before: str | None) -> str | None:
        before = before or ""
        for path, value in reversed(list(self._entries(AgentCommand("")))):
            old = node_at(before, path)
            if isinstance(value, dict) and old is not None and old.members is not None:
                for key in value:
                    text = _restored(text, (*path, key), node_at(before, (*path, key)))
            else:
                text = _restored(text, path, old)
            for depth in range(len(path) - 1, 0, -1):
                if is_bare(text, path[:depth]) and node_at(before, path[:depth]) is None:
                    text = without_value(text, path[:depth])
        return text

    def launch_in(self, text: str) -> AgentCommand | None:
        entry = value_at(text, self.path)
        if not isinstance(entry, dict):
            entry = {"command": value_at(text, (self.alone,)) if self.alone else None}
        command, args, env = entry.get("command"), entry.get("args"), entry.get("env")
        if not isinstance(command, str):
            return None
        return AgentCommand(
            command,
            tuple(str(each) for each in args) if isinstance(args, list) else (),
            {key: str(value) for key, value in env.items()} if isinstance(env, dict) else {},
        )


def _restored(text: str, path: Sequence[str], old: JsoncNode | None) -> str:
    return without_value(text, path) if old is None else with_value(text, path, old.value)


@frozen
class OwnFile(EditorSetup):
    """An editor whose configuration is a program. We write a file of our own, which the user's configuration loads.

    comment      the characters that begin a comment in the file
    body         the text below the first line; @COMMAND@, @ARGS@, @ALL@ and @ICON@ stand for literals of the language
    first_line   the end of the first line, behind the command that is started
    """

    comment: str
    body: str
    first_line: str = ""

    def shown(self, launch: AgentCommand) -> str:
        quoted = _lua if self.comment == "--" else _lisp if self.comment == ";;" else repr
        words = [quoted(each) for each in launch.words]
        separator = " " if self.comment == ";;" else ", "
        values = {
            "@COMMAND@": words[0],
            "@ARGS@": separator.join(words[1:]),
            "@ALL@": separator.join(words),
            "@ICON@": quoted(str(files("acp_agent.cli.setup") / "icon.svg")),
        }
        head = f"{self.comment} acp-agent setup, starts: {json.dumps(launch.words)}{self.first_line}\n"
        return head + re.sub("@[A-Z]+@", lambda found: values[found[0]], self.body)

    def applied(self, text: str | None, launch: AgentCommand) -> str:
        if text is not None and self.launch_in(text) is None:
            raise AgentError(f"{self.file} exists and was not written by `acp-agent setup`; nothing was changed")
        return self.shown(launch)

    def withdrawn(self, text: str, before: str | None) -> str | None:
        del text, before

    def launch_in(self, text: str) -> AgentCommand | None:
        found = re.match(
            re.escape(self.comment) + r" acp-agent setup, starts: (\[.*\])" + re.escape(self.first_line) + r"\r?\n",
            text,
        )
        try:
            words: Json = json.loads(found[1]) if found else None
        except ValueError:
            return None
        if not isinstance(words, list) or not words:
            return None
        return AgentCommand(str(words[0]), tuple(map(str, words[1:])))


def _lua(text: str) -> str:
    inside = "".join(f"\\{ord(c):03}" if c in '\\"' or ord(c) < 32 else c for c in text)
    return f'"{inside}"'


def _lisp(text: str) -> str:
    inside = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inside}"'


@frozen
class MarimoFlag(EditorSetup):
    """marimo. A flag of its configuration switches agents on. Its list of agents cannot be extended."""

    def applied(self, text: str | None, launch: AgentCommand) -> str:
        del launch
        text = text or ""
        before = self._read(text)
        experimental = before.get("experimental", {})
        if isinstance(experimental, dict) and experimental.get("external_agents") is True:
            return text
        line = "\r\n" if "\r\n" in text else "\n"
        header = re.search(r"^[ \t]*\[[ \t]*experimental[ \t]*\][ \t]*(?:#[^\r\n]*)?(?=[\r\n]|\Z)", text, re.MULTILINE)
        flag = "external_agents = true"
        if header:
            behind = text[header.end() :]
            behind = re.sub(
                r"^([ \t]*external_agents[ \t]*=[ \t]*)false\b", r"\1true", behind, count=1, flags=re.MULTILINE
            )
            if behind == text[header.end() :]:
                behind = line + flag + behind
            result = text[: header.end()] + behind
        else:
            gap = line if text and not text.endswith(("\n", "\r")) else ""
            result = f"{text}{gap}[experimental]{line}{flag}{line}"
        wanted = {**before, "experimental": {**cast("JsonObject", experimental), "external_agents": True}}
        try:
            if self._read(result) == wanted:
                return result
        except AgentError:
            pass
        raise AgentError(f"{self.file}: add `external_agents = true` to `experimental` yourself; nothing was changed")

    def withdrawn(self, text: str, before: str | None) -> str | None:
        without = re.sub(r"(?:\r?\n|\A)external_agents = true(?=[\r\n]|\Z)", "", text, count=1)
        if before is not None and "experimental" in self._read(before):
            return without
        return re.sub(r"\[experimental\](?:\r?\n)?\Z", "", without)

    def launch_in(self, text: str) -> AgentCommand | None:
        experimental = self._read(text).get("experimental")
        on = isinstance(experimental, dict) and experimental.get("external_agents") is True
        return this_installation() if on else None

    def remaining(self, launch: AgentCommand) -> str:
        bridge = f"npx stdio-to-ws {shlex.quote(shlex.join(launch.words))} --port 3023"
        return f"start `{bridge}`, and choose OpenCode in marimo's agent panel: it shows whatever answers on that port"

    def _read(self, text: str) -> JsonObject:
        try:
            return cast("JsonObject", toml_table(text.removeprefix("\ufeff")))
        except ValueError as error:
            raise AgentError(f"{self.file} is no TOML: {error}; nothing was changed") from error


@frozen
class NoFile(EditorSetup):
    """An editor for which nothing can be written. `why` is the reason; `steps` says what the user does instead."""

    steps: str
    why: str

    def shown(self, launch: AgentCommand) -> str:
        line = shlex.quote(shlex.join(launch.words))
        values = {"@LINE@": line, "@COMMAND@": launch.command, "@ARGS@": shlex.join(launch.args) or "(none)"}
        return re.sub("@[A-Z]+@", lambda found: values[found[0]], self.steps) + "\n"

    def applied(self, text: str | None, launch: AgentCommand) -> str:
        del text, launch
        raise AgentError(self.why)

    def withdrawn(self, text: str, before: str | None) -> str | None:
        del text, before
        raise AgentError(self.why)


_NEOVIM = """\
-- Load it in your configuration:
--   CodeCompanion   adapters = { acp = { acp_agent = require("acp_agent").codecompanion } }
--   avante.nvim     provider = "acp-agent", acp_providers = { ["acp-agent"] = require("acp_agent").provider }
--   agentic.nvim    the same as avante.nvim
return {
  provider = { name = "acp-agent", command = @COMMAND@, args = { @ARGS@ }, env = {} },
  codecompanion = function()
    return require("codecompanion.adapters").extend("gemini_cli", {
      name = "acp_agent",
      formatted_name = "acp-agent",
      commands = { default = { @ALL@ } },
      defaults = { auth_method = "acp-agent", timeout = 20000 },
      env = {},
    })
  end,
}
"""

_EMACS = """\
(with-eval-after-load 'agent-shell
  (add-to-list
   'agent-shell-agent-configs
   (agent-shell-make-agent-config
    :identifier 'acp-agent
    :mode-line-name "acp-agent"
    :buffer-name "acp-agent"
    :shell-prompt "acp-agent> "
    :shell-prompt-regexp "acp-agent> "
    :client-maker (lambda (buffer)
                    (acp-make-client :command @COMMAND@
                                     :command-params '(@ARGS@)
                                     :context-buffer buffer)))))
(provide 'acp-agent)
"""

_JUPYTER = """\
from jupyter_ai_acp_client.base_acp_persona import BaseAcpPersona
from jupyter_ai_persona_manager import PersonaDefaults


class AcpAgentPersona(BaseAcpPersona):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, executable=[@ALL@], **kwargs)

    @property
    def defaults(self):
        return PersonaDefaults(
            name="acp-agent",
            description="A governed coding agent.",
            avatar_path=@ICON@,
            system_prompt="unused",
        )
"""


def this_installation() -> AgentCommand:
    """Return what starts this installation: its script with an absolute path, else this Python with the module.

    Raises:
        AgentError: The path cannot be written into a settings file.

    """
    script = os.path.abspath(sys.argv[0])
    beside = os.path.join(os.path.dirname(sys.executable), NAME)
    found = next((path for path in (script, beside) if os.path.basename(path) == NAME and os.access(path, os.X_OK)), "")
    launch = AgentCommand(found) if found else AgentCommand(sys.executable, ("-P", "-m", "acp_agent"))
    try:
        launch.command.encode()
    except UnicodeEncodeError:
        raise AgentError("the path of this installation is not UTF-8; install acp-agent elsewhere") from None
    return launch


def editor_setup(name: str, environ: Mapping[str, str], file: str | None = None) -> EditorSetup:
    """Return the set-up of an editor for this user. `file` replaces the settings file that is looked for."""
    home = environ.get("HOME") or os.path.expanduser("~")
    config = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    mac = os.path.join(home, "Library", "Application Support") if sys.platform == "darwin" else ""
    match name:
        case "zed":
            folder = os.path.join(home, ".config", "zed") if mac else os.path.join(config, "zed")
            path, extra = ("agent_servers", NAME), {"type": "custom"}
            note = "in Zed, open the agent panel and choose acp-agent behind the + sign"
            where = file or os.path.join(folder, "settings.json")
            return JsonSettings("Zed", where, ("zed", "zeditor", folder), path, extra, note=note)
        case "vscode":
            folder = os.path.join(mac or config, "Code", "User")
            where = file or os.path.join(folder, "settings.json")
            return JsonSettings("VS Code", where, ("code", folder), ("acp.agents", NAME), alone="acpAgent.path")
        case "jetbrains":
            folder = os.path.join(home, ".jetbrains")
            others = os.path.join(mac or config, "JetBrains")
            where = file or os.path.join(folder, "acp.json")
            note = "in the IDE, open the AI Chat and choose acp-agent in the list of agents"
            return JsonSettings("JetBrains", where, (folder, others), ("agent_servers", NAME), note=note)
        case _:
            return _programmed(name, environ, home, config, file)


def _programmed(name: str, environ: Mapping[str, str], home: str, config: str, file: str | None) -> EditorSetup:
    match name:
        case "neovim":
            folder = os.path.join(config, environ.get("NVIM_APPNAME") or "nvim")
            where = file or os.path.join(folder, "lua", "acp_agent.lua")
            load = 'load it in your configuration with require("acp_agent"), as the file says'
            return OwnFile("Neovim", where, ("nvim", folder), "--", _NEOVIM, note=load)
        case "emacs":
            folder = os.path.join(home, ".emacs.d")
            if not os.path.isdir(folder) and os.path.isdir(os.path.join(config, "emacs")):
                folder = os.path.join(config, "emacs")
            where = file or os.path.join(folder, "acp-agent.el")
            load = f"add (load {_lisp(where)}) to your init file and start it with M-x agent-shell"
            first_line = "  -*- lexical-binding: t; -*-"
            return OwnFile("Emacs", where, ("emacs", folder), ";;", _EMACS, first_line, note=load)
        case "jupyter":
            where = file or os.path.join(os.getcwd(), ".jupyter", "personas", "acp_agent_persona.py")
            load = "start `jupyter lab` in this folder, and mention @acp-agent in a chat of Jupyter AI"
            return OwnFile("Jupyter AI", where, ("jupyter", os.path.join(home, ".jupyter")), "#", _JUPYTER, note=load)
        case "marimo":
            return MarimoFlag("marimo", file or _marimo_file(home, config), ("marimo", os.path.join(config, "marimo")))
        case "qtcreator":
            return NoFile(
                "Qt Creator", "", ("qtcreator",),
                "In Preferences > AI > ACP Servers choose Add and the template <Custom>:\n"
                "  Name        acp-agent\n  Executable  @COMMAND@\n  Arguments   @ARGS@",
                "Qt Creator writes its settings itself when it ends, so nothing was written; enter what is "
                "printed without --write",
            )  # fmt: skip
        case "toad":
            return NoFile(
                "Toad", "", ("toad",), "toad acp @LINE@ .",
                "Toad keeps no list of agents of your own, so nothing was written; start it with the command that is "
                "printed without --write",
            )  # fmt: skip
        case _:
            raise AgentError(f"there is no set-up for {name}")


def effect(editor: EditorSetup, launch: AgentCommand) -> str:
    """Return what the editor's file does once it is set up, as the rest of a sentence that begins with its name."""
    return "sets external_agents" if isinstance(editor, MarimoFlag) else f"starts {launch.command}"


def _marimo_file(home: str, config: str) -> str:
    """Return the file that marimo reads: the one in the home folder if it exists, else the one in `config`."""
    old = os.path.join(home, ".marimo.toml")
    return old if os.path.exists(old) else os.path.join(config, "marimo", "marimo.toml")
