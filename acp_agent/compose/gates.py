"""The gates of one session. Their order is `execution/chain.py`'s; who stands at each place is said here."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from acp_agent.compose.permission_rules import blocklist_policy, permission_rules
from acp_agent.compose.policy import session_policy
from acp_agent.compose.session_roots import protected_paths
from acp_agent.compose.tool_choice import tool_choice
from acp_agent.compose.verifiers import verifiers
from acp_agent.config import Loaded
from acp_agent.core.backends import FileSystem
from acp_agent.core.events import Notice, Severity
from acp_agent.core.ports import Approver, Invocation, ToolContext, ToolExecutor
from acp_agent.core.types import ToolSpec
from acp_agent.core.wrapper import Gate
from acp_agent.execution.audit import AuditExecutor, Auditor
from acp_agent.execution.chain import Link, Place, absent, build_chain, gates_of
from acp_agent.execution.output import OutputExecutor
from acp_agent.execution.roots import Roots
from acp_agent.execution.run_tool import RunTool
from acp_agent.gates.anomaly import AnomalyDetector, AnomalyGate
from acp_agent.gates.autonomy import AutonomyGate
from acp_agent.gates.blocklist import BlocklistGate
from acp_agent.gates.grants import GrantStore
from acp_agent.gates.mode import ModeGate
from acp_agent.gates.permission import PermissionGate
from acp_agent.gates.policy import PolicyGate
from acp_agent.gates.protected import ProtectedGate
from acp_agent.gates.quota import Quota, QuotaGate
from acp_agent.gates.rate_limit import RateLimit, RateLimitGate
from acp_agent.gates.sandbox import SandboxGate
from acp_agent.gates.selection import Selection, SelectionGate, unknown_entries
from acp_agent.gates.trust import Standing, TrustGate
from acp_agent.gates.verify.gate import VerifierGate
from acp_agent.gates.verify.url_grounding import UrlMemory
from acp_agent.net.web import GuardedWeb
from acp_agent.output.pipeline import Pipeline
from acp_agent.protocol.session import Session
from acp_agent.tools.aliases import ALIASES

DISPLAY_LIMIT = 8 * 1024
"""Characters of each text an editor is shown."""


@dataclass(frozen=True, slots=True)
class Consent:
    """Whom to ask, and what was answered "always" before."""

    approver: Approver
    grants: GrantStore


class SessionGates:
    """Builds the chain, and keeps what the gates of one session remember.

    tools     the names of the tools there are
    auditor   None where calls are not recorded
    """

    def __init__(
        self,
        session: Session,
        loaded: Loaded,
        tools: Sequence[str],
        *,
        files: FileSystem,
        shell_roots: Roots,
        web: GuardedWeb,
        consent: Consent,
        auditor: Auditor | None,
    ) -> None:
        self._session = session
        self._loaded = loaded
        self._settings = loaded.settings
        self._tools = tools
        self._rules = permission_rules(loaded, self._warn, tools)
        self._files = files
        self._shell_roots = shell_roots
        self._web = web
        self._consent = consent
        self._auditor = auditor
        self._gates: tuple[Gate, ...] = ()
        limits = loaded.settings.tools
        self.quota = Quota(limits.max_tool_calls_per_session)
        self.rate = RateLimit(limits.rate_limit.calls_per_hour, time.monotonic)
        self.anomalies = AnomalyDetector(
            limits.anomaly.window_size, limits.anomaly.failure_threshold, auto_block=limits.anomaly.auto_block
        )
        self.urls = UrlMemory()
        self.standing = Standing()

    def offers(self, spec: ToolSpec) -> bool:
        """What a gate would refuse whatever the arguments, the model need not see."""
        return all(gate.allows(spec) for gate in self._gates)

    def chain(self, context_for: Callable[[Invocation], ToolContext]) -> ToolExecutor:
        """From a call to its tool."""
        tools = self._settings.tools
        pipeline = Pipeline(tools.overflow.threshold, DISPLAY_LIMIT)
        links: dict[Place, Link] = {
            Place.AUDIT: partial(AuditExecutor, auditor=self._auditor) if self._auditor else absent,
            Place.QUOTA: partial(QuotaGate, quota=self.quota),
            Place.RATE_LIMIT: partial(RateLimitGate, limit=self.rate),
            Place.ANOMALY: partial(AnomalyGate, detector=self.anomalies, emit=self._session.emit)
            if tools.anomaly.enabled
            else absent,
            Place.OUTPUT: partial(OutputExecutor, apply=pipeline.apply),
        }
        chain = build_chain(RunTool(context_for), links | self._of_tools() | self._of_subjects())
        self._gates = gates_of(chain)
        return chain

    def _of_tools(self) -> dict[Place, Link]:
        """Gates that judge what kind of tool is called, and by whom."""
        conduct, cwd = self._session.active, self._shell_roots.cwd
        policy = session_policy(self._loaded, cwd, self._warn)
        return {
            Place.MODE: partial(ModeGate, conduct=conduct),
            Place.AUTONOMY: partial(AutonomyGate, readonly=lambda: conduct.readonly),
            Place.SELECTION: partial(SelectionGate, selection=self._selection()),
            Place.TRUST: partial(TrustGate, standing=self.standing),
            Place.POLICY: partial(
                PolicyGate, policy=policy, cwd=cwd, realpath=os.path.realpath, trust=self.standing.of
            ),
        }

    def _of_subjects(self) -> dict[Place, Link]:
        """Gates that judge what a call touches."""
        tools, conduct = self._settings.tools, self._session.active
        resolve, resolve_command = self._files.resolve, self._shell_roots.resolve
        find = protected_paths(self._loaded, self._shell_roots.cwd).find
        return {
            Place.BLOCKLIST: partial(BlocklistGate, policy=blocklist_policy(tools.shell)),
            Place.VERIFIERS: partial(VerifierGate, verifiers=verifiers(tools.verifiers, resolve, self.urls)),
            Place.SANDBOX: partial(
                SandboxGate, resolve=resolve, resolve_command=resolve_command, refuse_url=self._web.refusal
            ),
            Place.PROTECTED: partial(
                ProtectedGate, find=find, conduct=conduct, resolve=resolve, resolve_command=resolve_command
            ),
            Place.PERMISSION: partial(
                PermissionGate,
                rules=self._rules,
                conduct=conduct,
                grants=self._consent.grants,
                approver=self._consent.approver,
                resolve=resolve,
            ),
        }

    def _selection(self) -> Selection:
        choice = tool_choice(self._loaded, self._session.place.tools)
        for problem in unknown_entries(choice, self._tools, ALIASES):
            self._warn(str(problem))
        return Selection(choice, ALIASES)

    def _warn(self, problem: str) -> None:
        self._session.add_notice(Notice(Severity.WARNING, f"configuration: {problem}"))
