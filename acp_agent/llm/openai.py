"""Chat Completions, streamed: OpenAI's API, and every server that speaks it (Ollama, llama.cpp, vLLM, ...).

Compatible servers differ from OpenAI in many details. `OpenAIReply` reads the forms that they really send. The first
request has OpenAI's form. If a server refuses a part of it, the provider leaves that part out from then on.
"""

import re
from base64 import b32encode
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from hashlib import sha256
from typing import Final, assert_never

from acp_agent.core.errors import ProviderError
from acp_agent.core.messages import (
    ImagePart,
    Message,
    ModelDone,
    ModelEvent,
    ModelStop,
    ModelText,
    ModelThought,
    OpaquePart,
    Part,
    Role,
    TextPart,
    ThoughtPart,
    ToolResultPart,
    ToolUsePart,
    Usage,
)
from acp_agent.core.ports import ModelRequest
from acp_agent.core.types import Json, JsonObject
from acp_agent.llm.endpoint import (
    ModelEndpoint,
    RequestWriter,
    Written,
    arguments_text,
    as_count,
    as_list,
    as_object,
    as_text,
    function_tool,
    read_arguments,
    text_of_arguments,
    tool_use,
    write_all,
    write_array,
    write_body,
)
from acp_agent.llm.exchange import (
    HttpProvider,
    ServerEvent,
    broken_stream,
    checked_event,
    quirk_in,
    read_rest,
    shown_deltas,
    stream_failure,
)
from acp_agent.net.client import HttpClient

_STOPS: Final = {
    "stop": ModelStop.END,
    "end_turn": ModelStop.END,
    "eos": ModelStop.END,
    "stop_sequence": ModelStop.END,
    "tool_calls": ModelStop.TOOL_USE,
    "tool_use": ModelStop.TOOL_USE,
    "function_call": ModelStop.TOOL_USE,
    "length": ModelStop.MAX_TOKENS,
    "max_tokens": ModelStop.MAX_TOKENS,
    "model_length": ModelStop.MAX_TOKENS,  # of Mistral: the context window is full
    "content_filter": ModelStop.REFUSAL,
    "refusal": ModelStop.REFUSAL,
}
REASONING_KEYS: Final = ("reasoning_content", "reasoning")
"""The fields of a delta that hold reasoning. DeepSeek, Kimi, Qwen and llama.cpp send the first; vLLM, OpenRouter and
Ollama send the second."""


