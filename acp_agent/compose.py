"""How a session is put together: backends, gates, tools, loop. The only file besides `app` that knows them all.

Everything heavy hangs below this module, which `app` loads in the background once `session/new` is answered.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial

import anyio.to_thread

from acp_agent import log
from acp_agent.agent.history import History
from acp_agent.agent.prompt import system_prompt
from acp_agent.agent.turn import Agent, Limits
from acp_agent.config import (
    LlmSettings,
    Loaded,
    PermissionRule,
    ProviderSettings,
    model_advice,
    permission_file,
    secret_values,
)
from acp_agent.config.rules import guarded
from acp_agent.core.backends import FileSystem, Terminal
from acp_agent.core.errors import BackendUnavailable, ConfigError, ProviderError, ProviderErrorKind
from acp_agent.core.events import Notice, Severity
from acp_agent.core.ports import Invocation, Provider, ToolContext, ToolExecutor, Toolset
from acp_agent.core.types import ToolSpec
from acp_agent.execution.chain import build_chain
from acp_agent.execution.composite import CompositeFileSystem, CompositeTerminal
from acp_agent.execution.dyn import DynExecutor
from acp_agent.execution.local_files import LocalFileSystem
from acp_agent.execution.local_terminal import LocalTerminal
from acp_agent.execution.output import OutputExecutor
from acp_agent.execution.process_tree import harden_process, kill_everything
from acp_agent.execution.roots import Roots
from acp_agent.execution.run_tool import RunTool
from acp_agent.gates.blocklist import BlocklistGate, BlocklistPolicy, Substitution
from acp_agent.gates.grants import GrantStore
from acp_agent.gates.mode import ModeGate
from acp_agent.gates.permission import PermissionGate
from acp_agent.gates.rules import Action, Rule
from acp_agent.gates.sandbox import SandboxGate
from acp_agent.llm.catalog import Catalog, ProviderConfig, parse_model
from acp_agent.llm.retry import RetryingProvider
from acp_agent.output.pipeline import Pipeline
from acp_agent.protocol.approver import EditorApprover
from acp_agent.protocol.engine import TurnEngine
from acp_agent.protocol.peer import Peer
from acp_agent.protocol.proxy_files import ProxyFileSystem
from acp_agent.protocol.proxy_terminal import ProxyTerminal
from acp_agent.protocol.session import Session
from acp_agent.tools.aliases import ALIASES
from acp_agent.tools.registry import Registry, default_tools

_log = log.Log(__name__)

DISPLAY_LIMIT = 8 * 1024
"""Characters of each text an editor is shown."""


class Workshop:
    """What all sessions of a process share, and how one is put together from it."""

    def __init__(self, loaded: Loaded) -> None:
        log.configure(loaded.settings.logging.level, loaded.settings.logging.file, secrets=secret_values(os.environ))
        harden_process()
        self._catalogs: dict[tuple[ProviderSettings, ...], Catalog] = {}
        self._grants: dict[str, GrantStore] = {}
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
        return _Assembly(self, peer, session, loaded).engine()

    def grants(self, file: str) -> GrantStore:
        """The store of "always" answers; one a file, so that sessions see each other's. Raises ConfigError."""
        if file not in self._grants:
            self._grants[file] = GrantStore(file, lambda problem: _log.warning("grants", problem=problem))
        return self._grants[file]

    def model(self, settings: LlmSettings) -> Provider:
        """The configured model. Blocks: reads files and imports. Raises ConfigError."""
        assert settings.model is not None
        if settings.providers not in self._catalogs:
            self._catalogs[settings.providers] = Catalog(
                ProviderConfig.of(provider, os.environ) for provider in settings.providers
            )
        return self._catalogs[settings.providers].build(parse_model(settings.model))

    def script_folder(self) -> str:
        """A private folder for scripts the editor's terminal runs."""
        if self._scripts is None:
            self._scripts = tempfile.TemporaryDirectory(prefix="acp-agent-", ignore_cleanup_errors=True)
        return self._scripts.name


