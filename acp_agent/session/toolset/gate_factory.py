"""Build the gates of a session, and the executors between a call and its tool."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from acp_agent.config import Loaded, Settings
from acp_agent.core.aliases import ALIASES
from acp_agent.core.conduct import SessionOptions
from acp_agent.core.events import EventSink
from acp_agent.core.ports import Approver, Invocation
from acp_agent.core.services import Overflow
from acp_agent.core.types import Access
from acp_agent.execution.audit import AuditExecutor, Auditor
from acp_agent.execution.cache import CacheExecutor, ResultCache, Stamp
from acp_agent.execution.output import OutputExecutor, Summarize
from acp_agent.execution.retry import RetryExecutor, ToolRetries
from acp_agent.execution.runner import GatedExecutor, ToolExecutor, ToolRunner
from acp_agent.gates.anomaly import AnomalyGate
from acp_agent.gates.blocklist import BlocklistGate
from acp_agent.gates.gate import Gate, Gates
from acp_agent.gates.git_calls import GitGuard
from acp_agent.gates.grants import GrantStore
from acp_agent.gates.grounding import Exists, GroundingGate, unknown
from acp_agent.gates.limits import QuotaGate, RateLimitGate
from acp_agent.gates.mode import AutonomyGate, ModeGate
from acp_agent.gates.permission import PermissionGate, ours
from acp_agent.gates.pins import PinsGate
from acp_agent.gates.policy import PolicyGate
from acp_agent.gates.protected import ProtectedGate
from acp_agent.gates.rules.permission_rules import Rule
from acp_agent.gates.sandbox import SandboxGate
from acp_agent.gates.selection import SelectionGate, unknown_entries
from acp_agent.gates.trust import Standing, TrustGate
from acp_agent.gates.utility import UtilityGate
from acp_agent.gates.verify.verifiers import UrlMemory, VerifierGate
from acp_agent.output.pipeline import Pipeline
from acp_agent.session.mcp_connections import McpConnections
from acp_agent.session.toolset.gate_memory import GateMemory
from acp_agent.session.toolset.gate_settings import (
    Warn,
    blocklist_policy,
    every_choice,
    permission_rules,
    selection_in_force,
    session_policy,
    verifiers,
)
from acp_agent.session.toolset.roots import protected_paths
from acp_agent.workspace.command_files import WorkspaceFiles, shell_names
from acp_agent.workspace.git.changes import GitChanges
from acp_agent.workspace.git.repositories import GitRepositories
from acp_agent.workspace.roots import Roots


def _no_opinion(url: str) -> None:
    del url


@dataclass(frozen=True, slots=True)
class GateContext:
    """The dependencies of the gates of a session, except the configuration.

    resolve      returns the real path of a path that a tool touches (FileSystem.resolve)
    shell        the directories that commands may name
    refuse_url   returns why a URL is refused even without a DNS look-up, or None
    offered      the tools that the client allows; None for all
    model        returns the model in force as `PROVIDER:MODEL`; "" stands for the configured one
    """

    conduct: SessionOptions
    resolve: Callable[[str, Access], str]
    shell: Roots
    refuse_url: Callable[[str], str | None] = _no_opinion
    offered: tuple[str, ...] | None = None
    urls: UrlMemory = field(default_factory=UrlMemory)
    standing: Standing = field(default_factory=Standing)
    model: Callable[[], str] = str


@dataclass(frozen=True, slots=True)
class SessionGateState:
    """The state of a session's gates, which outlasts a change of the configuration.

    approver   asks the user
    grants     the stored "always" answers
    memory     the counts, the typed words and the trust so far
    auditor    None if calls are not recorded
    emit       sends events to the editor
    overflow   the store of whole outputs; None if they are not stored
    summarize  shortens the output that is cut out; None to keep only head and tail
    servers    the session's MCP servers; None if MCP is not available
    """

    approver: Approver
    grants: GrantStore
    memory: GateMemory
    auditor: Auditor | None
    emit: EventSink
    overflow: Overflow | None = None
    summarize: Summarize | None = None
    servers: McpConnections | None = None


@dataclass(frozen=True, slots=True)
class ResultWrappers:
    """The executors between the gates and the tools under one configuration. Another configuration has its own cache.

    cache   the results that may be returned again
    stamp   returns a value that changes with a file, for the cache
    exists  returns whether a path exists
    """

    pipeline: Pipeline
    cache: ResultCache
    stamp: Stamp
    exists: Exists = unknown


def permission_gate(
    rules: Mapping[str, tuple[Rule, ...]],
    context: GateContext,
    grants: GrantStore,
    approver: Approver | None = None,
    consent: Callable[[Invocation], str] = ours,
) -> PermissionGate:
    """Return the permission gate. Without an approver it refuses calls about which it would ask."""
    return PermissionGate(
        rules=rules,
        conduct=context.conduct,
        grants=grants,
        approver=approver,
        resolve=context.resolve,
        consent=consent,
    )


def build_gates(
    loaded: Loaded,
    context: GateContext,
    permission: PermissionGate,
    warn: Warn,
    *,
    tools: Collection[str] = (),
    state: SessionGateState | None = None,
    exists: Exists = unknown,
) -> Gates:
    """Return the gates under a configuration. Their order is the order of this list. Raises ConfigError.

    Gates that deny come before gates that ask, and the blocklist comes first. The permission gate is the last one: it
    settles the questions that the others ask.

    warn    called with problems that the user should correct
    tools   the names of all tools; empty if unknown names are accepted
    state   None leaves out the gates that count calls or watch results
    """
    settings, conduct, standing = loaded.settings, context.conduct, context.standing
    resolve, resolve_command = context.resolve, context.shell.resolve
    cwd = context.shell.cwd
    _warn_of_unknown_tools(loaded, context, warn, tools)
    gates: tuple[Gate | None, ...] = (
        BlocklistGate(blocklist_policy(settings.tools.shell)),
        state and QuotaGate(state.memory.quota),
        state and RateLimitGate(state.memory.rate),
        ModeGate(conduct),
        SelectionGate(selection_in_force(loaded, context.offered, context.model)),
        AutonomyGate(lambda: conduct.readonly),
        TrustGate(standing, conduct),
        PolicyGate(session_policy(loaded, cwd, warn), cwd=cwd, realpath=os.path.realpath, trust=standing.of),
        PinsGate(state.servers.book, conduct) if state and state.servers else None,
        VerifierGate(verifiers(settings.tools.verifiers, resolve, context.shell, context.urls)),
        SandboxGate(resolve, resolve_command, context.refuse_url, WorkspaceFiles(cwd, resolve_command)),
        _protected(loaded, context),
        *(_watching_gates(settings, state, exists) if state else ()),
        permission,
    )
    return Gates(tuple(gate for gate in gates if gate is not None), partial(shell_names, resolve=resolve_command))


def session_gates(
    loaded: Loaded,
    context: GateContext,
    state: SessionGateState,
    tools: Collection[str],
    warn: Warn,
    exists: Exists = unknown,
) -> Gates:
    """Return the gates of a session under a configuration. Raises ConfigError."""
    consent = state.servers.consent if state.servers else ours
    rules = permission_rules(loaded, warn, tools)
    permission = permission_gate(rules, context, state.grants, state.approver, consent)
    return build_gates(loaded, context, permission, warn, tools=tools, state=state, exists=exists)


def build_executor(
    settings: Settings, gates: Gates, state: SessionGateState, wrappers: ResultWrappers, runner: ToolRunner
) -> ToolExecutor:
    """Return the executor of calls: audit( gates( cache( output( retry( tool ))))).

    The audit sees every verdict and every result. The cache is inside the gates, so that a cached result cannot avoid a
    denial, and outside the output pipeline, so that cached results are redacted.
    """
    retry = settings.tools.retry
    retries = ToolRetries(retry.max_attempts, retry.base_ms / 1000, retry.max_ms / 1000, retry.budget_secs)
    output = OutputExecutor(RetryExecutor(runner, retries), wrappers.pipeline, state.overflow, state.summarize)
    gated = GatedExecutor(gates, CacheExecutor(output, wrappers.cache, wrappers.stamp))
    return gated if state.auditor is None else AuditExecutor(gated, state.auditor)


def _protected(loaded: Loaded, context: GateContext) -> ProtectedGate:
    resolve_command = context.shell.resolve
    return ProtectedGate(
        find=protected_paths(loaded, context.shell.cwd).find,
        conduct=context.conduct,
        resolve=context.resolve,
        resolve_command=resolve_command,
        git=GitGuard(GitRepositories(resolve_command), GitChanges(resolve_command)),
    )


def _watching_gates(settings: Settings, state: SessionGateState, exists: Exists) -> Iterator[Gate]:
    """Yield the gates that watch results and are switched on."""
    memory, utility = state.memory, settings.tools.utility
    if settings.tools.anomaly.enabled:
        yield AnomalyGate(memory.anomalies, state.emit)
    if utility.enabled:
        yield UtilityGate(memory.turn, utility.threshold, utility.exempt_tools)
    if settings.agent.hallucination_detection:
        yield GroundingGate(memory.mentioned, exists, state.emit)


def _warn_of_unknown_tools(loaded: Loaded, context: GateContext, warn: Warn, tools: Collection[str]) -> None:
    choices = every_choice(loaded, context.offered) if tools else ()
    problems = (str(problem) for choice in choices for problem in unknown_entries(choice, tools, ALIASES))
    for problem in dict.fromkeys(problems):
        warn(problem)


def status(settings: Settings, memory: GateMemory) -> tuple[str, ...]:
    """Return lines for /status on the utility gate and on made-up names, if these are switched on."""
    weighs, watches = settings.tools.utility, settings.agent.hallucination_detection
    return (
        *(memory.turn.status(weighs.threshold, weighs.exempt_tools) if weighs.enabled else ()),
        *(memory.mentioned.status() if watches else ()),
    )
