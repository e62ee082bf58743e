"""OpenAI's Responses API, streamed, and every server that speaks it (OpenRouter, vLLM, llama.cpp, LM Studio, ...).

Sources: developers.openai.com "Responses", "Streaming events", "Reasoning models"; the types of its SDK.

A server sends an output item up to four times: in deltas, in the `done` event of a part, in the `done` event of the
item, and in the event that ends the response. The last version counts. If it has more text than the deltas had, the
user is shown the rest.

Items that only the API understands, such as reasoning, are stored in the history as `{"model": family, "item": item}`
and sent back unchanged. Our own parts have no place for two fields of the other items: the id, by which the API knows
that a reasoning item belongs to the next one, and the `phase` of a message. `{"model": family, "next": ...}`, in front
of such an item, stores them. Unknown events are skipped and logged once. Unknown items are stored whole.
"""

from collections import deque
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from acp_agent.core.errors import ProviderError
from acp_agent.core.messages import (
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
    ToolUsePart,
    Usage,
)
from acp_agent.core.ports import ModelRequest
from acp_agent.core.types import Json, JsonObject
from acp_agent.llm.endpoint import (
    ModelEndpoint,
    as_count,
    as_list,
    as_object,
    as_text,
    family,
    read_arguments,
    text_of_arguments,
    thought_digests,
    tool_use,
)
from acp_agent.llm.exchange import (
    HttpProvider,
    ServerEvent,
    broken_stream,
    parse_event,
    quirk_in,
    read_rest,
    reported_error,
    shown_deltas,
    stream_failure,
)
from acp_agent.llm.responses_request import (
    REFUSALS,
    ResponsesQuirk,
    refuses_thoughts,
    request_body,
    request_writer,
)
from acp_agent.log import Log
from acp_agent.net.client import HttpClient

TEXT_DELTAS: Final = {
    "response.output_text.delta": ("message", "content_index"),
    "response.refusal.delta": ("message", "content_index"),
    "response.reasoning_summary_text.delta": ("reasoning", "summary_index"),
    "response.reasoning_text.delta": ("reasoning", "content_index"),
}
"""For each event with a piece of text: the kind of its item, and the field with the index of the item's part."""


@dataclass(slots=True)
class ResponsesItem:
    """An output item in progress.

    place         its position in the answer
    told          the latest whole version that the server sent
    begun, done   whether its `added` event and its `done` event have arrived
    said          the pieces of text that were shown to the user
    part          the part of the item that the last shown piece belongs to
    arguments     the arguments of a call, in pieces
    """

    kind: str
    place: int
    told: JsonObject = field(default_factory=dict[str, Json])
    begun: bool = False
    done: bool = False
    said: list[str] = field(default_factory=list[str])
    part: tuple[str, int] | None = None
    arguments: list[str] = field(default_factory=list[str])

    def tell(self, item: JsonObject) -> None:
        """Take a new version of the item."""
        self.told, self.kind = item, as_text(item.get("type")) or self.kind

    def grow(self, event_type: str, event: JsonObject) -> list[ModelText | ModelThought]:
        """Take a delta of its text. Return what to show."""
        piece, part = as_text(event.get("delta")), (event_type, as_count(event.get(TEXT_DELTAS[event_type][1])))
        if not piece:
            return []
        between = self._between if self.said and self.part != part else ""
        self.part = part
        return self._show(between + piece)

    def show_rest(self) -> list[ModelText | ModelThought]:
        """Return the text of the whole item that was not yet shown to the user."""
        whole, said = self._whole_text, "".join(self.said)
        return self._show(whole[len(said) :]) if whole.startswith(said) else []

    @property
    def text(self) -> str:
        """The text so far: for reasoning the text that the user was shown, for a message the server's last version."""
        said = "".join(self.said)
        return said or self._whole_text if self.kind == "reasoning" else self._whole_text or said

    @property
    def raw_arguments(self) -> str:
        """The arguments of a call, normally as JSON text."""
        return text_of_arguments(self.told.get("arguments")) or "".join(self.arguments)

    @property
    def refuses(self) -> bool:
        """Whether the item is a refusal of the model to answer."""
        told = any(as_object(part).get("type") == "refusal" for part in as_list(self.told.get("content")))
        streamed = self.part is not None and self.part[0] == "response.refusal.delta"
        return self.kind == "message" and (told or streamed)

    @property
    def self_contained(self) -> bool:
        """Whether the item holds its reasoning, which the server does not store."""
        content = as_text(self.told.get("encrypted_content")) or as_list(self.told.get("content"))
        return self.done and bool(content)

    @property
    def _between(self) -> str:
        """The separator between its parts: parts of reasoning are paragraphs, parts of a message are one text."""
        return "\n\n" if self.kind == "reasoning" else ""

    @property
    def _whole_text(self) -> str:
        if self.kind not in ("message", "reasoning"):
            return ""
        parts = [*as_list(self.told.get("summary")), *as_list(self.told.get("content"))]
        texts = (as_text(part.get("text")) or as_text(part.get("refusal")) for part in map(as_object, parts))
        return self._between.join(filter(None, texts))

    def _show(self, text: str) -> list[ModelText | ModelThought]:
        if not text:
            return []
        self.said.append(text)
        return [ModelThought(text) if self.kind == "reasoning" else ModelText(text)]


