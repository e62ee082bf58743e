"""Build the gates of a session, and the executors between a call and its tool.

What the gates have counted and learned stays when a changed configuration builds them anew (`GateMemory`).
"""

import os
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakMethod

from acp_agent.config.load import Loaded
from acp_agent.config.settings import Settings
from acp_agent.config.tool_settings import ToolSettings
from acp_agent.core.data import frozen
from acp_agent.core.errors import ConfigError, Refused, ToolError
from acp_agent.core.events import EventSink
from acp_agent.core.ports import Approver, Elicitor, Invocation, ModelRequest
from acp_agent.core.secrets import Redact, verbatim
from acp_agent.core.services import Overflow
from acp_agent.core.session_options import SessionOptions
from acp_agent.execution.audit import AuditExecutor, Auditor
from acp_agent.execution.runner import GatedExecutor, ToolExecutor, ToolRunner
from acp_agent.execution.wrappers import (
    CacheExecutor,
    ChangesExecutor,
    Later,
    OutputExecutor,
    ResultCache,
    RetryExecutor,
    Stamp,
    Summarize,
    ToolRetries,
    Transaction,
)
from acp_agent.gates.blocklist import BlocklistGate
from acp_agent.gates.gate import Gate, Gates
from acp_agent.gates.git_calls import GitGuard
from acp_agent.gates.grants import GrantsInForce, GrantStore, SessionAnswers
from acp_agent.gates.grounding import Exists, GroundingGate, Mentioned, unknown
from acp_agent.gates.limits import AnomalyDetector, AnomalyGate, Quota, QuotaGate, RateLimit, RateLimitGate
from acp_agent.gates.mode import AutonomyGate, ModeGate
from acp_agent.gates.permission import PermissionGate, ours
from acp_agent.gates.pins import PinsGate
from acp_agent.gates.policy import PolicyGate
from acp_agent.gates.protected import ProtectedGate
from acp_agent.gates.rules.permission_rules import Rule
from acp_agent.gates.rules.policy_rules import TrustLevel
from acp_agent.gates.sandbox import SandboxGate
from acp_agent.gates.selection import Selection, SelectionGate, unknown_entries
from acp_agent.gates.trust import SessionTrust, TrustGate
from acp_agent.gates.utility import TurnCalls, UtilityGate
from acp_agent.gates.verify.verifiers import UrlMemory, VerifierGate
from acp_agent.output.pipeline import Pipeline
from acp_agent.session.toolset.settings import (
    FolderRules,
    Warn,
    blocklist_policy,
    every_choice,
    permission_rules,
    selection_in_force,
    session_policy,
    verifiers,
)
from acp_agent.workspace.changed_files import FileWatch
from acp_agent.workspace.command_files import WorkspaceFiles, shell_names
from acp_agent.workspace.git.changes import GitChanges
from acp_agent.workspace.git.repositories import GitRepositories
from acp_agent.workspace.glob import Glob
from acp_agent.workspace.protected_paths import ProtectedPaths
from acp_agent.workspace.roots import Roots

if TYPE_CHECKING:  # `acp-agent check` has no servers, and few users have hooks
    from acp_agent.gates.hooks import ToolHooks
    from acp_agent.session.mcp_connections import McpConnections

_MOST_REMEMBERED = 1000
"""The most sessions whose memory is kept. The least recently used is forgotten first."""


@frozen
class GateMemory:
    """The counts, the typed words, the trust and the answers for one session so far."""

    anomalies: AnomalyDetector
    quota: Quota = field(default_factory=Quota)
    rate: RateLimit = field(default_factory=lambda: RateLimit(0, time.monotonic))
    urls: UrlMemory = field(default_factory=UrlMemory)
    turn: TurnCalls = field(default_factory=TurnCalls)
    mentioned: Mentioned = field(default_factory=Mentioned)
    trust: SessionTrust = field(default_factory=SessionTrust)
    answers: SessionAnswers = field(default_factory=SessionAnswers)

    def trust_served(self, trust: Callable[[Invocation], TrustLevel]) -> None:
        """Use `trust` for the trust level of MCP tools. The owner of the method is not kept alive."""
        known = WeakMethod(trust)

        def served(invocation: Invocation) -> TrustLevel:
            ours = known()
            return TrustLevel.UNTRUSTED if ours is None else ours(invocation)

        self.trust.trust_served(served)

    @classmethod
    def new(cls, tools: ToolSettings) -> "GateMemory":
        """Return the memory of a new session. The limits for failing tools keep their present values."""
        watch = tools.anomaly
        memory = cls(AnomalyDetector(watch.window_size, watch.failure_threshold, auto_block=watch.auto_block))
        memory.limit(tools)
        return memory

    def learn(self, typed: str) -> None:
        """Remember the user's text. URLs in it may be fetched, and names in it do not count as made up by the model."""
        self.urls.learn(typed)
        self.mentioned.learn(typed)

    def clear(self) -> None:
        """Forget what was counted or mentioned in the conversation.

        The user's answers about the folder and about tools stay, and so do the calls of the last hour.
        """
        self.anomalies.reset()
        self.quota.reset()
        self.urls.clear()
        self.turn.clear()
        self.mentioned.clear()
        self.trust.reset()

    def limit(self, tools: ToolSettings) -> None:
        """Apply the limits of a changed configuration to the counts."""
        self.quota.limit_to(tools.max_tool_calls_per_session)
        self.rate.limit_to(tools.rate_limit.calls_per_hour)


