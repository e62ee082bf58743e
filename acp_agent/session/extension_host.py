"""The data for the extension methods: about stored sessions, and about sessions that are open in this process."""

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from functools import partial

import anyio
import anyio.to_thread

from acp_agent.config.load import Loaded, options_at_start
from acp_agent.config.settings import audit_file
from acp_agent.core.data import frozen
from acp_agent.core.errors import InvalidField, InvalidState, SessionNotFound, StoreUnavailable
from acp_agent.core.mcp import MAX_SERVERS, ListedServer, McpServer
from acp_agent.core.session_options import SessionOptions
from acp_agent.core.sessions import SessionSnapshot, StoredEvent, UsageTotals
from acp_agent.core.types import JsonObject, Subject, ToolSpec
from acp_agent.session.engine import SessionEngine
from acp_agent.session.foreign_session import corrected_session, is_folder
from acp_agent.session.manager import SessionManager
from acp_agent.session.session import Session
from acp_agent.session.toolset.settings import known_secrets, redactor
from acp_agent.session.verdicts import Finding
from acp_agent.store.audit_read import last_of
from acp_agent.store.credentials import CredentialStore
from acp_agent.store.sessions import SessionStore


@frozen
class SessionStatus:
    """The lines of /status, and the same data as values. `busy` is True while a turn runs."""

    lines: tuple[str, ...]
    options: SessionOptions
    usage: UsageTotals
    busy: bool


