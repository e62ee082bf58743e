"""The conversation in our own shape: parts, messages, prompts, usage, stop reasons.

Data that only one provider understands (thinking signatures, encrypted reasoning, unknown blocks) stays in `opaque`
together with that provider's name, and goes back to that provider byte for byte.
"""

from collections.abc import Iterable
from dataclasses import field
from enum import StrEnum
from typing import Final, TypeAlias

from acp_agent.core.data import frozen
from acp_agent.core.types import ImagePart, JsonObject

TURN_CUT_OFF: Final = "Do not go on with it unless asked to.]"
"""The end of the note that the history has where a turn was cancelled or broke off.

The user's next prompt follows it in the same message.
"""


@frozen
class TextPart:
    """A text."""

    text: str


@frozen
class ThoughtPart:
    """The model's visible reasoning. `opaque` is the provider's own block, sent back unchanged."""

    text: str
    provider: str = ""
    opaque: JsonObject | None = None


@frozen
class ToolUsePart:
    """The model asks for a tool. `id` is the model's id and pairs with a ToolResultPart.

    `arguments` is None when `raw_arguments` was not a JSON object.
    """

    id: str
    name: str
    arguments: JsonObject | None
    raw_arguments: str = ""


@frozen
class ToolResultPart:
    """The answer to one ToolUsePart. Every tool use gets exactly one. `images` stand beside the text."""

    id: str
    text: str
    is_error: bool = False
    images: tuple[ImagePart, ...] = ()


@frozen
class OpaquePart:
    """A block that only the provider that sent it understands."""

    provider: str
    payload: JsonObject


Part: TypeAlias = TextPart | ImagePart | ThoughtPart | ToolUsePart | ToolResultPart | OpaquePart


class Role(StrEnum):
    """The author of a message. Tool results are in user messages."""

    USER = "user"
    ASSISTANT = "assistant"


@frozen
class Message:
    """One entry of the history."""

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """All text parts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def tool_uses(self) -> tuple[ToolUsePart, ...]:
        """The tool calls of an assistant message, in order."""
        return tuple([part for part in self.parts if isinstance(part, ToolUsePart)])


@frozen
class Usage:
    """Tokens of one model call. `input` excludes cached tokens."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    @property
    def context(self) -> int:
        """The tokens of the window that the call filled."""
        return self.input + self.cache_read + self.cache_write + self.output

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
        )


class ModelStop(StrEnum):
    """The reason why the model stopped writing one message."""

    END = "end"
    TOOL_USE = "tool_use"
    MAX_TOKENS = "max_tokens"
    REFUSAL = "refusal"


class StopReason(StrEnum):
    """The reason why a turn ended (ACP `StopReason`)."""

    END_TURN = "end_turn"
    MAX_TOKENS = "max_tokens"
    MAX_TURN_REQUESTS = "max_turn_requests"
    REFUSAL = "refusal"
    CANCELLED = "cancelled"


@frozen
class ModelText:
    """A piece of the answer."""

    text: str


@frozen
class ModelThought:
    """A piece of the reasoning."""

    text: str


@frozen
class ModelDone:
    """The end of one model call: the whole message, why it ended, and its usage. It is always the last event."""

    message: Message
    stop: ModelStop
    usage: Usage = field(default_factory=Usage)


ModelEvent: TypeAlias = ModelText | ModelThought | ModelDone


@frozen
class LinkPart:
    """A link in a prompt."""

    uri: str
    name: str


@frozen
class ResourcePart:
    """A text that is embedded in a prompt. `mime_type` is empty if the editor did not give one."""

    uri: str
    text: str
    mime_type: str = ""


PromptPart: TypeAlias = TextPart | ImagePart | LinkPart | ResourcePart
"""A block of a prompt as the editor sent it. The model gets the text behind links, and resources in fences."""

_TYPED = (TextPart, LinkPart)


def typed(parts: Iterable[PromptPart]) -> str:
    """Return what the user typed or attached: texts and the addresses of links, without the text of files and pages."""
    texts = (part.text if isinstance(part, TextPart) else part.uri for part in parts if isinstance(part, _TYPED))
    return "\n".join(texts)
