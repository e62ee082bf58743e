"""The services that all sessions of a process share: models, keys, answers, audit, stores."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from weakref import WeakSet

import anyio
from anyio import to_thread

from acp_agent import log
from acp_agent.config.files import PERMISSION_FILE, data_dir, database_file
from acp_agent.config.llm_settings import LlmSettings, ModelSettings, ProviderSettings
from acp_agent.config.load import Loaded
from acp_agent.config.settings import audit_file
from acp_agent.config.tool_settings import FileSettings
from acp_agent.core.delegation import RunSlots
from acp_agent.core.errors import ConfigError, StoreUnavailable
from acp_agent.core.mcp import McpDefinition
from acp_agent.core.ports import Background, Embedder
from acp_agent.core.process_limits import give_back_memory
from acp_agent.core.secrets import Redact
from acp_agent.core.services import Overflow, PastConversations, Summaries
from acp_agent.core.sessions import SessionSnapshot
from acp_agent.execution.audit import Auditor, Caller
from acp_agent.gates.grants import GrantStore
from acp_agent.llm.catalog import Catalog
from acp_agent.session.engine import SessionEngine
from acp_agent.session.factory import SessionFactory
from acp_agent.session.model_choices import ModelChoices
from acp_agent.session.session import Session
from acp_agent.session.toolset.gate_factory import GateMemories
from acp_agent.session.toolset.settings import FolderRules, known_secrets, redactor
from acp_agent.session.turn_slot import IdleWaiter
from acp_agent.session.workspace_facts import FolderLook
from acp_agent.store.audit import AuditLog
from acp_agent.store.conversations import ConversationSummaries, FolderConversations, OverflowStore
from acp_agent.store.credentials import CredentialStore
from acp_agent.store.db import Database
from acp_agent.store.decisions import McpPins, TrustedFolders
from acp_agent.store.memories import MemoryStore
from acp_agent.workspace.entries import sweep
from acp_agent.workspace.processes.environment import PrivateFolder, remove_abandoned
from acp_agent.workspace.processes.tree import CommandWatchdog, OrphanReaper, harden_process, kill_everything
from acp_agent.workspace.sandbox.sandbox import SessionSandbox

_log = log.Log(__name__)
_MOST_LOOKS = 32
"""The most folders whose state, as last read, is kept in memory."""
_LOOKS = 2
"""The most sessions that read the disk for a prompt at once. More threads would only wait for the interpreter."""
_TOGETHER = 5.0
"""Seconds within which new sessions of a folder share the rules for it and the removal of old files."""


class ProcessServices:
    """The services that all sessions of a process share. It also makes the engines of the sessions."""

    def __init__(
        self,
        loaded: Loaded,
        background: Background,
        choices: Callable[[Loaded], ModelChoices],
        database: Database | None = None,
    ) -> None:
        """Make the services. Without `database` a new one is opened. Raises ConfigError.

        background   starts a task that may live as long as the process
        choices      returns the models and levels that can be chosen under a configuration
        """
        self.background, self.choices = background, choices
        logging = loaded.settings.logging
        self.secrets = known_secrets(os.environ, loaded.settings.llm.providers)
        self.redactor = redactor(loaded, self.secrets)
        trouble = log.configure(logging.level, logging.file, redact=self.redactor)
        self._problems = [trouble] if trouble else []
        self._sessions = WeakSet[Session]()
        harden_process()
        self._catalogs: dict[tuple[tuple[ProviderSettings, ...], tuple[ModelSettings, ...]], Catalog] = {}
        self._newest: tuple[LlmSettings, Catalog] | None = None  # the catalog that was asked for last
        self._outdated: list[Catalog] = []  # running turns may still use the old models
        self._grants: dict[str, GrantStore] = {}
        self._audits: dict[str, AuditLog] = {}
        self._database = database or Database(database_file(os.environ), self._warn)
        self.credentials = CredentialStore(os.environ, self.secrets.add)
        self.credentials.introduce()
        self._scripts = PrivateFolder()
        self.watchdog = CommandWatchdog()
        self._orphans = OrphanReaper()
        self.gate_memories = GateMemories()
        self._swept: tuple[tuple[str, ...], float] = (), 0.0
        self._looks: dict[tuple[tuple[str, ...], FileSettings], FolderLook] = {}
        self._rules: tuple[float, FolderRules] | None = None  # the newest
        self.look_threads = anyio.CapacityLimiter(_LOOKS)
        self.run_slots = RunSlots()
        self.title_slot = anyio.Semaphore(1)
        self.quiet = IdleWaiter(lambda: (session.turns for session in self._sessions))
        self.mcp_definitions: dict[str, tuple[McpDefinition, ...]] = {}

    def prepare(self) -> None:
        """Compile the rules of redaction, and return unused memory to the system. Blocks."""
        self.redactor("")
        give_back_memory()

    async def aclose(self) -> None:
        """Close connections, and remove the files that running commands needed."""
        for catalog in (*self._catalogs.values(), *self._outdated):
            await catalog.aclose()
        self._scripts.close()
        await self._database.aclose()  # last, because a slow disk may take until the process ends

    def kill_everything(self, within: float = 1.0) -> None:
        """End every process that this one started, in at most `within` seconds. Call it when this process ends."""
        if kill_everything(within, spared=self.watchdog.pid):
            self.watchdog.close()  # ends the watchdog's own shell too

    @cached_property
    def sandboxes(self) -> WeakSet[SessionSandbox]:
        return WeakSet()

    def remove_sandboxes(self) -> None:
        """Remove the private folders of the sessions that are still open. It blocks."""
        for sandbox in self.sandboxes:
            with suppress(OSError):
                sandbox.close()

    def engine(
        self,
        session: Session,
        loaded: Loaded,
        reload: Callable[[Loaded], Loaded],
        saved: SessionSnapshot | None = None,
    ) -> SessionEngine:
        """Make the engine of a session. Raises ConfigError.

        reload   reads the configuration again; an unreadable file counts as it did in the given configuration
        saved    the stored session to continue; None for a new one
        """
        self._sessions.add(session)
        self.secrets.add(session.workspace.secrets)
        self.secrets.add(secret for each in loaded.settings.llm.providers for secret in each.secrets(os.environ))
        self.credentials.introduce()
        for problem in self._problems:
            session.notices.warn(problem)
        self.background(partial(self._fetch_models, session, loaded.settings.llm))
        folders, (swept, at) = session.workspace.folders, self._swept
        if folders != swept or time.monotonic() - at > _TOGETHER:
            self._swept = folders, time.monotonic()
            self.background(partial(_sweep, folders))
        return SessionFactory(self, session, loaded, reload, saved).engine()

    def rules(self, loaded: Loaded, folders: Sequence[str]) -> FolderRules:
        """Return the rules of a configuration for a session's folders. Sessions that open together share them."""
        now = time.monotonic()
        if self._rules is not None:
            made, rules = self._rules
            if now - made < _TOGETHER and rules.are_for(loaded, folders):
                return rules
        rules = FolderRules(loaded, folders[0], folders[1:])
        self._rules = now, rules
        return rules

    def folder_look(self, loaded: Loaded, folders: Sequence[str]) -> FolderLook:
        """Return the reader of a folder's state. Sessions with the same folders and file rules share it."""
        key = tuple(folders), loaded.settings.tools.file
        newest, look = next(reversed(self._looks.items()), (None, None))
        if look is not None and newest == key:  # cheap, since the settings are mostly the same object
            return look
        look = self._looks.pop(key, None) or FolderLook(self.background)
        self._looks[key] = look  # the newest is last
        for oldest in [*self._looks][: max(len(self._looks) - _MOST_LOOKS, 0)]:
            del self._looks[oldest]
        return look

    def grants(self, chosen: str | None) -> GrantStore:
        """Return the store of "always" answers in a file. Sessions with the same file share it.

        chosen   `[acp] permission_file`; None for the one in the data folder
        """
        file = chosen or self.data_file(PERMISSION_FILE)
        if file not in self._grants:
            self._grants[file] = GrantStore(file, self._warn)
        return self._grants[file]

    @cached_property
    def pins(self) -> McpPins:
        """The definitions of MCP tools that the user has approved."""
        return McpPins(self.data_file("mcp-pins.toml"), self._warn)

    @cached_property
    def trusted_folders(self) -> TrustedFolders:
        return TrustedFolders(self.data_file("trusted-folders.toml"), self._warn)

    def data_file(self, name: str) -> str:
        """Return the path of a file in the data folder.

        If the folder is not usable or belongs to another user, tell the user and return a path where no file can exist.
        """
        try:
            return os.path.join(data_dir(os.environ), name)
        except ConfigError as error:
            told = f"{error}; what you answer with “always” is forgotten when the agent ends"
            if told not in self._problems:  # new sessions show it too
                self._problems.append(told)
                self._warn(told)
            return os.path.join(os.devnull, name)

    def overflow(self, session: Session, loaded: Loaded) -> Overflow:
        """Return the store for a session's whole outputs."""
        return self._store(loaded).of(session.id)

    def memories(self, loaded: Loaded, embedder: Embedder | None = None) -> MemoryStore | None:
        """Return the notes of all sessions; None if memory is switched off."""
        memory = loaded.settings.memory
        if not memory.enabled:
            return None
        return MemoryStore(
            self._database, max_notes=memory.max_notes, max_bytes=memory.max_note_bytes, embedder=embedder
        )

    def past(self, session: Session) -> PastConversations:
        """Return the earlier conversations in a session's folder."""
        return FolderConversations(self._database, lambda: session.workspace.cwd, session.id)

    def summaries(self, session: Session) -> Summaries:
        """Return the store for the summaries of a session's conversation."""
        return ConversationSummaries(self._database, session.id)

    async def tidy_up(self, loaded: Loaded) -> None:
        """Remove the files of killed agents, and old outputs. Start reaping orphaned child processes.

        Run it as a background task: failures are only logged.
        """
        self._orphans.begin()
        if folders := await to_thread.run_sync(remove_abandoned, abandon_on_cancel=True):
            _log.debug("scripts of agents that were killed are removed", folders=folders)
        if not await to_thread.run_sync(os.path.exists, self._database.path):
            return
        try:
            removed = await self._store(loaded).purge(loaded.settings.tools.overflow.retention_days)
        except StoreUnavailable as error:
            _log.warning("old outputs were not removed", error=str(error))
        else:
            _log.debug("old outputs removed", count=removed)

    def _store(self, loaded: Loaded) -> OverflowStore:
        limits = loaded.settings.tools.overflow
        return OverflowStore(
            self._database, max_bytes=limits.max_overflow_bytes, conversation_bytes=limits.max_conversation_bytes
        )

    def auditor(self, caller: Caller, loaded: Loaded, redact: Redact) -> Auditor | None:
        """Return the auditor, which records a session's calls in the audit file; None if the audit is switched off."""
        settings = loaded.settings.audit
        if not settings.enabled:
            return None
        file = audit_file(settings.file, os.environ)
        if file not in self._audits:
            self._audits[file] = AuditLog(file, self._warn, max_bytes=settings.max_bytes)
        return Auditor(self._audits[file], caller, redact)

    def _warn(self, problem: str) -> None:
        """Show a warning in every session at its next prompt."""
        _log.warning("problem", problem=problem)
        for session in self._sessions:
            session.notices.warn(problem)

    def catalog(self, settings: LlmSettings) -> Catalog:
        """Return the catalog of a configuration. Sessions with equal configurations share it and its connections."""
        if self._newest is not None and self._newest[0] is settings:  # to hash settings takes time
            return self._newest[1]
        key = settings.providers, settings.models
        if key not in self._catalogs:
            self._catalogs[key] = Catalog.of(settings, os.environ, self.credentials)
        self._newest = settings, self._catalogs[key]
        return self._catalogs[key]

    def forget_keys(self) -> None:
        """Remove the keys that `acp-agent login` has stored, and build new models without them. This blocks.

        Raises ConfigError if they cannot be removed.
        """
        try:
            self.credentials.forget()
        finally:
            self._outdated += self._catalogs.values()
            self._catalogs, self._newest = {}, None

    async def _fetch_models(self, session: Session, settings: LlmSettings) -> None:
        """Ask the providers for their models, if the configuration wants it. Run it as a background task."""
        if isinstance(session.choices, ModelChoices):
            await session.choices.fetch(self.catalog(settings))

    def script_folder(self) -> str:
        """Return a private folder for scripts that the editor's terminal runs. Raises OSError."""
        return self._scripts.path()


async def _sweep(folders: Sequence[str]) -> None:
    await to_thread.run_sync(sweep, folders, abandon_on_cancel=True)
