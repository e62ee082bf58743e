"""Enforce the mode of the session: which kinds of tools may run at all."""

from typing import assert_never

from acp_agent.core.conduct import Mode, SessionOptions
from acp_agent.core.types import Allow, Deny, ToolKind, ToolSpec, Verdict
from acp_agent.gates.facts import CallFacts
from acp_agent.gates.gate import Gate

# Some clients call find_path, list_directory and memory_search "other".
_READING = frozenset((ToolKind.READ, ToolKind.SEARCH, ToolKind.FETCH, ToolKind.THINK, ToolKind.OTHER))
_PLANNING = _READING | {ToolKind.SWITCH_MODE}


class ModeGate(Gate):
    """Refuses tools that the mode does not allow. The mode is read for each call.

    ask         allows reading, searching and fetching
    architect   allows the same and changing the mode: it plans, but neither writes nor executes
    code        allows everything
    """

    name = "mode"

    def __init__(self, conduct: SessionOptions) -> None:
        self._conduct = conduct

    def allows(self, spec: ToolSpec) -> bool:
        """Return whether a tool is offered to the model in the current mode."""
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
