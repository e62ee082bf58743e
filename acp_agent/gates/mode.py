"""The mode of the session, enforced (requirements A14.3): what kinds of tools may run at all."""

from typing import assert_never

from acp_agent.core.conduct import Conduct, Mode
from acp_agent.core.types import Allow, Deny, ToolKind, ToolSpec, Verdict
from acp_agent.gates.facts import CallFacts
from acp_agent.gates.gate import Gate

# "other" is what the seeds call find_path, list_directory and memory_search (requirements 4, row 60).
_READING = frozenset((ToolKind.READ, ToolKind.SEARCH, ToolKind.FETCH, ToolKind.THINK, ToolKind.OTHER))
_PLANNING = _READING | {ToolKind.SWITCH_MODE}


class ModeGate(Gate):
    """Refuses tools the mode has no use for, whoever calls them. The conduct is read anew for each call.

    ask         reads, searches and fetches; nothing that changes anything
    architect   the same, and may change the mode: plans, but neither writes nor executes
    code        everything
    """

    name = "mode"

    def __init__(self, conduct: Conduct) -> None:
        self._conduct = conduct

    def allows(self, spec: ToolSpec) -> bool:
        """Whether a tool belongs in the catalogue of the mode in force."""
        mode = self._conduct.mode
        match mode:
            case Mode.CODE:
                return True
            case Mode.ARCHITECT:
                return not spec.mutates and spec.kind in _PLANNING
            case Mode.ASK:
                return not spec.mutates and spec.kind in _READING
            case _:
                assert_never(mode)

    def judge(self, facts: CallFacts) -> Verdict:
        mode, name = self._conduct.mode, facts.spec.name
        executes = bool(facts.commands)
        if self.allows(facts.spec) and (mode is Mode.CODE or not executes):
            return Allow()
        return Deny(f"'{name}' is not available in {mode} mode; the user can switch the mode to code")
