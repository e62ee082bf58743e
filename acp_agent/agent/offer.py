"""What the model is shown of the tools, call by call, and how its calls come back from that (L3, L4, L5).

The loop asks in this order: `begin` once a turn, then for each model call `offered`, `received` and, when the calls
have run, `finished`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from acp_agent.core.messages import Message, ToolUsePart
from acp_agent.core.types import ToolResult, ToolSpec


@dataclass(frozen=True, slots=True)
class Received:
    """An answer of the model as the history may keep it.

    answered   the results of calls in it that are not to run, by id
    unseen     those of them the user does not hear of either: nothing was called (section 4 row 11)
    """

    message: Message
    answered: Mapping[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    unseen: frozenset[str] = frozenset()


class Offer(Protocol):
    """Chooses and dresses the tools the model sees. One a conversation; knows its whole past."""

    async def begin(self, prompt: Message, specs: Sequence[ToolSpec]) -> None:
        """A turn begins. Raises nothing but cancellation."""
        ...

    def offered(self, specs: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
        """What of all tools the model is shown in its next call."""
        ...

    def received(self, message: Message) -> Received:
        """Take off what `offered` put on. The ids of all tool uses are fit and unique."""
        ...

    def finished(self, outcomes: Iterable[tuple[ToolUsePart, ToolResult]]) -> None:
        """The calls of one message have their results."""
        ...

    def clear(self) -> None:
        """The conversation begins anew."""
        ...

    def status(self) -> Sequence[str]:
        """Lines for /status; none about what is switched off."""
        ...


class WholeOffer:
    """Every tool, as it is."""

    async def begin(self, prompt: Message, specs: Sequence[ToolSpec]) -> None:
        """Nothing to prepare."""

    def offered(self, specs: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
        return specs

    def received(self, message: Message) -> Received:
        return Received(message)

    def finished(self, outcomes: Iterable[tuple[ToolUsePart, ToolResult]]) -> None:
        """Nothing to remember."""

    def clear(self) -> None:
        """Nothing to forget."""

    def status(self) -> Sequence[str]:
        return ()
