"""Where a session is to work: `cwd`, `additionalDirectories`, `mcpServers` and `_meta` of what opens one."""

import os
from collections.abc import Iterable, Iterator

from acp_agent.config.masking import holds_secret, is_everyday
from acp_agent.core.errors import ConfigError
from acp_agent.core.types import Json, JsonObject
from acp_agent.protocol.errors import invalid_params
from acp_agent.protocol.mcp_servers import read_servers
from acp_agent.protocol.place import Place


def read_place(params: JsonObject) -> tuple[Place, tuple[str, ...]]:
    """The place, and a line for the user on every server that cannot be used. Raises RpcError (A5.2, A5.12)."""
    mcp_servers = _list(params, "mcpServers")
    named = read_servers(mcp_servers)
    place = Place(
        _folder(params, "cwd"),
        _additional_folders(params),
        named.servers,
        _wanted_tools(params),
        tuple(_secrets(mcp_servers)),
    )
    return place, named.problems


def _additional_folders(params: JsonObject) -> tuple[str, ...]:
    folders = _list(params, "additionalDirectories")
    return tuple(_checked_folder(f"additionalDirectories.{index}", folder) for index, folder in enumerate(folders))


def _list(params: JsonObject, key: str) -> list[Json]:
    value = params.get(key)
    if value is not None and not isinstance(value, list):
        raise invalid_params(key, "expected a list")
    return value or []


def _secrets(mcp_servers: Iterable[Json]) -> Iterator[str]:
    """The values of headers and variables that hold a secret by their name; of `Bearer TOKEN` also the token alone."""
    for server in mcp_servers:
        for key in ("headers", "env"):
            for each in _items(server, key):
                match each:
                    case {"name": str(name), "value": str(value)} if holds_secret(name) and not is_everyday(value):
                        yield from (value, *value.split(maxsplit=1)[1:])
                    case _:
                        pass


def _items(server: Json, key: str) -> list[Json]:
    items = server.get(key) if isinstance(server, dict) else None
    return items if isinstance(items, list) else []


def _folder(params: JsonObject, key: str) -> str:
    return _checked_folder(key, params.get(key))


def _checked_folder(key: str, path: Json) -> str:
    if not isinstance(path, str) or not os.path.isabs(path) or "\0" in path:
        raise invalid_params(key, "expected an absolute path")
    if not os.path.isdir(path):
        raise invalid_params(key, "expected a folder that exists")
    return os.path.normpath(path)


def _wanted_tools(params: JsonObject) -> tuple[str, ...] | None:
    """The tools `_meta.acp_agent.tools` names; None when it names none. Raises RpcError for another shape."""
    meta = params.get("_meta")
    if not isinstance(meta, dict) or "acp_agent" not in meta:
        return None
    from acp_agent.gates.selection import session_tools  # noqa: PLC0415 - few clients send it

    try:
        return session_tools(meta)
    except ConfigError as error:
        raise invalid_params(error.key, f"expected {error.expected}, not {error.value}") from None
