"""The port that decides which tools the model sees.

The loop calls `begin` once a turn. For each model call it calls `offered` and `received`, and `finished` after the tool
calls have run.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from acp_agent.core.messages import Message, ToolUsePart
from acp_agent.core.types import ToolResult, ToolSpec


@dataclass(frozen=True, slots=True)
class Received:
    """An answer of the model in the form in which the history keeps it.

    answered   the results of calls that are not to run, by id
    unseen     the ids of those calls that the user does not see either, because they contain nothing to run
    """

    message: Message
    answered: Mapping[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    unseen: frozenset[str] = frozenset()


class ToolSelection(Protocol):
    """Chooses and prepares the tools that the model sees. There is one for each conversation."""

    async def begin(self, prompt: Message, specs: Sequence[ToolSpec]) -> None:
        """Begin a turn. Raises only cancellation."""
        ...

    def offered(self, specs: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
        """Return the tools that the model sees in its next call."""
        ...

    def received(self, message: Message) -> Received:
        """Return the message without what `offered` added. The ids of its tool uses are valid and unique."""
        ...

    def finished(self, outcomes: Iterable[tuple[ToolUsePart, ToolResult]]) -> None:
        """Take the results of the calls of one message."""
        ...

    def clear(self) -> None:
        """Forget everything, because a new conversation begins."""
        ...

    def status(self) -> Sequence[str]:
        """Return lines for /status. Parts that are switched off add none."""
        ...


class AllTools:
    """A selection that shows every tool unchanged."""

    async def begin(self, prompt: Message, specs: Sequence[ToolSpec]) -> None:
        """Do nothing."""

    def offered(self, specs: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
        return specs

    def received(self, message: Message) -> Received:
        return Received(message)

    def finished(self, outcomes: Iterable[tuple[ToolUsePart, ToolResult]]) -> None:
        """Do nothing."""

    def clear(self) -> None:
        """Do nothing."""

    def status(self) -> Sequence[str]:
        return ()
