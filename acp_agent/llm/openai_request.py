"""The conversation in the shape of Chat Completions, and what to change for servers that know only part of it."""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from typing import Final, assert_never

from acp_agent.core.errors import ProviderError
from acp_agent.core.messages import (
    ImagePart,
    Message,
    OpaquePart,
    Role,
    TextPart,
    ThoughtPart,
    ToolResultPart,
    ToolUsePart,
)
from acp_agent.core.ports import ModelRequest
from acp_agent.core.types import Json, JsonObject, ToolSpec
from acp_agent.llm.endpoint import Endpoint
from acp_agent.llm.openai_reply import REASONING_KEYS


class Quirk(StrEnum):
    """What a server refuses of our usual request; learnt from its own refusal."""

    NO_STREAM_OPTIONS = "no_stream_options"  # older compatible servers
    MAX_COMPLETION_TOKENS = "max_completion_tokens"  # OpenAI's reasoning models have renamed `max_tokens`
    NO_REASONING = "no_reasoning"  # gpt-5.4 and later: tools on this API only without reasoning
    NO_IMAGES = "no_images"  # models for text, each server in its own words


PICTURES_REFUSED: Final = re.compile(
    # OpenAI, DeepSeek | Mistral, OpenRouter (404), llama.cpp (500) | LM Studio | vLLM | Groq
    r"image_url|input_image|image input|support images?|0 image|multimodal|content must be a string",
    re.IGNORECASE,
)
PICTURES_REFUSED_BY: Final = (400, 404, 422, 500)
_REFUSALS: Final = (
    (re.compile(r"stream_options|include_usage"), (400, 422), Quirk.NO_STREAM_OPTIONS),
    (re.compile(r"max_completion_tokens"), (400, 422), Quirk.MAX_COMPLETION_TOKENS),
    (re.compile(r"reasoning_effort"), (400, 422), Quirk.NO_REASONING),
    (PICTURES_REFUSED, PICTURES_REFUSED_BY, Quirk.NO_IMAGES),
)


def quirk_in(error: ProviderError) -> Quirk | None:
    """The change that would make the server take the request, when its refusal names one."""
    text = str(error)
    return next((quirk for words, codes, quirk in _REFUSALS if error.status in codes and words.search(text)), None)


def request_body(endpoint: Endpoint, request: ModelRequest, quirks: frozenset[Quirk]) -> JsonObject:
    """The body of POST /chat/completions, streaming, with the usage asked for."""
    messages: list[Json] = []
    if request.system.strip():
        messages.append({"role": "system", "content": request.system})
    if Quirk.NO_IMAGES in quirks:
        endpoint = replace(endpoint, images=False)
    maker = endpoint.maker
    for message in endpoint.shown(request.messages):
        messages.extend(_messages(maker, message))
    body: JsonObject = {
        "model": endpoint.model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [_tool(spec) for spec in request.tools]
    max_tokens = request.max_tokens or endpoint.max_tokens
    if max_tokens:
        body["max_tokens"] = max_tokens
    return _adapted({**body, **endpoint.extra_body}, quirks)


def _adapted(body: JsonObject, quirks: Iterable[Quirk]) -> JsonObject:
    for quirk in quirks:
        match quirk:
            case Quirk.NO_STREAM_OPTIONS:
                body.pop("stream_options", None)
            case Quirk.MAX_COMPLETION_TOKENS:
                if "max_tokens" in body:
                    body["max_completion_tokens"] = body.pop("max_tokens")
            case Quirk.NO_IMAGES:
                pass  # the messages were made without
            case Quirk.NO_REASONING:
                body.setdefault("reasoning_effort", "none")  # what the user has set stays, and fails with a message
            case _:
                assert_never(quirk)
    return body


def _tool(spec: ToolSpec) -> JsonObject:
    return {
        "type": "function",
        "function": {"name": spec.name, "description": spec.description, "parameters": spec.parameters},
    }


def _messages(maker: str, message: Message) -> list[JsonObject]:
    match message.role:
        case Role.USER:
            return _user(message)
        case Role.ASSISTANT:
            return _assistant(maker, message)
        case _:
            assert_never(message.role)


def _user(message: Message) -> list[JsonObject]:
    """Tool results, one message each and first (L1.6), then their pictures, then what the user said.

    A tool message takes text only, so the pictures stand in the user's, each after a line that says whose it is.
    """
    out: list[JsonObject] = []
    texts: list[str] = []
    content: list[Json] = []
    for part in message.parts:
        match part:
            case ToolResultPart():
                out.append({"role": "tool", "tool_call_id": part.id, "content": part.text})
                if part.images:
                    content.append({"type": "text", "text": f"From tool call {part.id}:"})
                    content.extend(map(_image, part.images))
            case TextPart(text) if text:
                texts.append(text)
                content.append({"type": "text", "text": text})
            case ImagePart():
                content.append(_image(part))
            case TextPart() | ThoughtPart() | ToolUsePart() | OpaquePart():
                pass  # nothing this API knows in a user's message
            case _:
                assert_never(part)
    if len(content) > len(texts):
        out.append({"role": "user", "content": content})
    elif texts:
        # A plain string: every compatible server takes it, not every one takes parts.
        out.append({"role": "user", "content": "\n\n".join(texts)})
    return out


def _image(part: ImagePart) -> JsonObject:
    return {"type": "image_url", "image_url": {"url": f"data:{part.mime_type};base64,{part.data}"}}


def _assistant(maker: str, message: Message) -> list[JsonObject]:
    """The answer, its calls, and the reasoning under the name it came by, to the model that made it only (A16.6)."""
    out: JsonObject = {"role": "assistant", "content": message.text or None}
    for part in message.parts:
        if isinstance(part, ThoughtPart) and part.provider == maker and part.opaque:
            # Only these: the same provider may have been spoken to by its other API, which keeps whole items.
            for key, piece in ((key, part.opaque[key]) for key in REASONING_KEYS if key in part.opaque):
                before = out.get(key)
                out[key] = f"{before}{piece}" if isinstance(before, str) and isinstance(piece, str) else piece
    calls: list[Json] = [
        {"id": use.id, "type": "function", "function": {"name": use.name, "arguments": _arguments(use)}}
        for use in message.tool_uses
    ]
    if calls:
        out["tool_calls"] = calls
    return [out] if calls or message.text else []


def _arguments(use: ToolUsePart) -> str:
    """Valid JSON whatever the model wrote: many servers parse it again and refuse the whole history."""
    return json.dumps(use.arguments or {}, ensure_ascii=False, separators=(",", ":"))