_log = Log(__name__)

_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.done"})
# Events that only repeat the content of other events.
_REPEATED: Final = (
    "content_part.added content_part.done created in_progress output_text.annotation.added output_text.done "
    "queued reasoning_summary_part.added reasoning_summary_part.done reasoning_summary_text.done "
    "reasoning_text.done refusal.done"
)
# "message" stands for an event that has neither type nor name.
_SKIPPED: Final = frozenset((*map("response.{}".format, _REPEATED.split()), "keepalive", "message"))
_STOPS: Final = {
    "max_output_tokens": ModelStop.MAX_TOKENS,
    "max_tokens": ModelStop.MAX_TOKENS,
    "length": ModelStop.MAX_TOKENS,
    "content_filter": ModelStop.REFUSAL,
}


class ResponsesReply:
    """One assistant message in progress.

    provider, family   stored in its opaque parts, which are sent only to the same provider and family of models
    ended              whether the server has sent the event that ends the response
    """

    def __init__(self, provider: str, family: str) -> None:
        self._provider = provider
        self._family = family
        self._items: list[ResponsesItem] = []
        self._by_place: dict[int, ResponsesItem] = {}
        self._by_id: dict[str, ResponsesItem] = {}
        self._unknown: set[str] = set()
        self._reason = ""
        self._usage = Usage()
        self.ended = False

    @property
    def settled(self) -> bool:
        """Whether the answer is complete even if the server does not send the event that ends the response.

        It is complete if every item is done and the last one is a message or a call.
        """
        last = max(self._items, key=lambda item: item.place, default=None)
        kinds = ("message", "function_call")
        return last is not None and last.kind in kinds and all(item.done for item in self._items)

    def feed(self, kind: str, event: JsonObject) -> list[ModelText | ModelThought]:
        """Read one event. Return the deltas to show now."""
        if kind in TEXT_DELTAS:
            return self._at(TEXT_DELTAS[kind][0], event).grow(kind, event)
        if kind in _ENDS:
            return self._end(as_object(event.get("response")))
        match kind:
            case "response.output_item.added":
                self._begin(as_object(event.get("item")), event)
            case "response.output_item.done":
                return self._finish(as_object(event.get("item")), event)
            case "response.function_call_arguments.delta":
                self._at("function_call", event).arguments.append(as_text(event.get("delta")))
            case "response.function_call_arguments.done":
                call = self._under_way("function_call", as_text(event.get("item_id")), event)
                if call is not None and (arguments := as_text(event.get("arguments"))):
                    call.arguments[:] = [arguments]
            case _ if kind not in _SKIPPED and kind not in self._unknown and len(self._unknown) < 100:
                self._unknown.add(kind)
                _log.debug("event of unknown type skipped", provider=self._provider, type=kind[:50])
            case _:
                pass
        return []

    def done(self) -> ModelDone:
        """Return the whole message. Call it once, at the end."""
        items = sorted(self._items, key=lambda item: item.place)
        message = Message(Role.ASSISTANT, tuple(self._parts(items)))
        stop = ModelStop.TOOL_USE if message.tool_uses else ModelStop.END
        if any(item.refuses for item in items):
            stop = ModelStop.REFUSAL
        return ModelDone(message, _STOPS.get(self._reason, stop), self._usage)

    # ------------------------------------------------------------------------------------ items

    def _begin(self, told: JsonObject, event: JsonObject) -> None:
        kind, item_id = as_text(told.get("type")), as_text(told.get("id"))
        item = self._under_way(kind, item_id, event)
        if item is None or item.begun:  # some servers number every item 0
            item = self._new(kind, event)
        item.begun = True
        item.tell(told)
        if item_id:
            self._by_id[item_id] = item

    def _finish(self, told: JsonObject, event: JsonObject) -> list[ModelText | ModelThought]:
        kind, item_id = as_text(told.get("type")), as_text(told.get("id"))
        known = self._known(item_id, event)
        if known is not None and known.done and known.told == told:
            return []  # sent twice
        item = self._under_way(kind, item_id, event) or self._new(kind, event)
        item.done = True
        item.tell(told)
        return item.show_rest()

    def _end(self, response: JsonObject) -> list[ModelText | ModelThought]:
        """Take the items from the event that ends the response, if it has any. Return the deltas to show now."""
        self.ended = True
        self._reason = as_text(as_object(response.get("incomplete_details")).get("reason"))
        self._usage = _usage(as_object(response.get("usage")))
        output = [item for item in map(as_object, as_list(response.get("output"))) if item]
        if not output:
            return []
        known: dict[str, deque[ResponsesItem]] = {}
        for item in sorted(self._items, key=lambda item: item.place):
            known.setdefault(item.kind, deque()).append(item)
        self._items = []
        shown: list[ModelText | ModelThought] = []
        for place, told in enumerate(output):
            kind = as_text(told.get("type"))
            same_kind = known.get(kind)
            item = same_kind.popleft() if same_kind else ResponsesItem(kind, place)
            item.place = place
            # The API takes encrypted reasoning back only as its item's own event had it.
            if not (item.done and item.told.get("encrypted_content")):
                item.tell(told)
            item.done = True
            self._items.append(item)
            shown += item.show_rest()
        return shown

    def _at(self, kind: str, event: JsonObject) -> ResponsesItem:
        """Return the unfinished item of this kind that a piece belongs to, or a new one."""
        return self._under_way(kind, as_text(event.get("item_id")), event) or self._new(kind, event)

    def _under_way(self, kind: str, item_id: str, event: JsonObject) -> ResponsesItem | None:
        item = self._known(item_id, event)
        return item if item is not None and not item.done and item.kind == kind else None

    def _known(self, item_id: str, event: JsonObject) -> ResponsesItem | None:
        """Return the item of an event by its position, else by its id, else the last item.

        Some servers change the id of an item from event to event.
        """
        index = event.get("output_index")
        if isinstance(index, int):
            return self._by_place.get(index)
        return self._by_id.get(item_id) or (self._items[-1] if self._items else None)

    def _new(self, kind: str, event: JsonObject) -> ResponsesItem:
        index = event.get("output_index")
        item = ResponsesItem(kind, index if isinstance(index, int) else len(self._items))
        self._items.append(item)
        self._by_place[item.place] = item
        return item

    # ------------------------------------------------------------------------------------ parts

    def _parts(self, items: Iterable[ResponsesItem]) -> list[Part]:
        parts: list[Part] = []
        seen: dict[str, list[ToolUsePart]] = {}
        for item in items:
            part = self._part(item, seen)
            if isinstance(part, TextPart | ToolUsePart):
                self._tell_next(parts, item)
            if part is not None:
                parts.append(part)
        return parts

    def _part(self, item: ResponsesItem, seen: dict[str, list[ToolUsePart]]) -> Part | None:
        match item.kind:
            case "message":
                text = item.text
                return TextPart(text) if text else None
            case "function_call" if item.told:  # the deltas do not name the tool
                call_id, raw = as_text(item.told.get("call_id")) or as_text(item.told.get("id")), item.raw_arguments
                return tool_use(call_id, as_text(item.told.get("name")), read_arguments(raw), raw, seen, "call")
            case "reasoning":
                opaque = self._kept("item", item.told) if item.self_contained else None
                text = item.text
                return ThoughtPart(text, self._provider, opaque) if text or opaque else None
            case "" | "function_call":
                return None
            case _:
                return OpaquePart(self._provider, self._kept("item", item.told))

    def _tell_next(self, parts: list[Part], item: ResponsesItem) -> None:
        """Store the id and phase of this item with the reasoning before it."""
        before = parts[-1] if parts else None
        opaque = before.opaque if isinstance(before, ThoughtPart) else None
        names = ("phase",) if opaque is None else ("id", "phase")
        told = {name: value for name in names if (value := as_text(item.told.get(name)))}
        if not told:
            return
        following: JsonObject = {"type": item.kind, **told}
        if isinstance(before, ThoughtPart) and opaque is not None:
            parts[-1] = replace(before, opaque={**opaque, "next": following})
        else:
            parts.append(OpaquePart(self._provider, self._kept("next", following)))

    def _kept(self, name: str, value: JsonObject) -> JsonObject:
        return {"model": self._family, name: value}


