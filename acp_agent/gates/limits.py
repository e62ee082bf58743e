"""Limit the batches of tool calls of a session, the calls in an hour, and the failures of a tool.

Quota: all calls of one model message are one batch and count once, whatever their results; a retry is no new call. When
the quota is used up, no call of a batch runs, and each is answered with `quota_blocked`.

Anomaly: the user is warned of a tool that keeps failing, and if configured, the tool is blocked for the session. Only
failures of the tool itself count. Refusals, denials by the user and cancellations do not, because a hostile text could
provoke them to make a tool unavailable. Wrong arguments of the model say nothing about the tool and do not count.
Such calls are left out of the rate, so they do not hide real failures. A command that ran is a success of its tool,
also if it timed out or had another exit code than 0.

A permanent failure is often an ordinary answer, such as "no such file". So these failures count only when the window is
full. Time-outs, network errors, server errors and crashes count from the fifth call on.
"""

import math
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.events import EventSink, Notice, Severity
from acp_agent.core.types import Allow, CallOrigin, Deny, ToolCall, ToolResult, ToolSpec, Verdict
from acp_agent.gates.gate import CallFacts, Gate
from acp_agent.log import Log


class QuotaUse(NamedTuple):
    """The used quota of a session, for /status. `limit` is in batches; None means no limit."""

    batches: int
    calls: int
    limit: int | None


_REMEMBERED = 10_000
"""How many of the newest batches and calls a quota remembers. An older call would count again; none runs so long."""


class Quota:
    """The quota of one session. It never awaits between checking and counting, so it is exact under concurrency.

    limit   the most batches of a session; None for no limit
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._used = (0, 0)  # batches and calls
        self._batches: dict[str, None] = {}  # the ids, oldest first
        self._calls: dict[str, None] = {}

    @property
    def use(self) -> QuotaUse:
        """The use since the start, or since `reset`."""
        return QuotaUse(*self._used, self.limit)

    def limit_to(self, limit: int | None) -> None:
        """Allow this many batches from now on; None for no limit."""
        self.limit = limit

    def restore(self, batches: int, calls: int) -> None:
        """Go on counting from what a stored session has used."""
        self._used = (batches, calls)

    def admits(self, call: ToolCall) -> bool:
        """Return whether a call may run. The user's calls always may, and so may other calls of an admitted batch."""
        if call.origin is CallOrigin.USER or self.limit is None:
            return True
        return (call.batch or call.id) in self._batches or self._used[0] < self.limit

    def take(self, call: ToolCall) -> bool:
        """Return `admits`, and count the call if that is true. The same call counts once."""
        admitted = self.admits(call)
        if admitted and call.origin is not CallOrigin.USER:
            batches, calls = self._used
            batch = call.batch or call.id
            self._used = batches + (batch not in self._batches), calls + (call.id not in self._calls)
            for known, key in ((self._batches, batch), (self._calls, call.id)):
                known[key] = None
                if len(known) > _REMEMBERED:
                    del known[next(iter(known))]
        return admitted

    def reset(self) -> None:
        """Start over, for /clear."""
        self._batches.clear()
        self._calls.clear()
        self._used = (0, 0)


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

_ADVICE = "The call is not repeated automatically: finish with what you have, and tell the user when to go on."


class RateLimit:
    """The calls of one session in the last hour. /clear does not reset them.

    calls_per_hour   the most calls in any hour; 0 for no limit
    clock            returns seconds that never decrease (`time.monotonic`)
    """

    def __init__(self, calls_per_hour: int, clock: Callable[[], float]) -> None:
        self.calls_per_hour = calls_per_hour
        self._clock = clock
        # Call id to the time at which the call leaves the window, oldest first. The time is computed only once, because
        # `taken + WINDOW` and `now - taken` round differently: a call could be over the limit with a wait of 0 s.
        self._leaves: dict[str, float] = {}

    def limit_to(self, calls_per_hour: int) -> None:
        """Allow this many calls in any hour from now on; 0 for no limit."""
        self.calls_per_hour = calls_per_hour

    @property
    def used(self) -> int:
        """The number of calls in the last hour."""
        return len(self._recent(self._clock()))

    def wait(self, call: ToolCall) -> float:
        """Return the seconds until a call may run; 0 if it may run now. The user's own calls always may."""
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
    """Return a duration in words. It is rounded up, so that a call after this time is admitted."""
    whole = math.ceil(seconds)
    return f"{whole} s" if whole < 120 else f"{math.ceil(whole / 60)} min"


MIN_SAMPLES = 5
"""The fewest calls by which a tool is judged. If the window is shorter, it must be full."""

_log = Log(__name__)


