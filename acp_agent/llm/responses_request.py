"""The request of OpenAI's Responses API, and its variants for servers that know only part of the API.

The server stores nothing (`store: false`), so each request carries the whole conversation. The same conversation always
gives the same bytes, and a longer one starts with the bytes of the shorter one, because prompt caching works on
prefixes. No `prompt_cache_key` is sent: caching works without it, and several compatible servers refuse it.
"""

import hashlib
import re
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
from acp_agent.llm.endpoint import (
    ModelEndpoint,
    RequestWriter,
    Written,
    arguments_text,
    as_object,
    family,
    without_thoughts,
    write_all,
    write_array,
    write_body,
)
from acp_agent.llm.openai import PICTURES_REFUSED, PICTURES_REFUSED_BY

_LEAST_TOKENS: Final = 16  # OpenAI refuses a smaller `max_output_tokens`
_LONGEST_ID: Final = 64  # characters of a `call_id`


class ResponsesQuirk(StrEnum):
    """A part of OpenAI's request that a server does not take. The server's refusal names it."""

    NO_ENCRYPTED = "no_encrypted"  # models that send their reasoning as text, or have none
    NO_SUMMARY = "no_summary"  # the same models; and OpenAI gives summaries only to verified organisations
    NO_PARALLEL = "no_parallel"  # models that make one call at a time
    TEXT_RESULTS = "text_results"  # LM Studio takes a tool's output only as a string
    NO_IMAGES = "no_images"  # models without vision; each server says it in its own words
    NO_THOUGHTS = "no_thoughts"  # servers that do not take reasoning in the history


REFUSALS: Final = (
    (
        re.compile(r"encrypted content is not supported|parameter:? '?include", re.IGNORECASE),
        (400, 422),
        ResponsesQuirk.NO_ENCRYPTED,
    ),
    (
        re.compile(r"reasoning\.summary|reasoning summar|parameter:? '?reasoning\b", re.IGNORECASE),
        (400, 422),
        ResponsesQuirk.NO_SUMMARY,
    ),
    (re.compile(r"parallel_tool_calls"), (400, 422), ResponsesQuirk.NO_PARALLEL),
    (
        re.compile(r"invalid type for 'input|function_call_output|\boutput\b.*\bstring\b", re.IGNORECASE),
        (400, 422),
        ResponsesQuirk.TEXT_RESULTS,
    ),
    (PICTURES_REFUSED, PICTURES_REFUSED_BY, ResponsesQuirk.NO_IMAGES),
)
_THOUGHTS_REFUSED: Final = re.compile(
    r"encrypted.content.*could not|invalid_encrypted_content|reasoning\W+item|required following item"
    r"|type 'reasoning'|reasoning input items|items are not persisted",
    re.IGNORECASE,
)


def refuses_thoughts(error: ProviderError) -> bool:
    """Return True if the server refuses earlier reasoning: it is another organisation's, too old, or out of place."""
    return error.status in (400, 404, 422) and bool(_THOUGHTS_REFUSED.search(str(error)))


def request_writer(
    endpoint: ModelEndpoint, quirks: frozenset[ResponsesQuirk], refused: frozenset[str] = frozenset()
) -> RequestWriter:
    """Return what writes the long parts of the requests.

    refused   digests of reasoning that is left out
    """
    unwanted = None if ResponsesQuirk.NO_THOUGHTS in quirks else refused
    images = endpoint.images and ResponsesQuirk.NO_IMAGES not in quirks

    def written(message: Message) -> bytes:
        if message.role is Role.USER:
            return write_all(_user(message, text_results=ResponsesQuirk.TEXT_RESULTS in quirks))
        return write_all(_assistant(endpoint, without_thoughts(message, unwanted)))

    return RequestWriter(replace(endpoint, images=images), written, _tool)


