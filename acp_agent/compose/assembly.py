"""One session, put together part by part: backends, gates, tools."""

import os
import shutil
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from acp_agent.compose.egress import record_egress
from acp_agent.compose.loop import SessionLoop
from acp_agent.compose.session_roots import session_roots
from acp_agent.config import Loaded, PermissionRule, permission_file
from acp_agent.config.rules import guarded
from acp_agent.core.backends import FileSystem, Terminal
from acp_agent.core.errors import BackendUnavailable, ConfigError
from acp_agent.core.events import Notice, Severity
from acp_agent.core.ports import Backends, Invocation, ToolContext, ToolExecutor
from acp_agent.core.types import ToolSpec
from acp_agent.core.web import Web
from acp_agent.execution.chain import build_chain
from acp_agent.execution.composite import CompositeFileSystem, CompositeTerminal
from acp_agent.execution.dyn import DynExecutor
from acp_agent.execution.local_files import LocalFileSystem
from acp_agent.execution.local_terminal import LocalTerminal
from acp_agent.execution.output import OutputExecutor
from acp_agent.execution.roots import Roots
from acp_agent.execution.run_tool import RunTool
from acp_agent.gates.blocklist import BlocklistGate, BlocklistPolicy, Substitution
from acp_agent.gates.mode import ModeGate
from acp_agent.gates.permission import PermissionGate
from acp_agent.gates.rules import Action, Rule
from acp_agent.gates.sandbox import SandboxGate
from acp_agent.net.web import GuardedWeb, WebLimits
from acp_agent.output.pipeline import Pipeline
from acp_agent.protocol.approver import EditorApprover
from acp_agent.protocol.engine import TurnEngine
from acp_agent.protocol.peer import Peer
from acp_agent.protocol.proxy_files import ProxyFileSystem
from acp_agent.protocol.proxy_terminal import ProxyTerminal
from acp_agent.protocol.session import Session
from acp_agent.tools.aliases import ALIASES
from acp_agent.tools.registry import Registry, ToolLimits, default_tools

if TYPE_CHECKING:
    from acp_agent.compose.workshop import Workshop

DISPLAY_LIMIT = 8 * 1024
"""Characters of each text an editor is shown."""


class Assembly:
    """Puts one session together, part by part."""

    def __init__(self, workshop: "Workshop", peer: Peer, session: Session, loaded: Loaded) -> None:
        self._workshop = workshop
        self._peer = peer
        self._session = session
        self._loaded = loaded
        self._settings = loaded.settings
        self._offering: list[Callable[[ToolSpec], bool]] = []
        self._permission_file = permission_file(loaded.settings.acp.permission_file, os.environ)
        self._grants = workshop.grants(self._permission_file)
        tools = loaded.settings.tools
        limits = ToolLimits(
            command_seconds=tools.shell.max_timeout,
            diagnostics=tools.diagnostics.max_diagnostics,
            checker_seconds=tools.diagnostics.timeout,
        )
        self._tools = default_tools(limits, rich_kinds=loaded.settings.acp.rich_kinds) if tools.enabled else ()
        self._rules = self._permission_rules()
        self._file_roots = session_roots(loaded, session.place.cwd, session.place.additional)
        self._shell_roots = session_roots(loaded, session.place.cwd, session.place.additional, for_shell=True)

    def engine(self) -> TurnEngine:
        """The whole of it."""
        roots = self._file_roots
        files = self._files(roots)
        local_terminal = self._local_terminal()
        web = self._web()
        toolset = DynExecutor(
            Registry(self._tools),
            partial(self._chain, files),
            backends=Backends(files, self._terminal(local_terminal), programs=local_terminal, web=web),
            cwd=roots.cwd,
            emit=self._session.emit,
            offers=self._offers,
        )
        loop = SessionLoop(self._workshop, self._session, self._loaded, toolset, roots)
        return TurnEngine(loop.agent, toolset, files, web, self._session.emit)

    # ------------------------------------------------------------------------------------- backends

    def _files(self, roots: Roots) -> FileSystem:
        local = LocalFileSystem(roots)
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
            self._warn(str(error))
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

    def _web(self) -> Web:
        scrape = self._settings.tools.scrape
        return GuardedWeb(
            WebLimits(scrape.timeout, scrape.max_body_bytes),
            allowed_domains=scrape.allowed_domains,
            denied_domains=scrape.denied_domains,
            ports=scrape.ports,
            record=record_egress,
        )

    async def _fallen_back(self, error: BackendUnavailable) -> None:
        await self._session.emit(Notice(Severity.WARNING, f"{error}; done without the editor instead"))

    # ----------------------------------------------------------------------------------------- gates

    def _chain(self, files: FileSystem, context_for: Callable[[Invocation], ToolContext]) -> ToolExecutor:
        pipeline = Pipeline(self._settings.tools.overflow.threshold, DISPLAY_LIMIT)
        return build_chain(
            RunTool(context_for),
            blocklist=partial(BlocklistGate, policy=self._blocklist()),
            mode=self._mode,
            sandbox=partial(SandboxGate, resolve=files.resolve, resolve_command=self._shell_roots.resolve),
            permission=partial(self._permission, files),
            output=partial(OutputExecutor, apply=pipeline.apply),
        )

    def _permission_rules(self) -> dict[str, tuple[Rule, ...]]:
        """Rules by tool id. A rule nobody can read, or for a tool nobody knows, is told and never loosens (S3)."""
        known = {tool.name for tool in self._tools}
        compiled: dict[str, tuple[Rule, ...]] = {}
        for name, rules in self._settings.tools.permissions.items():
            tool = ALIASES.get(name.lower(), name)
            if self._tools and tool not in known:
                self._warn(f"[tools.permissions.{name}]: there is no tool of that name ({', '.join(sorted(known))})")
            compiled[tool] = compiled.get(tool, ()) + self._compiled(f"[[tools.permissions.{name}]]", rules)
        return compiled

    def _compiled(self, where: str, rules: tuple[PermissionRule, ...]) -> tuple[Rule, ...]:
        compiled: list[Rule] = []
        for rule in rules:
            try:
                compiled.append(Rule.parse(rule.pattern, Action(rule.action.value), where))
            except ConfigError as error:
                self._warn(str(error))
                kept = tuple(other for other in rules if other is not rule)
                return self._compiled(where, guarded(kept))
        return tuple(compiled)

    def _warn(self, problem: str) -> None:
        self._session.add_notice(Notice(Severity.WARNING, f"configuration: {problem}"))

    def _blocklist(self) -> BlocklistPolicy:
        shell = self._settings.tools.shell
        return BlocklistPolicy(shell.blocked_commands, shell.allowed_commands, Substitution(shell.substitution.value))

    def _mode(self, wrapped: ToolExecutor) -> ToolExecutor:
        gate = ModeGate(wrapped, self._session.active)
        self._offering.append(gate.allows)
        return gate

    def _permission(self, files: FileSystem, wrapped: ToolExecutor) -> ToolExecutor:
        gate = PermissionGate(
            wrapped,
            rules=self._rules,
            conduct=self._session.active,
            grants=self._grants,
            approver=EditorApprover(self._peer, self._session.id, self._session.paths),
            resolve=files.resolve,
        )
        self._offering.append(gate.allows)
        return gate

    def _offers(self, spec: ToolSpec) -> bool:
        """What a gate would refuse whatever the arguments, the model need not see."""
        return all(offers(spec) for offers in self._offering)
