"""The conversation in the shape of Anthropic's Messages API.

The same conversation always gives the same bytes, and a longer one starts with the bytes of the shorter one:
prompt caching works on prefixes, and newer models tie a thinking block to everything before it. Only the
`cache_control` marks move, and they count for neither.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, assert_never

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
from acp_agent.core.ports import ModelRequest
from acp_agent.core.types import Json, JsonObject, ToolSpec
from acp_agent.llm.endpoint import Endpoint

_CACHE: Final[JsonObject] = {"type": "ephemeral"}
_CACHEABLE: Final = frozenset({"text", "image", "tool_use", "tool_result"})
_NOT_AN_ID: Final = re.compile(r"[^a-zA-Z0-9_-]")


def request_body(endpoint: Endpoint, request: ModelRequest, default_max_tokens: int) -> JsonObject:
    """The body of POST /v1/messages, streaming. Cache marks: system, last tool, last block (3 of 4 allowed)."""
    body: JsonObject = {
        "model": endpoint.model,
        "max_tokens": request.max_tokens or endpoint.max_tokens or default_max_tokens,
        "stream": True,
    }
    if endpoint.thinking:
        # Without `display` newer models send empty thoughts and stay silent between tool calls.
        body["thinking"] = {"type": "adaptive", "display": "summarized"}
    if request.system.strip():
        body["system"] = [{"type": "text", "text": request.system, "cache_control": _CACHE}]
    if request.tools:
        body["tools"] = _tools(request.tools)
    messages = _messages(endpoint.maker, endpoint.shown(request.messages))
    _mark_last_block(messages)
    body["messages"] = messages
    return {**body, **endpoint.extra_body}


def _tools(specs: Sequence[ToolSpec]) -> list[Json]:
    tools: list[JsonObject] = [
        {"name": spec.name, "description": spec.description, "input_schema": spec.parameters} for spec in specs
    ]
    tools[-1]["cache_control"] = _CACHE
    return [*tools]


def _messages(maker: str, history: Iterable[Message]) -> list[Json]:
    """Messages with at least one block; neighbours of one role become one, as the API would make them."""
    merged: list[tuple[Role, list[JsonObject]]] = []
    for message in history:
        blocks = [block for part in _ordered(message) if (block := _block(maker, part)) is not None]
        if not blocks:
            continue
        if merged and merged[-1][0] is message.role:
            merged[-1][1].extend(blocks)
        else:
            merged.append((message.role, blocks))
    return [{"role": role.value, "content": [*blocks]} for role, blocks in merged]


def _ordered(message: Message) -> Sequence[Part]:
    """Tool results come before anything else the user says (L1.6)."""
    return sorted(message.parts, key=lambda part: not isinstance(part, ToolResultPart))


def _block(maker: str, part: Part) -> JsonObject | None:
    """One content block, or None for what this model must not see: blank text and others' reasoning (A16.6)."""
    match part:
        case TextPart(text):
            return {"type": "text", "text": text} if text.strip() else None
        case ImagePart():
            return _image(part)
        case ThoughtPart():
            return part.opaque if part.provider == maker else None
        case OpaquePart():
            return part.payload if part.provider == maker else None
        case ToolUsePart():
            return {"type": "tool_use", "id": _id(part.id), "name": part.name, "input": part.arguments or {}}
        case ToolResultPart():
            return _tool_result(part)
        case _:
            assert_never(part)


def _tool_result(part: ToolResultPart) -> JsonObject:
    block: JsonObject = {"type": "tool_result", "tool_use_id": _id(part.id)}
    if part.is_error:  # must say something, and may say it in words only
        return {**block, "content": part.text if part.text.strip() else "(no output)", "is_error": True}
    if part.images:
        words: list[Json] = [{"type": "text", "text": part.text}] if part.text.strip() else []
        return {**block, "content": [*words, *map(_image, part.images)]}
    return {**block, "content": part.text} if part.text.strip() else block


def _image(part: ImagePart) -> JsonObject:
    return {"type": "image", "source": {"type": "base64", "media_type": part.mime_type, "data": part.data}}


def _id(model_id: str) -> str:
    """The id as this API takes it; a session may hold ids that another provider's model made."""
    return _NOT_AN_ID.sub("_", model_id)


def _mark_last_block(messages: list[Json]) -> None:
    """Put the moving cache mark on the last block that may carry one."""
    for message in reversed(messages):
        assert isinstance(message, dict)
        content = message["content"]
        assert isinstance(content, list)
        for position in range(len(content) - 1, -1, -1):
            block = content[position]
            if isinstance(block, dict) and block.get("type") in _CACHEABLE:
                # A copy: the block may be the history's own.
                content[position] = {**block, "cache_control": _CACHE}
                return
