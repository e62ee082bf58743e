"""How well each model calls tools (requirements L6.12): only its own mistakes count against it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from acp_agent.core.messages import ToolUsePart
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
