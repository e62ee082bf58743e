"""The MCP servers an editor names: `mcpServers` of session/new as `McpServer` (ACP "MCP Servers"; requirements A25).

Read leniently, entry by entry: one that cannot be used is left out and told, and the session opens all the same (A5.3).
What is left out says so, where the official SDK drops it without a word (acp.md 1.6). Variables that would make a
program run something else are the connection's to drop (A25.3, mcp/environment.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from acp_agent.core.mcp import HttpServer, McpOrigin, McpReach, McpServer, StdioServer
from acp_agent.core.types import Json, JsonObject

MAX_SERVERS = 64
STARTUP_SECONDS = 300.0
"""Until the tools of an editor's server must be known: `npx` may download it first (A25.2, A2)."""

_LONGEST = 200  # characters of a name


@dataclass(frozen=True, slots=True)
class EditorServers:
    """The servers that can be used, and a line for the user on everything left out."""

    servers: tuple[McpServer, ...] = ()
    problems: tuple[str, ...] = ()


class _Unusable(Exception):
    """An entry cannot be used; the message says what was expected."""


def read_servers(entries: Sequence[Json]) -> EditorServers:
    """Read `mcpServers`. Never raises."""
    servers: list[McpServer] = []
    problems: list[str] = []
    for at, entry in enumerate(entries[:MAX_SERVERS]):
        name = entry.get("name") if isinstance(entry, dict) else None
        where = f"MCP server {name[:_LONGEST]!r}" if isinstance(name, str) and name else f"mcpServers[{at}]"
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
    name = _text(entry, "name")
    if len(name) > _LONGEST:
        raise _Unusable(f"name: expected at most {_LONGEST} characters")
    return McpServer(name, _reach(entry), McpOrigin.EDITOR, startup_timeout=STARTUP_SECONDS)


def _reach(entry: JsonObject) -> McpReach:
    """Stdio has no `type` in version 1; `sse` is deprecated and served as streamable HTTP (A25.1)."""
    kind = entry.get("type", "stdio")
    match kind:
        case "stdio":
            return StdioServer(_text(entry, "command"), _args(entry), tuple(_pairs(entry, "env")))
        case "http" | "sse":
            url = _url(entry)
            return HttpServer(url, tuple(_headers(entry)), allow_private=_names_a_private_host(url))
        case _:
            raise _Unusable(f"type = {str(kind)[:_LONGEST]!r}: expected stdio, http or sse")


def _args(entry: JsonObject) -> tuple[str, ...]:
    args = entry.get("args")
    if args is None:
        return ()
    if not isinstance(args, list) or not all(isinstance(each, str) and "\0" not in each for each in args):
        raise _Unusable("args: expected a list of texts")
    return tuple(str(each) for each in args)


def _pairs(entry: JsonObject, key: str) -> list[tuple[str, str]]:
    """A list of `{name, value}`; left out means none."""
    given = entry.get(key)
    pairs: list[tuple[str, str]] = []
    for each in given if isinstance(given, list) else ():
        match each:
            case {"name": str(name), "value": str(value)} if name and "\0" not in name + value:
                pairs.append((name, value))
            case _:
                raise _Unusable(f"{key}: expected a list of objects with name and value")
    if given is not None and not isinstance(given, list):
        raise _Unusable(f"{key}: expected a list of objects with name and value")
    return pairs


def _headers(entry: JsonObject) -> list[tuple[str, str]]:
    headers = _pairs(entry, "headers")
    for name, value in headers:
        if not all(each.isascii() and each.isprintable() for each in (name, value)):
            raise _Unusable(f"headers: {name[:_LONGEST]!r}: expected name and value in ASCII, on one line")
    return headers


def _text(entry: JsonObject, key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise _Unusable(f"{key}: expected a text that is not empty")
    return value


def _names_a_private_host(url: str) -> bool:
    """Whether the address itself says that it is on this machine or in a private network.

    Then the user meant it. A name that only resolves to such an address might be anybody's; so might 169.254.169.254.
    """
    host = (urlsplit(url).hostname or "").removesuffix(".")
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return (address.is_private or address.is_loopback) and not (address.is_link_local or address.is_unspecified)


def _url(entry: JsonObject) -> str:
    url = _text(entry, "url")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isprintable():
        raise _Unusable("url: expected an http:// or https:// address")
    return url
