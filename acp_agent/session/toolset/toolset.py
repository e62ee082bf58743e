"""How the tools, gates and backends of a session are built from one configuration (see `reloading`)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Never

from anyio import to_thread

from acp_agent.agent.aids.arguments import Reformatter
from acp_agent.agent.tool_calls import ShownPlan
from acp_agent.config.agents_settings import AgentsSettings
from acp_agent.config.load import Loaded
from acp_agent.core.backends import FileSystem
from acp_agent.core.data import frozen
from acp_agent.core.delegation import SubAgents
from acp_agent.core.editor import SharedLanguages
from acp_agent.core.errors import AgentError, ConfigError, Refused
from acp_agent.core.ports import Backends, Elicitor, Invocation, Toolset
from acp_agent.core.services import Compressor, Memories, PastConversations, Web, WebCaller
from acp_agent.core.types import Access, Deny, ToolCall, ToolSpec, Verdict
from acp_agent.execution.runner import ArgumentRepairer, Catalogue, DynExecutor, GatedExecutor, ToolExecutor, ToolRunner
from acp_agent.execution.wrappers import ResultCache
from acp_agent.gates.gate import CallFacts, Gate, Gates
from acp_agent.gates.grounding import exists_in
from acp_agent.gates.shell.programs import runs_its_input
from acp_agent.log import Log
from acp_agent.output.filters.engine import FilterEngine
from acp_agent.output.redaction.redactor import Redactor
from acp_agent.session.mcp_connections import McpCatalogue
from acp_agent.session.session import Session
from acp_agent.session.toolset.backends import SessionBackends, seen_variables
from acp_agent.session.toolset.gate_factory import (
    GateContext,
    ResultWrappers,
    SessionGateState,
    build_executor,
    session_gates,
)
from acp_agent.session.toolset.settings import (
    FolderRules,
    RedactedMemories,
    filter_engine,
    pipeline,
)
from acp_agent.tools.agent import AgentAction, AgentTool, EvaluateTool, HandoffTool
from acp_agent.tools.bash import Bash
from acp_agent.tools.conversation import UpdatePlan
from acp_agent.tools.registry import Registry, ToolLimits, default_tools
from acp_agent.tools.tool import Tool
from acp_agent.workspace.changed_files import FileWatch, SessionSnapshots
from acp_agent.workspace.git.objects import SnapshotLimits
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.processes.terminal import LocalTerminal
from acp_agent.workspace.protected_paths import ProtectedPaths
from acp_agent.workspace.roots import ReadableFolder, Root, RootPool, Roots
from acp_agent.workspace.seen_files import SeenFiles
from acp_agent.workspace.undo import UndoError, report

if TYPE_CHECKING:
    from acp_agent.gates.hooks import ToolHooks
    from acp_agent.tools.custom import CustomTool

_log = Log(__name__)


@frozen
class ToolsetSnapshot:
    """The tools and the backends of a session under one configuration."""

    toolset: Toolset
    backends: Backends


_ADVICE = "No tool can help here: tell the user what to correct."


class DenyAllToolset:
    """A toolset that refuses everything for one reason. It replaces the catalogue, the gates, the files and the web."""

    def __init__(self, fault: AgentError) -> None:
        self._reason = f"{fault}. Nothing runs until this is corrected; the change then applies without a restart"

    # ---------------------------------------------------------------------------------- the catalogue

    def specs(self) -> Sequence[ToolSpec]:
        """Offer no tool."""
        return ()

    def is_starting(self, name: str) -> bool:
        """Return False."""
        del name
        return False

    async def wait_for(self, name: str) -> None:
        """Wait for nothing."""
        del name

    async def understand(self, call: ToolCall, files: FileSystem) -> Invocation:
        """Raise Refused: understanding a call would read files."""
        del call, files
        self._refuse()

    # ------------------------------------------------------------------------------- gates, files, web

    @property
    def gates(self) -> Gates:
        """Return one gate that denies every call."""
        return Gates((_DenyAll(self._reason),))

    def backends(self, cwd: str, open_root: Callable[[str], Root]) -> Backends:
        """Return backends that can neither read nor write. Raises ConfigError if the folder cannot be opened."""
        roots = Roots(cwd, policy=self._why_not, open_root=open_root)
        terminal = LocalTerminal()  # unreachable behind the gate
        return Backends(LocalFileSystem(roots), terminal, programs=terminal, web=self)

    async def get(self, url: str, caller: WebCaller, *, redirects: int = 3, truncate: bool = False) -> Never:
        """Raise Refused."""
        del url, caller, redirects, truncate
        self._refuse()

    def _why_not(self, path: str, access: Access) -> str:
        del path, access
        return self._reason

    def _refuse(self) -> Never:
        raise Refused(self._reason, _ADVICE)


class _DenyAll(Gate):
    name = "configuration"

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def allows(self, spec: ToolSpec) -> bool:
        """Offer no tool."""
        del spec
        return False

    def judge(self, facts: CallFacts) -> Verdict:
        del facts
        return Deny(self._reason)


@frozen
class ToolDependencies:
    """The dependencies of a session's tools, except files, terminals and the web.

    rules        returns what a configuration says about the session's folders
    memories     returns the notes of all sessions under a configuration, not redacted; None if memory is switched off
    past         the earlier conversations in the session's folder
    compressor   shortens the conversation
    reformatter  repairs arguments; None if that is switched off
    elicitor     shows forms to the user; None if the editor cannot
    languages    the editor's language servers; None if it does not share them
    plan         shows the plan of the model
    model        returns the model in force as `PROVIDER:MODEL`
    seen         the files that the session has read or written
    agents       the sub-agents
    brought      returns the tools for what the user defines, such as skills; the same object until they change
    skills       returns the folders of the user's own skills
    custom       returns the definitions of custom tools; the same object until they change
    hooks        returns the user's hooks; None if there are none
    """

    rules: Callable[[Loaded], FolderRules]
    memories: Callable[[Loaded], Memories | None]
    past: PastConversations
    compressor: Compressor
    reformatter: Reformatter | None
    elicitor: Elicitor | None
    languages: SharedLanguages | None
    plan: ShownPlan
    model: Callable[[], str]
    seen: SeenFiles
    agents: SubAgents
    brought: Callable[[], tuple[Tool[Any], ...]] = tuple
    skills: Callable[[], Sequence[ReadableFolder]] = tuple
    custom: Callable[[], tuple["CustomTool", ...]] = tuple
    hooks: Callable[[], "ToolHooks | None"] = lambda: None


class SessionTools:
    """A builder of snapshots of a session's toolset.

    cwd        the session's folder, links resolved
    gates      the gates of the last snapshot, in their order
    roots      the roots of the last snapshot; None if nothing may be read
    backends   the session's files, terminals and web
    watch      notes which files calls change, under the last configuration; None if that is switched off
    seen       the files that the session has read or written
    """

    def __init__(
        self,
        session: Session,
        cwd: str,
        backends: SessionBackends,
        state: SessionGateState,
        dependencies: ToolDependencies,
        redactor: Redactor,
        snapshots: SessionSnapshots,
    ) -> None:
        self._session = session
        self._cwd = cwd
        self.snapshots = snapshots
        self.watch: FileWatch | None = None
        self.backends = backends
        self._state = state
        self._needs = dependencies
        self._redactor = redactor
        self._cache = ResultCache(enabled=False)
        self._filters: FilterEngine | None = None
        self._brought: tuple[Tool[Any], ...] = ()
        self._skills: Sequence[ReadableFolder] = ()
        self._custom: tuple[CustomTool, ...] = ()
        self._hooks: ToolHooks | None = None
        self._faults: tuple[str, ...] = ()
        self._fault: ConfigError | None = None  # of the configuration that `closed` was called for
        self._folders = RootPool()
        self._is_lost = False
        self.gates = Gates()
        self.roots: Roots | None = None
        self.seen = dependencies.seen

    def turn_began(self) -> None:
        """Forget cached results, because the user may have changed files. Call it while no call runs."""
        self._cache.turn_began()
        self.snapshots.turn_began()
        self._folders.close_replaced()

    def close(self) -> None:
        """Close the session's folders. Nothing in them can be opened afterwards."""
        self.snapshots.close()
        self._folders.close()

    def runs_processes(self) -> bool:
        """Return whether anything runs in the background."""
        return bool(self.backends.processes.alive)

    async def end(self) -> None:
        """End the background processes, and close the session's folders."""
        await self.backends.end()
        self.close()

    def _types_commands(self, process: str) -> bool:
        """Return whether what is written to a background process may run as commands."""
        found = self.backends.processes.find(process)
        return found is not None and runs_its_input(found.command)

    async def restore(self, number: int | None, *, redo: bool) -> str:
        """Undo the agent's changes of a turn, or redo them. Return the message for the user. Raises UndoError."""
        if self._fault is not None:
            raise UndoError(f"The configuration is unusable: {self._fault}. Correct it, then try again.")
        if self.watch is None or self.watch.limits is None or self.roots is None:
            raise UndoError("Undo is off (`tools.undo.enabled`).")
        action = partial(self.snapshots.restore, self.roots, self.watch.limits, number, redo=redo)
        with self._cache.changing():
            restored = await to_thread.run_sync(action)
        return report(restored, self._cwd, redo=redo)

    def undo_status(self) -> Sequence[str]:
        """Return a line for /status if not every change can be undone."""
        if self._fault is not None:
            return ("Undo: off while the configuration is unusable",)
        off = self.watch is None or self.watch.limits is None
        why = "`tools.undo.enabled`" if off else "; ".join(dict.fromkeys(self.snapshots.troubles.values()))
        return (f"Undo: off, at least in part ({why})",) if why else ()

    def clear(self) -> None:
        """Drop the cached results."""
        self._cache.clear()

    @property
    def is_outdated(self) -> bool:
        """Whether the user's own tools, skills or hooks have changed since the last snapshot."""
        needs = self._needs
        other = needs.brought() is not self._brought or needs.custom() is not self._custom
        return other or needs.skills() != self._skills or needs.hooks() is not self._hooks

    def look(self) -> Sequence[str]:
        """Reread "always" answers and filter rules that were changed by hand. Return the new problems."""
        self._state.grants.refresh()
        before, now = self._faults, self._filters.warnings if self._filters else ()
        if now == before:
            return ()
        self._faults = now
        return [fault for fault in now if fault not in before]

    def lost_folder(self) -> str:
        """Return a warning if the session's folder was removed, moved or replaced since the last call, else ""."""
        was_lost, self._is_lost = self._is_lost, self._folders.has_lost(self._cwd)
        if was_lost or not self._is_lost:
            return ""
        return (
            f"the folder {self._cwd} was removed, moved or replaced while the session was open, and the file tools "
            "still work in the earlier folder; load the session again, or open another one"
        )

    def snapshot(self, loaded: Loaded, warn: Callable[[str], None]) -> ToolsetSnapshot:
        """Return the snapshot of one configuration. Raises ConfigError."""
        state, rules = self._state, self._needs.rules(loaded)
        loaded = rules.loaded
        for fault in rules.faults:
            warn(str(fault))
        opened = partial(rules.roots, open_root=self._folders.open, skills=self._needs.skills)
        roots, shell_roots = opened(), opened(for_shell=True)
        self._brought, self._skills, self._custom = self._needs.brought(), self._needs.skills(), self._needs.custom()
        self._hooks = self._needs.hooks()
        self.backends.adopt(rules.walls(self._skills))
        files, web = self.backends.files(roots), self.backends.web(loaded, state.auditor)
        registry = self._registry(loaded)
        context = self._gate_context(roots, shell_roots, web.refusal, rules.protected)
        kept = loaded.settings.tools.result_cache
        cache = ResultCache(enabled=kept.enabled, ttl=kept.ttl_secs, unsettled=self.runs_processes)
        filters = filter_engine(loaded)
        wrappers = ResultWrappers(
            pipeline(loaded, self._redactor, filters),
            cache,
            self.backends.stamp(roots),
            self._watch(loaded, roots),
            self.backends.clean_ups.start_last,
        )
        gates = session_gates(loaded, context, state, registry.names, warn, exists_in(files))
        backends = self._all_backends(loaded, files, web)
        runner = ToolRunner(backends, self._cwd, state.emit)
        executor = build_executor(loaded.settings, gates, state, wrappers, runner)
        catalogue = registry if state.servers is None else McpCatalogue(registry, state.servers)
        toolset = self._front_door(catalogue, executor, gates, backends)
        state.memory.limit(loaded.settings.tools)
        self._cache, self._filters, self.watch = cache, filters, wrappers.watch
        self.gates, self.roots, self._fault = gates, roots, None
        return ToolsetSnapshot(toolset, backends)

    def _watch(self, loaded: Loaded, roots: Roots) -> FileWatch | None:
        undo, shell = loaded.settings.tools.undo, loaded.settings.tools.shell
        most = min(undo.max_bytes, (shell.transactional and shell.max_snapshot_bytes) or undo.max_bytes)
        limits = SnapshotLimits(undo.max_file_bytes, most, undo.max_age_days) if undo.enabled else None
        if limits is None and not (shell.show_changes or shell.transactional):
            return None
        return FileWatch(roots, self.snapshots, limits)

    def _gate_context(
        self, files: Roots, shell: Roots, refuse_url: Callable[[str], Refused | None], protected: ProtectedPaths
    ) -> GateContext:
        session, memory = self._session, self._state.memory
        return GateContext(
            session.active,
            files,
            shell,
            refuse_url,
            session.workspace.tools,
            memory.urls,
            memory.trust,
            self._needs.model,
            self.backends.contained,
            lambda: session.only_tools,
            self._hooks,
            lambda: session.agent_tools,
            protected,
        )

    def _all_backends(self, loaded: Loaded, files: FileSystem, web: Web) -> Backends:
        memories = self._needs.memories(loaded)
        return Backends(
            files,
            self.backends.terminal,
            programs=self.backends.programs,
            web=web,
            overflow=self._state.overflow,
            memories=None if memories is None else RedactedMemories(memories, self._redactor),
            past=self._needs.past,
            compressor=self._needs.compressor,
            show_plan=self._needs.plan.show,
            elicitor=self._needs.elicitor,
            languages=self._languages(loaded),
            processes=self.backends.processes,
            agents=self._needs.agents,
        )

    def closed(self, fault: ConfigError) -> ToolsetSnapshot:
        """Return a snapshot that denies everything, because the rules cannot be read. Raises ConfigError."""
        closed = DenyAllToolset(fault)
        self.gates = Gates()
        self.roots = None
        self._fault = fault
        backends = closed.backends(self._cwd, self._folders.open)
        executor = GatedExecutor(closed.gates, ToolRunner(backends, self._cwd, self._state.emit))
        return ToolsetSnapshot(self._front_door(closed, executor, closed.gates, backends), backends)

    def _languages(self, loaded: Loaded) -> SharedLanguages | None:
        return self._needs.languages if loaded.settings.acp.lsp.enabled else None

    def _front_door(
        self, catalogue: Catalogue, executor: ToolExecutor, gates: Gates, backends: Backends
    ) -> DynExecutor:
        auditor, reformatter = self._state.auditor, self._needs.reformatter
        return DynExecutor(
            catalogue,
            executor,
            gates,
            files=backends.files,
            emit=self._state.emit,
            misunderstood=auditor and auditor.record,
            repairer=reformatter and ArgumentRepairer(reformatter, reformatter.name),
            redact=self._redactor,
        )

    def _registry(self, loaded: Loaded) -> Registry:
        """Return the tools. A custom tool that has the name of another one is left out."""
        if not loaded.settings.tools.enabled:
            return Registry(())
        own = (*self._tools(loaded), *self._brought)
        if not self._custom:
            return Registry(own)
        from acp_agent.tools.custom import CustomCommand  # noqa: PLC0415 - few users have custom tools

        taken = {tool.name for tool in own}
        bash = Bash(loaded.settings.tools.shell.max_timeout, reached=self.backends.reached, for_custom=True)
        seen = partial(seen_variables, loaded.settings)
        return Registry((*own, *(CustomCommand(each, bash, seen) for each in self._custom if each.name not in taken)))

    def _tools(self, loaded: Loaded) -> tuple[Tool[Any], ...]:
        settings, tools = loaded.settings, loaded.settings.tools
        limits = ToolLimits(
            command_seconds=tools.shell.max_timeout,
            read_chars=min(ToolLimits().read_chars, tools.overflow.threshold * 4 // 5),
            overflow_chars=min(ToolLimits().overflow_chars, tools.overflow.threshold * 4 // 5),
            diagnostics=tools.diagnostics.max_diagnostics,
            checker_seconds=tools.diagnostics.timeout,
            guards_secrets=tools.verifiers.firewall,
            redact=self._redactor,
        )
        asker = self._needs.elicitor
        own = default_tools(
            limits,
            self.seen,
            rich_kinds=settings.acp.rich_kinds,
            memory=settings.memory.enabled,
            compression=settings.agent.compress_context,
            questions=asker is not None and asker.forms,
            types_commands=self._types_commands,
            reached=self.backends.reached,
        )
        if settings.agents.enabled:
            own = self._with_agents(own, settings.agents)
        if settings.scheduler.tool and settings.scheduler.enabled:
            from acp_agent.tools.scheduler import SchedulerTool  # noqa: PLC0415 - few users switch it on

            own = (*own, SchedulerTool(lambda: self._session.scheduler))
        languages, lsp = self._languages(loaded), settings.acp.lsp
        if languages is None:
            return own
        from acp_agent.tools.lsp import LspLimits, lsp_tools  # noqa: PLC0415 - few editors share language servers

        shown = LspLimits(lsp.max_references, lsp.max_workspace_symbols, lsp.max_diagnostics_per_file)
        return (*own, *lsp_tools(languages.offers, shown))

    def _with_agents(self, own: tuple[Tool[Any], ...], settings: AgentsSettings) -> tuple[Tool[Any], ...]:
        """Return the tools with those for sub-agents. Where there is a board, it is the plan."""
        offered = self._needs.agents.offered
        own = (*own, AgentTool(offered), EvaluateTool(offered, for_model=settings.evaluate))
        own = (*own, AgentAction()) if settings.external else own
        own = (*own, HandoffTool()) if settings.handoff else own
        if not settings.board:
            return own
        from acp_agent.tools.board import Messages, Tasks  # noqa: PLC0415 - few sessions have a board

        return (*(tool for tool in own if tool.name != UpdatePlan.name), Tasks(), Messages())
