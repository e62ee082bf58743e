"""Arguments of a model that do not fit a tool, made to fit by another model."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.types import JsonObject, ToolCall, ToolResult, ToolSpec

Repair: TypeAlias = Callable[[ToolCall, ToolSpec, ToolFailure], Awaitable[JsonObject | None]]
"""Return arguments in place of a call's own, which do not fit for the reason given; None if there are none. It takes
a bounded time, and raises nothing but cancellation."""

REPAIRABLE = frozenset({ToolErrorCategory.INVALID_PARAMETERS, ToolErrorCategory.TYPE_MISMATCH})
"""Categories of failures that other arguments may end."""

_LONGEST = 500  # characters of the reason, and of the arguments


@dataclass(frozen=True, slots=True)
class ArgumentRepairer:
    """Something that repairs arguments. `name` tells the user what it is."""

    repair: Repair
    name: str = "a model"


@dataclass(frozen=True, slots=True)
class RepairedArguments:
    """Why the model's own arguments did not fit, those that replace them, and who made them."""

    reason: str
    arguments: JsonObject
    by: str = "a model"

    @property
    def for_user(self) -> str:
        """The sentence that tells the user."""
        return f"the arguments did not fit and were repaired by {self.by}"

    def told_in(self, result: ToolResult) -> ToolResult:
        """Return the result with a line for the model, which would otherwise take its arguments for right ones."""
        ran = _cut(json.dumps(self.arguments, ensure_ascii=False))
        note = f"[arguments repaired: yours did not fit ({_cut(self.reason)}), so the call was made with {ran}]"
        return replace(result, text=f"{result.text}\n\n{note}", display=result.shown)


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
