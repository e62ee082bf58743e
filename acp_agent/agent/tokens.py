"""Estimates of the number of tokens of a text, from its bytes. They serve where no model has counted yet."""

import json
from collections.abc import Iterable
from typing import assert_never

from acp_agent.core.messages import (
    ImagePart,
    Message,
    OpaquePart,
    Part,
    TextPart,
    ThoughtPart,
    ToolResultPart,
    ToolUsePart,
)

BYTES_PER_TOKEN = 4
_IMAGE_TOKENS = 1_600  # what a picture of the largest useful size costs, independent of its bytes
_MESSAGE_TOKENS = 4  # role and separators


def text_tokens(text: str) -> int:
    """Return the tokens of a text, rounded up."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def part_tokens(part: Part) -> int:
    """Return the tokens of a part of a message."""
    match part:
        case ImagePart():
            return _IMAGE_TOKENS
        case TextPart(text):
            return text_tokens(text)
        case ToolResultPart(text=text, images=images):
            return text_tokens(text) + _IMAGE_TOKENS * len(images)
        case ThoughtPart(text, opaque=opaque):
            return text_tokens(text) if opaque is None else text_tokens(json.dumps(opaque))
        case ToolUsePart(name=name, arguments=arguments, raw_arguments=raw):
            return text_tokens(name) + text_tokens(raw or json.dumps(arguments))
        case OpaquePart(payload=payload):
            return text_tokens(json.dumps(payload))
        case _:
            assert_never(part)


def message_tokens(message: Message) -> int:
    """Return the tokens of a message."""
    return _MESSAGE_TOKENS + parts_tokens(message.parts)


def parts_tokens(parts: Iterable[Part]) -> int:
    """Return the tokens of parts that join a message."""
    return sum(map(part_tokens, parts))


def messages_tokens(messages: Iterable[Message]) -> int:
    """Return the tokens of several messages."""
    return sum(map(message_tokens, messages))
