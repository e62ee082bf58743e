"""Limit the batches of tool calls of a session, and the calls in an hour.

All calls of one model message are one batch and count once, whatever their results; a retry is no new call. When the
quota is used up, no call of a batch runs, and each is answered with `quota_blocked`.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.types import Allow, CallOrigin, Deny, ToolCall, Verdict
from acp_agent.gates.gate import CallFacts, Gate


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

    def restore(self, batches: int, calls: int) -> None:
        """Go on counting from what a stored session has used."""
        self._earlier = (batches, calls)

    def admits(self, call: ToolCall) -> bool:
        """Return whether a call may run. The user's own calls are free, and an admitted batch stays admitted."""
        if call.origin is CallOrigin.USER or self.limit is None:
            return True
        return (call.batch or call.id) in self._batches or self._earlier[0] + len(self._batches) < self.limit

    def take(self, call: ToolCall) -> bool:
        """Return `admits`, and count the call if that is true. The same call counts once."""
        admitted = self.admits(call)
        if admitted and call.origin is not CallOrigin.USER:
            self._batches.add(call.batch or call.id)
            self._calls.add(call.id)
        return admitted

    def reset(self) -> None:
        """Start over, for /clear."""
        self._batches.clear()
        self._calls.clear()
        self._earlier = (0, 0)


class QuotaGate(Gate):
    """A gate that refuses calls beyond the session's quota."""

    name = "quota"

    def __init__(self, quota: Quota) -> None:
        self._quota = quota

    def judge(self, facts: CallFacts) -> Verdict:
        return Allow() if self._quota.admits(facts.call) else self._denial()

    def _denial(self) -> Deny:
        return Deny(
            f"quota_blocked: the {self._quota.limit} batches of tool calls of this session are used up "
            "(tools.max_tool_calls_per_session); /clear starts over",
            rule=f"max_tool_calls_per_session = {self._quota.limit}",
        )

    async def examine(self, facts: CallFacts) -> Verdict:
        """Count the call if it is admitted, and judge it."""
        return Allow() if self._quota.take(facts.call) else self._denial()


WINDOW = 3600.0
"""The length of the window in seconds."""

_ADVICE = "Nothing repeats this call by itself: finish with what you have, and tell the user when to go on."


class RateLimit:
    """The calls of one session in the last hour. /clear does not reset them.

    calls_per_hour   the most calls in any hour; 0 for no limit
    clock            returns seconds that never decrease (`time.monotonic`)
    """

    def __init__(self, calls_per_hour: int, clock: Callable[[], float]) -> None:
        self.calls_per_hour = calls_per_hour
        self._clock = clock
        # Call id to the time at which the call leaves the window, oldest first. That time is computed once: `taken +
        # WINDOW` and `now - taken` round differently, so a call could be counted and yet have no time left to wait for.
        self._leaves: dict[str, float] = {}

    def limit_to(self, calls_per_hour: int) -> None:
        """Allow this many calls in any hour from now on; 0 for no limit."""
        self.calls_per_hour = calls_per_hour

    @property
    def used(self) -> int:
        """The number of calls in the last hour, for /status."""
        return len(self._recent(self._clock()))

    def wait(self, call: ToolCall) -> float:
        """Return the seconds until a call may run; 0 if it may run now. The user's own calls are free."""
        if call.origin is CallOrigin.USER or not self.calls_per_hour or call.id in self._leaves:
            return 0.0
        now = self._clock()
        recent = self._recent(now)
        return 0.0 if len(recent) < self.calls_per_hour else min(recent[-self.calls_per_hour] - now, WINDOW)

    def take(self, call: ToolCall) -> float:
        """Return `wait`, and count the call if that is 0. The same call counts once."""
        wait = self.wait(call)
        if not wait and self.calls_per_hour and call.origin is not CallOrigin.USER:
            now = self._clock()
            self._leaves = {key: leaves for key, leaves in self._leaves.items() if leaves > now}
            self._leaves.setdefault(call.id, now + WINDOW)
        return wait

    def _recent(self, now: float) -> list[float]:
        """Return when each call of the last hour leaves the window, oldest first."""
        return [leaves for leaves in self._leaves.values() if leaves > now]


class RateLimitGate(Gate):
    """A gate that refuses calls beyond the session's rate.

    The category is `rate_limited`, because only time helps and the model made no mistake. No retry waits for up to an
    hour: the refusal ends the call.
    """

    name = "rate_limit"

    def __init__(self, limit: RateLimit) -> None:
        self._limit = limit

    def judge(self, facts: CallFacts) -> Verdict:
        wait = self._limit.wait(facts.call)
        return self._denial(wait) if wait else Allow()

    def _denial(self, wait: float) -> Deny:
        calls = self._limit.calls_per_hour
        return Deny(
            f"rate limit: {calls} tool calls an hour are allowed; the next one is possible in {_duration(wait)}",
            ToolErrorCategory.RATE_LIMITED,
            rule=f"calls_per_hour = {calls}",
            advice=_ADVICE,
        )

    async def examine(self, facts: CallFacts) -> Verdict:
        """Judge the call, and count it if it may run."""
        wait = self._limit.take(facts.call)
        return self._denial(wait) if wait else Allow()


def _duration(seconds: float) -> str:
    """Return a duration in words, rounded up, so that a call after it is admitted."""
    whole = math.ceil(seconds)
    return f"{whole} s" if whole < 120 else f"{math.ceil(whole / 60)} min"
