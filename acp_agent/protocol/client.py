"""What the editor says of itself: its name, capabilities and spelling of paths (`initialize`), and its MCP servers.

Only this module knows editors by their names. `DRAWINGS` says what an editor draws of a message, where no capability
does.

An entry of `mcpServers` that cannot be used is left out and the user is told. The session still opens. Variables that
would make a program run something else are dropped later, by the connection. See
https://agentclientprotocol.com/protocol/session-setup.
"""

import os
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from acp_agent.capabilities import LSP_METHODS, at
from acp_agent.core.data import frozen
from acp_agent.core.mcp import MAX_SERVERS, HttpServer, McpOrigin, McpReach, McpServer, StdioServer
from acp_agent.core.types import Json, JsonObject

_MOST_METHODS = 64


class Drawing(NamedTuple):
    """The parts of messages that a client draws. The defaults are for unknown clients: each shows the user everything.

    outside_turns     it shows messages, cards and questions that come while no prompt runs
    early_updates     it keeps an update that arrives together with the answer to `session/new`
    question_titles   a question shows the title of its call
    question_texts    a question shows texts. Otherwise they are told in a thought before it
    question_diffs    a question shows diffs. Otherwise a text says what changes
    markdown          the texts of a card are drawn as Markdown. Otherwise a fence would be printed as it is
    raw_output        a card shows `rawOutput` beside its content, so the result is not told in both
    whole_titles      a card's title is drawn to its end, and not only to a colon
    like_options      a question may have several options of a kind. Otherwise one of them could not be chosen
    """

    outside_turns: bool = True
    early_updates: bool = True
    question_titles: bool = False
    question_texts: bool = True
    question_diffs: bool = False
    markdown: bool = True
    raw_output: bool = False
    whole_titles: bool = True
    like_options: bool = True


_TITLED = Drawing(question_titles=True, question_texts=False)
_TITLED_WITH_DIFFS = _TITLED._replace(question_diffs=True)
_EVERYTHING = Drawing(question_titles=True, question_diffs=True)

DRAWINGS: Final = {
    "acp-agent-editor": _EVERYTHING._replace(outside_turns=False),  # our own `acp-agent run`
    "acp-agent-vscode": _EVERYTHING,  # our own extension
    "zed": _EVERYTHING._replace(early_updates=False),
    "toad": _EVERYTHING,
    "agent-shell": _TITLED_WITH_DIFFS._replace(outside_turns=False),  # Emacs
    "CodeCompanion.nvim": _TITLED_WITH_DIFFS._replace(outside_turns=False, whole_titles=False, like_options=False),
    "Jupyter AI": _TITLED_WITH_DIFFS,
    "vscode-acp-client": _TITLED._replace(markdown=False),  # ACP Client
    "vscode-acp-chat": _TITLED._replace(markdown=False),  # VSCode ACP Chat
    "acpx": _TITLED._replace(outside_turns=False, markdown=False, raw_output=True),
}
"""Clients by the name that they send in `clientInfo`. The table in docs/protocol.md says the same in words."""


@frozen
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

    @property
    def drawing(self) -> Drawing:
        """What this client draws."""
        return DRAWINGS.get(self.name, Drawing())

    @property
    def is_agent(self) -> bool:
        """Whether it is another acp-agent, which gave us a task. It runs our commands with its own tool."""
        return self.name == "acp-agent"

    @classmethod
    def from_initialize(cls, params: JsonObject) -> "Client":
        """Read the params of `initialize`; a malformed capability counts as absent."""
        capabilities, name = params.get("clientCapabilities"), at(params, "clientInfo", "name")
        return cls(
            name=name if isinstance(name, str) else "",
            read_text_file=_is_true(capabilities, "fs", "readTextFile"),
            write_text_file=_is_true(capabilities, "fs", "writeTextFile"),
            terminal=_is_true(capabilities, "terminal"),
            display_terminals=_is_true(capabilities, "_meta", "terminal_output"),
            notices=isinstance(at(capabilities, "session", "notices"), dict),
            compaction=isinstance(at(capabilities, "session", "compaction"), dict),
            elicit_forms=isinstance(at(capabilities, "elicitation", "form"), dict),
            elicit_urls=isinstance(at(capabilities, "elicitation", "url"), dict),
            boolean_options=isinstance(at(capabilities, "session", "configOptions", "boolean"), dict),
            terminal_login=_is_true(capabilities, "auth", "terminal")
            or _is_true(capabilities, "_meta", "terminal-auth"),
            lsp_methods=_lsp_methods(at(capabilities, "_meta", "lsp")),
        )


