"""Which definitions of MCP tools the user has let run (security.md 2.8; CVE-2025-54136).

    ["5e884898da28…"]                   # a server: how it is started or reached, by its SHA-256
    server = "github"

    ["5e884898da28…".tools."get_issue"]
    definition = "9f86d081884c…"        # name, description and parameters, by their SHA-256
    description = "…"                   # what it said then, to show what has changed

Looked up in memory; the file is read again when it has changed, for other processes write it, too. Of a file nobody can
read, nothing is taken for unseen: `trouble` says so, and whoever asks here has to ask the user.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, cast

from acp_agent.config.files import stamp
from acp_agent.store.private_file import (
    DamagedFile,
    lock,
    private_file,
    quoted,
    read_private,
    replace_private,
    set_aside,
)

_LONGEST_DESCRIPTION = 2048


@dataclass(frozen=True, slots=True)
class Pin:
    """A definition that was let run: its SHA-256 in hex, and the description it had."""

    definition: str
    description: str


@dataclass(frozen=True, slots=True)
class _Server:
    name: str
    tools: Mapping[str, Pin]


_Servers: TypeAlias = dict[str, _Server]


class McpPins:
    """The pins of a user. `find` is for the event loop's thread; `keep` blocks and may come from any.

    `warn` is told, in one line, what is wrong with the file; nothing here raises for that.
    """

    def __init__(self, path: str, warn: Callable[[str], None]) -> None:
        self._path = path
        self._warn = warn
        self._unkept: dict[tuple[str, str], Pin] = {}
        self._kept: _Servers = {}
        self._stamp: object = object()  # nothing was read yet
        self.trouble = ""

    def find(self, server: str, tool: str) -> Pin | None:
        """The pin of a tool, by its server's SHA-256 and the server's own name for it; one stat of the file."""
        self._refresh()
        known = self._kept.get(server)
        return self._unkept.get((server, tool)) or (known and known.tools.get(tool))

    def keep(self, server: str, name: str, tool: str, pin: Pin) -> None:
        """Keep a pin in the place of an older one. One that cannot be written holds until the process ends."""
        pin = Pin(pin.definition, pin.description[:_LONGEST_DESCRIPTION])
        self._unkept = {**self._unkept, (server, tool): pin}
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            with private_file(f"{self._path}.lock") as fd:
                lock(fd)
                servers = self._usable()
                known = servers.get(server, _Server(name, {}))
                servers[server] = _Server(known.name, {**known.tools, tool: pin})
                replace_private(self._path, _toml(servers))
        except OSError as error:
            self._warn(f"{self._path}: which MCP tools you allowed is forgotten when the agent ends: {error}")
            return
        self._kept = servers
        self._unkept = {place: each for place, each in self._unkept.items() if place != (server, tool)}

    def _refresh(self) -> None:
        now = stamp(self._path)
        if now == self._stamp:
            return
        try:
            self._kept, trouble = _read(self._path), ""
        except (OSError, DamagedFile) as error:
            trouble = f"{self._path}: {error}; which MCP tools you allowed is not known"
        if trouble and trouble != self.trouble:
            self._warn(trouble)
        self._stamp, self.trouble = now, trouble

    def _usable(self) -> _Servers:
        try:
            return _read(self._path)
        except DamagedFile as damage:
            aside = set_aside(self._path)
            self._warn(f"{self._path}: {damage}; it was set aside as {aside}")
            return {**self._kept}


def _read(path: str) -> _Servers:
    """The pins in a file; none when there is no file. Raises Damaged, OSError."""
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


def _toml(servers: _Servers) -> str:
    lines = ["# Tools of MCP servers as they were when you let them run. Remove one to have it taken as new.", ""]
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
