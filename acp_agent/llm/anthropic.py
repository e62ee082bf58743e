"""Anthropic's Messages API, streamed. Source: platform.claude.com, "Messages", "Streaming", "Errors".

The same conversation always gives the same bytes, and a longer conversation starts with the bytes of the shorter one.
Prompt caching compares prefixes, and newer models check that everything before a thinking block is unchanged. Only the
`cache_control` marks move, and both checks ignore them.

A reply skips unknown events, unknown deltas and pings. It keeps a block of unknown type whole and sends it back with
the history.
"""

import hashlib
import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
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
from acp_agent.core.types import Json, JsonObject, ToolSpec
from acp_agent.llm.endpoint import (
    ModelEndpoint,
    RequestWriter,
    Written,
    as_count,
    as_object,
    as_text,
    read_arguments,
    text_of_arguments,
    thought_digests,
    tool_use,
    without_thoughts,
    write_all,
    write_array,
    write_body,
)
from acp_agent.llm.exchange import (
    HttpProvider,
    ServerEvent,
    anthropic_headers,
    broken_stream,
    checked_event,
    read_rest,
    shown_deltas,
)
from acp_agent.log import Log
from acp_agent.net.client import HttpClient

_log = Log(__name__)

# Delta type -> the key that holds its text.
_PIECES: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}
_STOPS: Final = {
    "end_turn": ModelStop.END,
    "stop_sequence": ModelStop.END,
    "pause_turn": ModelStop.END,
    "tool_use": ModelStop.TOOL_USE,
    "max_tokens": ModelStop.MAX_TOKENS,
    "model_context_window_exceeded": ModelStop.MAX_TOKENS,
    "refusal": ModelStop.REFUSAL,
}
_COUNTS: Final = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


@dataclass(slots=True)
class _Block:
    """A content block in progress: its start, and the pieces that followed, by key."""

    start: JsonObject
    pieces: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def joined(self, key: str) -> str:
        return "".join(self.pieces.get(key, ()))

    def whole(self) -> JsonObject:
        """Return the block as the API would have sent it without streaming. A tool's input stays in pieces."""
        grown: JsonObject = {
            key: as_text(self.start.get(key)) + self.joined(key) for key in self.pieces if key != "partial_json"
        }
        return {**self.start, **grown}


class AnthropicReply:
    """One assistant message in progress. `maker` names the model that its thoughts belong to."""

    def __init__(self, maker: str) -> None:
        self._maker = maker
        self._blocks: list[tuple[int, _Block]] = []  # with the index of each
        self._by_index: dict[int, _Block] = {}
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._stop_reason = ""
        self.complete = False

    @property
    def is_whole(self) -> bool:
        """Whether all of the answer has arrived. Some servers leave out the last event, `message_stop`."""
        return self.complete or bool(self._stop_reason)

    def feed(self, event: JsonObject) -> ModelText | ModelThought | None:
        """Read one event. Return the delta to show now, if there is one."""
        kind = as_text(event.get("type"))
        match kind:
            case "content_block_start":
                return self._start(as_count(event.get("index")), as_object(event.get("content_block")))
            case "content_block_delta":
                return self._grow(as_count(event.get("index")), as_object(event.get("delta")))
            case "message_start":
                self._count(as_object(as_object(event.get("message")).get("usage")))
            case "message_delta":
                self._stop_reason = as_text(as_object(event.get("delta")).get("stop_reason")) or self._stop_reason
                self._count(as_object(event.get("usage")))
            case "message_stop":
                self.complete = True
            case "content_block_stop" | "ping":
                pass
            case _:
                _log.debug("event of unknown type skipped", model=self._maker, type=kind[:50])
        return None

    def done(self) -> ModelDone:
        """Return the whole message. Call it once, when it `is_whole`."""
        seen: dict[str, list[ToolUsePart]] = {}
        parts: list[Part] = []
        for _, block in sorted(self._blocks, key=itemgetter(0)):
            part = self._part(block, seen)
            if part is not None:
                parts.append(part)
        message = Message(Role.ASSISTANT, tuple(parts))
        stop = _STOPS.get(self._stop_reason)
        if stop is None or (stop is ModelStop.TOOL_USE and not message.tool_uses):
            stop = ModelStop.TOOL_USE if message.tool_uses else ModelStop.END
        return ModelDone(message, stop, Usage(*map(self._counts.__getitem__, _COUNTS)))

    def _start(self, index: int, start: JsonObject) -> ModelText | ModelThought | None:
        block = self._by_index[index] = _Block(start)  # some servers number every block 0
        self._blocks.append((index, block))
        return _shown(as_text(start.get("type")), as_text(start.get("text")) or as_text(start.get("thinking")))

    def _grow(self, index: int, delta: JsonObject) -> ModelText | ModelThought | None:
        block = self._by_index.get(index)
        key = _PIECES.get(as_text(delta.get("type")))
        if block is None or key is None:
            return None
        piece = as_text(delta.get(key))
        block.pieces.setdefault(key, []).append(piece)
        return _shown(key, piece)

    def _part(self, block: _Block, seen: dict[str, list[ToolUsePart]]) -> Part | None:
        whole = block.whole()
        match whole.get("type"):
            case "text":
                text = as_text(whole.get("text"))
                return TextPart(text) if text else None
            case "thinking" | "redacted_thinking":
                return ThoughtPart(as_text(whole.get("thinking")), self._maker, whole)
            case "tool_use":
                raw = block.joined("partial_json")
                raw = raw if raw.strip() else text_of_arguments(block.start.get("input"))
                arguments = read_arguments(raw)
                call_id, name = as_text(block.start.get("id")), as_text(block.start.get("name"))
                return tool_use(call_id, name, arguments, raw, seen, "toolu")
            case _:
                if "partial_json" in block.pieces:
                    whole["input"] = read_arguments(block.joined("partial_json")) or {}
                return OpaquePart(self._maker, whole)

    def _count(self, usage: JsonObject) -> None:
        """Keep the largest count of each kind: counts are cumulative, and some servers later send 0."""
        for name in _COUNTS:
            self._counts[name] = max(self._counts[name], as_count(usage.get(name)))


