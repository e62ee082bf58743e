"""What the gates of one session remember, whatever becomes of the configuration meanwhile."""

import time
from dataclasses import dataclass, field

from acp_agent.config import ToolSettings
from acp_agent.execution.grounding import Mentioned
from acp_agent.gates.anomaly import AnomalyDetector
from acp_agent.gates.quota import Quota
from acp_agent.gates.rate_limit import RateLimit
from acp_agent.gates.trust import Standing
from acp_agent.gates.utility import TurnCalls
from acp_agent.gates.verify.url_grounding import UrlMemory


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

    @classmethod
    def new(cls, tools: ToolSettings) -> "GateMemory":
        """For a session that begins. How failing tools are judged stays as it is now."""
        watch = tools.anomaly
        memory = cls(AnomalyDetector(watch.window_size, watch.failure_threshold, auto_block=watch.auto_block))
        memory.limit(tools)
        return memory

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