@frozen
class _Carried:
    """The memory of a session between two engines. `folder` is the session's folder at that time."""

    folder: str
    anomalies: AnomalyDetector
    rate: RateLimit
    trust: SessionTrust
    answers: SessionAnswers


class GateMemories:
    """The memories of the gates of all sessions of a process. A session's new engine gets the memory of the last."""

    def __init__(self) -> None:
        self._carried: dict[str, _Carried] = {}

    def of(self, session_id: str, folder: str, tools: ToolSettings) -> GateMemory:
        """Return the memory for a new engine. The user's answer about another folder is not taken over."""
        memory, before = GateMemory.new(tools), self._carried.pop(session_id, None)
        if before is not None:
            memory = replace(memory, anomalies=before.anomalies, rate=before.rate, trust=before.trust)
            memory.limit(tools)
            if before.folder == folder:
                memory = replace(memory, answers=before.answers)
            else:
                memory.trust.trust_folder(TrustLevel.PROVISIONAL)
        self._carried[session_id] = _Carried(folder, memory.anomalies, memory.rate, memory.trust, memory.answers)
        for oldest in [*self._carried][: max(len(self._carried) - _MOST_REMEMBERED, 0)]:
            del self._carried[oldest]
        return memory


@frozen
class GateContext:
    """The dependencies of the gates of a session, except the configuration.

    files        the directories of the file tools
    shell        the directories that commands may name
    refuse_url   returns the refusal of a URL that needs no DNS look-up, or None
    offered      the tools that the client allows; None for all
    model        returns the model in force as `PROVIDER:MODEL`; "" stands for the configured one
    contained    whether a sandbox contains the commands
    narrowed     returns the only tools of the running turn; None for all
    hooks        the user's hooks about calls; None if there are none
    agent        returns the tools that the definition of the session's agent allows; None if it has no definition
    protected    the protected paths; None for those of the configuration
    """

    options: SessionOptions
    files: Roots
    shell: Roots
    refuse_url: Callable[[str], Refused | None] = lambda _: None
    offered: tuple[str, ...] | None = None
    urls: UrlMemory = field(default_factory=UrlMemory)
    trust: SessionTrust = field(default_factory=SessionTrust)
    model: Callable[[], str] = str
    contained: bool = False
    narrowed: Callable[[], tuple[str, ...] | None] = lambda: None
    hooks: "ToolHooks | None" = None
    agent: Callable[[], Selection | None] = lambda: None
    protected: ProtectedPaths | None = None


@frozen
class SessionGateState:
    """The state of a session's gates, which outlasts a change of the configuration.

    approver   asks the user
    grants     the stored "always" answers
    memory     the counts, the typed words and the trust so far
    auditor    None if calls are not recorded
    emit       sends events to the editor
    overflow   the store of whole outputs; None if they are not stored
    summarize  summarizes an output that is too long; None to show only its head and tail
    servers    the session's MCP servers; None if MCP is not available
    elicitor   shows forms to the user; None if that is switched off
    opinion    asks a model, by its name or "" for the session's, for a short answer; None if there is none to ask
    redact     removes secrets from what that model is sent
    """

    approver: Approver
    grants: GrantStore
    memory: GateMemory
    auditor: Auditor | None
    emit: EventSink
    overflow: Overflow | None = None
    summarize: Summarize | None = None
    servers: "McpConnections | None" = None
    elicitor: Elicitor | None = None
    opinion: Callable[[str, ModelRequest], Awaitable[str]] | None = None
    redact: Redact = verbatim


