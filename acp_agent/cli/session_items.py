"""A session as a person follows it: what was told, with the pieces of a message joined and each tool call in one."""

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
"""Events behind a call that has not ended. No batch of calls is that long: the call never will."""


@dataclass(slots=True, eq=False)
class CallItem:
    """A tool call from beginning to end. `finished` is None when the agent died, or was cut off, before it ended."""

    at: int
    started: ToolStarted
    finished: ToolFinished | None = None


@dataclass(frozen=True, slots=True)
class MessageItem:
    """Anything but a call. A message is whole. `at` is in milliseconds since 1970, as in `CallItem`."""

    at: int
    event: UserMessage | TextDelta | ThoughtDelta | PlanChanged | UsageChanged


@dataclass(frozen=True, slots=True)
class NoAnswerItem:
    """The end of a turn in which nothing was said last: it was cancelled or broke off, or it runs still.

    Which of it is not kept. Every other turn ends with words, be it those of an error.
    """


NO_ANSWER_TEXT = "No answer followed: the turn was cancelled or broke off, or it still runs."

SessionItem: TypeAlias = MessageItem | CallItem | NoAnswerItem


class CallOutcome(StrEnum):
    """How a call went; LOST is one that nobody knows the end of."""

    DONE = "done"
    FAILED = "failed"
    LOST = "lost"


def call_outcome(call: CallItem) -> tuple[CallOutcome, str]:
    """How it went, and that in a word or two. A command that ended with another code than 0 has failed, too."""
    if call.finished is None:
        return CallOutcome.LOST, "did not end"
    result = call.finished.result
    if result.failure is not None:
        return CallOutcome.FAILED, result.failure.category.replace("_", " ")
    code = (result.envelope or {}).get("exit_code")
    if isinstance(code, int) and code:
        return CallOutcome.FAILED, f"exit {int(code)}" if abs(code) < 1000 else "exit"
    return CallOutcome.DONE, "done"


async def session_items(told: AsyncIterator[StoredEvent]) -> AsyncIterator[SessionItem]:
    """The session in order, calls where they began. Holds no more than one message and the calls under way."""
    begun = answered = False
    async for item in _in_order(told):
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


async def _in_order(told: AsyncIterator[StoredEvent]) -> AsyncIterator[MessageItem | CallItem]:
    builder = _ItemBuilder()
    async for one in joined_events(told):
        builder.take(one)
        for item in builder.ready():
            yield item
    builder.give_up()
    for item in builder.ready():
        yield item


class _ItemBuilder:
    """Keeps what was told behind a call until that has ended."""

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
            case UserMessage() as event:  # a new turn begins when the calls of the last have ended
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
        """Nothing under way will end any more."""
        self._open.clear()

    def _finish(self, at: int, event: ToolFinished) -> None:
        call = self._open.pop(event.call_id, None)
        if call is None:  # what began it was not kept, or it was given up
            call = CallItem(at, ToolStarted(event.call_id, event.name, event.name, ToolKind.OTHER, {}))
            self._waiting.append(call)
        call.finished = event

    def _is_open(self, item: MessageItem | CallItem) -> bool:
        return isinstance(item, CallItem) and self._open.get(item.started.call_id) is item