def _usage(usage: JsonObject) -> Usage:
    """Return the usage.

    `input_tokens` includes cached tokens, `Usage.input` does not. `output_tokens` includes reasoning.
    """
    total, details = as_count(usage.get("input_tokens")), as_object(usage.get("input_tokens_details"))
    read = min(total, as_count(details.get("cached_tokens")))
    written = min(total - read, as_count(details.get("cache_write_tokens")))
    return Usage(total - read - written, as_count(usage.get("output_tokens")), read, written)


_DONE: Final = "[DONE]"  # sent by servers that also have the Chat Completions API
_PATIENCE: Final = 0.25  # seconds to wait for the end of the connection after the response
# The general error type of each code of a failed response. Other codes are types themselves, or errors of the server.
_INVALID: Final = (
    "invalid_prompt invalid_encrypted_content data_residency_mismatch bio_policy cyber_policy "
    "misalignment_policy_violation invalid_image invalid_image_format invalid_image_mode invalid_image_url "
    "invalid_base64_image image_too_large image_too_small image_parse_error image_content_policy_violation "
    "image_file_too_large image_file_not_found empty_image_file unsupported_image_media_type "
    "failed_to_download_image"
)
_TYPES: Final = {
    **dict.fromkeys(("server_is_overloaded", "slow_down"), "overloaded_error"),
    **dict.fromkeys(_INVALID.split(), "invalid_request_error"),
}


