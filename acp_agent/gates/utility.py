"""Skip calls whose expected use is too small for their cost. It is off unless configured.

    worth = gain - 0.5 cost - 0.3 repetition + 0.2 novelty

    gain         the usual use of such a tool, 0 to 1
    cost         how full the model's window is, 0 to 1
    repetition   1 if the same call was answered in this turn and nothing has changed since, else 0
    novelty      1 at the first call of a turn, 0 from the eleventh on

The user's own calls, the agent's own calls and calls of exempt tools are not weighed. A call that changes something, or
that asks for the state of running work, is never skipped for its worth. If the worth cannot be computed, the call does
not run.
"""

import hashlib
import json
import math
from collections.abc import Callable, Collection
from typing import NamedTuple

from acp_agent.core.ports import Invocation
from acp_agent.core.types import Allow, CallOrigin, Deny, Phase, ToolCall, ToolResult, Verdict
from acp_agent.gates.gate import CallFacts, Gate

_GAINS = {
    "memory_search": 0.8,
    "memory_save": 0.8,
    "grep": 0.65,
    "find_path": 0.65,
    "bash": 0.6,
    "read": 0.55,
    "write": 0.55,
}
_OTHER_GAIN = 0.5
_NOVEL_CALLS = 10


class Prospect(NamedTuple):
    """The factors of a call before it runs, each from 0 to 1."""

    gain: float
    cost: float
    repetition: float
    novelty: float

    @property
    def worth(self) -> float:
        """The worth; NaN if a factor is not from 0 to 1."""
        parts = (self.gain, self.cost, self.repetition, self.novelty)
        if not all(0 <= part <= 1 for part in parts):
            return math.nan
        return self.gain - 0.5 * self.cost - 0.3 * self.repetition + 0.2 * self.novelty


Weigh = Callable[[Invocation, "TurnCalls"], float]
"""Returns the worth of a call; not a finite number if it cannot be computed."""


class TurnCalls:
    """The calls of the current turn of a session, and how full the model's window is."""

    def __init__(self) -> None:
        self._occupied = 0.0
        self._begun: dict[str, int] = {}
        """The ids of the turn's calls, each with the number of changes before the call began."""
        self._answered: dict[str, str] = {}
        self._changes = 0
        self._skipped: dict[str, str] = {}
        self.skips = 0

    def turn_began(self) -> None:
        """Begin a turn without calls."""
        self._begun.clear()
        self._skipped.clear()
        self.changed()

    def clear(self) -> None:
        """Forget the conversation, after /clear."""
        self.turn_began()
        self._occupied = 0.0
        self.skips = 0

    def measured(self, used: float, size: float) -> None:
        """Note the tokens of the conversation and of the model's window."""
        share = used / size if size else 0.0
        self._occupied = 1.0 if share > 1 else share

    @property
    def cost(self) -> float:
        """The cost from 0 to 1; NaN if the measured figures were NaN."""
        return self._occupied

    def novelty(self, call: ToolCall) -> float:
        """Return the novelty of a call, from 1 down to 0, by the number of other calls of the turn."""
        others = len(self._begun) - (call.id in self._begun)
        return max(0.0, 1 - others / _NOVEL_CALLS)

    def repeats(self, call: ToolCall) -> bool:
        """Return whether an equal call was answered in this turn, and nothing has changed since."""
        return self._answered.get(_digest(call), call.id) != call.id

    def insists(self, call: ToolCall) -> bool:
        """Return whether an equal call was already skipped in this turn."""
        return self._skipped.get(_digest(call), call.id) != call.id

    def began(self, call: ToolCall) -> None:
        """Count a call that was admitted."""
        self._begun[call.id] = self._changes

    def answered(self, call: ToolCall) -> None:
        """Take note of a call that changed nothing and succeeded, unless something changed since it began."""
        if self._begun.get(call.id) == self._changes:
            self._answered.setdefault(_digest(call), call.id)

    def changed(self) -> None:
        """Note that something may have changed, so that repeated calls may have another answer now."""
        self._answered.clear()
        self._changes += 1

    def skipped(self, call: ToolCall) -> None:
        self._begun[call.id] = self._changes
        self._skipped.setdefault(_digest(call), call.id)
        self.skips += 1

    def status(self, threshold: float, exempt: Collection[str]) -> tuple[str, ...]:
        """Return a line for /status if the gate is on."""
        calls = f"{self.skips} call{'' if self.skips == 1 else 's'} worth less than {threshold:g} skipped"
        return (f"Utility gate: {calls}; never skipped: {', '.join(sorted(exempt)) or 'nothing'}",)


def worth(invocation: Invocation, turn: TurnCalls) -> float:
    """Return the worth of a call by the formula of this module."""
    spec = invocation.spec
    gain = _OTHER_GAIN if spec.server else _GAINS.get(spec.name, _OTHER_GAIN)
    return Prospect(gain, turn.cost, float(turn.repeats(invocation.call)), turn.novelty(invocation.call)).worth


class UtilityGate(Gate):
    """A gate that skips calls worth less than `threshold`.

    A model that repeats a skipped call gets a second answer, which is the same for every further repetition. The loop
    detection tells the model of equal answers and then ends the turn, so repeating never makes the call run.
    """

    name = "utility"

    def __init__(
        self,
        turn: TurnCalls,
        threshold: float,
        exempt: Collection[str] = (),
        weigh: Weigh = worth,
    ) -> None:
        self._turn = turn
        self._threshold = threshold
        self._exempt = frozenset(exempt)
        self._weigh = weigh

    def judge(self, facts: CallFacts) -> Verdict:
        call, spec = facts.call, facts.spec
        if call.origin is CallOrigin.USER or call.phase is not Phase.EXECUTOR or spec.name in self._exempt:
            return Allow()
        worth = self._weigh(facts.invocation, self._turn)
        if not (math.isfinite(worth) and math.isfinite(self._threshold)):
            return Deny("not run: the worth of this call cannot be computed", rule=f"worth {worth}")
        if worth >= self._threshold or spec.mutates or spec.polls:
            return Allow()
        return Deny(self._why(facts.call), rule=f"worth {worth:.2f} < {self._threshold:.2f}")

    async def examine(self, facts: CallFacts) -> Verdict:
        """Judge the call before it is counted, so that it does not lower its own novelty."""
        verdict, turn = self.judge(facts), self._turn
        if isinstance(verdict, Deny):
            turn.skipped(facts.call)
            return verdict
        turn.began(facts.call)
        if facts.spec.mutates:
            turn.changed()
        return verdict

    async def conclude(self, facts: CallFacts, result: ToolResult) -> ToolResult:
        """Note that the call was answered, or that it may have changed something, even if it failed half-way."""
        if facts.spec.mutates:
            self._turn.changed()
        elif result.failure is None:
            self._turn.answered(facts.call)
        return result

    def _why(self, call: ToolCall) -> str:
        if self._turn.insists(call):
            return "skipped again: this call stays skipped in this turn. Go on without it, or answer with what you have"
        if self._turn.repeats(call):
            return "skipped: the same call was made in this turn and nothing has changed since; use its answer"
        return "skipped: this call is not worth its cost now; use what you have, or do something else"


def _digest(call: ToolCall) -> str:
    """Return a key of the name and the sorted arguments."""
    asked = json.dumps([call.name, call.arguments], sort_keys=True)
    return hashlib.sha256(asked.encode()).hexdigest()