class ExtensionHost:
    """The source of the extension methods' answers: the store, and the engines of sessions that are open here.

    Every method may raise RequestError (SessionNotFound, or InvalidState if the session's state does not allow the
    request), StoreUnavailable or another AgentError.

    configured   reads the configuration for a session in a folder
    clock        milliseconds since 1970
    """

    def __init__(self, sessions: SessionManager, configured: Callable[[str], Loaded], clock: Callable[[], int]) -> None:
        self._sessions = sessions
        self._configured = configured
        self._clock = clock

    # ------------------------------------------------------------------------------- stored sessions

    async def saved(self, session_id: str) -> SessionSnapshot:
        """Return a stored session. Pending events of an open session are stored first. Raises SessionNotFound."""
        store, session = self._store(), self._sessions.find(session_id)
        if session is not None:
            await session.transcript.flush()
        saved = await store.of(session_id).snapshot()
        if saved is None:
            raise SessionNotFound(session_id)
        return saved

    def events(self, session_id: str, after: int) -> AsyncGenerator[StoredEvent]:
        """Return the stored events with a `seq` above `after`, oldest first."""
        return self._store().of(session_id).events(after)

    async def import_session(self, snapshot: SessionSnapshot, events: Sequence[StoredEvent]) -> str:
        """Import a session from a file, whole or not at all. Return its new id.

        The old id, the numbers of the events and the options are not imported: the author of the file must not decide
        which calls run without asking. Texts that are unsafe to show and impossible numbers are corrected. Raises
        InvalidField for a relative folder.
        """
        cwd = snapshot.record.cwd
        if not is_folder(cwd):
            raise InvalidField("session", "record: cwd: expected an absolute path")
        correct = partial(_corrected, snapshot, events, self._configured(cwd), self._clock())
        corrected, safe = await anyio.to_thread.run_sync(correct, abandon_on_cancel=True)
        await self._store().import_session(corrected, safe)
        return corrected.record.id

    async def delete(self, session_id: str) -> bool:
        """Close and delete a session. Return False if there was none."""
        return await self._sessions.delete(session_id)

    async def audit(self, session_id: str, count: int) -> Sequence[JsonObject]:
        """Return the last audit records of a session, oldest first. They are redacted, as in the file.

        Raises SessionNotFound, and StoreUnavailable if the file cannot be read.
        """
        session = self._sessions.find(session_id)
        record = session.transcript.record if session is not None else await self._store().find(session_id)
        if record is None:
            raise SessionNotFound(session_id)
        file = audit_file(self._configured(record.cwd).settings.audit.file, os.environ)
        try:
            return await anyio.to_thread.run_sync(partial(last_of, file, session_id, count), abandon_on_cancel=True)
        except OSError as error:
            raise StoreUnavailable(f"the audit cannot be read: {error.strerror or error}") from error

    # ----------------------------------------------------------------------- open sessions

    async def move(self, session_id: str, cwd: str) -> None:
        """Move an open session to another folder, whose configuration then applies. Raises InvalidState in a turn."""
        session = await self._open(session_id)
        await self._resume(session)  # the session must exist and be locked by this process
        here, there = self._configured(session.workspace.cwd), self._configured(cwd)

        def moved() -> None:
            session.apply_config(there)
            session.store_options()

        await self._sessions.move(session_id, cwd, moved)
        known = set(map(str, here.problems))
        for problem in there.problems:
            if str(problem) not in known:
                session.notices.warn(f"configuration: {problem}")

    async def tools(self, session_id: str) -> Sequence[ToolSpec]:
        """Return the tools that the model of an open session sees now."""
        return (await self._engine(await self._open(session_id))).tools()

    async def servers(self, session_id: str) -> Sequence[ListedServer]:
        """Return the MCP servers of an open session. The servers' own texts are redacted."""
        session = await self._open(session_id)
        listed = (await self._engine(session)).servers()
        return [replace(each, problem=session.redact(each.problem)) for each in listed]

    async def add_server(self, session_id: str, server: McpServer) -> None:
        """Start one more MCP server and add it to the session.

        Raises InvalidState if the session has too many servers, or one of this name.
        """
        session = await self._open(session_id)
        engine = await self._engine(session)
        if len(session.workspace.servers) >= MAX_SERVERS:
            raise InvalidState(f"the session has {MAX_SERVERS} MCP servers already: remove one first")
        if objection := engine.add_server(server):
            raise InvalidState(objection)
        session.add_server(server)
        await session.tell_commands()

    async def remove_server(self, session_id: str, name: str) -> bool:
        """End an MCP server, even if the configuration names it. Return False if no server has this name."""
        session = await self._open(session_id)
        if not (await self._engine(session)).remove_server(name):
            return False
        session.remove_server(name)
        await session.tell_commands()
        return True

    async def judge(self, session_id: str, subject: Subject) -> Finding:
        """Return the verdict on a command, a path or a URL, without asking the user or running anything."""
        session = await self._open(session_id)
        found = await (await self._engine(session)).judged(subject)
        reasons = tuple(map(session.redact, found.reasons))
        return replace(found, rule=session.redact(found.rule), reasons=reasons)

    async def status(self, session_id: str) -> SessionStatus:
        session = await self._open(session_id)
        engine = await self._engine(session)
        lines = tuple(map(session.redact, engine.status()))
        return SessionStatus(lines, replace(session.options), engine.state().usage or UsageTotals(), session.turns.busy)

    # -------------------------------------------------------------------------------------- within

    def _store(self) -> SessionStore:
        if self._sessions.store is None:
            raise StoreUnavailable("no session is stored: there is no data folder")
        return self._sessions.store

    async def _open(self, session_id: str) -> Session:
        """Return a session that is open here. Raises RequestError."""
        session, store = self._sessions.find(session_id), self._sessions.store
        if session is not None:
            return session
        if store is not None and await store.find(session_id) is not None:
            raise InvalidState("the session is not open here: load or resume it first")
        raise SessionNotFound(session_id)

    async def _resume(self, session: Session) -> None:
        session.turns.touch()  # the session must not be evicted meanwhile
        await self._sessions.resume(session)

    async def _engine(self, session: Session) -> SessionEngine:
        """Return the engine of a session, with the user's current options in force. Raises RequestError, AgentError."""
        await self._resume(session)
        engine = await session.engine()
        if not session.turns.busy:
            session.activate_options()
        return engine


def _corrected(
    snapshot: SessionSnapshot, events: Sequence[StoredEvent], loaded: Loaded, now: int
) -> tuple[SessionSnapshot, Sequence[StoredEvent]]:
    """Return an imported session corrected for storing here, with the secrets of this machine redacted."""
    known = known_secrets(os.environ, loaded.settings.llm.providers)
    CredentialStore(os.environ, known.add).introduce()
    return corrected_session(snapshot, events, options_at_start(loaded), now, redactor(loaded, known))
