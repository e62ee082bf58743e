"""One session, put together part by part: backends, gates, tools, loop."""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio.to_thread

from acp_agent.compose.closed import Closed
from acp_agent.compose.egress import log_egress
from acp_agent.compose.gates import Inner, Lasting, SessionGates
from acp_agent.compose.judging import Ground
from acp_agent.compose.loop import SessionLoop
from acp_agent.compose.memory import GateMemory
from acp_agent.compose.output import filter_engine, pipeline, redactor
from acp_agent.compose.reload import Builders, LiveToolset, Stage
from acp_agent.compose.session_roots import session_roots
from acp_agent.compose.summary import Summarizer
from acp_agent.config import Loaded, permission_file
from acp_agent.config.conduct import conduct_at_start
from acp_agent.core.backends import FileSystem, Terminal
from acp_agent.core.errors import BackendUnavailable, ConfigError, ProviderError, ProviderErrorKind
from acp_agent.core.events import Notice, Severity
from acp_agent.core.ports import Backends, Invocation, Provider, ToolContext, ToolExecutor
from acp_agent.core.types import ToolSpec
from acp_agent.execution.cache import ResultCache, Stamp
from acp_agent.execution.composite import CompositeFileSystem, CompositeTerminal
from acp_agent.execution.dyn import Catalogue, DynExecutor
from acp_agent.execution.file_stamp import file_stamp
from acp_agent.execution.local_files import LocalFileSystem
from acp_agent.execution.local_terminal import LocalTerminal
from acp_agent.execution.roots import Roots
from acp_agent.net.web import GuardedWeb, WebLimits
from acp_agent.output.filters import FilterEngine
from acp_agent.output.redacted_view import RedactedApprover, RedactedEvents, RedactedToolset
from acp_agent.protocol.approver import EditorApprover
from acp_agent.protocol.engine import TurnEngine
from acp_agent.protocol.peer import Peer
from acp_agent.protocol.proxy_files import ProxyFileSystem
from acp_agent.protocol.proxy_terminal import ProxyTerminal
from acp_agent.protocol.session import Session
from acp_agent.tools.registry import Registry, ToolLimits, default_tools
from acp_agent.tools.tool import Tool

if TYPE_CHECKING:
    from acp_agent.compose.workshop import Workshop

ChainBuilder: TypeAlias = Callable[[Callable[[Invocation], ToolContext]], ToolExecutor]


