"""The items of a stored session for a reader: whole messages, and tool calls together with their results."""

from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, assert_never

from acp_agent.core.events import (
    PlanChanged,
    TextDelta,
    ThoughtDelta,
    ToolFinished,
    ToolStarted,
    UsageChanged,
    UserMessage,
)
from acp_agent.core.sessions import StoredEvent
from acp_agent.core.types import ToolKind
from acp_agent.store.session_file import joined_events

_WAITING = 500
"""Events that wait for a call to end. No batch of calls is longer, so after that many the call never ends."""


@dataclass(slots=True, eq=False)
class CallItem:
    """A tool call. `finished` is None if the agent was killed before the call ended."""

    at: int
    started: ToolStarted
    finished: ToolFinished | None = None

    def finish(self, event: ToolFinished) -> None:
        """Record the end of the call."""
        self.finished = event


@dataclass(frozen=True, slots=True)
class MessageItem:
    """A whole message, a plan or a report of usage. `at` is in milliseconds since 1970, as in `CallItem`."""

    at: int
    event: UserMessage | TextDelta | ThoughtDelta | PlanChanged | UsageChanged


@dataclass(frozen=True, slots=True)
class NoAnswerItem:
    """The end of a turn without a final answer: it was cancelled or interrupted, or it is still running.

    The store does not say which. Every other turn ends with a text, which may be that of an error.
    """


NO_ANSWER_TEXT = "No answer followed: the turn was cancelled or interrupted, or it is still running."

SessionItem: TypeAlias = MessageItem | CallItem | NoAnswerItem


class CallOutcome(StrEnum):
    """How a call ended. LOST means that its end is unknown."""

    DONE = "done"
    FAILED = "failed"
    LOST = "lost"


def call_outcome(call: CallItem) -> tuple[CallOutcome, str]:
    """Return how a call ended, and a phrase for it. A command with an exit code other than 0 has failed, too."""
    if call.finished is None:
        return CallOutcome.LOST, "did not end"
    result = call.finished.result
    if result.failure is not None:
        return CallOutcome.FAILED, result.failure.category.replace("_", " ")
    code = (result.envelope or {}).get("exit_code")
    if isinstance(code, int) and code:
        return CallOutcome.FAILED, f"exit {int(code)}" if abs(code) < 1000 else "exit"
    return CallOutcome.DONE, "done"


async def session_items(events: AsyncIterator[StoredEvent]) -> AsyncIterator[SessionItem]:
    """Yield the items in order, with each call where it began. At most one message and the open calls are in memory."""
    begun = answered = False
    async for item in _in_order(events):
        match item:
            case MessageItem(event=UserMessage()):
                if begun and not answered:
                    yield NoAnswerItem()
                begun, answered = True, False
            case MessageItem(event=TextDelta(words)) if words.strip():
                answered = True
            case CallItem():
                answered = False
            case _:
                pass
        yield item
    if begun and not answered:
        yield NoAnswerItem()


async def _in_order(events: AsyncIterator[StoredEvent]) -> AsyncIterator[MessageItem | CallItem]:
    builder = _ItemBuilder()
    async for one in joined_events(events):
        builder.take(one)
        for item in builder.ready():
            yield item
    builder.give_up()
    for item in builder.ready():
        yield item


class _ItemBuilder:
    """Builds items from events. Items after an open call wait until the call has ended."""

    def __init__(self) -> None:
        self._waiting: deque[MessageItem | CallItem] = deque()
        self._open: dict[str, CallItem] = {}

    def take(self, one: StoredEvent) -> None:
        match one.event:
            case ToolStarted() as event:
                self._open[event.call_id] = call = CallItem(one.at, event)
                self._waiting.append(call)
            case ToolFinished() as event:
                self._finish(one.at, event)
            case UserMessage() as event:  # a new turn: no call of the last one is still running
                self.give_up()
                self._waiting.append(MessageItem(one.at, event))
            case TextDelta() | ThoughtDelta() | PlanChanged() | UsageChanged() as event:
                self._waiting.append(MessageItem(one.at, event))
            case _:
                assert_never(one.event)
        if len(self._waiting) > _WAITING:
            self.give_up()

    def ready(self) -> Iterator[MessageItem | CallItem]:
        while self._waiting and not self._is_open(self._waiting[0]):
            yield self._waiting.popleft()

    def give_up(self) -> None:
        """Stop waiting for the end of the open calls."""
        self._open.clear()

    def _finish(self, at: int, event: ToolFinished) -> None:
        call = self._open.pop(event.call_id, None)
        if call is None:  # its start was not stored, or it was given up
            call = CallItem(at, ToolStarted(event.call_id, event.name, event.name, ToolKind.OTHER, {}))
            self._waiting.append(call)
        call.finish(event)

    def _is_open(self, item: MessageItem | CallItem) -> bool:
        return isinstance(item, CallItem) and self._open.get(item.started.call_id) is item