@dataclass(slots=True)
class _Call:
    """A tool call in progress. `arguments` is JSON text in pieces."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])


class OpenAIReply:
    """One assistant message in progress.

    maker           the `ModelEndpoint.maker` of the model
    finish_reason   why the server ended the answer; empty until it says so
    """

    def __init__(self, maker: str) -> None:
        self._maker = maker
        self._text: list[str] = []
        self._thought: list[str] = []
        self._reasoning_key = ""
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self.finish_reason = ""
        self._refused = self._ended = False
        self._usage = Usage()

    @property
    def is_whole(self) -> bool:
        """Whether the server has said that the answer is complete. The usage may still follow."""
        return self._ended or bool(self.finish_reason)

    def end(self) -> None:
        """Note that the server has ended the answer with `[DONE]`."""
        self._ended = True

    def feed(self, chunk: JsonObject) -> list[ModelText | ModelThought]:
        """Read one chunk. Return the deltas to show now."""
        usage = as_object(chunk.get("usage"))
        if usage:
            self._usage = _usage(usage)
        shown: list[ModelText | ModelThought] = []
        for item in as_list(chunk.get("choices")):
            choice = as_object(item)
            if as_count(choice.get("index")) == 0:
                shown += self._delta(as_object(choice.get("delta")))
                self.finish_reason = as_text(choice.get("finish_reason")) or self.finish_reason
        return shown

    def done(self) -> ModelDone:
        """Return the whole message."""
        parts: list[Part] = []
        if self._thought:
            thought = "".join(self._thought)
            sent_back: JsonObject = {self._reasoning_key: thought} if self._reasoning_key else {}
            parts.append(ThoughtPart(thought, self._maker, sent_back or None))
        if self._text:
            parts.append(TextPart("".join(self._text)))
        seen: dict[str, list[ToolUsePart]] = {}
        for call in self._calls:
            raw = "".join(call.arguments)
            use = tool_use(call.id, call.name, read_arguments(raw), raw, seen, "call")
            if use is not None:
                parts.append(use)
        stop = ModelStop.REFUSAL if self._refused else _STOPS.get(self.finish_reason.lower(), ModelStop.END)
        if stop in (ModelStop.END, ModelStop.TOOL_USE):
            stop = ModelStop.TOOL_USE if self._calls else ModelStop.END
        return ModelDone(Message(Role.ASSISTANT, tuple(parts)), stop, self._usage)

    def _delta(self, delta: JsonObject) -> list[ModelText | ModelThought]:
        if len(delta) == 1 and isinstance(content := delta.get("content"), str):  # most pieces hold only text
            self._text.append(content)
            return [ModelText(content)] if content else []
        shown: list[ModelText | ModelThought] = []
        for key in REASONING_KEYS:
            thought = as_text(delta.get(key))
            if thought:
                self._reasoning_key = self._reasoning_key or key
                shown.append(ModelThought(thought))
                break  # servers that send both send the same text twice
        if not shown and (thought := _thought(delta.get("content"))):
            shown.append(ModelThought(thought))
        refusal = as_text(delta.get("refusal"))
        self._refused = self._refused or bool(refusal)
        shown += [ModelText(text) for text in (_text(delta.get("content")), refusal) if text]
        for event in shown:
            (self._text if isinstance(event, ModelText) else self._thought).append(event.text)
        for item in as_list(delta.get("tool_calls")):
            self._grow(as_object(item))
        return shown

    def _grow(self, item: JsonObject) -> None:
        function = as_object(item.get("function"))
        name = as_text(function.get("name"))
        call = self._call(item.get("index"), as_text(item.get("id")), name)
        if name and name != call.name and not call.arguments:
            call.name += name
        arguments = function.get("arguments")
        piece = text_of_arguments(arguments)
        if not isinstance(arguments, str | None):
            call.arguments = [piece]
        elif piece:
            call.arguments.append(piece)

    def _call(self, index: Json, call_id: str, name: str) -> _Call:
        """Return the call that a piece belongs to, by its index, else by its id, else the last call."""
        known: _Call | None
        if isinstance(index, int):
            known = self._by_index.get(index)
        elif call_id:
            known = next((call for call in self._calls if call.id == call_id), None)
        else:
            known = self._calls[-1] if self._calls and not name else None
        if known is not None and not _starts_another(known, call_id, name):
            known.id = known.id or call_id
            return known
        call = _Call(id=call_id)
        self._calls.append(call)
        if isinstance(index, int):
            self._by_index[index] = call
        return call


def _starts_another(known: _Call, call_id: str, name: str) -> bool:
    """Return True if a piece for a known call really starts the next call. Some servers number every call 0."""
    if not (name and known.name):
        return False
    if call_id and known.id and call_id != known.id:
        return True
    # Whole arguments end with a bracket. Some servers repeat the name with every piece of a long call.
    last = next(filter(None, (piece.rstrip() for piece in reversed(known.arguments))), "}")
    return bool(known.arguments) and last[-1] == "}" and read_arguments("".join(known.arguments)) is not None


def _text(content: Json) -> str:
    """Return the text of a `content`. It is a string, or from some servers a list of parts."""
    if isinstance(content, list):
        return "".join(as_text(as_object(part).get("text")) for part in content)
    return as_text(content)


def _thought(content: Json) -> str:
    """Return the thought in a `content`. Mistral's reasoning models send parts of the type "thinking"."""
    parts = (part for part in map(as_object, as_list(content)) if part.get("type") == "thinking")
    return "".join(_text(part.get("thinking")) for part in parts)


