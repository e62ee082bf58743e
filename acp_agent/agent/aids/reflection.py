"""Advice to a model that keeps calling a tool with arguments that do not fit, and statistics of such mistakes.

Only arguments that do not fit count. After an unknown tool, a network failure or a refusal the result itself says what
to do.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.messages import ToolUsePart
from acp_agent.core.types import ToolResult
from acp_agent.text import REFLECTION


@dataclass(frozen=True, slots=True)
class Record:
    """The number of calls of one model, and how many of them were mistakes of the model."""

    calls: int = 0
    mistakes: int = 0

    @property
    def score(self) -> float:
        """Return the expected share of correct calls, 0 to 1, by the rule of succession. It is 0.5 without any call."""
        return (self.calls - self.mistakes + 1) / (self.calls + 2)


class Reputation:
    """The record of each model. Calls that a gate, the user or an outside failure stopped are not counted.

    model   returns the model whose calls are running, as "PROVIDER:MODEL"
    """

    def __init__(self, model: Callable[[], str]) -> None:
        self._model = model
        self._records: dict[str, Record] = {}

    def of(self, model: str) -> Record:
        """Return the record of a model."""
        return self._records.get(model, Record())

    def clear(self) -> None:
        """Forget all records, because a new conversation begins."""
        self._records.clear()

    def finished(self, outcomes: Iterable[tuple[ToolUsePart, ToolResult]]) -> None:
        """Count the calls of one round."""
        model = self._model()
        record = self.of(model)
        for _, result in outcomes:
            mistaken = result.failure is not None and result.failure.category.quality_failure
            if result.failure is None or mistaken:
                record = Record(record.calls + 1, record.mistakes + mistaken)
        self._records[model] = record

    def status(self) -> tuple[str, ...]:
        """Return lines for /status, one for each model that made a mistake."""
        return tuple(
            f"Reputation: {model} {record.score:.2f} ({record.mistakes} of {record.calls} calls did not fit their tool)"
            for model, record in self._records.items()
            if record.mistakes
        )


REPEATED = 2
"""The number of failures of one tool in a turn after which the model gets the advice."""

_WORTH_IT = frozenset({ToolErrorCategory.INVALID_PARAMETERS, ToolErrorCategory.TYPE_MISMATCH})


class Reflection:
    """Counts failures by tool. A success of the tool and a new turn start its count again."""

    def __init__(self, reputation: Reputation) -> None:
        self._reputation = reputation
        self._failures: Counter[str] = Counter()

    def begin(self) -> None:
        """Begin a turn."""
        self._failures.clear()

    def clear(self) -> None:
        """Forget all counts, because a new conversation begins."""
        self._failures.clear()
        self._reputation.clear()

    def finished(self, outcomes: Iterable[tuple[ToolUsePart, ToolResult]]) -> str | None:
        """Count the calls of one round. Return a block for the model to read behind the results, or None."""
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
        """Return lines for /status."""
        return self._reputation.status()


def _advice(tool: str, failures: int) -> str:
    return (
        f"{tool}: {failures} calls in this turn had arguments that do not fit. Before the next one, compare what you "
        "sent with the tool's schema, field by field, and change what the errors name; or do it another way."
    )
