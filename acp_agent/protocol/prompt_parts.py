"""What the user sent, as it is kept and shown again: core parts <-> ACP content blocks (A6.3)."""

from typing import assert_never

from anyio import to_thread

from acp_agent.core.messages import TextPart
from acp_agent.core.prompt import LinkPart, PromptPart, ResourcePart
from acp_agent.core.redaction import Redact
from acp_agent.core.types import ImagePart, JsonObject

_SHORT = 16 * 1024
"""Characters that are looked at in no time."""


def content_block(part: PromptPart) -> JsonObject:
    """The ACP `ContentBlock` of one part."""
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case ImagePart(data, mime_type):
            return {"type": "image", "data": data, "mimeType": mime_type}
        case LinkPart(uri, name):
            return {"type": "resource_link", "uri": uri, "name": name}
        case ResourcePart(uri, text, mime_type):
            resource: JsonObject = {"uri": uri, "text": text}
            return {"type": "resource", "resource": resource | ({"mimeType": mime_type} if mime_type else {})}
        case _:
            assert_never(part)


async def redacted(parts: tuple[PromptPart, ...], redact: Redact) -> tuple[PromptPart, ...]:
    """The parts fit to be stored: a secret in the user's own words is none of the database's business either (S9).

    Short ones at once, so that no cancellation comes between.
    """
    return tuple([await _redacted(part, redact) for part in parts])


async def redacted_text(text: str, redact: Redact) -> str:
    """A text of any size without secrets; others are served while a long one is looked at."""
    return redact(text) if len(text) <= _SHORT else await to_thread.run_sync(redact, text, abandon_on_cancel=True)


async def _redacted(part: PromptPart, redact: Redact) -> PromptPart:
    match part:
        case TextPart(text):
            return TextPart(await redacted_text(text, redact))
        case ImagePart():
            return part
        case LinkPart(uri, name):
            return LinkPart(redact(uri), redact(name))
        case ResourcePart(uri, text, mime_type):
            return ResourcePart(redact(uri), await redacted_text(text, redact), mime_type)
        case _:
            assert_never(part)
