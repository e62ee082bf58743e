"""The conversation one session has with its model. Only sequences every model API accepts can be built.

    roles alternate, the user begins; two messages of one user in a row become one
    no message is empty, no text blank
    an assistant message's tool uses are answered all, once, in order, at the start of the very next message (L1.6)
    tool-use ids are not empty and unique in the whole conversation
    tool uses and thoughts are the assistant's, results and images the user's

Tokens are estimated from bytes, corrected by what the model last reported.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import takewhile

from acp_agent.core.errors import ToolFailure
from acp_agent.core.messages import (
    ImagePart,
    Message,
    OpaquePart,
    Part,
    Role,
    TextPart,
    ThoughtPart,
    ToolResultPart,
    ToolUsePart,
)

_BYTES_PER_TOKEN = 4
_IMAGE_TOKENS = 1_600  # what a picture of the largest useful size costs, however many bytes it has
_MESSAGE_TOKENS = 4  # role and separators


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state of a history. `measured_tokens` is what the model counted for the first `measured_messages`."""

    messages: tuple[Message, ...] = ()
    measured_tokens: int = 0
    measured_messages: int = 0


class History:
    """Messages, oldest first. Not for two tasks at once: a session has one turn at a time."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        """Start with messages that already follow the rules. Raises ValueError where they do not."""
        self._messages: list[Message] = []
        self._call_ids: set[str] = set()
        self._measured_tokens = 0
        self._measured_messages = 0
        for message in messages:
            self.append(message)

    def messages(self) -> tuple[Message, ...]:
        """All of them; fit for a request while `awaits_reply` holds."""
        return tuple(self._messages)

    @property
    def awaits_reply(self) -> bool:
        """Whether the user spoke last."""
        return bool(self._messages) and self._messages[-1].role is Role.USER

    @property
    def open_calls(self) -> tuple[ToolUsePart, ...]:
        """Tool uses that wait for their results."""
        return self._messages[-1].tool_uses if self._messages and not self.awaits_reply else ()

    @property
    def call_ids(self) -> frozenset[str]:
        """Every tool-use id in use."""
        return frozenset(self._call_ids)

    def append(self, message: Message) -> None:
        """Add a message; blank texts are left out, and a message without any content altogether.

        Raises ValueError, and changes nothing, if the result would break a rule of the module.
        """
        parts = tuple(part for part in message.parts if not _is_blank(part))
        if message.role is Role.USER:
            self._append_user(parts)
        else:
            self._append_assistant(parts)

    def repair(self, failure: ToolFailure) -> None:
        """Answer every open tool use with `failure`, as happens when a turn ends early (A13.6)."""
        if calls := self.open_calls:
            results = (ToolResultPart(use.id, failure.block(), is_error=True) for use in calls)
            self.append(Message(Role.USER, tuple(results)))

    def snapshot(self) -> Snapshot:
        """The state now, for `restore`."""
        return Snapshot(self.messages(), self._measured_tokens, self._measured_messages)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to an earlier state."""
        self._messages = list(snapshot.messages)
        self._call_ids = {use.id for message in snapshot.messages for use in message.tool_uses}
        self._measured_tokens = snapshot.measured_tokens
        self._measured_messages = snapshot.measured_messages

    def clear(self) -> None:
        """Forget everything."""
        self.restore(Snapshot())

    def measured(self, tokens: int) -> None:
        """The model counted `tokens` for everything up to and including the last message."""
        self._measured_tokens = tokens
        self._measured_messages = len(self._messages)

    def estimate(self) -> int:
        """Tokens the conversation fills: what was measured, and what was added since by its size."""
        added = self._messages[self._measured_messages :]
        return self._measured_tokens + sum(_estimate(message) for message in added)

    def _append_user(self, parts: tuple[Part, ...]) -> None:
        results = tuple(takewhile(lambda part: isinstance(part, ToolResultPart), parts))
        expected = [use.id for use in self.open_calls]
        given = [part.id for part in parts if isinstance(part, ToolResultPart)]
        if given != expected or len(results) != len(given):
            raise ValueError(f"tool results {given}: expected results for {expected}, in this order, before all else")
        if wrong := [part for part in parts if isinstance(part, ToolUsePart | ThoughtPart)]:
            raise ValueError(f"user message with a {type(wrong[0]).__name__}: expected text, images and results")
        if not parts:
            return
        if not self.awaits_reply:
            self._messages.append(Message(Role.USER, parts))
            return
        last = self._messages[-1]
        self._messages[-1] = replace(last, parts=(*last.parts, *parts))
        if self._measured_messages == len(self._messages):
            self._measured_tokens += sum(_estimate_part(part) for part in parts)

    def _append_assistant(self, parts: tuple[Part, ...]) -> None:
        if not has_substance(parts):
            return
        if not self.awaits_reply:
            raise ValueError("assistant message after none of the user: expected the roles to alternate")
        if wrong := [part for part in parts if isinstance(part, ToolResultPart | ImagePart)]:
            raise ValueError(
                f"assistant message with a {type(wrong[0]).__name__}: expected text, thoughts and tool uses"
            )
        ids = [part.id for part in parts if isinstance(part, ToolUsePart)]
        if "" in ids or len(set(ids)) < len(ids) or not self._call_ids.isdisjoint(ids):
            raise ValueError(f"tool-use ids {ids}: expected each to be new and not empty")
        self._messages.append(Message(Role.ASSISTANT, parts))
        self._call_ids.update(ids)


def has_substance(parts: tuple[Part, ...]) -> bool:
    """Whether an assistant message says or does anything: thoughts alone cannot stand in a conversation."""
    return any(isinstance(part, ToolUsePart) or (isinstance(part, TextPart) and not _is_blank(part)) for part in parts)


def _is_blank(part: Part) -> bool:
    return isinstance(part, TextPart) and not part.text.strip()


def _estimate(message: Message) -> int:
    return _MESSAGE_TOKENS + sum(_estimate_part(part) for part in message.parts)


def _estimate_part(part: Part) -> int:
    match part:
        case ImagePart():
            return _IMAGE_TOKENS
        case TextPart(text):
            return _tokens(text)
        case ToolResultPart(text=text, images=images):
            return _tokens(text) + _IMAGE_TOKENS * len(images)
        case ThoughtPart(text, opaque=opaque):
            return _tokens(text) if opaque is None else _tokens(json.dumps(opaque))
        case ToolUsePart(name=name, arguments=arguments, raw_arguments=raw):
            return _tokens(name) + _tokens(raw or json.dumps(arguments))
        case OpaquePart(payload=payload):
            return _tokens(json.dumps(payload))


def _tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN)
