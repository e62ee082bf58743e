"""What may take part in a turn beside the model and its tools. Each does nothing unless it is switched on."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from acp_agent.agent.offer import Offer, WholeOffer
from acp_agent.core.messages import Message, ToolUsePart
from acp_agent.core.ports import Toolset
from acp_agent.core.types import ToolResult


class Observer(Protocol):
    """Looks at what became of the calls (L6.8)."""

    def begin(self) -> None:
        """A turn begins."""
        ...

    def finished(self, outcomes: Iterable[tuple[ToolUsePart, ToolResult]]) -> str | None:
        """What the model is told behind the results of a round; None for nothing."""
        ...


class Phases(Protocol):
    """Works of the agent's own in a turn (S7). What they return is told to the model; None for nothing."""

    def before_first_inference(self, prompt: Message, toolset: Toolset) -> Awaitable[str | None]:
        """The prompt stands in the history, no model was called. Raises only cancellation."""
        ...

    def after_round(
        self, outcomes: Iterable[tuple[ToolUsePart, ToolResult]], toolset: Toolset
    ) -> Awaitable[str | None]:
        """The calls of one message have their results, and the turn goes on. Raises only cancellation."""
        ...


class Room(Protocol):
    """Keeps the conversation within the context (L11)."""

    def begin(self) -> None:
        """A turn begins."""
        ...

    async def make(self, budget: int) -> bool:
        """Before a model call: shorten the conversation where that is due. `budget` is in tokens, over 0.

        False when it is not to be counted on, so that the turn stops early. Raises only cancellation.
        """
        ...

    async def overflowed(self) -> bool:
        """The model says that the conversation is too long: shorten it as far as can be; whether it is any shorter."""
        ...


class _NoObserver:
    def begin(self) -> None:
        """Nothing to forget."""

    def finished(self, outcomes: Iterable[tuple[ToolUsePart, ToolResult]]) -> None:
        """Has nothing to say."""


class _NoPhases:
    async def before_first_inference(self, prompt: Message, toolset: Toolset) -> None:
        """Prepares nothing."""

    async def after_round(self, outcomes: Iterable[tuple[ToolUsePart, ToolResult]], toolset: Toolset) -> None:
        """Verifies nothing."""


class _NoRoom:
    def begin(self) -> None:
        """Nothing to prepare."""

    async def make(self, budget: int) -> bool:
        del budget
        return False

    async def overflowed(self) -> bool:
        return False


def _untold() -> None:
    """Nobody is told."""


def _by_the_user() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Hooks:
    """Those of one conversation. Each has a state of its own: never share them between two.

    began      told when the history has the prompt: a model may be silent for long, and nothing else is told then
    abandoned  whether a turn that is cancelled is so because the session ends: the user did not do it
    """

    offer: Offer = field(default_factory=WholeOffer)
    observer: Observer = field(default_factory=_NoObserver)
    phases: Phases = field(default_factory=_NoPhases)
    room: Room = field(default_factory=_NoRoom)
    began: Callable[[], None] = _untold
    abandoned: Callable[[], bool] = _by_the_user