def _usage(usage: JsonObject) -> Usage:
    """Return the usage. `prompt_tokens` includes cached tokens; `Usage.input` does not."""
    prompt = as_count(usage.get("prompt_tokens"))
    cached = as_count(as_object(usage.get("prompt_tokens_details")).get("cached_tokens"))
    cached = min(prompt, cached or as_count(usage.get("prompt_cache_hit_tokens")))
    return Usage(input=prompt - cached, output=as_count(usage.get("completion_tokens")), cache_read=cached)


class OpenAIQuirk(StrEnum):
    """A part of OpenAI's request that a server does not take. The server's refusal names it."""

    NO_STREAM_OPTIONS = "no_stream_options"  # older compatible servers
    MAX_COMPLETION_TOKENS = "max_completion_tokens"  # OpenAI's reasoning models have renamed `max_tokens`
    NO_REASONING = "no_reasoning"  # gpt-5.4 and later take tools on this API only without reasoning
    SHORT_IDS = "short_ids"  # OpenAI takes ids of calls up to 40 characters, Mistral of 9 letters and digits
    NO_IMAGES = "no_images"  # models without vision; each server says it in its own words


PICTURES_REFUSED: Final = re.compile(
    # OpenAI, DeepSeek | Mistral, OpenRouter (404), llama.cpp (500) | LM Studio | vLLM | Groq
    r"image_url|input_image|image input|support images?|0 image|multimodal|content must be a string",
    re.IGNORECASE,
)
PICTURES_REFUSED_BY: Final = (400, 404, 422, 500)
REFUSALS: Final = (
    (re.compile(r"stream_options|include_usage"), (400, 422), OpenAIQuirk.NO_STREAM_OPTIONS),
    (re.compile(r"max_completion_tokens"), (400, 422), OpenAIQuirk.MAX_COMPLETION_TOKENS),
    (re.compile(r"reasoning_effort"), (400, 422), OpenAIQuirk.NO_REASONING),
    (re.compile(r"(tool.call.id|tool_calls\[\d+\]\.id)\b.*length", re.IGNORECASE), (400, 422), OpenAIQuirk.SHORT_IDS),
    (PICTURES_REFUSED, PICTURES_REFUSED_BY, OpenAIQuirk.NO_IMAGES),
)


def request_writer(endpoint: ModelEndpoint, quirks: frozenset[OpenAIQuirk]) -> RequestWriter:
    """Return what writes the long parts of the requests."""
    maker, images = endpoint.maker, endpoint.images and OpenAIQuirk.NO_IMAGES not in quirks
    return RequestWriter(
        replace(endpoint, images=images), lambda message: write_all(_wire(maker, quirks, message)), function_tool
    )


