"""The editor: its name and capabilities, as `initialize` gives them, and its spelling of paths.

A capability that is not offered is off.
"""

import os
from dataclasses import dataclass

from acp_agent.capabilities import LSP_METHODS
from acp_agent.core.types import Json, JsonObject

_MOST_METHODS = 64


@dataclass(frozen=True, slots=True)
class Client:
    """The editor, as `initialize` described it.

    display_terminals   it draws terminals that the agent runs itself (`_meta.terminal_output`)
    notices             it wants `notice` updates
    compaction          it wants `compaction_update` updates
    elicit_forms        it shows forms (`elicitation.form`)
    elicit_urls         it opens pages for the user (`elicitation.url`)
    boolean_options     it draws config options that are on or off as toggles
    terminal_login      it runs our login in a terminal (`auth.terminal`, or the older `_meta.terminal-auth`)
    lsp_methods         the methods of its language servers (`_meta.lsp`), as it spells them
    """

    name: str = ""
    read_text_file: bool = False
    write_text_file: bool = False
    terminal: bool = False
    display_terminals: bool = False
    notices: bool = False
    compaction: bool = False
    elicit_forms: bool = False
    elicit_urls: bool = False
    boolean_options: bool = False
    terminal_login: bool = False
    lsp_methods: frozenset[str] = frozenset()

    @classmethod
    def from_initialize(cls, params: JsonObject) -> "Client":
        """Read the params of `initialize`; a malformed capability counts as absent."""
        capabilities = params.get("clientCapabilities")
        return cls(
            name=_text(params, "clientInfo", "name"),
            read_text_file=_is_true(capabilities, "fs", "readTextFile"),
            write_text_file=_is_true(capabilities, "fs", "writeTextFile"),
            terminal=_is_true(capabilities, "terminal"),
            display_terminals=_is_true(capabilities, "_meta", "terminal_output"),
            notices=isinstance(_at(capabilities, "session", "notices"), dict),
            compaction=isinstance(_at(capabilities, "session", "compaction"), dict),
            elicit_forms=isinstance(_at(capabilities, "elicitation", "form"), dict),
            elicit_urls=isinstance(_at(capabilities, "elicitation", "url"), dict),
            boolean_options=isinstance(_at(capabilities, "session", "configOptions", "boolean"), dict),
            terminal_login=_is_true(capabilities, "auth", "terminal")
            or _is_true(capabilities, "_meta", "terminal-auth"),
            lsp_methods=_lsp_methods(_at(capabilities, "_meta", "lsp")),
        )


def _at(value: Json, *path: str) -> Json:
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def _is_true(value: Json, *path: str) -> bool:
    return _at(value, *path) is True


def _lsp_methods(offered: Json) -> frozenset[str]:
    """Read `{"methods": [...], "notifications": [...]}`. True, or no `methods` in it, stands for all methods."""
    match offered:
        case {"methods": list() as methods}:
            return frozenset(method for method in methods[:_MOST_METHODS] if isinstance(method, str))
        case {"methods": _}:
            return frozenset()
        case dict() | True:
            return frozenset(LSP_METHODS)
        case _:
            return frozenset()


def _text(value: Json, *path: str) -> str:
    found = _at(value, *path)
    return found if isinstance(found, str) else ""


class EditorPaths:
    """Translates resolved paths for the editor. `folder` is the session's `cwd` as the editor sent it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder.rstrip("/") or "/"
        self._real = os.path.realpath(folder)

    def spell(self, path: str) -> str:
        """Return the editor's name of a resolved path: the path itself unless the session's folder is behind a link.

        A relative path, as a model writes it, starts at the session's folder.
        """
        if not os.path.isabs(path):
            return os.path.normpath(os.path.join(self._folder, path))
        if self._real == self._folder:
            return path
        if path == self._real:
            return self._folder
        if path.startswith(self._real.rstrip("/") + "/"):
            return os.path.join(self._folder, os.path.relpath(path, self._real))
        return path
