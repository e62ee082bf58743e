"""Arguments that do not fit a tool, made to fit, and how the model is told (requirements L6.7)."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from acp_agent.core.errors import ToolFailure
from acp_agent.core.types import JsonObject, ToolCall, ToolResult, ToolSpec

Mend: TypeAlias = Callable[[ToolCall, ToolSpec, ToolFailure], Awaitable[JsonObject | None]]
"""Arguments in place of a call's own, which do not fit for the reason given; None when there are none. Takes a bounded
time, and raises nothing but cancellation."""

_LONGEST = 500  # characters of the reason, and of the arguments


@dataclass(frozen=True, slots=True)
class Mending:
    """Who mends, and who is told the id of a call that runs with mended arguments: the audit.

    by   who mends, for the user
    """

    mend: Mend
    told: Callable[[str], None]
    by: str = "a model"


@dataclass(frozen=True, slots=True)
class Mended:
    """Why the model's own arguments did not fit, those that run in their place, and who made them."""

    reason: str
    arguments: JsonObject
    by: str = "a model"

    @property
    def for_user(self) -> str:
        """What the user hears of it."""
        return f"the arguments did not fit and were mended by {self.by}"

    def told_in(self, result: ToolResult) -> ToolResult:
        """The result with a line behind it, for the model: else it would take its arguments for right ones."""
        ran = _cut(json.dumps(self.arguments, ensure_ascii=False))
        note = f"[arguments mended: yours did not fit ({_cut(self.reason)}), so the call was made with {ran}]"
        return replace(result, text=f"{result.text}\n\n{note}", display=result.shown)


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