class _Assembly:
    """Puts one session together, part by part."""

    def __init__(self, workshop: Workshop, peer: Peer, session: Session, loaded: Loaded) -> None:
        self._workshop = workshop
        self._peer = peer
        self._session = session
        self._loaded = loaded
        self._settings = loaded.settings
        self._offering: list[Callable[[ToolSpec], bool]] = []
        self._grants = workshop.grants(permission_file(loaded.settings.acp.permission_file, os.environ))
        self._tools = default_tools() if self._settings.tools.enabled else ()
        self._rules = self._permission_rules()
        self._shell_roots = self._roots(self._settings.tools.shell.allowed_paths)

    def engine(self) -> TurnEngine:
        """The whole of it."""
        roots = self._roots(self._settings.tools.file.allowed_paths)
        files = self._files(roots)
        toolset = DynExecutor(
            Registry(self._tools),
            partial(self._chain, files),
            files=files,
            terminal=self._terminal(),
            cwd=roots.cwd,
            emit=self._session.emit,
            offers=self._offers,
        )
        loop = _Loop(self._workshop, self._session, self._loaded, toolset, roots)
        return TurnEngine(loop.agent, toolset, files, self._session.emit)

    def _roots(self, allowed: Sequence[str]) -> Roots:
        place = self._session.place
        return Roots(place.cwd, (*place.additional, *filter(os.path.isdir, allowed)))

    # ------------------------------------------------------------------------------------- backends

    def _files(self, roots: Roots) -> FileSystem:
        local = LocalFileSystem(roots)
        client = self._session.client
        if not (client.read_text_file or client.write_text_file):
            return local
        timeout = self._settings.acp.request_timeout_secs
        proxy = ProxyFileSystem(self._peer, self._session.id, client, local, self._session.paths, timeout)
        return CompositeFileSystem([proxy, local], self._fallen_back)

    def _terminal(self) -> Terminal:
        shell = self._settings.tools.shell
        try:
            local = LocalTerminal(shell.env_allow, default_timeout=shell.timeout)
        except ConfigError as error:
            self._warn(str(error))
            local = LocalTerminal(default_timeout=shell.timeout)
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

    async def _fallen_back(self, error: BackendUnavailable) -> None:
        await self._session.emit(Notice(Severity.WARNING, f"{error}; done without the editor instead"))

    # ----------------------------------------------------------------------------------------- gates

    def _chain(self, files: FileSystem, context_for: Callable[[Invocation], ToolContext]) -> ToolExecutor:
        pipeline = Pipeline(self._settings.tools.overflow.threshold, DISPLAY_LIMIT)
        return build_chain(
            RunTool(context_for),
            gates=[
                partial(BlocklistGate, policy=self._blocklist()),
                self._mode,
                partial(SandboxGate, resolve=files.resolve, resolve_command=self._shell_roots.resolve),
            ],
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


class _Loop:
    """The loop of one session. It is made when it is needed: sessions work without a model, too."""

    def __init__(self, workshop: Workshop, session: Session, loaded: Loaded, toolset: Toolset, roots: Roots) -> None:
        self._workshop = workshop
        self._session = session
        self._loaded = loaded
        self._toolset = toolset
        self._roots = roots
        self._history = History()
        self._agent: Agent | None = None

    async def agent(self) -> Agent:
        """What runs turns. Raises AgentError, with advice, when there is no model to run it."""
        prompt = self._system_prompt()
        if self._agent is None:
            settings = self._loaded.settings
            if settings.llm.model is None:
                raise ProviderError(
                    model_advice(settings.llm.providers, self._loaded.file), kind=ProviderErrorKind.NOT_CONFIGURED
                )
            provider = await anyio.to_thread.run_sync(self._workshop.model, settings.llm, abandon_on_cancel=True)
            limits = Limits(settings.agent.max_tool_iterations, settings.agent.context_budget_tokens)
            retrying = RetryingProvider(provider, on_retry=self._tell)
            self._agent = Agent(retrying, self._toolset, self._history, self._session.emit, limits, prompt)
        self._agent.system_prompt = prompt
        return self._agent

    def _system_prompt(self) -> str:
        place = self._session.place
        return system_prompt(self._roots.cwd, place.additional, sys.platform, self._session.active.mode)

    async def _tell(self, status: str) -> None:
        await self._session.emit(Notice(Severity.INFO, status))
