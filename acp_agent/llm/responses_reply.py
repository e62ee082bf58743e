"""A Responses stream, event by event, into deltas and one finished message.

An item is told up to four times: in deltas, in the `done` of a part, in its own `done`, and in the response's end.
What counts is the end's, else its own; the user is shown what no delta has shown yet.

What only the model's maker understands goes back with the history, as `{"model": family, "item": item, "next": ...}`.
`next` is what has to stand in the item after it, beside what our parts hold: the id, by which the API knows that
reasoning and what followed belong together, and the `phase` of a message. Unknown events are skipped and logged
once; unknown items are kept whole (dependencies.md, condition 2).
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from acp_agent.core.messages import (
    Message,
    ModelDone,
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
from acp_agent.core.types import JsonObject
from acp_agent.llm.json_wire import as_count, as_list, as_object, as_text
from acp_agent.llm.openai_reply import tool_use
from acp_agent.llm.responses_items import TEXT_DELTAS, Item
from acp_agent.log import Log

_log = Log(__name__)

_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.done"})
# What says nothing that is not said elsewhere.
_SKIPPED: Final = frozenset(
    {
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.content_part.added",
        "response.content_part.done",
        "response.output_text.done",
        "response.output_text.annotation.added",
        "response.refusal.done",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_part.done",
        "response.reasoning_summary_text.done",
        "response.reasoning_text.done",
        "keepalive",
        "message",  # no type and no name
    }
)
_STOPS: Final = {
    "max_output_tokens": ModelStop.MAX_TOKENS,
    "max_tokens": ModelStop.MAX_TOKENS,
    "length": ModelStop.MAX_TOKENS,
    "content_filter": ModelStop.REFUSAL,
}


class Reply:
    """One assistant message in the making.

    provider, family   who makes it, as its opaque parts are tagged
    ended              the server said that the response is whole
    """

    def __init__(self, provider: str, family: str) -> None:
        self._provider = provider
        self._family = family
        self._items: list[Item] = []
        self._by_place: dict[int, Item] = {}
        self._by_id: dict[str, Item] = {}
        self._unknown: set[str] = set()
        self._reason = ""
        self._usage = Usage()
        self.ended = False

    @property
    def settled(self) -> bool:
        """Nothing is missing though the server did not say so: every item was ended, the last says or calls."""
        last = max(self._items, key=lambda item: item.place, default=None)
        kinds = ("message", "function_call")
        return last is not None and last.kind in kinds and all(item.done for item in self._items)

    def feed(self, kind: str, event: JsonObject) -> list[ModelText | ModelThought]:
        """Take one event; what the user should see of it at once."""
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
        """The whole message. Call it once, at the end."""
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
            return []  # said twice
        item = self._under_way(kind, item_id, event) or self._new(kind, event)
        item.done = True
        item.tell(told)
        return item.show_rest()

    def _end(self, response: JsonObject) -> list[ModelText | ModelThought]:
        """Take the response as it is told at its end, where its items are; some servers leave them out there."""
        self.ended = True
        self._reason = as_text(as_object(response.get("incomplete_details")).get("reason"))
        self._usage = _usage(as_object(response.get("usage")))
        output = [item for item in map(as_object, as_list(response.get("output"))) if item]
        if not output:
            return []
        known: dict[str, deque[Item]] = {}
        for item in sorted(self._items, key=lambda item: item.place):
            known.setdefault(item.kind, deque()).append(item)
        self._items = []
        shown: list[ModelText | ModelThought] = []
        for place, told in enumerate(output):
            kind = as_text(told.get("type"))
            same_kind = known.get(kind)
            item = same_kind.popleft() if same_kind else Item(kind, place)
            item.place = place
            if not (item.done and item.told.get("encrypted_content")):  # "use the one of output_item.done"
                item.tell(told)
            item.done = True
            self._items.append(item)
            shown += item.show_rest()
        return shown

    def _at(self, kind: str, event: JsonObject) -> Item:
        """The item a piece belongs to; a new one when the piece came before it."""
        return self._under_way(kind, as_text(event.get("item_id")), event) or self._new(kind, event)

    def _under_way(self, kind: str, item_id: str, event: JsonObject) -> Item | None:
        item = self._known(item_id, event)
        return item if item is not None and not item.done and item.kind == kind else None

    def _known(self, item_id: str, event: JsonObject) -> Item | None:
        """An item by its place (ids change between events on some servers); without, by its id; else the last one."""
        index = event.get("output_index")
        if isinstance(index, int):
            return self._by_place.get(index)
        return self._by_id.get(item_id) or (self._items[-1] if self._items else None)

    def _new(self, kind: str, event: JsonObject) -> Item:
        index = event.get("output_index")
        item = Item(kind, index if isinstance(index, int) else len(self._items))
        self._items.append(item)
        self._by_place[item.place] = item
        return item

    # ------------------------------------------------------------------------------------ parts

    def _parts(self, items: Iterable[Item]) -> list[Part]:
        parts: list[Part] = []
        seen: dict[str, list[ToolUsePart]] = {}
        for item in items:
            part = self._part(item, seen)
            if part is None:
                continue
            if isinstance(part, TextPart | ToolUsePart):
                self._tell_next(parts, item)
            parts.append(part)
        return parts

    def _part(self, item: Item, seen: dict[str, list[ToolUsePart]]) -> Part | None:
        match item.kind:
            case "message":
                text = item.text
                return TextPart(text) if text else None
            case "function_call" if item.told:  # pieces alone name no tool
                call_id = as_text(item.told.get("call_id")) or as_text(item.told.get("id"))
                return tool_use(call_id, as_text(item.told.get("name")), item.raw_arguments, seen)
            case "reasoning":
                opaque = self._kept("item", item.told) if item.self_contained else None
                text = item.text
                return ThoughtPart(text, self._provider, opaque) if text or opaque else None
            case "" | "function_call":
                return None
            case _:
                return OpaquePart(self._provider, self._kept("item", item.told))

    def _tell_next(self, parts: list[Part], item: Item) -> None:
        """Keep what has to stand in this item beside what its part holds, with the reasoning before it."""
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
    """`input_tokens` counts cached tokens in, `Usage.input` does not; `output_tokens` counts those of reasoning in."""
    total, details = as_count(usage.get("input_tokens")), as_object(usage.get("input_tokens_details"))
    read = min(total, as_count(details.get("cached_tokens")))
    written = min(total - read, as_count(details.get("cache_write_tokens")))
    return Usage(total - read - written, as_count(usage.get("output_tokens")), read, written)
