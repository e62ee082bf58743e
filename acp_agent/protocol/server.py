"""The ACP connection: what may be asked when, and who answers it."""

import os
from collections.abc import Awaitable, Callable, Iterator

from acp_agent.capabilities import EXT_METHODS, fork_offered, initialize_result
from acp_agent.core.types import JsonObject
from acp_agent.protocol.authentication import AuthState
from acp_agent.protocol.client import Client
from acp_agent.protocol.errors import invalid_request
from acp_agent.protocol.lsp_notifications import lsp_notifications
from acp_agent.protocol.peer import Incoming, Peer, RequestHandler
from acp_agent.protocol.session import Session
from acp_agent.protocol.session_methods import SessionMethods
from acp_agent.protocol.sessions import Sessions
from acp_agent.protocol.shared_languages import SharedLanguages

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
        sessions: Sessions,
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
        peer.ask_after(self._shown)
        self._methods = SessionMethods(sessions, self._known_client, warm_up, fork=self._fork)

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
            await session.story.shown()

    def _admit(self, method: str) -> None:
        """Whatever the method: nothing is served before `initialize` (A3.10), and little to who is logged out."""
        if self._client is None and method != "initialize":
            raise invalid_request("initialize comes first")
        self._auth.admit(method)

    def _known_client(self) -> Client:
        assert self._client is not None, "nothing is served before initialize"
        return self._client

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
        await self._sessions.rest_all()
        return {}

    async def _extension(self, params: JsonObject, incoming: Incoming) -> JsonObject:
        return await self._extend(incoming.method, params)

    def _languages(self, session_id: str | None) -> Iterator[SharedLanguages]:
        """Whom news of the editor's language servers concern; everybody for None."""
        for session in self._sessions.all():
            if session.languages is not None and session_id in (None, session.id):
                yield session.languages