class ResponsesProvider(HttpProvider):
    """A Provider for a model of the Responses API. The endpoint of a reasoning model has `thinking` set."""

    def __init__(self, endpoint: ModelEndpoint, http: HttpClient) -> None:
        super().__init__(endpoint, http)
        self._quirks: frozenset[ResponsesQuirk] = frozenset()
        self._refused: frozenset[str] = frozenset()  # digests of reasoning that the server would refuse again
        self._writer = request_writer(endpoint, self._quirks)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream an answer, as the port says.

        Raises:
            ProviderError: also (PROTOCOL) for a stream that ends inside an item, or without any item.

        """
        reply = ResponsesReply(self._endpoint.provider, family(self._endpoint.model))
        body, adapts = partial(self._body, request), partial(self._adapts, request)
        said_done = False

        def feed(event: ServerEvent) -> Sequence[ModelText | ModelThought]:
            nonlocal said_done
            said_done = said_done or event.data.strip() == _DONE
            if said_done or reply.ended:
                return ()
            message = parse_event(self._endpoint, event)
            kind = as_text(message.get("type")) or event.name
            error = _failure_in(event, kind, message)
            if error is not None:
                raise stream_failure(self._endpoint, error)
            return reply.feed(kind, message)

        async with self._events("/responses", body, adapts) as blocks:
            async for delta in shown_deltas(blocks, feed, lambda: said_done or reply.ended):
                yield delta
            if not (said_done or reply.ended or reply.settled):
                raise broken_stream(self._endpoint, "ended its answer before it was whole")
            await read_rest(blocks, _PATIENCE)
        yield reply.done()

    def _body(self, request: ModelRequest) -> bytes:
        return request_body(self._endpoint, request, self._quirks, self._writer)

    def _adapts(self, request: ModelRequest, error: ProviderError) -> bool:
        """Remember the reasoning or the part of the request that the server refuses. Return False if it is known."""
        quirk, sent = quirk_in(error, REFUSALS), frozenset[str]()
        if refuses_thoughts(error) and ResponsesQuirk.NO_THOUGHTS not in self._quirks:
            sent = thought_digests(request, opaque=True) - self._refused
        if sent:  # if newer reasoning is refused too, the server takes none
            quirk = ResponsesQuirk.NO_THOUGHTS if self._refused else None
        if not sent and (quirk is None or quirk in self._quirks):
            return False
        self._refused |= sent
        self._quirks |= frozenset() if quirk is None else {quirk}
        self._writer = request_writer(self._endpoint, self._quirks, self._refused)
        return True


def _failure_in(event: ServerEvent, kind: str, message: JsonObject) -> Json:
    """Return the error that an event reports, by itself or by a failed response. Else return None."""
    error, response = reported_error(event, message), as_object(message.get("response"))
    status = as_text(response.get("status"))
    if error is None and (kind == "response.failed" or status in ("failed", "cancelled")):
        error = as_object(response.get("error")) or {"message": f"the response is {status or 'failed'}"}
    meaning = _TYPES.get(as_text(as_object(error).get("code")))
    return {**as_object(error), "type": meaning} if meaning else error
