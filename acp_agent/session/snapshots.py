"""The conversation as the store has it: without the secrets the user may have typed (S9.6, security.md 2.9)."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import cast

from anyio import to_thread

from acp_agent.agent.history import History
from acp_agent.core.messages import Message, Part, TextPart, ToolUsePart
from acp_agent.core.sessions import HistoryState
from acp_agent.core.types import JsonObject
from acp_agent.output.redaction.redactor import Redactor

_NO_NAME = re.compile(r"[^A-Za-z0-9-]+")
_MOMENT = 32 * 1024
"""Characters that nobody has to wait for."""


class KeptHistory:
    """Looks at messages once: of one that was kept before the very same is kept again, and nothing written.

    Thoughts and blocks only their provider understands stay byte for byte: they are signed, or mean nothing to others.

    before   the messages the store has already, that the history begins with
    """

    def __init__(self, history: History, redactor: Redactor, before: Sequence[Message] = ()) -> None:
        self._history = history
        self._redactor = redactor
        pairs = takewhile(lambda pair: pair[0] == pair[1], zip(history.messages(), before, strict=False))
        self._seen: tuple[Message, ...] = tuple(said for said, _ in pairs)
        self._state = HistoryState(tuple(before[: len(self._seen)]))
        self._ready: list[tuple[Message, Message]] = []  # long ones that were looked at already, and as they are kept

    @property
    def in_turn(self) -> bool:
        """Whether a turn is under way."""
        return self._history.in_turn

    async def look_through(self) -> None:
        """Look at the long ones that are new in a thread, so that `state` holds nobody up."""
        while long := [each for each in self._new() if _length(each) > _MOMENT and self._found(each) is None]:
            clean = await to_thread.run_sync(lambda new=long: list(map(self._redacted, new)), abandon_on_cancel=True)
            self._ready += zip(long, clean, strict=True)

    def state(self) -> HistoryState:
        """As it is now; the same tuple of messages as long as nothing was said."""
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
        """What was said, or said otherwise, since `state` was asked for."""
        seen, messages = self._seen, self._history.messages()
        if messages[: len(seen)] == seen:  # looks at who they are first, and is fast
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
        """Models make names up. One that is sent to a server again has to look like a name."""
        shown = self._redactor(name)
        return name if shown == name else _NO_NAME.sub("_", shown)


def _length(message: Message) -> int:
    """Characters of a message that are looked at."""
    return sum(
        len(part.text) if isinstance(part, TextPart) else len(part.raw_arguments)
        for part in message.parts
        if isinstance(part, TextPart | ToolUsePart)
    )
