"""One session, put together part by part: backends, gates, tools, loop."""

import os
import shutil
from typing import TYPE_CHECKING, Any

from acp_agent.compose.egress import log_egress
from acp_agent.compose.gates import Consent, SessionGates
from acp_agent.compose.loop import SessionLoop
from acp_agent.compose.session_roots import session_roots
from acp_agent.config import Loaded, permission_file
from acp_agent.core.backends import FileSystem, Terminal
from acp_agent.core.errors import BackendUnavailable, ConfigError
from acp_agent.core.events import Notice, Severity
from acp_agent.core.ports import Backends
from acp_agent.execution.audit import Auditor
from acp_agent.execution.composite import CompositeFileSystem, CompositeTerminal
from acp_agent.execution.dyn import DynExecutor
from acp_agent.execution.local_files import LocalFileSystem
from acp_agent.execution.local_terminal import LocalTerminal
from acp_agent.net.web import GuardedWeb, WebLimits
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


class Assembly:
    """Puts one session together, part by part."""

    def __init__(self, workshop: "Workshop", peer: Peer, session: Session, loaded: Loaded) -> None:
        self._workshop = workshop
        self._peer = peer
        self._session = session
        self._loaded = loaded
        self._settings = loaded.settings
        place = session.place
        self._roots = session_roots(loaded, place.cwd, place.additional)
        self._shell_roots = session_roots(loaded, place.cwd, place.additional, for_shell=True)

    def engine(self) -> TurnEngine:
        """The whole of it."""
        auditor = self._workshop.auditor(self._session, self._loaded, self._roots.cwd)
        files, web = self._files(), self._web(auditor)
        local_terminal = self._local_terminal()
        grants = self._workshop.grants(permission_file(self._settings.acp.permission_file, os.environ))
        registry = Registry(self._tools())
        gates = SessionGates(
            self._session,
            self._loaded,
            registry.names,
            files=files,
            shell_roots=self._shell_roots,
            web=web,
            consent=Consent(
                EditorApprover(
                    self._peer,
                    self._session.id,
                    self._session.paths,
                    self._settings.acp.question_timeout_secs,
                ),
                grants,
            ),
            auditor=auditor,
        )
        toolset = DynExecutor(
            registry,
            gates.chain,
            backends=Backends(files, self._terminal(local_terminal), programs=local_terminal, web=web),
            cwd=self._roots.cwd,
            emit=self._session.emit,
            offers=gates.offers,
            misunderstood=auditor and auditor.call,
        )
        loop = SessionLoop(self._workshop, self._session, self._loaded, toolset, self._roots)
        return TurnEngine(loop.agent, toolset, files, web, self._session.emit, learn=gates.urls.learn)

    def _tools(self) -> tuple[Tool[Any], ...]:
        tools = self._settings.tools
        limits = ToolLimits(
            command_seconds=tools.shell.max_timeout,
            diagnostics=tools.diagnostics.max_diagnostics,
            checker_seconds=tools.diagnostics.timeout,
        )
        return default_tools(limits, rich_kinds=self._settings.acp.rich_kinds) if tools.enabled else ()

    def _files(self) -> FileSystem:
        local = LocalFileSystem(self._roots)
        client = self._session.client
        if not (client.read_text_file or client.write_text_file):
            return local
        timeout = self._settings.acp.request_timeout_secs
        proxy = ProxyFileSystem(self._peer, self._session.id, client, local, self._session.paths, timeout)
        return CompositeFileSystem([proxy], local, self._fallen_back)

    def _local_terminal(self) -> LocalTerminal:
        shell = self._settings.tools.shell
        try:
            return LocalTerminal(shell.env_allow, default_timeout=shell.timeout)
        except ConfigError as error:
            self._session.add_notice(Notice(Severity.WARNING, f"configuration: {error}"))
            return LocalTerminal(default_timeout=shell.timeout)

    def _terminal(self, local: Terminal) -> Terminal:
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

    def _web(self, auditor: Auditor | None) -> GuardedWeb:
        scrape = self._settings.tools.scrape
        return GuardedWeb(
            WebLimits(scrape.timeout, scrape.max_body_bytes),
            allowed_domains=scrape.allowed_domains,
            denied_domains=scrape.denied_domains,
            ports=scrape.ports,
            record=auditor.egress if auditor else log_egress,
        )

    async def _fallen_back(self, error: BackendUnavailable) -> None:
        await self._session.emit(Notice(Severity.WARNING, f"{error}; done without the editor instead"))
