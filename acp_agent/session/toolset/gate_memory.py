"""The memory of the gates of one session, which outlasts a change of the configuration."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from weakref import WeakMethod

from acp_agent.config import ToolSettings
from acp_agent.core.ports import Invocation
from acp_agent.gates.anomaly import AnomalyDetector
from acp_agent.gates.grounding import Mentioned
from acp_agent.gates.limits import Quota, RateLimit
from acp_agent.gates.rules.policy_rules import TrustLevel
from acp_agent.gates.trust import Standing
from acp_agent.gates.utility import TurnCalls
from acp_agent.gates.verify.verifiers import UrlMemory

_MOST_REMEMBERED = 1000
"""The most sessions whose memory is kept. The least recently used is forgotten first."""


def _rate() -> RateLimit:
    return RateLimit(0, time.monotonic)


@dataclass(frozen=True, slots=True)
class GateMemory:
    """The counts, the typed words and the trust of one session so far."""

    anomalies: AnomalyDetector
    quota: Quota = field(default_factory=Quota)
    rate: RateLimit = field(default_factory=_rate)
    urls: UrlMemory = field(default_factory=UrlMemory)
    turn: TurnCalls = field(default_factory=TurnCalls)
    mentioned: Mentioned = field(default_factory=Mentioned)
    standing: Standing = field(default_factory=Standing)

    def trust_served(self, trust: Callable[[Invocation], TrustLevel]) -> None:
        """Use `trust` for the trust level of MCP tools. The owner of the method is not kept alive."""
        known = WeakMethod(trust)

        def served(invocation: Invocation) -> TrustLevel:
            ours = known()
            return TrustLevel.UNTRUSTED if ours is None else ours(invocation)

        self.standing.trust_served(served)

    def trust_folder(self, level: TrustLevel) -> None:
        """Set the trust level of the session's folder, as the user answered."""
        self.standing.trust_folder(level)

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

    def limit(self, tools: ToolSettings) -> None:
        """Apply the limits of a changed configuration to the counts."""
        self.quota.limit_to(tools.max_tool_calls_per_session)
        self.rate.limit_to(tools.rate_limit.calls_per_hour)


@dataclass(frozen=True, slots=True)
class _Carried:
    """The memory of a session between two engines. `folder` is the session's folder at that time."""

    folder: str
    anomalies: AnomalyDetector
    rate: RateLimit
    standing: Standing


class GateMemories:
    """The memories of the gates of all sessions of a process. A new engine of a session gets the memory of the last."""

    def __init__(self) -> None:
        self._carried: dict[str, _Carried] = {}

    def of(self, session_id: str, folder: str, tools: ToolSettings) -> GateMemory:
        """Return the memory for a new engine. The user's answer about another folder is not taken over."""
        memory, before = GateMemory.new(tools), self._carried.pop(session_id, None)
        if before is not None:
            memory = replace(memory, anomalies=before.anomalies, rate=before.rate, standing=before.standing)
            memory.limit(tools)
            if before.folder != folder:
                memory.trust_folder(TrustLevel.PROVISIONAL)
        self._carried[session_id] = _Carried(folder, memory.anomalies, memory.rate, memory.standing)
        for oldest in [*self._carried][: max(len(self._carried) - _MOST_REMEMBERED, 0)]:
            del self._carried[oldest]
        return memory
