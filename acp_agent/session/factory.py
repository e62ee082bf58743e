"""One session, put together part by part: backends, gates, tools, conversation, loop."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from acp_agent.agent.aids.reformat import Reformatter
from acp_agent.agent.shown_plan import ShownPlan
from acp_agent.agent.turn import Agent
from acp_agent.config import Loaded
from acp_agent.core.conduct import Chosen, chosen
from acp_agent.core.errors import ConfigError
from acp_agent.core.events import Event, Notice, Severity, UsageChanged
from acp_agent.core.ports import Elicitor, Embedder
from acp_agent.core.sessions import SessionSnapshot
from acp_agent.gates.rules.trust_level import TrustLevel
from acp_agent.output.redacted_view import RedactedApprover, RedactedEvents
from acp_agent.output.sanitize import sanitize
from acp_agent.protocol.peer import Peer
from acp_agent.protocol.permission import EditorApprover
from acp_agent.protocol.shared_languages import complaints, languages
from acp_agent.session.conversation import Conversation, SessionLoop, history_of, offer
from acp_agent.session.engine import Kept, SessionEngine, TurnEngine
from acp_agent.session.mcp_servers import McpOfSession
from acp_agent.session.model_choices import ModelChoices
from acp_agent.session.models import SessionModels
from acp_agent.session.session import Session
from acp_agent.session.slash.handler import Reach, SessionDesk
from acp_agent.session.titles import Naming, Summarizer, Titles
from acp_agent.session.toolset.backends import SessionBackends, session_elicitor
from acp_agent.session.toolset.gate_factory import SessionGateState
from acp_agent.session.toolset.output import redactor
from acp_agent.session.toolset.project_notes import ProjectNotes
from acp_agent.session.toolset.session_tools import Helpers, SessionTools
from acp_agent.session.toolset.toolset import Builders, LiveToolset, same_model
from acp_agent.store.memories import MemoryStore

if TYPE_CHECKING:
    from acp_agent.session.processes import Workshop

_DAMAGED = "part of what was said before could not be read; the model does not know it"


class Assembly:
    """Puts one session together.

    Auditor, terminals, answers, conversation and what the gates remember are the session's; what hangs on `[tools]` of
    the configuration is a stage (`SessionTools`), built again when that changes.
    """

    tools: ClassVar[type[SessionTools]] = SessionTools

    def __init__(
        self,
        workshop: "Workshop",
        peer: Peer,
        session: Session,
        loaded: Loaded,
        reload: Callable[[Loaded], Loaded],
        saved: SessionSnapshot | None = None,
    ) -> None:
        self._workshop = workshop
        self._session = session
        self._loaded = loaded
        self._cwd = os.path.realpath(session.place.cwd)
        self._redactor = redactor(loaded, workshop.secrets, self._warn)
        session.redact = self._redactor
        self._emit = RedactedEvents(session.emit, self._redactor)
        self._models = SessionModels(workshop.catalog, self.in_force, self._redactor, self._tell, self._chosen)
        self._elicitor = session_elicitor(peer, session, self._redactor, loaded.settings.acp)
        session.languages = languages(peer, session, loaded)
        patience = loaded.settings.acp.question_timeout_secs
        approver = RedactedApprover(EditorApprover(peer, session.id, session.paths, patience), self._redactor)
        self._mcp = McpOfSession(workshop, session, approver, self._cwd, self._trusts_folder, self._asker)
        self._embedder = self._place_texts()
        self._lasting = self._remembered(approver)
        self._conversation = self._spoken(saved)
        before = () if saved is None else saved.history.messages
        self._kept = Kept(self._conversation.history, self._models, self._lasting.memory, self._redactor, before)
        if saved is not None:
            self._kept.take_up(saved.usage, saved.user_words)
        self._naming = Naming(session, self._titles(), workshop.background)
        self._notes = ProjectNotes(loaded.file, self._plain, self._warn_plainly)
        self._plan = ShownPlan(self._emit, self._redactor, () if saved is None else saved.plan)
        self._reformatter = self._mender()
        backends = SessionBackends(
            peer, session, loaded.settings, workshop.script_folder, self._emit, self._warn, workshop.watchdog
        )
        self._tools = self.tools(session, self._cwd, backends, self._lasting, self._helpers(), self._redactor)
        self.toolset = self._live(reload)

    def _live(self, reload: Callable[[Loaded], Loaded]) -> LiveToolset:
        builders = Builders(partial(self._reload, reload), self._tools.stage, self._tools.closed, self._adopt)
        try:
            return LiveToolset(self._loaded, builders, self._emit, self._tools.look)
        except BaseException:
            self._tools.close()
            raise

    def in_force(self) -> Loaded:
        """The configuration of the moment."""
        return self.toolset.loaded

    def engine(self) -> SessionEngine:
        """The whole of it."""
        toolset, conversation, memory = self.toolset, self._conversation, self._lasting.memory
        loop = SessionLoop(
            self._session,
            self._cwd,
            self.in_force,
            self._models,
            toolset,
            conversation,
            self._measured,
            self._project_notes,
        )
        desk = SessionDesk(
            self._session, self.in_force, conversation, self._models, memory, self._measured, self._more, self._servers
        )
        desk.reach = self._reach()
        self._mcp.start(toolset.loaded)

        async def agent() -> Agent:
            await self._mcp.ready()
            return await loop.agent()

        turns = TurnEngine(
            agent,
            toolset,
            toolset.backends,
            self._emit,
            desk,
            self._turn_began,
            self._redactor,
            self._complaints if self._session.languages else None,
        )
        return SessionEngine(turns, self._kept, self._naming, desk, toolset, self._mcp, self._tools.close)

    def _reach(self) -> Reach:
        return Reach(
            conduct_changed=self._session.conduct_changed,
            forget=self._forget,
            forget_results=self._tools.clear,
            models=self._choices,
            refresh_models=self._refresh_models,
            notes=lambda: self._memories(self.in_force()),
            gates=lambda: self._tools.gates,
        )

    # -------------------------------------------------------------------------------------- in a turn

    def _turn_began(self, typed: str) -> None:
        """The user has written, and may have changed files meanwhile."""
        memory = self._lasting.memory
        memory.learn(typed)
        memory.turn.turn_began()
        self._tools.turn_began()
        self._naming.began(typed)

    async def _forget(self) -> None:
        self._naming.forget()
        await self._plan.clear()  # first: also where the rest cannot be removed
        await self._session.forget()

    async def _complaints(self) -> str:
        backends = await self.toolset.backends()
        return await complaints(self._session.languages, backends.files, self._redactor)

    async def _refresh_models(self, provider: str) -> int:
        choices = self._choices()
        if choices is None:
            return 0
        return await choices.refresh(self._workshop.catalog(self.in_force().settings.llm), provider)

    def _choices(self) -> ModelChoices | None:
        choices = self._session.choices
        return choices if isinstance(choices, ModelChoices) else None

    def _asker(self) -> Elicitor | None:
        """Who asks the user what an MCP server wants to know; nobody while no turn runs."""
        return self._elicitor if self._session.turns.busy else None

    async def _measured(self, event: Event) -> None:
        """Take note of how full the model's window is."""
        if isinstance(event, UsageChanged):
            self._lasting.memory.turn.measured(event.used, event.size)
            event = self._kept.measured(event)
        await self._emit(event)

    async def _project_notes(self, loaded: Loaded) -> str:
        trusted = self._lasting.memory.standing.workspace.counts
        return await self._notes.block(loaded.settings.agent.instructions, trusted=trusted)

    def _trusts_folder(self, level: TrustLevel) -> None:
        """The user has spoken about the folder: what it says of itself, and what runs in it, goes by that (S4)."""
        self._lasting.memory.standing.workspace = level

    def _reload(self, reload: Callable[[Loaded], Loaded], before: Loaded) -> Loaded:
        self._workshop.credentials.introduce()  # a key may have been stored: it must not be shown
        return same_model(reload, before)

    def _adopt(self, loaded: Loaded) -> None:
        self._session.choices = self._workshop.choices(loaded)
        self._session.apply_config(loaded)
        self._mcp.start(loaded)

    async def _tell(self, status: str) -> None:
        await self._emit(Notice(Severity.INFO, status))

    # ------------------------------------------------------------------------------------------ parts

    def _spoken(self, saved: SessionSnapshot | None) -> Conversation:
        settings = self._loaded.settings
        return Conversation(
            settings,
            self._models,
            self._emit,
            self._redactor,
            self._workshop.summaries(self._session),
            lambda: self.toolset,
            offer(settings, self._embedder, self._mcp.servers.joining, self._warn, self._redactor),
            None if saved is None else history_of(saved, self._redactor, partial(self._warn_plainly, _DAMAGED)),
        )

    def _plain(self, text: str) -> str:
        return self._redactor(sanitize(text, terminal=False))

    def _chosen(self, model: str) -> Chosen:
        return chosen(self._session.active, self._session.choices, model)

    def _titles(self) -> Titles:
        return Titles(self._loaded.settings.memory.sessions, self._models.for_titles, self._redactor)

    def _helpers(self) -> Helpers:
        return Helpers(
            self._memories,
            self._conversation.compactor,
            self._reformatter,
            self._notes,
            self._elicitor,
            self._session.languages,
            self._plan,
            lambda: self._models.in_force,
        )

    def _remembered(self, approver: RedactedApprover) -> SessionGateState:
        settings, servers = self._loaded.settings, self._mcp.servers
        lasting = SessionGateState(
            approver,
            self._workshop.grants(settings.acp.permission_file),
            self._workshop.gate_memories.of(self._session.id, self._cwd, settings.tools),
            self._workshop.auditor(self._session, self._loaded, self._cwd, self._redactor),
            self._emit,
            self._workshop.overflow(self._session, self._loaded),
            Summarizer(self._models.for_chores) if settings.tools.overflow.summarize_output else None,
            servers,
        )
        lasting.memory.trust_served(servers.trust)
        return lasting

    def _mender(self) -> Reformatter | None:
        name = self._loaded.settings.tools.retry.parameter_reformat_provider
        return Reformatter(name, partial(self._models.for_chores, name), self._redactor) if name else None

    def _place_texts(self) -> Embedder | None:
        try:
            return self._models.embedder(self._loaded.settings.llm)
        except ConfigError as error:
            self._warn(f"{error}; texts are found by their words alone")
            return None

    def _memories(self, loaded: Loaded) -> MemoryStore | None:
        return self._workshop.memories(loaded, self._embedder)

    # ---------------------------------------------------------------------------------- for the user

    def _more(self) -> Sequence[str]:
        memories = self._memories(self.in_force())
        return (
            *((f"Memory: found by {memories.method}",) if memories else ()),
            *(self._reformatter.status() if self._reformatter else ()),
            *self._servers(),
        )

    def _servers(self) -> Sequence[str]:
        return self._mcp.servers.status()

    def _warn(self, problem: str) -> None:
        self._warn_plainly(f"configuration: {problem}")

    def _warn_plainly(self, problem: str) -> None:
        self._session.notices.warn(problem)
