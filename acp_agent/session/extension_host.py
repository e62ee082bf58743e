"""What the extension methods answer from: the store, and the engines of the sessions that are open (A26, A25.7)."""

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from functools import partial

import anyio
import anyio.to_thread

from acp_agent.config import Loaded
from acp_agent.config.conduct import conduct_at_start
from acp_agent.config.settings import audit_file
from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.mcp import ListedServer, McpServer
from acp_agent.core.sessions import SessionSnapshot, StoredEvent, UsageTotals
from acp_agent.core.types import JsonObject, Subject, ToolSpec
from acp_agent.protocol.extension_types import Judged, SessionStatus
from acp_agent.protocol.extensions import Extensions
from acp_agent.protocol.jsonrpc import invalid_params, invalid_request, session_not_found
from acp_agent.protocol.mcp_servers import MAX_SERVERS
from acp_agent.session.engine import SessionEngine
from acp_agent.session.foreign_session import is_folder, sound
from acp_agent.session.manager import Sessions
from acp_agent.session.session import Session
from acp_agent.session.toolset.output import known_secrets, redactor
from acp_agent.store.audit_read import last_of
from acp_agent.store.credentials import CredentialStore
from acp_agent.store.sessions import SessionStore


def extensions(sessions: Sessions, configured: Callable[[str], Loaded], clock: Callable[[], int]) -> Extensions:
    """The extension methods over the sessions of this process."""
    return Extensions(SessionsHost(sessions, configured, clock))


