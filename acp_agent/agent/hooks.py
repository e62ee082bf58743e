"""Ports for the parts of a turn other than the model and its tools."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from acp_agent.core.data import frozen
from acp_agent.core.messages import Message, ToolUsePart
from acp_agent.core.types import ToolResult, ToolSpec

if TYPE_CHECKING:  # they import this module
    from acp_agent.agent.aids.phases import PhaseCalls
    from acp_agent.agent.compaction import Compactor


@frozen
class Received:
    """An answer of the model in the form in which the history keeps it.

    answered   the results of calls that are not to run, by id
    unseen     the ids of those calls that the user does not see either, because they contain nothing to run
    """

    message: Message
    answered: Mapping[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    unseen: frozenset[str] = frozenset()


class ToolSelection:
    """The selection of the tools that the model sees, one for each conversation. This one shows all tools unchanged."""

    async def begin(self, prompt: Message, specs: Sequence[ToolSpec]) -> None:
        """Begin a turn. Raises only cancellation."""

    def offered(self, specs: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
        """Return the tools that the model sees in its next call."""
        return specs

    def received(self, message: Message) -> Received:
        """Return the message without what `offered` added. The ids of its tool uses are valid and unique."""
        return Received(message)

    def finished(self, outcomes: Iterable[tuple[ToolUsePart, ToolResult]]) -> None:
        """Take the results of the calls of one message."""

    def clear(self) -> None:
        """Forget everything, because a new conversation begins."""

    def status(self) -> Sequence[str]:
        """Return lines for /status. Parts that are switched off add none."""
        return ()


class Observer(Protocol):
    """An observer of the results of tool calls."""

    def begin(self) -> None:
        """Begin a turn."""
        ...

    def finished(self, outcomes: Iterable[tuple[ToolUsePart, ToolResult]]) -> str | None:
        """Take the results of one round. Return a text for the model to read behind them, or None."""
        ...


class Reports(Protocol):
    """Work in the background of a turn, such as sub-agents. The model gets its results during the turn."""

    def news(self) -> str:
        """Return the results since the last model call as text for the model. Empty if there are none."""
        ...

    async def wait(self) -> str:
        """Wait until some of the work ends and return its results as text. Empty if no work is running."""
        ...

    async def end(self) -> str:
        """Stop the work, because the turn ends, and return its results. Empty if the model knows them all.

        This takes a bounded time and cannot be cancelled.
        """
        ...


@frozen
class AnswerCheck:
    """The result of the checks when the model has ended its answer.

    feedback   text that the model must act on, so the turn goes on; empty if nothing is wrong
    note       text for the user
    """

    feedback: str = ""
    note: str = ""


class AnswerChecks(Protocol):
    """The checks of the work of a turn before the turn ends."""

    def begin(self) -> None:
        """Begin a turn."""
        ...

    async def answered(self, *, is_last: bool) -> AnswerCheck:
        """Check the work of the turn when the model has ended its answer. Raises only cancellation.

        is_last   the turn ends in any case, so no feedback can reach the model
        """
        ...


@frozen
class Hooks:
    """The hooks of one conversation. They have state, so two conversations never share them.

    phases     make tool calls by themselves
    limiter    keeps the conversation within the context of the model
    began      is called as soon as the history has the prompt, since the model may then be silent for long
    reports    the reports of work in the background. A turn waits for this work before it ends
    checks     check the work when the model has ended its answer
    session_ended  returns whether a turn was cancelled because the session ends, and not by the user
    printed    returns what a cancelled call had printed, in a fence; empty for nothing. The argument is the call's id
    """

    selection: ToolSelection = field(default_factory=ToolSelection)
    observer: Observer | None = None
    phases: "PhaseCalls | None" = None
    limiter: "Compactor | None" = None
    reports: Reports | None = None
    checks: AnswerChecks | None = None
    began: Callable[[], None] | None = None
    session_ended: Callable[[], bool] | None = None
    printed: Callable[[str], str] = lambda _call_id: ""
