"""What a gate is, and the gates of a session in their order."""

from dataclasses import dataclass
from typing import ClassVar

from acp_agent.core.ports import Invocation
from acp_agent.core.types import Deny, Ruling, ToolResult, ToolSpec, Verdict
from acp_agent.gates.facts import CallFacts
from acp_agent.gates.paths.command_paths import Expand, unexpanded


class Gate:
    """Judges calls by their subjects, never by the names of tools or arguments.

    name   what the audit calls it
    """

    name: ClassVar[str] = "gate"

    def allows(self, spec: ToolSpec) -> bool:
        """Return whether a tool belongs in the catalogue: False if every call of it would be refused."""
        del spec
        return True

    def judge(self, facts: CallFacts) -> Verdict:
        """Return Allow (no objection), Ask or Deny. It runs nothing, asks nobody and counts nothing."""
        raise NotImplementedError

    async def examine(self, facts: CallFacts) -> Verdict:
        """Judge a call that is about to run. Gates that count, wait or ask override this."""
        return self.judge(facts)

    async def conclude(self, facts: CallFacts, result: ToolResult) -> ToolResult:
        """Take note of the result of a call that this gate did not end, and return it. Cancelled calls have none."""
        del facts
        return result

    def refusal(self, denial: Deny) -> ToolResult:
        """Return the result of a call that this gate ends."""
        return ToolResult.refused(denial.reason, denial.category, Ruling(self.name, denial.rule))


@dataclass(frozen=True, slots=True)
class Gates:
    """The gates of a session. Calls pass them from the first to the last.

    expand   returns the files that a pattern of a command stands for
    """

    in_order: tuple[Gate, ...] = ()
    expand: Expand = unexpanded

    def facts(self, invocation: Invocation, repair: str = "") -> CallFacts:
        """Return the facts of a call. `repair` tells the user how a model made its arguments fit."""
        return CallFacts(invocation, self.expand, repair=repair)

    def offer(self, spec: ToolSpec) -> bool:
        """Return whether the model may see a tool: no gate refuses every call of it."""
        return all(gate.allows(spec) for gate in self.in_order)
