"""A word to a model that keeps calling a tool wrongly (requirements L6.8, section 4 row 24).

Only for arguments that do not fit. A tool that is not there, a network that is down or a gate that says no are nothing
to reflect on: the result says what to do.
"""

from collections import Counter
from collections.abc import Iterable

from acp_agent.agent.reputation import Reputation
from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.messages import ToolUsePart
from acp_agent.core.tags import REFLECTION
from acp_agent.core.types import ToolResult

REPEATED = 2
"""Failures of a tool in one turn from which on its model is told."""

_WORTH_IT = frozenset({ToolErrorCategory.INVALID_PARAMETERS, ToolErrorCategory.TYPE_MISMATCH})


class Reflection:
    """Watches the rounds of a conversation; a success of a tool starts its count over, and so does a turn."""

    def __init__(self, reputation: Reputation) -> None:
        self._reputation = reputation
        self._failures: Counter[str] = Counter()

    def begin(self) -> None:
        """A turn begins."""
        self._failures.clear()

    def clear(self) -> None:
        """The conversation begins anew, with no mistake in it."""
        self._failures.clear()
        self._reputation.clear()

    def finished(self, outcomes: Iterable[tuple[ToolUsePart, ToolResult]]) -> str | None:
        """The calls of one message have their results. A block for the model to read behind them; None for nothing."""
        outcomes = list(outcomes)
        self._reputation.finished(outcomes)
        failed: dict[str, None] = {}
        for use, result in outcomes:
            if result.failure is None:
                self._failures.pop(use.name, None)
                failed.pop(use.name, None)
            elif result.failure.category in _WORTH_IT:
                self._failures[use.name] += 1
                failed[use.name] = None
        lines = [_advice(name, self._failures[name]) for name in failed if self._failures[name] >= REPEATED]
        return "\n".join((REFLECTION, *lines)) if lines else None

    def status(self) -> tuple[str, ...]:
        """Lines for /status."""
        return self._reputation.status()


def _advice(tool: str, failures: int) -> str:
    return (
        f"{tool}: {failures} calls in this turn had arguments that do not fit. Before the next one, compare what you "
        "sent with the tool's schema, field by field, and change what the errors name; or do it another way."
    )
