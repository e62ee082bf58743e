"""What a tool's call gave, from whatever its server sent: bounded texts, pictures that models take, one object."""

import base64
import binascii
import json
from collections.abc import Iterable
from typing import Final

from acp_agent.core.mcp import McpReply
from acp_agent.core.types import ImagePart, Json, JsonObject
from acp_agent.tools.picture import MAX_PICTURE, picture_of
from acp_agent.tools.visible import visible

MAX_TEXT: Final = 1024 * 1024
"""Characters."""
MAX_STRUCTURED: Final = 1024 * 1024
"""Bytes, as JSON."""
MAX_IMAGES: Final = 10
MAX_BLOCKS: Final = 1000
_SHORT: Final = 200


def read_reply(result: JsonObject) -> McpReply:
    """The reply a `tools/call` result means. Raises ValueError, with the reason, when it is none."""
    content, failed = result.get("content", []), result.get("isError", False)
    match content, failed:
        case list(), bool():
            reading = _Reading()
        case _:
            raise ValueError("its content is no list, or its isError no truth value")
    for block in content[:MAX_BLOCKS]:
        reading.add(block)
    if len(content) > MAX_BLOCKS:
        reading.say(f"[{len(content) - MAX_BLOCKS} more parts left out]")
    structured = _structured(result.get("structuredContent"), reading)
    if structured is not None and not reading.texts:
        reading.say(json.dumps(structured, ensure_ascii=False))
    return McpReply(_bounded(reading.texts), tuple(reading.images), structured, failed)


class _Reading:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.images: list[ImagePart] = []

    def say(self, text: str) -> None:
        self.texts.append(text)

    def add(self, block: Json) -> None:
        match block:
            case {"type": "text", "text": str(text)}:
                self.say(text)
            case {"type": "image", "data": str(data)}:
                self._add_image(data)
            case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
                self.say(f"[resource {_short(uri)}]\n{text}")
            case {"type": "resource", "resource": {"uri": str(uri)}}:
                self.say(f"[resource {_short(uri)}: binary, left out]")
            case {"type": "resource_link", "uri": str(uri)}:
                self.say(f"[link to a resource: {_short(uri)}]")
            case {"type": "audio"}:
                self.say("[audio, left out]")
            case _:
                self.say("[a part of unknown kind, left out]")

    def _add_image(self, data: str) -> None:
        try:
            raw = base64.b64decode(data, validate=True) if len(data) <= MAX_PICTURE * 4 // 3 + 4 else b""
        except (binascii.Error, ValueError):
            raw = b""
        picture = picture_of(raw)
        if picture is None or len(raw) > MAX_PICTURE or len(self.images) == MAX_IMAGES:
            self.say("[a picture that cannot be shown: too large, too many, or no PNG, JPEG, GIF or WebP]")
        elif picture.trouble:
            self.say(f"[a {picture.trouble} picture, left out]")
        else:
            self.images.append(ImagePart(data, picture.mime_type))


def _structured(value: Json, reading: _Reading) -> JsonObject | None:
    if not isinstance(value, dict):
        if value is not None:
            reading.say("[structured content that is no object, left out]")
        return None
    try:
        size = len(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())
    except ValueError:
        reading.say("[structured content with a number that is none, left out]")
        return None
    if size > MAX_STRUCTURED:
        reading.say(f"[structured content of {size} bytes, left out]")
        return None
    return value


def _bounded(texts: Iterable[str]) -> str:
    text = "\n".join(texts)
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]}\n[cut: {len(text) - MAX_TEXT} more characters]"


def _short(text: str) -> str:
    shown = visible(text[:_SHORT])
    return shown if len(text) <= _SHORT else f"{shown}…"