def _is_true(value: Json, *path: str) -> bool:
    return at(value, *path) is True


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


class EditorPaths:
    """A translator of resolved paths for the editor. `folder` is the session's `cwd` as the editor sent it."""

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


STARTUP_SECONDS = 300.0
"""Seconds until the tools of an editor's server must be known: `npx` may download the server first."""

_LONGEST = 200
"""Characters of a name."""


class EditorServers(NamedTuple):
    """The servers that can be used, and a line for the user about each entry that was left out."""

    servers: tuple[McpServer, ...] = ()
    problems: tuple[str, ...] = ()


class _Unusable(Exception):
    """An entry that cannot be used. The message says what was expected."""


def read_servers(entries: Sequence[Json]) -> EditorServers:
    """Read `mcpServers`. Never raises."""
    servers: list[McpServer] = []
    problems: list[str] = []
    for index, entry in enumerate(entries[:MAX_SERVERS]):
        name = entry.get("name") if isinstance(entry, dict) else None
        where = f"MCP server {name[:_LONGEST]!r}" if isinstance(name, str) and name else f"mcpServers[{index}]"
        try:
            servers.append(_server(entry))
        except _Unusable as why:
            problems.append(f"{where} is not used: {why}")
    if len(entries) > MAX_SERVERS:
        problems.append(f"of {len(entries)} MCP servers only the first {MAX_SERVERS} are used")
    return EditorServers(tuple(servers), tuple(problems))


def _server(entry: Json) -> McpServer:
    if not isinstance(entry, dict):
        raise _Unusable("expected an object")
    name = _required_text(entry, "name")
    if len(name) > _LONGEST:
        raise _Unusable(f"name: expected at most {_LONGEST} characters")
    return McpServer(name, _reach(entry), McpOrigin.EDITOR, startup_timeout=STARTUP_SECONDS)


def _reach(entry: JsonObject) -> McpReach:
    """Read how a server is reached. `type` is missing for stdio; `sse` is deprecated and used as streamable HTTP."""
    kind = entry.get("type", "stdio")
    match kind:
        case "stdio":
            command, args = _required_text(entry, "command"), entry.get("args")
            args = [] if args is None else args
            if not isinstance(args, list) or not all(isinstance(each, str) and "\0" not in each for each in args):
                raise _Unusable("args: expected a list of texts")
            return StdioServer(command, tuple(map(str, args)), tuple(_pairs(entry, "env")))
        case "http" | "sse":
            url, headers = _url(entry), _pairs(entry, "headers")
            for name, value in headers:
                if not (name + value).isascii() or not (name + value).isprintable():
                    raise _Unusable(f"headers: {name[:_LONGEST]!r}: expected name and value in ASCII, on one line")
            return HttpServer(url, tuple(headers), allow_private=_names_a_private_host(url))
        case _:
            raise _Unusable(f"type = {str(kind)[:_LONGEST]!r}: expected stdio, http or sse")


def _pairs(entry: JsonObject, key: str) -> list[tuple[str, str]]:
    """Read a list of `{name, value}`; a missing list is empty."""
    given = entry.get(key)
    if not isinstance(given, list | None):
        raise _Unusable(f"{key}: expected a list of objects with name and value")
    pairs: list[tuple[str, str]] = []
    for each in given or ():
        match each:
            case {"name": str(name), "value": str(value)} if name and "\0" not in name + value:
                pairs.append((name, value))
            case _:
                raise _Unusable(f"{key}: expected a list of objects with name and value")
    return pairs


def _required_text(entry: JsonObject, key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise _Unusable(f"{key}: expected a text that is not empty")
    return value


def _names_a_private_host(url: str) -> bool:
    """Return whether the address itself says that it is on this machine or in a private network.

    Then the user chose it on purpose. A name that only resolves to such an address may be an attacker's, and so may
    link-local addresses, where cloud machines serve their credentials.
    """
    host = (urlsplit(url).hostname or "").removesuffix(".")
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return (address.is_private or address.is_loopback) and not (address.is_link_local or address.is_unspecified)


def _url(entry: JsonObject) -> str:
    url = _required_text(entry, "url")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isprintable():
        raise _Unusable("url: expected an http:// or https:// address")
    return url