class SessionsHost:
    """An ExtensionHost over what a process has open and keeps.

    configured   reads the configuration for a session in a folder
    clock        milliseconds since 1970
    """

    def __init__(self, sessions: Sessions, configured: Callable[[str], Loaded], clock: Callable[[], int]) -> None:
        self._sessions = sessions
        self._configured = configured
        self._clock = clock

    # ------------------------------------------------------------------------------- of the store

    async def saved(self, session_id: str) -> SessionSnapshot:
        """See ExtensionHost. What an open session has not kept yet is kept first."""
        store, session = self._store(), self._sessions.find(session_id)
        if session is not None:
            await session.story.settle()
        saved = await store.of(session_id).snapshot()
        if saved is None:
            raise session_not_found(session_id)
        return saved

    def told(self, session_id: str, after: int) -> AsyncGenerator[StoredEvent]:
        """See ExtensionHost."""
        return self._store().of(session_id).events(after)

    async def take_in(self, saved: SessionSnapshot, told: Sequence[StoredEvent]) -> str:
        """See ExtensionHost. What cannot be shown or counted is mended; a folder that is none is refused."""
        cwd = saved.record.cwd
        if not is_folder(cwd):
            raise invalid_params("session", "record: cwd: expected an absolute path")
        mended = partial(_mended, saved, told, self._configured(cwd), self._clock())
        taken, events = await anyio.to_thread.run_sync(mended, abandon_on_cancel=True)
        await self._store().take_in(taken, events)
        return taken.record.id

    async def delete(self, session_id: str) -> bool:
        """See ExtensionHost."""
        return await self._sessions.delete(session_id)

    async def audit(self, session_id: str, count: int) -> Sequence[JsonObject]:
        """See ExtensionHost. The session need not be open here."""
        session = self._sessions.find(session_id)
        record = session.story.record if session is not None else await self._store().find(session_id)
        if record is None:
            raise session_not_found(session_id)
        file = audit_file(self._configured(record.cwd).settings.audit.file, os.environ)
        try:
            return await anyio.to_thread.run_sync(partial(last_of, file, session_id, count), abandon_on_cancel=True)
        except OSError as error:
            raise StoreUnavailable(f"the audit cannot be read: {error.strerror or error}") from error

    # ----------------------------------------------------------------------- of sessions that are open

    async def move(self, session_id: str, cwd: str) -> None:
        """See ExtensionHost. What the user has not chosen, and what is forbidden, is as it is configured there."""
        session = await self._open(session_id)
        await self._wake(session)  # it must be ours, and still there
        here, there = self._configured(session.place.cwd), self._configured(cwd)
        await self._sessions.move(session_id, cwd)
        known = set(map(str, here.problems))
        for problem in there.problems:
            if str(problem) not in known:
                session.notices.warn(f"configuration: {problem}")
        await self._wake(session)  # it was put to rest, and is written only while it is ours
        session.apply_config(there)
        session.keep_conduct()

    async def tools(self, session_id: str) -> Sequence[ToolSpec]:
        """See ExtensionHost."""
        return (await self._engine(await self._open(session_id))).tools()

    async def servers(self, session_id: str) -> Sequence[ListedServer]:
        """See ExtensionHost. What a server says of itself is redacted."""
        session = await self._open(session_id)
        listed = (await self._engine(session)).servers()
        return [replace(each, problem=session.redact(each.problem)) for each in listed]

    async def add_server(self, session_id: str, server: McpServer) -> None:
        """See ExtensionHost. It is the session's from now on, also after a rest."""
        session = await self._open(session_id)
        engine, place = await self._engine(session), session.place
        if len(place.servers) >= MAX_SERVERS:
            raise invalid_request(f"the session has {MAX_SERVERS} MCP servers already: remove one first")
        if objection := engine.add_server(server):
            raise invalid_request(objection)
        session.place = replace(session.place, servers=(*session.place.servers, server))
        await session.tell_commands()

    async def remove_server(self, session_id: str, name: str) -> bool:
        """See ExtensionHost. It does not come back after a rest, wherever it was named."""
        session = await self._open(session_id)
        if not (await self._engine(session)).remove_server(name):
            return False
        place = session.place
        left = tuple(each for each in place.servers if each.name != name)
        session.place = replace(place, servers=left, ended=place.ended | {name})
        await session.tell_commands()
        return True

    async def judge(self, session_id: str, subject: Subject) -> Judged:
        """See ExtensionHost."""
        session = await self._open(session_id)
        found = (await self._engine(session)).judged(subject)
        return Judged(found.word, session.redact(found.rule), tuple(map(session.redact, found.reasons)))

    async def status(self, session_id: str) -> SessionStatus:
        """See ExtensionHost."""
        session = await self._open(session_id)
        engine = await self._engine(session)
        lines = tuple(map(session.redact, engine.status()))
        return SessionStatus(lines, replace(session.conduct), engine.state().usage or UsageTotals(), session.turns.busy)

    # -------------------------------------------------------------------------------------- within

    def _store(self) -> SessionStore:
        if self._sessions.store is None:
            raise StoreUnavailable("no session is kept: there is no data folder")
        return self._sessions.store

    async def _open(self, session_id: str) -> Session:
        """One that is open here. Raises RpcError."""
        session, store = self._sessions.find(session_id), self._sessions.store
        if session is not None:
            return session
        if store is not None and await store.find(session_id) is not None:
            raise invalid_request("the session is not open here: load or resume it first")
        raise session_not_found(session_id)

    async def _wake(self, session: Session) -> None:
        session.turns.used_at = anyio.current_time()  # nobody puts it to rest just now
        await self._sessions.wake(session)

    async def _engine(self, session: Session) -> SessionEngine:
        """Its engine, which obeys what the user has chosen by now. Raises RpcError, AgentError."""
        await self._wake(session)
        engine = await session.engine()
        assert isinstance(engine, SessionEngine), "engines are made by the workshop"
        if not session.turns.busy:
            session.take_conduct()
        return engine


def _mended(
    saved: SessionSnapshot, told: Sequence[StoredEvent], loaded: Loaded, now: int
) -> tuple[SessionSnapshot, Sequence[StoredEvent]]:
    """A session from elsewhere as it may be kept here, without what is secret here."""
    known = known_secrets(os.environ, loaded.settings.llm.providers)
    CredentialStore(os.environ, known.add).introduce()
    return sound(saved, told, conduct_at_start(loaded), now, redactor(loaded, known, _unheard))


def _unheard(message: str) -> None:
    """What is wrong with the rules is told where a session begins."""
    del message
