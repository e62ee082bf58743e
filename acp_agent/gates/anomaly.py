"""Warn of a tool that keeps failing, and block it for the session if configured.

Only failures of the tool itself count. Refusals, denials by the user and cancellations do not, because provoking them
could then take a tool from the user. The model's own mistakes (wrong arguments) say nothing about the tool and do not
count either. None of these is a sample, so they do not hide real failures. A command that ran is a success of its tool,
however it ended: a timeout or an exit code is the command's own, or the model's.

A permanent failure is often an ordinary answer (no such file): a model that looks for four missing files has broken
nothing. So these failures count only if the window is full. Time-outs, network errors, server errors and crashes count
from the first few calls on.
"""

from collections import deque
from enum import StrEnum
from typing import NamedTuple

from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.events import EventSink, Notice, Severity
from acp_agent.core.types import Allow, CallOrigin, Deny, ToolResult, ToolSpec, Verdict
from acp_agent.gates.gate import CallFacts, Gate
from acp_agent.log import Log

MIN_SAMPLES = 5
"""The calls before a tool is judged, or the whole window if it is shorter."""

_log = Log(__name__)


class Outcome(StrEnum):
    """The judgement on a tool from the result of one call."""

    FINE = "fine"
    FRUITLESS = "fruitless"  # it worked, and the answer was no
    BROKEN = "broken"


def outcome_of(result: ToolResult) -> Outcome | None:
    """Return what a result says about its tool; None if it says nothing, as that of a call which a gate ended."""
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
            self._alarms.pop(tool, None)  # the user is warned again if it returns
        if raised is None or tool in self._alarms:
            return None
        self._alarms[tool] = raised
        return raised

    def reset(self, tool: str = "") -> None:
        """Trust a tool again, or all of them, as the user asked."""
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
        """Count the result for the tool."""
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
