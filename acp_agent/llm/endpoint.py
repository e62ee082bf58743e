"""Where a model answers: what an adapter needs to know about one configured model, and what the model may be shown."""

import hashlib
import json
import re
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace

from acp_agent.core.messages import Message, OpaquePart, Part, TextPart, ThoughtPart, ToolResultPart
from acp_agent.core.ports import ModelRequest
from acp_agent.core.types import ImagePart, Json, JsonObject

_MOST_IMAGES = 20
"""In one request: with more, Anthropic's API takes none of over 2000 pixels, and refuses the conversation for good."""
_MOST_IMAGE_CHARS = 16 * 1024 * 1024
"""Of base64 in one request: the smallest limit of the big APIs (Gemini) is 20 MB with all the words."""

_SNAPSHOT = re.compile(r"-\d{4}-?\d\d-?\d\d$")


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """One model behind one address, every default already filled in by the catalog.

    provider        the configured name, for messages
    base_url        without a slash at the end
    api_key         empty where the server wants none; never in a repr
    key_source      where the user would mend the key, such as "ANTHROPIC_API_KEY"
    timeout         seconds of silence between two pieces of an answer
    context_window  tokens, input and output together
    max_tokens      tokens of one answer; None leaves it to the server
    thinking        the model thinks before it answers: it takes `thinking: {type: adaptive}` (Anthropic), or is a
                    reasoning model (OpenAI)
    images          the model takes pictures
    extra_body      fields of every request body that the user has set, such as temperature or effort; the same
                    from the first to the last request of a session, for the prompt cache
    """

    provider: str
    model: str
    base_url: str
    context_window: int
    api_key: str = field(default="", repr=False)
    key_source: str = "its API key"
    timeout: float = 300.0
    max_tokens: int | None = None
    thinking: bool = False
    images: bool = True
    extra_body: JsonObject = field(default_factory=dict[str, Json])

    @property
    def maker(self) -> str:
        """Whose thoughts this model can take up again: its own, at this provider, whatever the date of the snapshot.

        Thoughts and opaque parts bear it in their `provider`: a signature is good for the model alone that gave it
        (A16.6).
        """
        return f"{self.provider}:{family(self.model)}"

    def shown(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The conversation as this model may be sent it: a short text in place of each picture it cannot get."""
        sizes = [len(image.data) for message in messages for part in message.parts for image in _images(part)]
        left_out = _left_out(sizes) if self.images else len(sizes)
        why = (
            "no longer shown: many pictures came after it"
            if self.images
            else f"not shown: {self.model} takes no images"
        )
        shown: list[Message] = []
        for message in messages:
            parts: list[Part] = []
            for part in message.parts:
                count = min(len(_images(part)), left_out)
                left_out -= count
                parts.append(_without(part, count, why))
            shown.append(replace(message, parts=tuple(parts)))
        return shown


def family(model: str) -> str:
    """Whose reasoning a model can take up again: its id, without the date of a snapshot."""
    return _SNAPSHOT.sub("", model)


def _left_out(sizes: Sequence[int]) -> int:
    """How many pictures, oldest first, a request has no room for.

    When it is full, half of it is emptied at once: each time that happens the provider's prompt cache is lost.
    """
    first = total = 0
    for number, size in enumerate(sizes, 1):
        total += size
        if number - first > _MOST_IMAGES or total > _MOST_IMAGE_CHARS:
            while first < number - 1 and (number - first > _MOST_IMAGES // 2 or total > _MOST_IMAGE_CHARS // 2):
                total -= sizes[first]
                first += 1
    return first


def _images(part: Part) -> tuple[ImagePart, ...]:
    match part:
        case ImagePart():
            return (part,)
        case ToolResultPart():
            return part.images
        case _:
            return ()


def _without(part: Part, count: int, why: str) -> Part:
    """The part without its first `count` pictures."""
    if count == 0:
        return part
    notes = [f"[{image.mime_type} {why}]" for image in _images(part)[:count]]
    if isinstance(part, ToolResultPart):
        return replace(part, text="\n".join((part.text, *notes)).lstrip("\n"), images=part.images[count:])
    return TextPart(notes[0])


def thoughts(request: ModelRequest, *, opaque: bool) -> frozenset[str]:
    """Digests of the thoughts in a request; with `opaque` of all else that only its maker understands, too."""
    parts = (part for message in request.messages for part in message.parts)
    return frozenset(
        _digest(part) for part in parts if isinstance(part, ThoughtPart) or (opaque and isinstance(part, OpaquePart))
    )


def without_thoughts(request: ModelRequest, unwanted: Container[str]) -> ModelRequest:
    """The same request without what is unwanted of that."""
    messages = (
        replace(message, parts=tuple(part for part in message.parts if not _unwanted(part, unwanted)))
        for message in request.messages
    )
    return replace(request, messages=tuple(messages))


def _unwanted(part: Part, unwanted: Container[str]) -> bool:
    return isinstance(part, ThoughtPart | OpaquePart) and _digest(part) in unwanted


def _digest(part: ThoughtPart | OpaquePart) -> str:
    kept = json.dumps(part.opaque if isinstance(part, ThoughtPart) else part.payload)
    return hashlib.sha256(kept.encode("utf-8", "replace")).hexdigest()
