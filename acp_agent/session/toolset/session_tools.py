"""The tools of a session by one configuration, built again when `[tools]` changes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from acp_agent.agent.aids.arguments import Reformatter
from acp_agent.agent.tool_calls import ShownPlan
from acp_agent.config import Loaded
from acp_agent.core.backends import FileSystem
from acp_agent.core.editor import SharedLanguages
from acp_agent.core.errors import ConfigError
from acp_agent.core.ports import Backends, Elicitor
from acp_agent.core.services import Compressor, Memories, Web
from acp_agent.execution.argument_repair import ArgumentRepairer
from acp_agent.execution.cache import ResultCache
from acp_agent.execution.runner import Catalogue, DynExecutor, GatedExecutor, ToolExecutor, ToolRunner
from acp_agent.gates.gate import Gates
from acp_agent.gates.grounding import exists_in
from acp_agent.output.filters.engine import FilterEngine
from acp_agent.output.redaction.redactor import Redactor
from acp_agent.session.mcp_connections import McpCatalogue
from acp_agent.session.session import Session
from acp_agent.session.slash.handler import RedactedMemories
from acp_agent.session.toolset.backends import SessionBackends
from acp_agent.session.toolset.gate_factory import (
    GateContext,
    ResultWrappers,
    SessionGateState,
    build_executor,
    session_gates,
)
from acp_agent.session.toolset.output import filter_engine, pipeline
from acp_agent.session.toolset.roots import session_roots, without_faulty_patterns
from acp_agent.session.toolset.toolset import DenyAllToolset, ToolsetSnapshot
from acp_agent.tools.registry import Registry, ToolLimits, default_tools
from acp_agent.tools.tool import Tool
from acp_agent.workspace.roots import RootPool, Roots


@dataclass(frozen=True, slots=True)
class ToolDependencies:
    """The dependencies of a session's tools, except files, terminals and the web.

    memories     returns the notes of all sessions under a configuration, not redacted; None if memory is switched off
    compressor   shortens the conversation
    reformatter  repairs arguments; None if that is switched off
    elicitor     shows forms to the user; None if the editor cannot
    languages    the editor's language servers; None if it does not share them
    plan         shows the plan of the model
    model        returns the model in force as `PROVIDER:MODEL`
    """

    memories: Callable[[Loaded], Memories | None]
    compressor: Compressor
    reformatter: Reformatter | None
    elicitor: Elicitor | None
    languages: SharedLanguages | None
    plan: ShownPlan
    model: Callable[[], str]


class SessionTools:
    """A builder of snapshots of a session's toolset.

    cwd     the session's folder, links resolved
    gates   the gates of the last snapshot, in their order
    roots   the roots of the last snapshot; None if nothing may be read
    """

    def __init__(
        self,
        session: Session,
        cwd: str,
        backends: SessionBackends,
        lasting: SessionGateState,
        dependencies: ToolDependencies,
        redactor: Redactor,
    ) -> None:
        self._session = session
        self._cwd = cwd
        self._backends = backends
        self._lasting = lasting
        self._needs = dependencies
        self._redactor = redactor
        self._cache = ResultCache(enabled=False)
        self._filters: FilterEngine | None = None
        self._faults: tuple[str, ...] = ()
        self._folders = RootPool()
        self.gates = Gates()
        self.roots: Roots | None = None

    def turn_began(self) -> None:
        """Forget cached results, because the user may have changed files. No earlier call is still running."""
        self._cache.turn_began()
        self._folders.close_replaced()

    def close(self) -> None:
        """Close the session's folders. Nothing in them can be opened afterwards."""
        self._folders.close()

    def clear(self) -> None:
        """Drop the cached results."""
        self._cache.clear()

    def look(self) -> Sequence[str]:
        """Reread "always" answers and filter rules that were changed by hand. Return the new problems."""
        self._lasting.grants.refresh()
        before, self._faults = self._faults, self._filters.warnings if self._filters else ()
        return [fault for fault in self._faults if fault not in before]

    def snapshot(self, loaded: Loaded, warn: Callable[[str], None]) -> ToolsetSnapshot:
        """Return the snapshot of one configuration. Raises ConfigError."""
        workspace, lasting = self._session.workspace, self._lasting
        loaded, faults = without_faulty_patterns(loaded, workspace.folders)
        for fault in faults:
            warn(str(fault))
        opened = partial(session_roots, loaded, workspace.cwd, workspace.additional, open_root=self._folders.open)
        roots, shell_roots = opened(), opened(for_shell=True)
        files, web = self._backends.files(roots), self._backends.web(loaded, lasting.auditor)
        registry = Registry(self._tools(loaded))
        active, memory = self._session.active, lasting.memory
        standing, model = memory.standing, self._needs.model
        context = GateContext(
            active, files.resolve, shell_roots, web.refusal, workspace.tools, memory.urls, standing, model
        )
        kept = loaded.settings.tools.result_cache
        self._cache = ResultCache(enabled=kept.enabled, ttl=kept.ttl_secs)
        self._filters = filter_engine(loaded)
        words = pipeline(loaded, self._redactor, self._filters)
        wrappers = ResultWrappers(words, self._cache, self._backends.stamp(roots))
        gates = session_gates(loaded, context, lasting, registry.names, warn, exists_in(files))
        backends = self._all_backends(loaded, files, web)
        runner = ToolRunner(backends, self._cwd, lasting.emit)
        executor = build_executor(loaded.settings, gates, lasting, wrappers, runner)
        toolset = self._front_door(_catalogue(registry, lasting), executor, gates, backends)
        memory.limit(loaded.settings.tools)
        self.gates = gates
        self.roots = roots
        return ToolsetSnapshot(toolset, backends)

    def _all_backends(self, loaded: Loaded, files: FileSystem, web: Web) -> Backends:
        memories = self._needs.memories(loaded)
        return Backends(
            files,
            self._backends.terminal,
            programs=self._backends.programs,
            web=web,
            overflow=self._lasting.overflow,
            memories=None if memories is None else RedactedMemories(memories, self._redactor),
            compressor=self._needs.compressor,
            show_plan=self._needs.plan.show,
            elicitor=self._needs.elicitor,
            languages=self._languages(loaded),
        )

    def closed(self, fault: ConfigError) -> ToolsetSnapshot:
        """Return a snapshot that denies everything, because the rules cannot be read. Raises ConfigError."""
        closed = DenyAllToolset(fault)
        self.gates = Gates()
        self.roots = None
        backends = closed.backends(self._cwd, self._folders.open)
        executor = GatedExecutor(closed.gates, ToolRunner(backends, self._cwd, self._lasting.emit))
        return ToolsetSnapshot(self._front_door(closed, executor, closed.gates, backends), backends)

    def _languages(self, loaded: Loaded) -> SharedLanguages | None:
        return self._needs.languages if loaded.settings.acp.lsp.enabled else None

    def _front_door(
        self, catalogue: Catalogue, executor: ToolExecutor, gates: Gates, backends: Backends
    ) -> DynExecutor:
        auditor, reformatter = self._lasting.auditor, self._needs.reformatter
        return DynExecutor(
            catalogue,
            executor,
            gates,
            files=backends.files,
            emit=self._lasting.emit,
            misunderstood=auditor and auditor.record_misunderstood,
            repairer=reformatter and ArgumentRepairer(reformatter, reformatter.name),
            redact=self._redactor,
        )

    def _tools(self, loaded: Loaded) -> tuple[Tool[Any], ...]:
        settings, tools = loaded.settings, loaded.settings.tools
        limits = ToolLimits(
            command_seconds=tools.shell.max_timeout,
            overflow_chars=min(ToolLimits().overflow_chars, tools.overflow.threshold * 4 // 5),
            diagnostics=tools.diagnostics.max_diagnostics,
            checker_seconds=tools.diagnostics.timeout,
            guards_secrets=tools.verifiers.firewall,
        )
        if not tools.enabled:
            return ()
        asker = self._needs.elicitor
        own = default_tools(
            limits,
            rich_kinds=settings.acp.rich_kinds,
            memory=settings.memory.enabled,
            compression=settings.agent.compress_context,
            questions=asker is not None and asker.forms,
        )
        languages, lsp = self._languages(loaded), settings.acp.lsp
        if languages is None:
            return own
        from acp_agent.tools.lsp import LspLimits, lsp_tools  # noqa: PLC0415 - few editors share language servers

        shown = LspLimits(lsp.max_references, lsp.max_workspace_symbols, lsp.max_diagnostics_per_file)
        return (*own, *lsp_tools(languages.offers, shown))


def _catalogue(registry: Registry, lasting: SessionGateState) -> Catalogue:
    return registry if lasting.servers is None else McpCatalogue(registry, lasting.servers)
