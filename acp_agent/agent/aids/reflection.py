"""A word to a model that keeps calling a tool wrongly (requirements L6.8, section 4 row 24).

Only for arguments that do not fit. A tool that is not there, a network that is down or a gate that says no are nothing
to reflect on: the result says what to do.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.messages import ToolUsePart
from acp_agent.core.tags import REFLECTION
from acp_agent.core.types import ToolResult


@dataclass(frozen=True, slots=True)
class Record:
    """The calls of one model that say something of it, and how many of them were mistakes."""

    calls: int = 0
    mistakes: int = 0

    @property
    def score(self) -> float:
        """From 0 to 1: the share of calls without mistake to expect (rule of succession); 0.5 without any call."""
        return (self.calls - self.mistakes + 1) / (self.calls + 2)


class Reputation:
    """By model. What the world, a gate or the user has stopped says nothing of the model and is no sample.

    model   whose calls are under way, as "PROVIDER:MODEL"
    """

    def __init__(self, model: Callable[[], str]) -> None:
        self._model = model
        self._records: dict[str, Record] = {}

    def of(self, model: str) -> Record:
        """What is known of a model."""
        return self._records.get(model, Record())

    def clear(self) -> None:
        """The conversation begins anew."""
        self._records.clear()

    def finished(self, outcomes: Iterable[tuple[ToolUsePart, ToolResult]]) -> None:
        """The calls of one message have their results."""
        model = self._model()
        record = self.of(model)
        for _, result in outcomes:
            mistaken = result.failure is not None and result.failure.category.quality_failure
            if result.failure is None or mistaken:
                record = Record(record.calls + 1, record.mistakes + mistaken)
        self._records[model] = record

    def status(self) -> tuple[str, ...]:
        """Lines for /status, one for each model that made a mistake."""
        return tuple(
            f"Reputation: {model} {record.score:.2f} ({record.mistakes} of {record.calls} calls did not fit their tool)"
            for model, record in self._records.items()
            if record.mistakes
        )


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
