"""The stored state of a session besides its events, without the secrets that the user may have typed."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import cast

from anyio import to_thread

from acp_agent.agent.history import History
from acp_agent.core.events import UsageChanged
from acp_agent.core.messages import Message, Part, TextPart, ToolUsePart
from acp_agent.core.sessions import Change, HistoryState, UsageTotals
from acp_agent.core.types import JsonObject
from acp_agent.output.redaction.redactor import Redactor
from acp_agent.session.models import SessionModels
from acp_agent.session.toolset.gate_factory import GateMemory

_NO_NAME = re.compile(r"[^A-Za-z0-9-]+")
_SHORT = 32 * 1024
"""Characters that are redacted on the event loop; longer texts are redacted in a thread."""


class RedactedHistory:
    """The history as it is stored. Every message is redacted once; an unchanged message stays the same object.

    Thoughts and blocks of a single provider stay byte for byte, because they are signed or unreadable for others.

    before   the stored messages with which the history begins
    """

    def __init__(self, history: History, redactor: Redactor, before: Sequence[Message] = ()) -> None:
        self._history = history
        self._redactor = redactor
        pairs = takewhile(lambda pair: pair[0] == pair[1], zip(history.messages(), before, strict=False))
        self._seen: tuple[Message, ...] = tuple(said for said, _ in pairs)
        self._state = HistoryState(tuple(before[: len(self._seen)]))
        self._ready: list[tuple[Message, Message]] = []  # long messages that were redacted already, with the result

    @property
    def in_turn(self) -> bool:
        """Whether a turn is under way."""
        return self._history.in_turn

    async def redact_long(self) -> None:
        """Redact the long new messages in a thread, so that `state` is fast."""
        while long := [each for each in self._new() if _length(each) > _SHORT and self._found(each) is None]:
            clean = await to_thread.run_sync(lambda new=long: list(map(self._redacted, new)), abandon_on_cancel=True)
            self._ready += zip(long, clean, strict=True)

    def state(self) -> HistoryState:
        """Return the present history. Its tuple of messages stays the same object until a message is added."""
        history, messages = self._history, self._history.messages()
        kept = self._state.messages
        if messages is not self._seen:
            new = self._new()
            kept = (*kept[: len(messages) - len(new)], *(self._found(each) or self._redacted(each) for each in new))
            self._seen = messages
            self._ready.clear()
        self._state = HistoryState(kept, history.summaries, history.estimate())
        return self._state

    def _new(self) -> tuple[Message, ...]:
        """Return the messages that are new or changed since `state` was called."""
        seen, messages = self._seen, self._history.messages()
        if messages[: len(seen)] == seen:  # fast: compares identities first
            return messages[len(seen) :]
        same = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], zip(seen, messages, strict=False)))
        return messages[same:]

    def _found(self, message: Message) -> Message | None:
        return next((clean for said, clean in self._ready if said is message), None)

    def _redacted(self, message: Message) -> Message:
        parts = tuple(map(self._part, message.parts))
        return message if parts == message.parts else replace(message, parts=parts)

    def _part(self, part: Part) -> Part:
        match part:
            case TextPart(text):
                return TextPart(self._redactor(text))
            case ToolUsePart(name=name, arguments=arguments, raw_arguments=raw):
                hidden = None if arguments is None else cast("JsonObject", self._redactor.json(arguments))
                return replace(part, name=self._name(name), arguments=hidden, raw_arguments=self._redactor(raw))
            case _:
                return part

    def _name(self, name: str) -> str:
        """Return a tool's name without secrets, in a form that servers accept. The model may have made it up."""
        shown = self._redactor(name)
        return name if shown == name else _NO_NAME.sub("_", shown)


def _length(message: Message) -> int:
    """Return the number of characters of a message that are redacted."""
    return sum(
        len(part.text) if isinstance(part, TextPart) else len(part.raw_arguments)
        for part in message.parts
        if isinstance(part, TextPart | ToolUsePart)
    )


class SessionState:
    """The stored state of a session besides its events: the history, the usage and the model.

    before   the messages that are already stored
    """

    def __init__(
        self,
        history: History,
        models: SessionModels,
        memory: GateMemory,
        redactor: Redactor,
        before: Sequence[Message] = (),
    ) -> None:
        self._history = RedactedHistory(history, redactor, before)
        self._models = models
        self._memory = memory
        self._fill = (0, 0)  # tokens used, and the window's size

    def restore(self, tally: UsageTotals, typed: Sequence[str] = ()) -> None:
        """Continue from the totals of a stored session, and remember what the user typed in it."""
        for text in typed:
            self._memory.learn(text)
        self._fill = (tally.used, tally.size)
        self._models.ledger.restore(tally)
        self._memory.quota.take_up(tally.batches, tally.calls)

    def measured(self, event: UsageChanged) -> UsageChanged:
        """Record how full the window is. Return the event with the cost of the session so far."""
        self._fill = (event.used, event.size)
        return UsageChanged(event.used, event.size, self._models.ledger.cost)

    async def kept(self) -> Change:
        """Return the present state. Long texts are redacted in a thread."""
        await self._history.redact_long()
        return self.state()

    def state(self) -> Change:
        """Return the present state."""
        ledger, use = self._models.ledger, self._memory.quota.use
        used, size = self._fill
        under_way = self._history.in_turn
        tally = UsageTotals(used, size, ledger.usage, ledger.cost, ledger.complete, use.calls, use.batches, under_way)
        return Change(history=self._history.state(), usage=tally, model=self._models.in_use or None)