def _shown(key: str, text: str) -> ModelText | ModelThought | None:
    if text and key == "text":
        return ModelText(text)
    if text and key == "thinking":
        return ModelThought(text)
    return None


_MARK: Final = b',"cache_control":{"type":"ephemeral"}}'
"""It replaces the last bracket of a block or tool that gets a cache mark."""
_NEXT: Final = {role: b']},{"role":"%s","content":[' % role.value.encode() for role in Role}
"""The JSON between two messages, by the role of the second."""
_CACHEABLE: Final = frozenset({"text", "image", "tool_use", "tool_result"})
_DEFAULT_MAX_TOKENS: Final = 8192  # the API requires a number
_NOT_AN_ID: Final = re.compile(r"[^a-zA-Z0-9_-]")


def request_writer(endpoint: ModelEndpoint, refused: frozenset[str] = frozenset()) -> RequestWriter:
    """Return what writes the long parts of the requests. `refused` are the digests of thoughts that are left out."""
    return RequestWriter(endpoint, lambda message: write_all(_blocks(endpoint, refused, message)), _tool)


def request_body(
    endpoint: ModelEndpoint,
    request: ModelRequest,
    refused: frozenset[str] = frozenset(),
    writer: RequestWriter | None = None,
) -> bytes:
    """Return the body of POST /v1/messages, streaming.

    Cache marks stand on the system prompt, the last tool and the last block; the API allows four.

    refused   digests of thoughts that are left out
    writer    keeps what it has written for earlier requests with the same `refused`
    """
    writer = writer or request_writer(endpoint, refused)
    body: dict[str, Json | Written] = {
        "model": endpoint.model,
        "max_tokens": request.max_tokens or endpoint.max_tokens or _DEFAULT_MAX_TOKENS,
        "stream": True,
    }
    if endpoint.thinking:
        # Without `display` newer models send empty thoughts and stay silent between tool calls.
        body["thinking"] = {"type": "adaptive", "display": "summarized"}
    if request.system.strip():
        body["system"] = (b'[{"type":"text","text":', writer.system(request.system), _MARK, b"]")
    if request.tools:
        *others, last = writer.tools(request.tools)
        body["tools"] = write_array([*others, last[:-1] + _MARK])
    history = writer.fit_images(request.messages)
    written = writer.messages(history)
    for at in reversed(range(len(history))):
        if marked := _marked(written[at], _blocks(endpoint, refused, history[at])):
            written[at] = marked
            break
    body["messages"] = _joined(history, written)
    return write_body({**body, **endpoint.extra_body})


def _tool(spec: ToolSpec) -> JsonObject:
    return {"name": spec.name, "description": spec.description, "input_schema": spec.parameters}


def _joined(history: Sequence[Message], written: Sequence[bytes]) -> Written:
    """Return the messages that have a block. Neighbours of one role are joined, as the API would join them."""
    pieces: list[bytes] = []
    role: Role | None = None
    for message, blocks in zip(history, written, strict=True):
        if blocks:
            pieces += b"," if message.role is role else _NEXT[message.role], blocks
            role = message.role
    return (b"[", pieces[0].removeprefix(b"]},"), *pieces[1:], b"]}]") if pieces else (b"[]",)