def request_body(
    endpoint: ModelEndpoint,
    request: ModelRequest,
    quirks: frozenset[ResponsesQuirk],
    writer: RequestWriter | None = None,
) -> bytes:
    """Return the body of POST /responses, streaming.

    writer   keeps what it has written for earlier requests with the same quirks
    """
    writer = writer or request_writer(endpoint, quirks)
    body: dict[str, Json | Written] = {"model": endpoint.model, "stream": True, "store": False}
    if endpoint.thinking and ResponsesQuirk.NO_ENCRYPTED not in quirks:
        body["include"] = ["reasoning.encrypted_content"]
    reasoning = as_object(endpoint.extra_body.get("reasoning"))  # the effort, and fields that the user has set
    if endpoint.thinking and ResponsesQuirk.NO_SUMMARY not in quirks:
        reasoning = {"summary": "auto", **reasoning}
    if reasoning:
        body["reasoning"] = reasoning
    max_tokens = request.max_tokens or endpoint.max_tokens
    if max_tokens:
        body["max_output_tokens"] = max(max_tokens, _LEAST_TOKENS)
    if request.system.strip():
        body["instructions"] = (writer.system(request.system),)
    if request.tools:
        body["tools"] = write_array(writer.tools(request.tools))
        if ResponsesQuirk.NO_PARALLEL not in quirks:
            body["parallel_tool_calls"] = True
    body["input"] = write_array(writer.messages(writer.fit_images(request.messages)))
    return write_body({**body, **{key: value for key, value in endpoint.extra_body.items() if key != "reasoning"}})


def _tool(spec: ToolSpec) -> JsonObject:
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters,
        "strict": False,  # with `strict`, which is the default, the API refuses schemas with optional parameters
    }


def _user(message: Message, *, text_results: bool) -> list[JsonObject]:
    """Return the tool results, each with its pictures, then the user's words."""
    out: list[JsonObject] = []
    content: list[Json] = []
    for part in message.parts:
        match part:
            case ToolResultPart(text=text, images=images):
                output: Json = text
                if images and text_results:
                    content += [_text(f"From tool call {part.id}:"), *map(_image, images)]
                elif images:
                    output = [*([_text(text)] if text.strip() else []), *map(_image, images)]
                out.append({"type": "function_call_output", "call_id": _id(part.id), "output": output})
            case TextPart(text) if text.strip():
                content.append(_text(text))
            case ImagePart():
                content.append(_image(part))
            case TextPart() | ThoughtPart() | ToolUsePart() | OpaquePart():
                pass  # this API has no such part in a user's message
            case _:
                assert_never(part)
    return [*out, {"type": "message", "role": "user", "content": content}] if content else out


def _assistant(endpoint: ModelEndpoint, message: Message) -> list[JsonObject]:
    """Return the texts and calls of the model, each after the reasoning that led to it.

    Reasoning at the end is left out, because the API refuses reasoning that no item follows.
    """
    out: list[JsonObject] = []
    thoughts: list[JsonObject] = []
    following: JsonObject = {}
    for part in message.parts:
        match part:
            case ThoughtPart() | OpaquePart():
                kept = _kept(endpoint, part)
                item, following = as_object(kept.get("item")), as_object(kept.get("next"))
                if not item or item.get("type") == "reasoning":
                    thoughts += [item] if item else []
                    continue
            case TextPart(text):
                item = _said(text, following) if text.strip() else {}
            case ToolUsePart():
                item = _called(part, following)
            case ImagePart() | ToolResultPart():
                continue  # an assistant's message has none
            case _:
                assert_never(part)
        following = {}
        if item:
            out += [*thoughts, item]
            thoughts = []
    return out


def _kept(endpoint: ModelEndpoint, part: ThoughtPart | OpaquePart) -> JsonObject:
    """Return the stored data of a part if this provider and a model of this family made it; else an empty object."""
    kept = (part.opaque if isinstance(part, ThoughtPart) else part.payload) or {}
    mine = part.provider == endpoint.provider and kept.get("model") == family(endpoint.model)
    return kept if mine else {}


def _said(text: str, following: JsonObject) -> JsonObject:
    """Return a message of the model: in the API's own form if its id is known, else in the form every server takes."""
    told = following if following.get("type") == "message" else {}
    item: JsonObject = {"type": "message", "role": "assistant", **told}
    if "id" in told:
        return {**item, "status": "completed", "content": [{"type": "output_text", "text": text, "annotations": []}]}
    return {**item, "content": text}


def _called(use: ToolUsePart, following: JsonObject) -> JsonObject:
    told = following if following.get("type") == "function_call" else {}
    known: JsonObject = {"call_id": _id(use.id), "name": use.name, "arguments": arguments_text(use)}
    return {"type": "function_call", **told, **known}


def _id(call_id: str) -> str:
    """Return the id of a call. An id that is too long for the API is replaced by its hash."""
    if len(call_id) <= _LONGEST_ID:
        return call_id
    return f"call_{hashlib.sha256(call_id.encode('utf-8', 'replace')).hexdigest()[:32]}"


def _text(text: str) -> JsonObject:
    return {"type": "input_text", "text": text}


def _image(part: ImagePart) -> JsonObject:
    return {"type": "input_image", "detail": "auto", "image_url": f"data:{part.mime_type};base64,{part.data}"}
