"""The connection to one editor: which methods may be called at which time, and which handlers serve them.

See https://agentclientprotocol.com/protocol/initialization. Login is optional, because keys come from the environment,
the configuration or `acp-agent login`. Only after `logout` do most methods answer "authentication required".
"""

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
from acp_agent.store.known_answers import OpenedSession

_WITHOUT_LOGIN = frozenset(
    {"initialize", "authenticate", "logout", "session/cancel", "session/close", "session/delete"}
)
"""Methods that are also served after `logout`."""


class AuthState:
    """The state of the user's login on this connection.

    forget   removes the keys that `acp-agent login` stored. It blocks, and may raise ConfigError
    """

    def __init__(self, forget: Callable[[], object]) -> None:
        self._forget = forget
        self._logged_out = False

    def admit(self, method: str) -> None:
        """Raise RpcError -32000 for a method that is not served after `logout`."""
        if self._logged_out and method not in _WITHOUT_LOGIN:
            raise RpcError(jsonrpc.AUTH_REQUIRED, "Logged out: authenticate to go on")

    def authenticate(self, params: JsonObject) -> None:
        """Log in. Raises RpcError -32602 for an unknown authentication method."""
        method = params.get("methodId")
        if method == LOGIN_METHOD:
            raise invalid_params("methodId", f"{LOGIN_METHOD} is run in a terminal: acp-agent login")
        if method != AUTH_METHOD:
            raise invalid_params("methodId", f"unknown method: expected {AUTH_METHOD}")
        self._logged_out = False

    async def logout(self) -> None:
        """Log out and remove the stored keys. Running turns are not stopped.

        Raises RpcError -32603 if the keys could not be removed. The connection is logged out even then.
        """
        self._logged_out = True
        try:
            await anyio.to_thread.run_sync(self._forget, abandon_on_cancel=True)
        except ConfigError as error:
            raise RpcError(jsonrpc.INTERNAL_ERROR, f"logged out, but stored keys are still there: {error}") from error


class Server:
    """The server of one editor.

    keep          called with the params and the answer of each `session/new`, and with the session
    warm_up       called after the response that opens a session, to load what the first prompt needs
    extend        answers the extension methods `_acp_agent/...`. Raises RequestError
    initialized   the params of an `initialize` request that boot has answered
    """

    def __init__(
        self,
        peer: Peer,
        sessions: SessionManager,
        warm_up: Callable[[Session], None],
        keep: Callable[[JsonObject, JsonObject, Session], None],
        extend: Callable[[str, JsonObject], Awaitable[JsonObject]],
        auth: AuthState,
        initialized: JsonObject | None,
    ) -> None:
        self._peer = peer
        self._sessions = sessions
        self._extend = extend
        self._auth = auth
        self._client = None if initialized is None else Client.from_initialize(initialized)
        self._fork = fork_offered(os.environ)
        self._methods = SessionMethods(sessions, self._connection, warm_up, keep, fork=self._fork)

    async def serve(self, on_end: Callable[[], None], opened: OpenedSession | None) -> None:
        """Serve until the editor closes the stream. Then call `on_end`, and cancel all turns.

        opened   the session whose `session/new` boot has answered; it is made before anything else is served
        """

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
        if opened is not None:
            await self._methods.make_opened(opened)
        await self._peer.serve(requests, notifications, self._admit, end, one_by_one=("session/prompt",))

    def _admit(self, method: str) -> None:
        if self._client is None and method != "initialize":
            raise invalid_request("initialize comes first")
        self._auth.admit(method)

    def _connection(self) -> Connection:
        assert self._client is not None, "nothing is served before initialize"
        return Connection(self._peer, self._client)

    async def _initialize(self, params: JsonObject, _incoming: Incoming) -> JsonObject:
        """Take the client's capabilities. JetBrains sends this request a second time with other capabilities."""
        self._client = Client.from_initialize(params)
        return initialize_result(params, fork=self._fork)

    async def _authenticate(self, params: JsonObject, _incoming: Incoming) -> JsonObject:
        self._auth.authenticate(params)
        return {}

    async def _logout(self, _params: JsonObject, _incoming: Incoming) -> JsonObject:
        """Log out, and evict the sessions, whose models hold keys."""
        await self._auth.logout()
        await self._sessions.evict_all()
        return {}

    async def _extension(self, params: JsonObject, incoming: Incoming) -> JsonObject:
        return await self._extend(incoming.method, params)

    def _languages(self, session_id: str | None) -> Iterator[SharedLanguages]:
        """Yield the language servers of a session, or of all sessions for None."""
        for session in self._sessions.all():
            if session.languages is not None and session_id in (None, session.id):
                yield session.languages


# ------------------------------------------------------------------------------- language servers


PUBLISH = "lsp/publishDiagnostics"
SAVED = "lsp/didSave"

_PREFIXES = ("", "_", "_acp_agent/")


def lsp_notifications(
    listening: Callable[[str | None], Iterable[SharedLanguages]],
) -> dict[str, NotificationHandler]:
    """Return the handlers of editors' notifications about diagnostics and saved files, under every name they have.

    listening   returns the language servers of a session, or of all sessions for None
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

    return {f"{prefix}{name}": handle for prefix in _PREFIXES for name, handle in ((PUBLISH, publish), (SAVED, saved))}


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
