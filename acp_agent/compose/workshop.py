"""What all sessions of a process share."""

import os
import tempfile
from weakref import WeakSet

from acp_agent import log
from acp_agent.compose.assembly import Assembly
from acp_agent.config import (
    LlmSettings,
    Loaded,
    ProviderSettings,
    secret_values,
)
from acp_agent.config.audit_settings import audit_file
from acp_agent.core.events import Notice, Severity
from acp_agent.core.ports import Provider
from acp_agent.execution.audit import Auditor, Caller
from acp_agent.execution.process_tree import harden_process, kill_everything
from acp_agent.gates.grants import GrantStore
from acp_agent.llm.catalog import Catalog, ProviderConfig, parse_model
from acp_agent.protocol.engine import TurnEngine
from acp_agent.protocol.peer import Peer
from acp_agent.protocol.session import Session
from acp_agent.store.audit import AuditLog
from acp_agent.store.audit_values import without

_log = log.Log(__name__)


class Workshop:
    """What all sessions of a process share, and how one is put together from it."""

    def __init__(self, loaded: Loaded) -> None:
        logging = loaded.settings.logging
        trouble = log.configure(logging.level, logging.file, secrets=secret_values(os.environ))
        self._problems = [trouble] if trouble else []
        self._sessions = WeakSet[Session]()
        harden_process()
        self._catalogs: dict[tuple[ProviderSettings, ...], Catalog] = {}
        self._grants: dict[str, GrantStore] = {}
        self._audits: dict[str, AuditLog] = {}
        self._scripts: tempfile.TemporaryDirectory[str] | None = None

    async def aclose(self) -> None:
        """Close connections and remove what was written for running commands only."""
        for catalog in self._catalogs.values():
            await catalog.aclose()
        if self._scripts is not None:
            self._scripts.cleanup()

    def kill_everything(self, within: float = 1.0) -> None:
        """End every process this one started, in at most `within` seconds. For the way out."""
        kill_everything(within)

    def engine(self, peer: Peer, session: Session, loaded: Loaded) -> TurnEngine:
        """What answers a session's prompts. Raises ConfigError."""
        self._sessions.add(session)
        for problem in self._problems:
            session.add_notice(Notice(Severity.WARNING, problem))
        return Assembly(self, peer, session, loaded).engine()

    def grants(self, file: str) -> GrantStore:
        """The store of "always" answers; one a file, so that sessions see each other's. Raises ConfigError."""
        if file not in self._grants:
            self._grants[file] = GrantStore(file, self._warn)
        return self._grants[file]

    def auditor(self, session: Session, loaded: Loaded, cwd: str) -> Auditor | None:
        """What records a session's calls, all in the file of the process; None where none is wanted (L9)."""
        settings = loaded.settings.audit
        if not settings.enabled:
            return None
        file = audit_file(settings.file, os.environ)
        if file not in self._audits:
            self._audits[file] = AuditLog(file, self._warn, max_bytes=settings.max_bytes)
        caller = Caller(session.id, cwd)
        return Auditor(self._audits[file], caller, without(secret_values(os.environ)))

    def _warn(self, problem: str) -> None:
        """Tell every session, at its next prompt, what concerns them all."""
        _log.warning("problem", problem=problem)
        for session in self._sessions:
            session.add_notice(Notice(Severity.WARNING, problem))

    def model(self, settings: LlmSettings) -> Provider:
        """The configured model. Blocks: reads files and imports. Raises ConfigError."""
        assert settings.model is not None
        if settings.providers not in self._catalogs:
            self._catalogs[settings.providers] = Catalog(
                ProviderConfig.of(provider, os.environ) for provider in settings.providers
            )
        return self._catalogs[settings.providers].build(parse_model(settings.model))

    def script_folder(self) -> str:
        """A private folder for scripts the editor's terminal runs; a new one when a tmp cleaner took the last.

        Raises OSError where no folder can be made.
        """
        if self._scripts is not None and not os.path.isdir(self._scripts.name):
            self._scripts.cleanup()  # nothing is there; it only ends the object's own watch over the name
            self._scripts = None
        if self._scripts is None:
            self._scripts = tempfile.TemporaryDirectory(prefix="acp-agent-", ignore_cleanup_errors=True)
        return self._scripts.name