def request_body(
    endpoint: ModelEndpoint, request: ModelRequest, quirks: frozenset[OpenAIQuirk], writer: RequestWriter | None = None
) -> bytes:
    """Return the body of POST /chat/completions, streaming, which asks for the usage.

    writer   keeps what it has written for earlier requests with the same quirks
    """
    writer = writer or request_writer(endpoint, quirks)
    messages = writer.messages(writer.fit_images(request.messages))
    if request.system.strip():
        messages.insert(0, b'{"role":"system","content":%s}' % writer.system(request.system))
    body: dict[str, Json | Written] = {
        "model": endpoint.model,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = write_array(writer.tools(request.tools))
    body["messages"] = write_array(messages)
    max_tokens = request.max_tokens or endpoint.max_tokens
    if max_tokens:
        body["max_tokens"] = max_tokens
    body |= endpoint.extra_body
    if OpenAIQuirk.NO_STREAM_OPTIONS in quirks:
        body.pop("stream_options", None)
    if OpenAIQuirk.MAX_COMPLETION_TOKENS in quirks and "max_tokens" in body:
        body["max_completion_tokens"] = body.pop("max_tokens")
    if OpenAIQuirk.NO_REASONING in quirks:
        body.setdefault("reasoning_effort", "none")  # the user's own value stays: they see that the server refuses it
    return write_body(body)


def _wire(maker: str, quirks: frozenset[OpenAIQuirk], message: Message) -> list[JsonObject]:
    if OpenAIQuirk.SHORT_IDS in quirks:
        message = replace(message, parts=tuple(map(_with_short_id, message.parts)))
    return _user(message) if message.role is Role.USER else _assistant(maker, message)


def _with_short_id(part: Part) -> Part:
    """Return a call or a result with a digest in place of its id: a session may hold ids that another API made."""
    if not isinstance(part, ToolUsePart | ToolResultPart):
        return part
    return replace(part, id=b32encode(sha256(part.id.encode("utf-8", "replace")).digest())[:9].decode())


def _user(message: Message) -> list[JsonObject]:
    """Return the tool results, one message each, then one message with their pictures and the user's words.

    A tool message takes only text, so the user's message holds the pictures, each after a line that names its call.
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
                pass  # this API has no such part in a user's message
            case _:
                assert_never(part)
    if len(content) > len(texts):
        out.append({"role": "user", "content": content})
    elif texts:
        # A plain string, because not every compatible server takes parts.
        out.append({"role": "user", "content": "\n\n".join(texts)})
    return out


def _image(part: ImagePart) -> JsonObject:
    return {"type": "image_url", "image_url": {"url": f"data:{part.mime_type};base64,{part.data}"}}


def _assistant(maker: str, message: Message) -> list[JsonObject]:
    """Return an answer of the model with its calls. Reasoning is sent, in its own field, only to its own model."""
    out: JsonObject = {"role": "assistant", "content": message.text or None}
    for part in message.parts:
        if isinstance(part, ThoughtPart) and part.provider == maker and part.opaque:
            # Only these keys: the part may come from the provider's other API, where it holds a whole item.
            for key, piece in ((key, part.opaque[key]) for key in REASONING_KEYS if key in part.opaque):
                before = out.get(key)
                out[key] = f"{before}{piece}" if isinstance(before, str) and isinstance(piece, str) else piece
    calls: list[Json] = [
        {"id": use.id, "type": "function", "function": {"name": use.name, "arguments": arguments_text(use)}}
        for use in message.tool_uses
    ]
    if calls:
        out["tool_calls"] = calls
    return [out] if calls or message.text else []


_DONE: Final = "[DONE]"
_PATIENCE: Final = 1.0  # seconds to wait for usage and [DONE] after the finish reason


class OpenAIProvider(HttpProvider):
    """A Provider for a model of Chat Completions."""

    def __init__(self, endpoint: ModelEndpoint, http: HttpClient) -> None:
        super().__init__(endpoint, http)
        self._quirks: frozenset[OpenAIQuirk] = frozenset()
        self._writer = request_writer(endpoint, self._quirks)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream an answer, as the port says.

        Raises:
            ProviderError: also (PROTOCOL) for a stream that ends without a finish reason and without `[DONE]`.

        """
        reply = OpenAIReply(self._endpoint.maker)
        body, feed = partial(self._body, request), partial(self._feed, reply)
        async with self._events("/chat/completions", body, self._adapts) as blocks:
            async for delta in shown_deltas(blocks, feed, lambda: reply.is_whole):
                yield delta
            if not reply.is_whole:
                raise broken_stream(self._endpoint, "ended its answer before it was whole")
            for block in await read_rest(blocks, _PATIENCE):
                for delta in (delta for event in block for delta in feed(event)):
                    yield delta
        if reply.finish_reason == "error":
            raise stream_failure(self._endpoint, {"message": "the model stopped with an error"})
        yield reply.done()

    def _body(self, request: ModelRequest) -> bytes:
        return request_body(self._endpoint, request, self._quirks, self._writer)

    def _adapts(self, error: ProviderError) -> bool:
        quirk = quirk_in(error, REFUSALS)
        if quirk is None or quirk in self._quirks:
            return False
        self._quirks |= {quirk}
        self._writer = request_writer(self._endpoint, self._quirks)
        return True

    def _feed(self, reply: OpenAIReply, event: ServerEvent) -> list[ModelText | ModelThought]:
        """Read an event. Return the deltas to show now."""
        if event.data.strip() == _DONE:
            reply.end()
            return []
        try:
            return reply.feed(checked_event(self._endpoint, event))
        except ProviderError:
            if reply.is_whole:
                return []
            raise
