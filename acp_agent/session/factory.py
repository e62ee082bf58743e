"""The factory that builds the engine of a session: backends, gates, tools, notes, conversation and model."""

import os
from collections.abc import Callable, Collection, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from anyio import to_thread

from acp_agent.agent.aids.arguments import Reformatter
from acp_agent.agent.hooks import Hooks
from acp_agent.agent.tool_calls import ShownPlan
from acp_agent.agent.turn import Agent
from acp_agent.config.load import Loaded
from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import AgentError, ConfigError, LoginRequired, ToolError
from acp_agent.core.events import Event, Notice, Severity, UsageChanged
from acp_agent.core.ports import Backends, Elicitor, Embedder, Provider
from acp_agent.core.session_options import Chosen, chosen
from acp_agent.core.sessions import SessionSnapshot
from acp_agent.execution.audit import Caller
from acp_agent.extend.sources import ExtensionSources
from acp_agent.output.redacted_view import RedactedApprover, RedactedEvents
from acp_agent.output.sanitize import sanitize
from acp_agent.session.conversation import Conversation, DefinedAgent, SessionAgent, history_of, tool_selection
from acp_agent.session.engine import SessionEngine, SessionState, TurnEngine
from acp_agent.session.mcp_servers import SessionMcpServers
from acp_agent.session.model_choices import ModelChoices
from acp_agent.session.models import SessionModels
from acp_agent.session.session import Session
from acp_agent.session.slash.handler import CommandDependencies, SlashCommandHandler
from acp_agent.session.subagents import AgentLibrary, SessionHandoff, SessionSubAgents, SubAgentSession
from acp_agent.session.titles import Summarizer, TitleUpdater, TitleWriter
from acp_agent.session.toolset.backends import SessionBackends, recorder, reported_diagnostics, seen_variables
from acp_agent.session.toolset.extensions import SessionExtensions, kinds_wanted
from acp_agent.session.toolset.gate_factory import GateMemory, SessionGateState
from acp_agent.session.toolset.reloading import ReloadingToolset, same_model
from acp_agent.session.toolset.sandboxing import sandbox_status, session_sandbox
from acp_agent.session.toolset.settings import FolderRules, redactor
from acp_agent.session.toolset.toolset import SessionTools, ToolDependencies
from acp_agent.session.workspace_facts import EarlyLook, ProjectNotes, WorkspaceFacts
from acp_agent.store.memories import MemoryStore
from acp_agent.workspace.changed_files import SessionSnapshots
from acp_agent.workspace.roots import Roots
from acp_agent.workspace.sandbox.sandbox import SessionSandbox
from acp_agent.workspace.seen_files import SeenFiles
from acp_agent.workspace.undo import store_folder

if TYPE_CHECKING:
    from acp_agent.session.processes import ProcessServices
    from acp_agent.session.toolset.hooks import SessionHooks

_DAMAGED = "part of what was said before could not be read; the model does not know it"


