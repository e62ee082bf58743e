"""What the gates of one session remember, whatever becomes of the configuration meanwhile."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from weakref import WeakMethod

from acp_agent.config import ToolSettings
from acp_agent.core.ports import Invocation
from acp_agent.gates.anomaly import AnomalyDetector
from acp_agent.gates.grounding import Mentioned
from acp_agent.gates.quota import Quota
from acp_agent.gates.rate_limit import RateLimit
from acp_agent.gates.rules.trust_level import TrustLevel
from acp_agent.gates.trust import Standing
from acp_agent.gates.utility import TurnCalls
from acp_agent.gates.verify.url_grounding import UrlMemory

_MOST_REMEMBERED = 1000
"""Sessions; those beyond begin anew, the least recently used first."""


def _rate() -> RateLimit:
    return RateLimit(0, time.monotonic)


@dataclass(frozen=True, slots=True)
class GateMemory:
    """What has been counted, typed and trusted so far."""

    anomalies: AnomalyDetector
    quota: Quota = field(default_factory=Quota)
    rate: RateLimit = field(default_factory=_rate)
    urls: UrlMemory = field(default_factory=UrlMemory)
    turn: TurnCalls = field(default_factory=TurnCalls)
    mentioned: Mentioned = field(default_factory=Mentioned)
    standing: Standing = field(default_factory=Standing)

    def trust_served(self, trust: Callable[[Invocation], TrustLevel]) -> None:
        """How far tools of MCP servers are trusted, by a method of whoever has them; this outlives its owner."""
        known = WeakMethod(trust)

        def served(invocation: Invocation) -> TrustLevel:
            ours = known()
            return TrustLevel.UNTRUSTED if ours is None else ours(invocation)

        self.standing.served = served

    @classmethod
    def new(cls, tools: ToolSettings) -> "GateMemory":
        """For a session that begins. How failing tools are judged stays as it is now."""
        watch = tools.anomaly
        memory = cls(AnomalyDetector(watch.window_size, watch.failure_threshold, auto_block=watch.auto_block))
        memory.limit(tools)
        return memory

    def learn(self, typed: str) -> None:
        """The user has written this himself: what it names may be reached, and is not made up."""
        self.urls.learn(typed)
        self.mentioned.learn(typed)

    def clear(self) -> None:
        """The conversation begins anew (/clear, A17.3): nothing was counted or mentioned in it.

        What the user said of the folder and of tools stays, and so do the calls of the last hour: they are no part of
        the conversation.
        """
        self.anomalies.reset()
        self.quota.reset()
        self.urls.clear()
        self.turn.clear()
        self.mentioned.clear()

    def limit(self, tools: ToolSettings) -> None:
        """Let other limits hold for what was counted."""
        self.quota.limit = tools.max_tool_calls_per_session
        self.rate.calls_per_hour = tools.rate_limit.calls_per_hour


@dataclass(frozen=True, slots=True)
class _Carried:
    """What no rest, load or move makes undone. `folder` is where the session was."""

    folder: str
    anomalies: AnomalyDetector
    rate: RateLimit
    standing: Standing


class GateMemories:
    """What the gates remember of each session of a process, whatever becomes of its engines (G2, G4, S4).

    What was said in the conversation is not held here: the store gives that back.
    """

    def __init__(self) -> None:
        self._carried: dict[str, _Carried] = {}

    def of(self, session_id: str, folder: str, tools: ToolSettings) -> GateMemory:
        """For a session that gets an engine. What the user said of another folder does not count in this one."""
        memory, before = GateMemory.new(tools), self._carried.pop(session_id, None)
        if before is not None:
            memory = replace(memory, anomalies=before.anomalies, rate=before.rate, standing=before.standing)
            memory.limit(tools)
            if before.folder != folder:
                memory.standing.workspace = TrustLevel.PROVISIONAL
        self._carried[session_id] = _Carried(folder, memory.anomalies, memory.rate, memory.standing)
        for oldest in [*self._carried][: max(len(self._carried) - _MOST_REMEMBERED, 0)]:
            del self._carried[oldest]
        return memory
