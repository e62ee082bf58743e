"""The ACP methods: check, find the session, delegate."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from acp_agent.capabilities import AUTH_METHOD, initialize_result
from acp_agent.config.masking import holds_secret, is_everyday
from acp_agent.core.errors import ConfigError
from acp_agent.core.events import Notice, Severity
from acp_agent.core.types import Json, JsonObject
from acp_agent.protocol import options
from acp_agent.protocol.client import Client
from acp_agent.protocol.errors import invalid_params, invalid_request, session_not_found
from acp_agent.protocol.mcp_servers import read_servers
from acp_agent.protocol.peer import Incoming, Peer, RequestHandler
from acp_agent.protocol.session import Place, Session

MAX_SESSIONS = 256
"""Sessions of one process; each holds its folder open."""

OpenSession = Callable[[Place, Client], Session]


class Server:
    """One editor's connection: its client capabilities and its sessions.

    open_session   makes a session; called for each `session/new`
    warm_up        told once a session has been announced: the moment to load what the first prompt needs
    """

    def __init__(
        self,
        peer: Peer,
        open_session: OpenSession,
        warm_up: Callable[[Session], None],
        initialized: JsonObject | None,
    ) -> None:
        self._peer = peer
        self._open_session = open_session
        self._warm_up = warm_up
        self._client = None if initialized is None else Client.from_initialize(initialized)
        self._sessions: dict[str, Session] = {}

    async def serve(self, on_end: Callable[[], None]) -> None:
        """Serve until the editor is gone; `on_end` hears of it before turns are cancelled."""

        def end() -> None:
            on_end()
            for session in self._sessions.values():
                session.cancel()

        requests: dict[str, RequestHandler] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "session/new": self._new_session,
            "session/prompt": self._prompt,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_config_option,
        }
        await self._peer.serve(requests, {"session/cancel": self._cancel}, self._admit, on_end=end)

    def _admit(self, method: str) -> None:
        """Whatever the method: nothing is served before `initialize` (A3.10)."""
        if self._client is None and method != "initialize":
            raise invalid_request("initialize comes first")

    # ------------------------------------------------------------------------------------ connection

    async def _initialize(self, params: JsonObject, _incoming: Incoming) -> JsonObject:
        """Also a second time: JetBrains does, and means it (acp.md 4.3)."""
        self._client = Client.from_initialize(params)
        return initialize_result()

    async def _authenticate(self, params: JsonObject, _incoming: Incoming) -> JsonObject:
        if params.get("methodId") != AUTH_METHOD:
            raise invalid_params("methodId", f"unknown method: expected {AUTH_METHOD}")
        return {}

    # -------------------------------------------------------------------------------------- sessions

    async def _new_session(self, params: JsonObject, incoming: Incoming) -> JsonObject:
        assert self._client is not None
        mcp_servers = _list(params, "mcpServers")
        named = read_servers(mcp_servers)
        place = Place(
            _folder(params, "cwd"),
            _additional_folders(params),
            named.servers,
            _wanted_tools(params),
            tuple(_secrets(mcp_servers)),
        )
        if len(self._sessions) >= MAX_SESSIONS:
            raise invalid_request(f"session limit reached: {MAX_SESSIONS} sessions are open in this process")
        session = self._open_session(place, self._client)
        for problem in named.problems:
            session.add_notice(Notice(Severity.WARNING, problem))
        self._sessions[session.id] = session
        incoming.after_response(lambda: self._warm_up(session))
        return {
            "sessionId": session.id,
            "modes": options.modes(session.conduct),
            "configOptions": options.config_options(session.conduct),
        }

    async def _prompt(self, params: JsonObject, incoming: Incoming) -> JsonObject:
        return await self._session(params).prompt(params, incoming)

    async def _cancel(self, params: JsonObject) -> None:
        session_id = params.get("sessionId")
        if isinstance(session_id, str) and session_id in self._sessions:
            self._sessions[session_id].cancel()

    async def _set_mode(self, params: JsonObject, incoming: Incoming) -> JsonObject:
        session = self._session(params)
        before = replace(session.conduct)
        options.set_mode(session.conduct, params.get("modeId"))
        if session.conduct != before:
            incoming.after_response(lambda: _announce_mode(session))
            incoming.after_response(lambda: _announce_options(session))
        return {}

    async def _set_config_option(self, params: JsonObject, incoming: Incoming) -> JsonObject:
        """Cheap and silent when nothing changes: JetBrains sets every option before each prompt."""
        session = self._session(params)
        before = session.conduct.mode
        options.set_option(session.conduct, params.get("configId"), params.get("value"))
        if session.conduct.mode is not before:
            incoming.after_response(lambda: _announce_mode(session))
        return {"configOptions": options.config_options(session.conduct)}

    def _session(self, params: JsonObject) -> Session:
        session_id = params.get("sessionId")
        if not isinstance(session_id, str):
            raise invalid_params("sessionId", "expected a string")
        if session_id not in self._sessions:
            raise session_not_found(session_id)
        return self._sessions[session_id]


def _announce_mode(session: Session) -> None:
    session.post_update({"sessionUpdate": "current_mode_update", "currentModeId": session.conduct.mode.value})


def _announce_options(session: Session) -> None:
    session.post_update(
        {"sessionUpdate": "config_option_update", "configOptions": options.config_options(session.conduct)}
    )


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
    return path


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