def _blocks(endpoint: ModelEndpoint, refused: frozenset[str], message: Message) -> list[JsonObject]:
    """Return the blocks of a message, results first, as the API wants them."""
    parts = sorted(without_thoughts(message, refused).parts, key=lambda part: not isinstance(part, ToolResultPart))
    return [block for part in parts if (block := _block(endpoint.maker, part)) is not None]


def _block(maker: str, part: Part) -> JsonObject | None:
    """Return a content block.

    Return None for blank text and for the thoughts of other models, which this one must not get.
    """
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
    if part.is_error:  # an error must have a text, and may have only text
        return {**block, "content": part.text if part.text.strip() else "(no output)", "is_error": True}
    if part.images:
        words: list[Json] = [{"type": "text", "text": part.text}] if part.text.strip() else []
        return {**block, "content": [*words, *map(_image, part.images)]}
    return {**block, "content": part.text} if part.text.strip() else block


def _image(part: ImagePart) -> JsonObject:
    return {"type": "image", "source": {"type": "base64", "media_type": part.mime_type, "data": part.data}}


def _id(model_id: str) -> str:
    """Return the id in the characters that this API takes. A session may hold ids that another API's model made.

    A changed id ends with a digest, since two ids may differ only in what is replaced, and this API refuses equal ids.
    """
    fit = _NOT_AN_ID.sub("_", model_id)
    return fit if fit == model_id else f"{fit}_{hashlib.sha256(model_id.encode('utf-8', 'replace')).hexdigest()[:12]}"


def _marked(written: bytes, blocks: Sequence[JsonObject]) -> bytes:
    """Return the blocks of a message with the moving cache mark on the last that may carry one; b"" if none may.

    written   the JSON of `blocks`
    """
    for at in reversed(range(len(blocks))):
        if blocks[at].get("type") in _CACHEABLE:
            behind = write_all(blocks[at + 1 :])
            end = len(written) - len(behind) - bool(behind)  # there is a comma before what is behind
            return b"".join((written[: end - 1], _MARK, written[end:]))
    return b""


_THOUGHT_REFUSED: Final = re.compile(r"thinking\b.*\bblock|signature", re.IGNORECASE)
_PATIENCE: Final = 0.25  # seconds to wait for the end of the connection after message_stop


class AnthropicProvider(HttpProvider):
    """A model behind /v1/messages."""

    def __init__(self, endpoint: ModelEndpoint, http: HttpClient) -> None:
        super().__init__(endpoint, http)
        self._headers = anthropic_headers(endpoint)
        self._refused: frozenset[str] = frozenset()  # digests of thoughts that the API would refuse again
        self._writer = request_writer(endpoint)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream an answer, as the port says.

        Raises:
            ProviderError: also for an `error` event, and (PROTOCOL) for a stream that ends before its stop reason.

        """
        endpoint = self._endpoint
        reply = AnthropicReply(endpoint.maker)
        body, adapts = partial(self._body, request), partial(self._adapts, request)
        feed = partial(self._feed, reply)
        async with self._events("/v1/messages", body, adapts) as blocks:
            async for delta in shown_deltas(blocks, feed, lambda: reply.is_whole):
                yield delta
            if not reply.is_whole:
                raise broken_stream(endpoint, "ended its answer before it was whole")
            for block in await read_rest(blocks, _PATIENCE):
                for delta in (delta for event in block for delta in feed(event)):
                    yield delta
        yield reply.done()

    def _feed(self, reply: AnthropicReply, event: ServerEvent) -> Sequence[ModelText | ModelThought]:
        """Read an event. Return the deltas to show now. Raises ProviderError, unless the answer is whole."""
        if reply.complete:
            return ()
        try:
            message = checked_event(self._endpoint, event)
        except ProviderError:
            if reply.is_whole:
                return ()
            raise
        delta = reply.feed(message)
        return () if delta is None else (delta,)

    def _body(self, request: ModelRequest) -> bytes:
        return request_body(self._endpoint, request, self._refused, self._writer)

    def _adapts(self, request: ModelRequest, error: ProviderError) -> bool:
        """Remember the thoughts that the API refuses. Return False if the error is not about new ones.

        Newer models take a thought back only after exactly what preceded it. A mode that changes the tools, or a
        compaction, makes it invalid ("Preserved thinking").
        """
        sent = thought_digests(request, opaque=False) - self._refused
        if error.status != 400 or not sent or not _THOUGHT_REFUSED.search(str(error)):
            return False
        self._refused |= sent
        self._writer = request_writer(self._endpoint, self._refused)
        return True