@frozen
class ResultWrappers:
    """The executors between the gates and the tools under one configuration. Another configuration has its own cache.

    cache   the results that may be returned again
    stamp   returns a value that changes with a file, for the cache
    watch   finds the files that a call changes; None if that is switched off
    later   starts a task that can wait until a cancelled turn is answered; None to make the call wait for it
    """

    pipeline: Pipeline
    cache: ResultCache
    stamp: Stamp
    watch: FileWatch | None = None
    later: Later | None = None


def permission_gate(
    rules: Mapping[str, tuple[Rule, ...]],
    context: GateContext,
    grants: GrantStore,
    approver: Approver | None = None,
    consent: Callable[[Invocation], str] = ours,
    *,
    all_readable: bool = True,
    elicitor: Elicitor | None = None,
    answers: SessionAnswers | None = None,
) -> PermissionGate:
    """Return the permission gate. Without an approver it refuses calls about which it would ask."""
    return PermissionGate(
        rules=rules,
        options=context.options,
        grants=GrantsInForce(grants, answers),
        approver=approver,
        files=context.files,
        consent=consent,
        all_readable=all_readable,
        elicitor=elicitor,
    )


def reads_everything(loaded: Loaded) -> bool:
    """Return whether the configuration lets tools read every file of the roots."""
    file = loaded.settings.tools.file
    return not (file.deny_read or file.allow_read)


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
    """Return the gates under a configuration, in their order. Raises ConfigError.

    Those that deny come before those that ask, and the permission gate, which settles the questions, is the last one.

    warn    called with problems that the user should correct
    tools   the names of all tools; empty if unknown names are accepted
    state   None leaves out the gates that count calls or watch results
    """
    settings, options, trust = loaded.settings, context.options, context.trust
    resolve, cwd = context.files.resolve_readable, context.shell.cwd
    _warn_of_unknown_tools(loaded, context, warn, tools)
    first: tuple[Gate | None, ...] = (
        BlocklistGate(blocklist_policy(settings.tools.shell)),
        state and QuotaGate(state.memory.quota),
        state and RateLimitGate(state.memory.rate),
        ModeGate(options),
        SelectionGate(selection_in_force(loaded, context.offered, context.model), context.narrowed, context.agent),
        AutonomyGate(lambda: options.readonly),
        PolicyGate(session_policy(loaded, cwd, warn), cwd=cwd, realpath=os.path.realpath, trust=trust.of),
    )
    last: tuple[Gate | None, ...] = (
        TrustGate(trust, options),
        PinsGate(state.servers.book, options) if state and state.servers else None,
        VerifierGate(verifiers(settings.tools.verifiers, resolve, context.shell, context.urls)),
        _sandbox(context),
        _protected(loaded, context),
        *(_watching_gates(settings, state, exists) if state else ()),
        permission,
    )
    return _gates_of((*first, *_adversarial(settings, state, last, warn), *last), context)


def _with_hooks(gates: tuple[Gate, ...], hooks: "ToolHooks") -> tuple[Gate, ...]:
    """Return the gates with two for hooks: the first gate sees the result of each call, the last but one runs hooks."""
    from acp_agent.gates.hooks import HookGate, HookWatchGate  # noqa: PLC0415 - few users have hooks

    return (HookWatchGate(hooks), *gates[:-1], HookGate(hooks), gates[-1])


def _adversarial(
    settings: Settings, state: SessionGateState | None, later: tuple[Gate | None, ...], warn: Warn
) -> Iterator[Gate]:
    """Yield the gate that asks a second model, if it is switched on and has policies."""
    chosen = settings.tools.adversarial_policy
    if chosen.enabled and not chosen.policies:
        warn("tools.adversarial_policy: it is enabled, but checks nothing without policies")
    elif chosen.enabled and state is not None and state.opinion is not None:
        from acp_agent.gates.adversarial import AdversarialGate  # noqa: PLC0415 - few users switch it on

        yield AdversarialGate(
            chosen.policies,
            partial(state.opinion, chosen.policy_provider),
            state.redact,
            tuple(gate for gate in later if gate is not None),
            exempt=chosen.exempt_tools,
            fail_open=chosen.fail_open,
            seconds=chosen.timeout_ms / 1000,
        )


