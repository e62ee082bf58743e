"""The user's decisions for later sessions: the folders that are trusted, and the allowed definitions of MCP tools.

The settings, servers and commands of a folder are used only if the folder is trusted:

    ["/home/me/project"]
    "5e884898da28..." = "trusted"         # exactly these contents, by their SHA-256
    "9f86d081884c..." = "untrusted"

An answer holds for one folder, not for folders below it. Other entries of the file are ignored, and if the file is
unreadable no folder is trusted. Calls are rare, and each reads the file, since other processes write it too.

The definition of an MCP tool is pinned when it is allowed, since a server may change it later (CVE-2025-54136):

    ["5e884898da28..."]                   # a server: the SHA-256 of how it is started or reached
    server = "github"

    ["5e884898da28...".tools."get_issue"]
    definition = "9f86d081884c..."        # the SHA-256 of name, description and parameters
    description = "..."                   # the description at that time, to show what has changed

Look-ups of pins use memory. The file is read again when it has changed, since other processes write it too. If it is
unreadable, nobody knows whether the user allowed a tool without a pin. `trouble` says why, and the caller has to ask
the user.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias, cast

from acp_agent.config.files import stamp
from acp_agent.core.data import frozen
from acp_agent.store.private_file import (
    ASK_AGAIN,
    DamagedFile,
    locked,
    quoted,
    read_or_set_aside,
    read_private,
    replace_private,
)
from acp_agent.text import is_utf8

_WORDS = {"trusted": True, "untrusted": False}

_Answers = dict[str, dict[str, bool]]


class TrustedFolders:
    """The user's answers by folder and contents. Blocks; may be used from any thread.

    `warn` is called with one line that says what is wrong with the file. Nothing here raises for that.
    """

    def __init__(self, path: str, warn: Callable[[str], None]) -> None:
        self._path = path
        self._warn = warn

    def find(self, folder: str, digest: str) -> bool | None:
        """Return whether these contents of a folder are trusted, or None without an answer.

        The path is absolute and resolved.
        """
        try:
            return _read_answers(self._path).get(folder, {}).get(digest)
        except (OSError, DamagedFile) as error:
            self._warn(f"{self._path}: {error}; no folder is trusted")
            return None

    def remember(self, folder: str, digest: str, *, trusted: bool) -> None:
        """Store an answer. A damaged file is set aside; `warn` is called if the file cannot be written."""
        if not is_utf8(folder):  # two folders whose names are not text must not become one
            self._warn(f"{folder!r}: this folder's name is not text, so the answer holds until the session ends")
            return
        try:
            with locked(self._path):
                answers = read_or_set_aside(self._path, _read_answers, _Answers, self._warn, ASK_AGAIN)
                answers.setdefault(folder, {})[digest] = trusted
                replace_private(self._path, _answers_toml(answers))
        except OSError as error:
            self._warn(f"{self._path}: the answer could not be stored and holds until the session ends: {error}")


def _read_answers(path: str) -> _Answers:
    """Return the answers in a file; none if there is no file. Raises DamagedFile, OSError."""
    parsed = read_private(path)
    tables = {name: cast("dict[str, object]", table) for name, table in parsed.items() if isinstance(table, dict)}
    return {
        folder: {digest: _WORDS[word] for digest, word in table.items() if isinstance(word, str) and word in _WORDS}
        for folder, table in tables.items()
    }


def _answers_toml(answers: _Answers) -> str:
    lines = ["# Folders whose own settings may be used, or may not. Remove a line to be asked again.", ""]
    for folder, contents in sorted(answers.items()):
        words = ((digest, "trusted" if trusted else "untrusted") for digest, trusted in sorted(contents.items()))
        lines += [f"[{quoted(folder)}]", *(f'{quoted(digest)} = "{word}"' for digest, word in words), ""]
    return "\n".join(lines)


_LONGEST_DESCRIPTION = 2048


@frozen
class Pin:
    """An allowed definition: its SHA-256 in hexadecimal and its description."""

    definition: str
    description: str


@frozen
class _Server:
    name: str
    tools: Mapping[str, Pin]


_Servers: TypeAlias = dict[str, _Server]


class McpPins:
    """The pins of a user. Call `find` in the event loop's thread; `keep` blocks and may be called in any thread.

    `warn` is called with one line that says what is wrong with the file. Nothing here raises for that.
    """

    def __init__(self, path: str, warn: Callable[[str], None]) -> None:
        self._path = path
        self._warn = warn
        self._unkept: dict[tuple[str, str], Pin] = {}
        self._kept: _Servers = {}
        self._stamp: object = object()  # nothing was read yet
        self.trouble = ""

    def find(self, server: str, tool: str) -> Pin | None:
        """Return the pin of a tool, by the SHA-256 of its server and the server's name for the tool.

        Calls stat once.
        """
        self._refresh()
        known = self._kept.get(server)
        return self._unkept.get((server, tool)) or (known and known.tools.get(tool))

    def keep(self, server: str, name: str, tool: str, pin: Pin) -> None:
        """Store a pin in place of an older one. A pin that cannot be written holds until the process ends."""
        pin = Pin(pin.definition, pin.description[:_LONGEST_DESCRIPTION])
        self._unkept = {**self._unkept, (server, tool): pin}
        try:
            with locked(self._path):
                servers = read_or_set_aside(self._path, _read_pins, lambda: {**self._kept}, self._warn)
                known = servers.get(server, _Server(name, {}))
                servers[server] = _Server(known.name, {**known.tools, tool: pin})
                replace_private(self._path, _pins_toml(servers))
        except OSError as error:
            self._warn(
                f"{self._path}: your permissions for MCP tools could not be stored and end with the agent: {error}"
            )
            return
        self._kept = servers
        self._unkept = {place: each for place, each in self._unkept.items() if place != (server, tool)}

    def _refresh(self) -> None:
        now = stamp(self._path)
        if now == self._stamp:
            return
        try:
            self._kept, trouble = _read_pins(self._path), ""
        except (OSError, DamagedFile) as error:
            trouble = f"{self._path}: {error}; it is not known which MCP tools you allowed, so you will be asked again"
        if trouble and trouble != self.trouble:
            self._warn(trouble)
        self._stamp, self.trouble = now, trouble


def _read_pins(path: str) -> _Servers:
    """Return the pins in a file; none if there is no file. Raises DamagedFile, OSError."""
    return {digest: _server(_table(entry)) for digest, entry in read_private(path).items()}


def _server(entry: Mapping[str, object]) -> _Server:
    tools = {tool: _pin(_table(pin)) for tool, pin in _table(entry.get("tools", {})).items()}
    return _Server(str(entry.get("server", "")), tools)


def _pin(entry: Mapping[str, object]) -> Pin:
    definition, description = entry.get("definition"), entry.get("description", "")
    if not isinstance(definition, str) or not isinstance(description, str):
        raise DamagedFile("a tool without its definition")
    return Pin(definition, description)


def _table(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise DamagedFile("not a table of servers and their tools")
    return cast("dict[str, object]", value)


def _pins_toml(servers: _Servers) -> str:
    lines = ["# Tools of MCP servers as they were when you let them run. Remove a tool to be asked about it again.", ""]
    for digest, server in sorted(servers.items()):
        lines += [f"[{quoted(digest)}]", f"server = {quoted(server.name)}", ""]
        for tool, pin in sorted(server.tools.items()):
            lines += [
                f"[{quoted(digest)}.tools.{quoted(tool)}]",
                f"definition = {quoted(pin.definition)}",
                f"description = {quoted(pin.description)}",
                "",
            ]
    return "\n".join(lines)
