"""The gates of one session. Their order is `execution/chain.py`'s; who stands at each place is said here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from acp_agent.config import Loaded
from acp_agent.core.events import EventSink
from acp_agent.core.ports import Approver, Invocation, ToolContext, ToolExecutor
from acp_agent.core.services import Overflow
from acp_agent.core.types import ToolSpec
from acp_agent.core.wrapper import Gate
from acp_agent.execution.audit import AuditExecutor, Auditor
from acp_agent.execution.cache import CacheExecutor, ResultCache, Stamp
from acp_agent.execution.chain import Link, Place, absent, build_chain, gates_of
from acp_agent.execution.grounding import Exists, GroundingExecutor, unknown
from acp_agent.execution.output import OutputExecutor, Summarize
from acp_agent.execution.run_tool import RunTool
from acp_agent.gates.anomaly import AnomalyGate
from acp_agent.gates.grants import GrantStore
from acp_agent.gates.pins import PinsGate
from acp_agent.gates.quota import QuotaGate
from acp_agent.gates.rate_limit import RateLimitGate
from acp_agent.gates.settlement import ours
from acp_agent.output.pipeline import Pipeline
from acp_agent.session.mcp_connections import SessionServers
from acp_agent.session.toolset.gate_memory import GateMemory
from acp_agent.session.toolset.gate_settings import Warn, permission_rules
from acp_agent.session.toolset.judging import Ground, judges, permission_gate
from acp_agent.session.toolset.upkeep import retrying, unmarked, utility


@dataclass(frozen=True, slots=True)
class Lasting:
    """What the gates of a session share from one configuration to the next.

    approver   whom to ask
    grants     what was answered "always" before
    memory     what was counted, typed and trusted so far
    auditor    None where calls are not recorded
    emit       tells the user's side
    overflow   where whole outputs are kept; None = nowhere
    summarize  sums up what is cut out; None = nobody does
    servers    the session's MCP servers; None where there can be none
    """

    approver: Approver
    grants: GrantStore
    memory: GateMemory
    auditor: Auditor | None
    emit: EventSink
    overflow: Overflow | None = None
    summarize: Summarize | None = None
    servers: SessionServers | None = None


@dataclass(frozen=True, slots=True)
class Inner:
    """What stands between the gates and the tools, by one configuration: another one knows nothing of its answers.

    cache   answers that may be given again
    stamp   tells two states of a file apart, for the cache
    exists  tells whether there is anything at a path
    """

    pipeline: Pipeline
    cache: ResultCache
    stamp: Stamp
    exists: Exists = unknown


class SessionGates:
    """Builds the chain of one configuration. Raises ConfigError.

    tools   the names of the tools there are
    warn    told what the user should mend
    """

    def __init__(
        self, loaded: Loaded, ground: Ground, lasting: Lasting, inner: Inner, tools: Sequence[str], warn: Warn
    ) -> None:
        self._settings = loaded.settings
        self._lasting = lasting
        self._inner = inner
        self._conduct = ground.conduct
        self._gates: tuple[Gate, ...] = ()
        rules = permission_rules(loaded, warn, tools)
        self._judges = judges(loaded, ground, warn, tools) | {
            Place.PERMISSION: permission_gate(
                rules, ground, lasting.grants, lasting.approver, lasting.servers.consent if lasting.servers else ours
            )
        }

    @property
    def gates(self) -> tuple[Gate, ...]:
        """Those of the chain that was built, outermost first."""
        return self._gates

    def offers(self, spec: ToolSpec) -> bool:
        """What a gate would refuse whatever the arguments, the model need not see."""
        return all(gate.allows(spec) for gate in self._gates)

    def chain(self, context_for: Callable[[Invocation], ToolContext]) -> ToolExecutor:
        """From a call to its tool."""
        tools, lasting, inner = self._settings.tools, self._lasting, self._inner
        memory, auditor = lasting.memory, lasting.auditor
        links: dict[Place, Link] = {
            Place.AUDIT: partial(AuditExecutor, auditor=auditor) if auditor else absent,
            Place.QUOTA: partial(QuotaGate, quota=memory.quota),
            Place.RATE_LIMIT: partial(RateLimitGate, limit=memory.rate),
            Place.ANOMALY: partial(AnomalyGate, detector=memory.anomalies, emit=lasting.emit)
            if tools.anomaly.enabled
            else absent,
            Place.PINS: partial(PinsGate, book=lasting.servers.book, conduct=self._conduct)
            if lasting.servers
            else absent,
            Place.UTILITY: utility(tools.utility, memory.turn),
            Place.GROUNDING: partial(
                GroundingExecutor,
                mentioned=memory.mentioned,
                exists=inner.exists,
                emit=lasting.emit,
                suspected=auditor.remarks.suspected if auditor else unmarked,
            )
            if self._settings.agent.hallucination_detection
            else absent,
            Place.RETRY: retrying(tools.retry, auditor),
            Place.CACHE: partial(CacheExecutor, cache=inner.cache, stamp=inner.stamp),
            Place.OUTPUT: partial(
                OutputExecutor, pipeline=inner.pipeline, overflow=lasting.overflow, summarize=lasting.summarize
            ),
        }
        chain = build_chain(RunTool(context_for), links | self._judges)
        self._gates = gates_of(chain)
        return chain