class Assembly:
    """Puts one session together, part by part.

    What hangs on `[tools]` of the configuration is a stage, built again when that changes. Auditor, terminals, answers
    and what the gates remember are the session's.
    """

    def __init__(self, workshop: "Workshop", peer: Peer, session: Session, loaded: Loaded) -> None:
        self._workshop = workshop
        self._peer = peer
        self._session = session
        self._loaded = loaded
        self._settings = loaded.settings
        self._cwd = os.path.realpath(session.place.cwd)
        self._cache = ResultCache(enabled=False)
        self._filters: FilterEngine | None = None
        self._faults: tuple[str, ...] = ()
        self._redactor = redactor(loaded, workshop.secrets, self._warn)
        session.redact = self._redactor
        self._emit = RedactedEvents(session.emit, self._redactor)
        approver = EditorApprover(peer, session.id, session.paths, self._settings.acp.question_timeout_secs)
        self._lasting = Lasting(
            RedactedApprover(approver, self._redactor),
            workshop.grants(permission_file(self._settings.acp.permission_file, os.environ)),
            GateMemory.new(self._settings.tools),
            workshop.auditor(session, loaded, self._cwd, self._redactor),
            self._emit,
            workshop.overflow(session, loaded),
            Summarizer(self._model) if self._settings.tools.overflow.summarize_output else None,
        )
        self._programs = self._local_terminal()
        self._terminal = self._any_terminal(self._programs)

    def engine(self, reload: Callable[[Loaded], Loaded]) -> TurnEngine:
        """The whole of it."""
        toolset = self.toolset(reload)
        loop = SessionLoop(self._workshop, self._session, lambda: toolset.loaded, toolset, self._cwd, self._emit)
        return TurnEngine(loop.agent, toolset, toolset.backends, self._emit, self._turn_began, self._redactor)

    def _turn_began(self, typed: str) -> None:
        """The user has written, and may have changed files meanwhile."""
        self._lasting.memory.urls.learn(typed)
        self._cache.turn_began()

    def toolset(self, reload: Callable[[Loaded], Loaded]) -> LiveToolset:
        """The session's tools, which follow the configuration."""
        builders = Builders(partial(_same_model, reload), self._stage, self._closed, self._adopt)
        return LiveToolset(self._loaded, builders, self._emit, self._look)

    def _look(self) -> Sequence[str]:
        """Take up stored answers and filter rules that were changed by hand; what is wrong now and was not before."""
        self._lasting.grants.refresh()
        before, self._faults = self._faults, self._filters.warnings if self._filters else ()
        return [fault for fault in self._faults if fault not in before]

    def _stage(self, loaded: Loaded, warn: Callable[[str], None]) -> Stage:
        """The tools by one configuration. Raises ConfigError."""
        place = self._session.place
        roots = session_roots(loaded, place.cwd, place.additional)
        shell_roots = session_roots(loaded, place.cwd, place.additional, for_shell=True)
        files, web = self._files(roots), self._web(loaded)
        registry = Registry(self._tools(loaded))
        ground = Ground(
            self._session.active,
            files.resolve,
            shell_roots,
            web.refusal,
            place.tools,
            self._lasting.memory.urls,
            self._lasting.memory.standing,
        )
        kept = loaded.settings.tools.result_cache
        self._cache = ResultCache(enabled=kept.enabled, ttl=kept.ttl_secs)
        self._filters = filter_engine(loaded)
        words = pipeline(loaded, self._redactor, self._filters)
        inner = Inner(words, self._cache, self._stamp(roots))
        gates = SessionGates(loaded, ground, self._lasting, inner, registry.names, warn)
        backends = Backends(files, self._terminal, programs=self._programs, web=web, overflow=self._lasting.overflow)
        toolset = self._front_door(registry, gates.chain, backends, gates.offers)
        self._lasting.memory.limit(loaded.settings.tools)
        return Stage(toolset, backends)

    def _closed(self, fault: ConfigError) -> Stage:
        """The tools while nobody knows what is forbidden: none. Raises ConfigError."""
        closed = Closed(fault)
        backends = closed.backends(self._cwd)
        return Stage(self._front_door(closed, closed.chain, backends, lambda _: False), backends)

    def _adopt(self, loaded: Loaded) -> None:
        self._session.begin_anew(conduct_at_start(loaded))

    def _front_door(
        self, catalogue: Catalogue, chain: ChainBuilder, backends: Backends, offers: Callable[[ToolSpec], bool]
    ) -> RedactedToolset:
        auditor = self._lasting.auditor
        toolset = DynExecutor(
            catalogue,
            chain,
            backends=backends,
            cwd=self._cwd,
            emit=self._emit,
            offers=offers,
            misunderstood=auditor and auditor.call,
        )
        return RedactedToolset(toolset, self._redactor)

    def _tools(self, loaded: Loaded) -> tuple[Tool[Any], ...]:
        tools = loaded.settings.tools
        limits = ToolLimits(
            command_seconds=tools.shell.max_timeout,
            overflow_chars=min(ToolLimits().overflow_chars, tools.overflow.threshold * 4 // 5),
            diagnostics=tools.diagnostics.max_diagnostics,
            checker_seconds=tools.diagnostics.timeout,
        )
        return default_tools(limits, rich_kinds=self._settings.acp.rich_kinds) if tools.enabled else ()

    def _files(self, roots: Roots) -> FileSystem:
        local = LocalFileSystem(roots)
        client = self._session.client
        if not (client.read_text_file or client.write_text_file):
            return local
        timeout = self._settings.acp.request_timeout_secs
        proxy = ProxyFileSystem(self._peer, self._session.id, client, local, self._session.paths, timeout)
        return CompositeFileSystem([proxy], local, self._fallen_back)

    def _stamp(self, roots: Roots) -> Stamp:
        """What tells states of a file apart. Where the editor owns the buffers nobody can: they need not be saved."""
        if self._session.client.read_text_file:
            return _unstamped
        return partial(file_stamp, roots)

    def _local_terminal(self) -> LocalTerminal:
        shell = self._settings.tools.shell
        try:
            return LocalTerminal(shell.env_allow, default_timeout=shell.timeout)
        except ConfigError as error:
            self._warn(str(error))
            return LocalTerminal(default_timeout=shell.timeout)

    def _any_terminal(self, local: Terminal) -> Terminal:
        if not self._session.client.terminal:
            return local
        acp = self._settings.acp
        proxy = ProxyTerminal(
            self._peer,
            self._session.id,
            self._session.paths,
            form=acp.terminal_form.value,
            folder=self._workshop.script_folder,
            shell="bash" if shutil.which("bash") else "sh",
            timeout=acp.terminal_timeout_secs,
            request_timeout=acp.request_timeout_secs,
        )
        return CompositeTerminal([proxy, local], self._fallen_back)

    def _web(self, loaded: Loaded) -> GuardedWeb:
        scrape, auditor = loaded.settings.tools.scrape, self._lasting.auditor
        return GuardedWeb(
            WebLimits(scrape.timeout, scrape.max_body_bytes),
            allowed_domains=scrape.allowed_domains,
            denied_domains=scrape.denied_domains,
            ports=scrape.ports,
            record=auditor.egress if auditor else log_egress,
        )

    async def _fallen_back(self, error: BackendUnavailable) -> None:
        await self._emit(Notice(Severity.WARNING, f"{error}; done without the editor instead"))

    async def _model(self) -> Provider:
        """The session's model. Raises AgentError."""
        settings = self._settings.llm
        if settings.model is None:
            raise ProviderError("no model is configured", kind=ProviderErrorKind.NOT_CONFIGURED)
        return await anyio.to_thread.run_sync(self._workshop.model, settings, abandon_on_cancel=True)

    def _warn(self, problem: str) -> None:
        self._session.add_notice(Notice(Severity.WARNING, f"configuration: {problem}"))


async def _unstamped(path: str) -> None:
    del path


def _same_model(reload: Callable[[Loaded], Loaded], before: Loaded) -> Loaded:
    """The configuration as it is now; but a session keeps its model, and so the choice of tools for it."""
    now = reload(before)
    if before.settings.llm.model is None:
        return now
    return replace(now, settings=now.settings.model_copy(update={"llm": before.settings.llm}))
