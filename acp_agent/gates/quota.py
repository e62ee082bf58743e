"""Limit the batches of tool calls of a session.

All calls of one model message are one batch and count once, whatever their results; a retry is no new call. When the
quota is used up, no call of a batch runs, and each is answered with `quota_blocked`.
"""

from typing import NamedTuple

from acp_agent.core.types import Allow, CallOrigin, Deny, ToolCall, Verdict
from acp_agent.gates.facts import CallFacts
from acp_agent.gates.gate import Gate


class QuotaUse(NamedTuple):
    """The used quota of a session, for /status. `limit` is in batches; None means no limit."""

    batches: int
    calls: int
    limit: int | None


class Quota:
    """The count of one session. It never awaits between checking and counting, so it is exact under concurrency.

    limit   the most batches of a session; None for no limit
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._batches: set[str] = set()
        self._calls: set[str] = set()
        self._earlier = (0, 0)  # batches and calls in earlier processes

    @property
    def use(self) -> QuotaUse:
        """The use since the start, or since `reset`."""
        batches, calls = self._earlier
        return QuotaUse(batches + len(self._batches), calls + len(self._calls), self.limit)

    def limit_to(self, limit: int | None) -> None:
        """Allow this many batches from now on; None for no limit."""
        self.limit = limit

    def take_up(self, batches: int, calls: int) -> None:
        """Go on counting from what a stored session has used."""
        self._earlier = (batches, calls)

    def admits(self, call: ToolCall) -> bool:
        """Return whether a call may run. The user's own calls are free, and an admitted batch stays admitted."""
        if call.origin is CallOrigin.USER or self.limit is None:
            return True
        return _batch(call) in self._batches or self.use.batches < self.limit

    def take(self, call: ToolCall) -> None:
        """Count a call, if it is admitted. The same call counts once."""
        if call.origin is not CallOrigin.USER and self.admits(call):
            self._batches.add(_batch(call))
            self._calls.add(call.id)

    def reset(self) -> None:
        """Start over, for /clear."""
        self._batches.clear()
        self._calls.clear()
        self._earlier = (0, 0)


def _batch(call: ToolCall) -> str:
    return call.batch or call.id


class QuotaGate(Gate):
    """Refuses calls beyond the session's quota."""

    name = "quota"

    def __init__(self, quota: Quota) -> None:
        self._quota = quota

    def judge(self, facts: CallFacts) -> Verdict:
        if self._quota.admits(facts.call):
            return Allow()
        return Deny(
            f"quota_blocked: the {self._quota.limit} batches of tool calls of this session are used up "
            "(tools.max_tool_calls_per_session); /clear starts over",
            rule=f"max_tool_calls_per_session = {self._quota.limit}",
        )

    async def examine(self, facts: CallFacts) -> Verdict:
        """Count the call if it is admitted, and judge it."""
        self._quota.take(facts.call)
        return self.judge(facts)
