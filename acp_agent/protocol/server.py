"""The ACP connection: what may be asked when, and who answers it."""

import os
from collections.abc import Awaitable, Callable, Iterable, Iterator

import anyio.to_thread

from acp_agent.capabilities import AUTH_METHOD, EXT_METHODS, LOGIN_METHOD, fork_offered, initialize_result
from acp_agent.core.editor import SharedLanguages
from acp_agent.core.errors import ConfigError
from acp_agent.core.types import JsonObject
from acp_agent.protocol import jsonrpc
from acp_agent.protocol.client import Client
from acp_agent.protocol.editor import Connection
from acp_agent.protocol.jsonrpc import RpcError, invalid_params, invalid_request
from acp_agent.protocol.peer import Incoming, NotificationHandler, Peer, RequestHandler
from acp_agent.protocol.session_methods import SessionMethods
from acp_agent.session.manager import SessionManager
from acp_agent.session.session import Session

_OPEN_TO_ALL = frozenset({"initialize", "authenticate", "logout", "session/cancel", "session/close", "session/delete"})
"""What introduces, ends, frees or forgets may be asked at any time. All else shows or does something."""


class AuthState:
    """Logged in or out, for as long as the connection lasts.

    forget   removes the keys that `acp-agent login` stored, and blocks meanwhile. May raise ConfigError
    """

    def __init__(self, forget: Callable[[], object]) -> None:
        self._forget = forget
        self._logged_out = False

    def admit(self, method: str) -> None:
        """Let a request pass. Raises RpcError -32000 for most of them after `logout`."""
        if self._logged_out and method not in _OPEN_TO_ALL:
            raise auth_required()

    def authenticate(self, params: JsonObject) -> JsonObject:
        """The answer to `authenticate`; there is nothing to wait for. Raises RpcError -32602 for another method."""
        method = params.get("methodId")
        if method == LOGIN_METHOD:
            raise invalid_params("methodId", f"{LOGIN_METHOD} is run in a terminal: acp-agent login")
        if method != AUTH_METHOD:
            raise invalid_params("methodId", f"unknown method: expected {AUTH_METHOD}")
        self._logged_out = False
        return {}

    async def logout(self) -> JsonObject:
        """The answer to `logout`, also to a second one. Turns that run end as they would have.

        Raises RpcError -32603 when stored keys could not be removed; the connection is logged out all the same.
        """
        self._logged_out = True
        try:
            await anyio.to_thread.run_sync(self._forget, abandon_on_cancel=True)
        except ConfigError as error:
            raise RpcError(jsonrpc.INTERNAL_ERROR, f"logged out, but stored keys are still there: {error}") from error
        return {}


def auth_required(why: str = "Logged out: authenticate to go on") -> RpcError:
    """Nothing but this is ever -32000: editors show their login for it."""
    return RpcError(jsonrpc.AUTH_REQUIRED, why)


PUBLISH = "lsp/publishDiagnostics"
SAVED = "lsp/didSave"

_PREFIXES = ("", "_", "_acp_agent/")


def lsp_notifications(
    listening: Callable[[str | None], Iterable[SharedLanguages]],
) -> dict[str, NotificationHandler]:
    """What to do when the editor tells of problems and saved files, by every name it may use.

    listening   gives whom a session's id concerns, everybody for None; nobody for an id that is not known
    """

    async def publish(params: JsonObject) -> None:
        uri, found = _uri(params), params.get("diagnostics")
        if not isinstance(found, list):
            raise invalid_params("diagnostics", "expected a list")
        for each in listening(_session_id(params)):
            each.published(uri, found)

    async def saved(params: JsonObject) -> None:
        uri = _uri(params)
        for each in tuple(listening(_session_id(params))):
            await each.saved(uri)

    return {f"{prefix}{name}": told for prefix in _PREFIXES for name, told in ((PUBLISH, publish), (SAVED, saved))}


def _uri(params: JsonObject) -> str:
    uri = params.get("uri")
    if not isinstance(uri, str):
        raise invalid_params("uri", "expected a string")
    return uri


def _session_id(params: JsonObject) -> str | None:
    session_id = params.get("sessionId")
    if session_id is not None and not isinstance(session_id, str):
        raise invalid_params("sessionId", "expected a string")
    return session_id


Extend = Callable[[str, JsonObject], Awaitable[JsonObject]]


class Server:
    """One editor's connection: its client capabilities and its sessions.

    warm_up       told once a session has been announced: the moment to load what the first prompt needs
    extend        answers requests of our own, `_acp_agent/...`. Raises RpcError
    auth          whether anybody is logged out
    initialized   the params of an `initialize` that was answered already
    """

    def __init__(
        self,
        peer: Peer,
        sessions: SessionManager,
        warm_up: Callable[[Session], None],
        extend: Extend,
        auth: AuthState,
        initialized: JsonObject | None,
    ) -> None:
        self._peer = peer
        self._sessions = sessions
        self._extend = extend
        self._auth = auth
        self._client = None if initialized is None else Client.from_initialize(initialized)
        self._fork = fork_offered(os.environ)
        peer.before_requests(self._shown)
        self._methods = SessionMethods(sessions, self._connection, warm_up, fork=self._fork)

    async def serve(self, on_end: Callable[[], None]) -> None:
        """Serve until the editor is gone; `on_end` hears of it before turns are cancelled."""

        def end() -> None:
            on_end()
            self._sessions.cancel_all()

        requests: dict[str, RequestHandler] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "logout": self._logout,
            **self._methods.requests,
            **dict.fromkeys(EXT_METHODS, self._extension),
        }
        notifications = {**self._methods.notifications, **lsp_notifications(self._languages)}
        await self._peer.serve(requests, notifications, self._admit, on_end=end)

    async def _shown(self, session_id: str) -> None:
        """Editors must know of a call before they are asked about it."""
        if session := self._sessions.find(session_id):
            await session.transcript.shown()

    def _admit(self, method: str) -> None:
        """Whatever the method: nothing is served before `initialize` (A3.10), and little to who is logged out."""
        if self._client is None and method != "initialize":
            raise invalid_request("initialize comes first")
        self._auth.admit(method)

    def _connection(self) -> Connection:
        assert self._client is not None, "nothing is served before initialize"
        return Connection(self._peer, self._client)

    async def _initialize(self, params: JsonObject, _incoming: Incoming) -> JsonObject:
        """Also a second time: JetBrains does, and means it (acp.md 4.3)."""
        self._client = Client.from_initialize(params)
        return initialize_result(params, fork=self._fork)

    async def _authenticate(self, params: JsonObject, _incoming: Incoming) -> JsonObject:
        self._auth.authenticate(params)
        return {}

    async def _logout(self, _params: JsonObject, _incoming: Incoming) -> JsonObject:
        """Models that were built hold keys: they go, and are built again when they are needed."""
        await self._auth.logout()
        await self._sessions.evict_all()
        return {}

    async def _extension(self, params: JsonObject, incoming: Incoming) -> JsonObject:
        return await self._extend(incoming.method, params)

    def _languages(self, session_id: str | None) -> Iterator[SharedLanguages]:
        """Whom news of the editor's language servers concern; everybody for None."""
        for session in self._sessions.all():
            if session.languages is not None and session_id in (None, session.id):
                yield session.languages