class Outcome(StrEnum):
    """The judgement on a tool from the result of one call."""

    FINE = "fine"
    FRUITLESS = "fruitless"  # the tool worked, but the answer was an error such as "no such file"
    BROKEN = "broken"


def outcome_of(result: ToolResult) -> Outcome | None:
    """Return what a result says about its tool; None if it says nothing, such as that of a refused call."""
    if result.ruling is not None and result.ruling.gate:
        return None
    if result.failure is None or "exit_code" in (result.envelope or {}):
        return Outcome.FINE
    if result.failure.category is ToolErrorCategory.PERMANENT_FAILURE:
        return Outcome.FRUITLESS
    return Outcome.BROKEN if result.failure.category.retryable else None


class Alarm(NamedTuple):
    """A tool whose failures passed the threshold: `failures` of its last `calls`."""

    tool: str
    failures: int
    calls: int

    @property
    def rate(self) -> float:
        """The rate of failures, from 0 to 1."""
        return self.failures / self.calls


class AnomalyDetector:
    """The recent calls of each tool of one session.

    window_size         the calls of a tool that are remembered, 1 or more
    failure_threshold   the rate of failures, above 0 and below 1, that must be exceeded
    auto_block          whether a tool is then blocked; otherwise the user is only warned
    """

    def __init__(self, window_size: int = 20, failure_threshold: float = 0.7, *, auto_block: bool = True) -> None:
        self._size = window_size
        self._threshold = failure_threshold
        self._auto_block = auto_block
        self._windows: dict[str, deque[Outcome]] = {}
        self._alarms: dict[str, Alarm] = {}

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """The tools that fail too often, for /status."""
        return tuple(self._alarms.values())

    def blocked(self, tool: str) -> Alarm | None:
        """Return why a tool is blocked; None if it is not."""
        return self._alarms.get(tool) if self._auto_block else None

    def record(self, tool: str, outcome: Outcome) -> Alarm | None:
        """Remember a call. Return the alarm if this call raises one. A late success does not unblock a tool."""
        window = self._windows.setdefault(tool, deque(maxlen=self._size))
        window.append(outcome)
        raised = None
        if len(window) >= min(MIN_SAMPLES, self._size):
            fruitless = window.count(Outcome.FRUITLESS) if len(window) == self._size else 0
            failures = window.count(Outcome.BROKEN) + fruitless
            raised = Alarm(tool, failures, len(window)) if failures / len(window) > self._threshold else None
        if raised is None and not self._auto_block:
            self._alarms.pop(tool, None)  # the user is warned again if the failures come back
        if raised is None or tool in self._alarms:
            return None
        self._alarms[tool] = raised
        return raised

    def reset(self, tool: str = "") -> None:
        """Forget the calls of a tool, or of all tools, because the user asked for it."""
        for name in [tool] if tool else [*self._windows]:
            self._windows.pop(name, None)
            self._alarms.pop(name, None)


class AnomalyGate(Gate):
    """A gate that watches results and refuses blocked tools. It ignores calls that the user types.

    emit   called once when a tool starts to fail too often
    """

    name = "anomaly"

    def __init__(self, detector: AnomalyDetector, emit: EventSink) -> None:
        self._detector = detector
        self._emit = emit

    @property
    def chooses(self) -> bool:
        return bool(self._detector.alarms)

    def allows(self, spec: ToolSpec) -> bool:
        """Return whether a tool is offered to the model."""
        return self._detector.blocked(spec.name) is None

    def judge(self, facts: CallFacts) -> Verdict:
        alarm = self._detector.blocked(facts.spec.name)
        if alarm is None or facts.call.origin is CallOrigin.USER:
            return Allow()
        return Deny(
            f"'{alarm.tool}' is blocked: {alarm.failures} of its last {alarm.calls} calls failed. Do without it; "
            f"the user can allow it again with /tools reset {alarm.tool}",
            rule=f"failure rate {alarm.rate:.2f}",
        )

    async def conclude(self, facts: CallFacts, result: ToolResult) -> ToolResult:
        outcome = Outcome.BROKEN if result.crashed else outcome_of(result)
        if outcome is None or facts.call.origin is CallOrigin.USER:
            return result
        tool = facts.spec.name
        alarm = self._detector.record(tool, outcome)
        if alarm is not None:
            blocked = self._detector.blocked(tool) is not None
            rate = round(alarm.rate, 2)
            _log.warning("tool fails too often", tool=tool, rate=rate, calls=alarm.calls, blocked=blocked)
            what = f"{tool}: {alarm.failures} of the last {alarm.calls} calls failed"
            told = f"{what}; it is blocked until you type /tools reset {tool}" if blocked else what
            await self._emit(Notice(Severity.WARNING, told))
        return result