class SessionFactory:
    """A factory for the engine of one session.

    The auditor, the terminals, the store of "always" answers, the conversation and the memory of the gates stay the
    same while the engine exists. The parts that depend on `[tools]` of the configuration form a snapshot of the
    toolset, which is built again when the configuration changes.
    """

    tools: ClassVar[type[SessionTools]] = SessionTools
    _index_look: EarlyLook[bool] | None = None

    def __init__(
        self,
        process: "ProcessServices",
        session: Session,
        loaded: Loaded,
        reload: Callable[[Loaded], Loaded],
        saved: SessionSnapshot | None = None,
    ) -> None:
        """Make the parts. `reload` reads the configuration again. `saved` is None for a new conversation."""
        self._process = process
        self._session = session
        self._loaded = loaded
        self._cwd = os.path.realpath(session.workspace.cwd)
        self._redactor = redactor(loaded, process.secrets, self._warn)
        self._emit = RedactedEvents(session.emit, self._redactor)
        self._models = SessionModels(process.catalog, self.in_force, self._redactor, self._tell, self._chosen)
        self.elicitor = self._make_elicitor()  # the only one, because it shows the questions one by one
        self._languages = session.share_languages(loaded)
        approver = RedactedApprover(session.editor.approver(loaded.settings.acp.question_timeout_secs), self._redactor)
        memory = process.gate_memories.of(session.id, self._cwd, loaded.settings.tools)
        answered = memory.trust.trust_folder
        self._mcp = SessionMcpServers(process, session, approver, self._cwd, self._redactor, answered, self.elicitor)
        self._embedder = self._make_embedder()
        self._gate_state = self._make_gate_state(approver, memory)
        self._extensions = self._make_extensions(approver)
        self._plan = self._make_plan(saved)
        self._agents = self._make_agents()
        self._handoff = self._make_handoff()
        self._conversation = self._make_conversation(saved)
        before = () if saved is None else saved.history.messages
        seen = SeenFiles(lambda: self._tools.roots, self._redactor, {} if saved is None else saved.seen)
        self._state = SessionState(self._conversation.history, self._models, memory, self._redactor, before, seen.kept)
        if saved is not None:
            self._state.restore(saved.usage, saved.user_words)
        writer = TitleWriter(loaded.settings.memory.sessions, self._models.for_titles, self._redactor)
        self._titles = TitleUpdater(session, writer, process.background, process.title_slot)
        self._notes = ProjectNotes(loaded.file, self._plain, self._warn_plainly)
        self._reformatter = self._make_reformatter()
        self._tools = self._make_tools(seen)
        self.toolset = self._make_toolset(reload)

    def engine(self) -> SessionEngine:
        """Return the engine, and start the session's MCP servers."""
        self._agent = self._make_agent()
        self._extensions.refresh()
        facts = self._make_facts()
        handler = SlashCommandHandler(
            self._session,
            self.in_force,
            self._conversation,
            self._models,
            self._gate_state.memory,
            self._measured,
            self.toolset,
            self._command_dependencies(facts),
        )
        self._mcp.start(self.toolset.loaded)

        async def prepared() -> Agent:
            await self._mcp.ready()
            agent = await self._agent.agent()
            await self._session.transcript.shown()  # stores the prompt before a model is asked
            return agent

        turns = TurnEngine(
            prepared,
            self._backends,
            self._emit,
            handler,
            self._turn_began,
            self._redactor,
            self._diagnostics if self._languages else None,
            facts,
        )
        turns.look_around()
        parts = turns, self._state, self._titles, handler, self.toolset, self._mcp, self._tools
        return SessionEngine(*parts, self._quiet)

    async def _backends(self) -> Backends:
        """Return the backends for a prompt, after all cancelled commands have ended."""
        await self._tools.backends.clean_ups.over()
        if (watch := self._tools.watch) is not None and watch.is_large:
            self._process.background(partial(to_thread.run_sync, watch.prepare, abandon_on_cancel=True))
        return await self.toolset.backends()

    async def _quiet(self) -> None:
        await self._process.quiet()
        await self._tools.backends.clean_ups.over()

    def in_force(self) -> Loaded:
        return self.toolset.loaded

    # -------------------------------------------------------------------------------------- in a turn

    def _turn_began(self, typed: str) -> None:
        """Prepare the parts for a new prompt."""
        memory = self._gate_state.memory
        memory.learn(typed)
        memory.turn.turn_began()
        self._tools.turn_began()
        self._plan.turn_began()
        self._titles.began(typed)

    async def _forget(self) -> None:
        self._titles.forget()
        self._tools.seen.clear()
        await self._plan.clear()  # first, so that it happens even if the next step fails
        await self._session.forget()

    async def _diagnostics(self) -> str:
        if self._languages is None:
            return ""
        backends = await self.toolset.backends()
        return self._redactor(await reported_diagnostics(self._languages, backends.files))

    def _trusted_roots(self) -> Roots | None:
        """Return the roots, or None if the user does not trust the folder or nothing in it may be read."""
        return None if self._gate_state.memory.trust.workspace.counts is False else self._tools.roots

    async def _refresh_models(self, provider: str) -> int:
        choices = self._choices()
        if choices is None:
            return 0
        return await choices.refresh(self._process.catalog(self.in_force().settings.llm), provider)

    def _choices(self) -> ModelChoices | None:
        choices = self._session.choices
        return choices if isinstance(choices, ModelChoices) else None

    async def _measured(self, event: Event) -> None:
        """Record how full the model's window is, then show the event."""
        if isinstance(event, UsageChanged):
            self._gate_state.memory.turn.measured(event.used, event.size)
            event = self._state.measured(event)
        await self._emit(event)

    async def _project_notes(self, loaded: Loaded) -> str:
        trusted = self._gate_state.memory.trust.workspace.counts
        notes = await self._notes.block(loaded.settings.agent.instructions, self._tools.roots, trusted=trusted)
        return "\n\n".join(filter(None, (self._extensions.prompt(loaded.settings), notes)))

    def _early_looks(self, facts: WorkspaceFacts, devices: Collection[int]) -> Sequence[EarlyLook[Any]]:
        """Return the reads of the disk that the next prompt needs.

        devices   the numbers of the devices (file systems) that answer at once. An earlier read is reused if it saw
                  only files on these and none has changed
        """
        trusted, settings = self._gate_state.memory.trust.workspace.counts, self.in_force().settings
        notes, roots, watch = settings.agent.instructions, self._tools.roots, self._tools.watch
        looks: list[EarlyLook[Any] | None] = [
            self._notes.look_early(notes, roots, trusted=trusted, devices=devices),
            facts.look_early(devices=devices),
        ]
        last = self._index_look
        if watch is not None and (last is None or not last.renewed((watch,), devices)):
            self._index_look = EarlyLook((watch,), watch.measure)
            looks.append(self._index_look)
        return [look for look in looks if look is not None]

    def _adopt(self, loaded: Loaded) -> None:
        self._session.offer(self._process.choices(loaded))
        self._session.apply_config(loaded)
        self._mcp.start(loaded)

    async def _tell(self, status: str) -> None:
        await self._emit(Notice(Severity.INFO, status))

    def _highest_id(self, prefix: str) -> int:
        return self._conversation.highest_id(prefix)

    # ------------------------------------------------------------------------------------------ parts

    def _make_toolset(self, reload: Callable[[Loaded], Loaded]) -> ReloadingToolset:
        def reloaded(before: Loaded) -> Loaded:
            self._process.credentials.introduce()  # so that a stored key is redacted
            return same_model(reload, before)

        try:
            return ReloadingToolset(self._loaded, self._tools, reloaded, self._adopt, self._emit)
        except BaseException:
            self._tools.close()
            raise

    def _make_conversation(self, saved: SessionSnapshot | None) -> Conversation:
        settings = self._loaded.settings
        joining = self._mcp.connections.joining
        return Conversation(
            settings,
            self._models,
            self._emit,
            self._redactor,
            self._process.summaries(self._session),
            lambda: self.toolset,
            Hooks(
                tool_selection(settings, self._embedder, joining, self._warn, self._redactor),
                reports=self._agents,
                checks=self._agents,
                printed=self._printed,
            ),
            None if saved is None else history_of(saved, self._redactor, partial(self._warn_plainly, _DAMAGED)),
        )

    def _printed(self, call_id: str) -> str:
        """Return what a cancelled command had printed. Empty in an untrusted folder: no gate has seen this text."""
        return self._emit.output_of_cancelled(call_id) if self._gate_state.memory.trust.workspace.counts else ""

    def _make_tools(self, seen: SeenFiles) -> SessionTools:
        session, process = self._session, self._process
        highest_id = partial(self._highest_id, "p")
        settings, sandbox = self._loaded.settings, self._sandbox()
        backends = SessionBackends(process, session, settings, sandbox, self._emit, self._warn, highest_id)
        needs = ToolDependencies(
            self._rules,
            self._memories,
            process.past(session),
            self._conversation.compactor,
            self._reformatter,
            self.elicitor,
            self._languages,
            self._plan,
            lambda: self._models.in_force,
            seen,
            self._agents,
            self._extensions.tools,
            self._extensions.skills.folders,
            self._extensions.custom_tools,
            self._hooks,
        )
        snapshots = SessionSnapshots(store_folder(process.data_file("undo"), self._cwd), session.id)
        return self.tools(session, self._cwd, backends, self._gate_state, needs, self._redactor, snapshots)

    def _sandbox(self) -> SessionSandbox | None:
        """Return the sandbox; None if the settings want none, or if its rules cannot be read (the gates deny all)."""
        try:
            walls = self._rules(self._loaded).walls()
        except ConfigError:
            return None
        record = recorder(self._gate_state.auditor)
        sandbox = walls and session_sandbox(walls, self._loaded.settings, self._warn, record)
        if sandbox is not None:
            self._process.sandboxes.add(sandbox)
        return sandbox

    def _rules(self, loaded: Loaded) -> FolderRules:
        return self._process.rules(loaded, self._session.workspace.folders)

    def _make_gate_state(self, approver: RedactedApprover, memory: GateMemory) -> SessionGateState:
        settings, connections = self._loaded.settings, self._mcp.connections
        memory.trust_served(connections.trust)

        def sandbox(editor: bool) -> str:  # noqa: FBT001 - a callback
            return self._tools.backends.sandbox_around(editor=editor)

        def turn() -> str:
            turns = self._session.turns
            return "schedule" if turns.busy and turns.scheduled else ""

        caller = Caller(self._session.id, self._cwd, memory.trust.of, sandbox, turn)
        return SessionGateState(
            approver,
            self._process.grants(settings.acp.permission_file),
            memory,
            self._process.auditor(caller, self._loaded, self._redactor),
            self._emit,
            self._process.overflow(self._session, self._loaded),
            Summarizer(self._models.for_chores) if settings.tools.overflow.summarize_output else None,
            connections,
            self.elicitor,
            self._models.opinion,
            self._redactor,
        )

    def _make_agent(self) -> SessionAgent:
        return SessionAgent(
            self._session,
            self._cwd,
            self._models,
            self.toolset,
            self._conversation,
            self._measured,
            lambda: self._project_notes(self.in_force()),
            self._defined_agent,
        )

    def _defined_agent(self) -> DefinedAgent | None:
        """Return the agent to which the session was handed over; None for its own. Raises AgentError."""
        definition, agents = self._handoff.settle(), self._agents
        if definition is None:
            return None

        async def provider() -> Provider | None:
            return await agents.provider(definition) if definition.model else None

        return DefinedAgent(provider, partial(agents.prompt, definition))

    async def _hand_over(self, agent: str) -> str:
        """Hand the session over to an agent from the next model call on. If it raises ToolError, nothing changes."""
        before = self._handoff.name
        told = await self._handoff.to(agent)
        try:
            await self._agent.agent()
        except (AgentError, LoginRequired) as error:  # the session's own model is not configured
            self._handoff.put(before)
            advice = "Tell the user. Go on with the task yourself."
            raise ToolError.permanent(str(error), advice) from error
        return told

    def _make_agents(self) -> SessionSubAgents:
        process, overflow = self._process, self._gate_state.overflow

        async def keep(text: str) -> str:
            clean = await to_thread.run_sync(self._redactor, text)
            return "" if overflow is None else await overflow.put(clean)

        return SessionSubAgents(
            SubAgentSession(
                self._session,
                self._cwd,
                self.in_force,
                self._models,
                lambda: self.toolset,
                self._project_notes,
                lambda: self._conversation.limits,
                lambda history, emit, budget: self._conversation.compactor_of(history, emit, budget),  # noqa: PLW0108
                self._server_names,
                self._extensions.skill_texts,
                lambda: None if self._tools.watch is None else self._tools.snapshots.changes,
                self._files,
                lambda path, text: self._tools.seen.has(path, text),  # noqa: PLW0108 - they are made later
                self._redactor,
                process.secrets.add,
                process.data_file("servers"),
                self._highest_id,
            ),
            self._extensions.agents,
            self._emit,
            process.background,
            keep,
            process.run_slots,
            self._hand_over,
            self._plan,
        )

    def _make_handoff(self) -> SessionHandoff:
        agents, model = self._extensions.agents, self._agents.provider
        return SessionHandoff(self._session, agents, self._server_names, self.in_force, model)

    def _make_plan(self, saved: SessionSnapshot | None) -> ShownPlan:
        if saved is None:
            return ShownPlan(self._emit, self._redactor)
        tasks = saved.tasks
        if tasks:
            from acp_agent.subagents.board import abandoned  # noqa: PLC0415 - few sessions have a board

            tasks = abandoned(tasks)
        return ShownPlan(self._emit, self._redactor, saved.plan, tasks)

    async def _files(self) -> FileSystem:
        return (await self.toolset.backends()).files

    def _server_names(self) -> Sequence[str]:
        return [each.server.name for each in self._mcp.connections.listed()]

    def _external_agents(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.in_force().settings.agents.external if each.enabled)

    def _make_facts(self) -> WorkspaceFacts:
        messages = self._conversation.history.messages
        return WorkspaceFacts(
            self._trusted_roots,
            self._tools.seen.changed,
            messages,
            self._plain,
            lambda: self._process.folder_look(self.in_force(), self._session.workspace.folders),
            unchanged=self._tools.seen.is_unchanged,
            wanted=lambda: self.in_force().settings.agent.facts,
        )

    def _make_extensions(self, approver: RedactedApprover) -> SessionExtensions:
        store, file = self._process.trusted_folders, self._loaded.file
        kinds = kinds_wanted(self._loaded.settings)
        sources = ExtensionSources(file, self._cwd, store, kinds, lambda: self.in_force().settings.skills.home)
        return SessionExtensions(
            sources,
            self._trusted_roots,
            approver,
            self._session.active,
            self._plain,
            self._warn_plainly,
            AgentLibrary(self._plain, self._external_agents),
            lambda: seen_variables(self.in_force().settings),
        )

    def _hooks(self) -> "SessionHooks | None":
        """Return the user's hooks; None if there are none. The object stays the same when hook files change."""
        library = self._extensions.hooks
        return self._session_hooks if library is not None and library.all else None

    @cached_property
    def _session_hooks(self) -> "SessionHooks":
        from acp_agent.session.toolset.hooks import HookDependencies, SessionHooks  # noqa: PLC0415 - few have hooks

        needs = HookDependencies(
            self._session.id,
            self._cwd,
            self._tools.backends.programs,
            lambda: self._tools.gates,
            self.toolset.backends,
            self._mcp.connections.understand,
            self._gate_state.auditor,
            self._plain,
            self._warn_plainly,
            self._process.background,
            lambda: str(self._session.active.mode),
            lambda: self._handoff.name,
        )
        assert self._extensions.hooks is not None
        return SessionHooks(self._extensions.hooks, needs)

    def _make_elicitor(self) -> Elicitor | None:
        acp, session = self._loaded.settings.acp, self._session
        if not acp.elicitation:
            return None
        timeout = acp.elicitation_timeout_secs
        return session.editor.elicitor(self._redactor, timeout, wanted=lambda: session.turns.going_on)

    def _make_embedder(self) -> Embedder | None:
        try:
            return self._models.embedder(self._loaded.settings.llm)
        except ConfigError as error:
            self._warn(f"{error}; texts are found by their words alone")
            return None

    def _make_reformatter(self) -> Reformatter | None:
        name = self._loaded.settings.tools.retry.parameter_reformat_provider
        return Reformatter(name, partial(self._models.for_chores, name), self._redactor) if name else None

    def _command_dependencies(self, facts: WorkspaceFacts) -> CommandDependencies:
        return CommandDependencies(
            forget=self._forget,
            forget_results=self._tools.clear,
            models=self._choices,
            refresh_models=self._refresh_models,
            notes=lambda: self._memories(self.in_force()),
            gates=lambda: self._tools.gates,
            more=self._more_status,
            servers=self._mcp.connections.status,
            restore=self._tools.restore,
            extensions=self._extensions,
            hooks=self._hooks,
            agents=self._agents,
            look_early=lambda devices: self._early_looks(facts, devices),
            handoff=self._handoff,
            record=self._gate_state.auditor and self._gate_state.auditor.record,
            look_threads=self._process.look_threads,
        )

    def _chosen(self, model: str) -> Chosen:
        return chosen(self._session.active, self._session.choices, model)

    def _memories(self, loaded: Loaded) -> MemoryStore | None:
        return self._process.memories(loaded, self._embedder)

    # ---------------------------------------------------------------------------------- for the user

    def _more_status(self) -> Sequence[str]:
        memories = self._memories(self.in_force())
        return (
            f"Sandbox: {sandbox_status(self._loaded.settings)}",
            *((f"Memory: notes are found by their {memories.method}",) if memories else ()),
            *(self._reformatter.status() if self._reformatter else ()),
            *self._tools.undo_status(),
            *self._mcp.connections.status(),
            *self._extensions.status(),
            *self._handoff.status(),
        )

    def _plain(self, text: str) -> str:
        return self._redactor(sanitize(text, terminal=False))

    def _warn(self, problem: str) -> None:
        self._warn_plainly(f"configuration: {problem}")

    def _warn_plainly(self, problem: str) -> None:
        self._session.notices.warn(problem)