def _gates_of(gates: tuple[Gate | None, ...], context: GateContext) -> Gates:
    """Return the gates, with the functions that look up names in the folders of commands."""
    shell = context.shell
    names = partial(shell_names, resolve=shell.resolve)
    in_order = tuple(gate for gate in gates if gate is not None)
    if context.hooks is not None:
        in_order = _with_hooks(in_order, context.hooks)
    return Gates(in_order, names, WorkspaceFiles(shell.cwd, shell.resolve).is_folder, context.contained)


def session_gates(
    loaded: Loaded,
    context: GateContext,
    state: SessionGateState,
    tools: Collection[str],
    warn: Warn,
    exists: Exists = unknown,
) -> Gates:
    """Return the gates of a session under a configuration. Raises ConfigError."""
    permission = permission_gate(
        permission_rules(loaded, warn, tools),
        context,
        state.grants,
        state.approver,
        state.servers.consent if state.servers else ours,
        all_readable=reads_everything(loaded),
        elicitor=state.elicitor,
        answers=state.memory.answers,
    )
    return build_gates(loaded, context, permission, warn, tools=tools, state=state, exists=exists)


def build_executor(
    settings: Settings, gates: Gates, state: SessionGateState, wrappers: ResultWrappers, runner: ToolRunner
) -> ToolExecutor:
    """Return the executor of calls: audit( gates( cache( output( retry( changes( tool )))))). Raises ConfigError.

    The audit sees every verdict and every result. The cache is inside the gates, so that a cached result cannot avoid a
    denial, and outside the output pipeline, so that cached results are redacted.
    """
    retry = settings.tools.retry
    retries = ToolRetries(retry.max_attempts, retry.base_ms / 1000, retry.max_ms / 1000, retry.budget_secs)
    watch, told = wrappers.watch, settings.tools.shell.show_changes
    rules = _transaction(settings)
    shown: ToolExecutor = runner
    if watch is not None:
        shown = ChangesExecutor(runner, watch, shown=told, transaction=rules, later=wrappers.later)
    output = OutputExecutor(RetryExecutor(shown, retries), wrappers.pipeline, state.overflow, state.summarize)
    gated = GatedExecutor(gates, CacheExecutor(output, wrappers.cache, wrappers.stamp))
    return gated if state.auditor is None else AuditExecutor(gated, state.auditor)


def _sandbox(context: GateContext) -> SandboxGate:
    files, shell = context.files, context.shell
    return SandboxGate(
        files.resolve_readable,
        shell.resolve,
        context.refuse_url,
        WorkspaceFiles(shell.cwd, shell.resolve),
        folder=files.folder,
        folder_of_command=shell.folder,
    )


def _transaction(settings: Settings) -> Transaction | None:
    shell = settings.tools.shell
    if not shell.transactional:
        return None
    scope = tuple(map(_scope, shell.transaction_scope))
    return Transaction(scope, shell.auto_rollback, shell.auto_rollback_exit_codes, shell.snapshot_required)


def _scope(pattern: str) -> Glob:
    try:
        return Glob(pattern)
    except (ToolError, Refused) as error:
        expected = f"a glob below the session's folder ({error})"
        raise ConfigError("[tools.shell]", "transaction_scope", repr(pattern[:100]), expected) from error


def _protected(loaded: Loaded, context: GateContext) -> ProtectedGate:
    resolve_command = context.shell.resolve
    return ProtectedGate(
        paths=context.protected or FolderRules(loaded, context.shell.cwd).protected,
        options=context.options,
        resolve=context.files.resolve_readable,
        resolve_command=resolve_command,
        git=GitGuard(GitRepositories(resolve_command, context.shell.cwd), GitChanges(resolve_command)),
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
    problems = (str(problem) for choice in choices for problem in unknown_entries(choice, tools))
    for problem in dict.fromkeys(problems):
        warn(problem)


def _adversarial_status(settings: Settings) -> Iterator[str]:
    chosen = settings.tools.adversarial_policy
    if chosen.enabled:
        by, failure = chosen.policy_provider or "the session's model", "allows" if chosen.fail_open else "denies"
        yield f"Adversarial policy: checked by {by}, policies={len(chosen.policies)}, no answer {failure}"


def status(settings: Settings, memory: GateMemory) -> tuple[str, ...]:
    """Return lines for /status on lowered trust, and on the utility gate and made-up names if these are switched on."""
    weighs, watches = settings.tools.utility, settings.agent.hallucination_detection
    return (
        *memory.trust.status(),
        *_adversarial_status(settings),
        *(memory.turn.status(weighs.threshold, weighs.exempt_tools) if weighs.enabled else ()),
        *(memory.mentioned.status() if watches else ()),
    )
