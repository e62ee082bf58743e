"""A Messages stream, event by event, into deltas and one finished message.

Unknown event types, unknown deltas and pings are skipped; a block of unknown type is kept whole and goes back
with the history (dependencies.md, condition 2).
"""

import uuid
from dataclasses import dataclass, field, replace
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
from acp_agent.llm.json_wire import as_count, as_object, as_text, read_arguments
from acp_agent.log import Log

_log = Log(__name__)

# Delta type -> the key that holds its piece.
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
    """A content block under way: as it started, and the pieces that came since, by key."""

    start: JsonObject
    pieces: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def joined(self, key: str) -> str:
        return "".join(self.pieces.get(key, ()))

    def whole(self) -> JsonObject:
        """The block as the API would have sent it unstreamed. A tool's input is left to the reader."""
        grown: JsonObject = {
            key: as_text(self.start.get(key)) + self.joined(key) for key in self.pieces if key != "partial_json"
        }
        return {**self.start, **grown}


class Reply:
    """One assistant message in the making. `maker` is whose thoughts they are."""

    def __init__(self, maker: str) -> None:
        self._maker = maker
        self._blocks: dict[int, _Block] = {}
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._stop_reason = ""
        self.complete = False

    def feed(self, event: JsonObject) -> ModelText | ModelThought | None:
        """Take one event; what the user should see of it at once, if anything."""
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
        """The whole message. Call it once, after `complete`."""
        seen: dict[str, list[ToolUsePart]] = {}
        parts: list[Part] = []
        for index in sorted(self._blocks):
            part = self._part(self._blocks[index], seen)
            if part is not None:
                parts.append(part)
        message = Message(Role.ASSISTANT, tuple(parts))
        return ModelDone(message, self._stop(message), self._usage())

    def _start(self, index: int, start: JsonObject) -> ModelText | ModelThought | None:
        self._blocks[index] = _Block(start)
        return _shown(as_text(start.get("type")), as_text(start.get("text")) or as_text(start.get("thinking")))

    def _grow(self, index: int, delta: JsonObject) -> ModelText | ModelThought | None:
        block = self._blocks.get(index)
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
                return _tool_use(block, seen)
            case _:
                if "partial_json" in block.pieces:
                    whole["input"] = read_arguments(block.joined("partial_json")) or {}
                return OpaquePart(self._maker, whole)

    def _count(self, usage: JsonObject) -> None:
        """Counts are cumulative, and some servers send 0 for what they already told: the largest is right."""
        for name in _COUNTS:
            self._counts[name] = max(self._counts[name], as_count(usage.get(name)))

    def _usage(self) -> Usage:
        counts = self._counts
        return Usage(
            input=counts["input_tokens"],
            output=counts["output_tokens"],
            cache_read=counts["cache_read_input_tokens"],
            cache_write=counts["cache_creation_input_tokens"],
        )

    def _stop(self, message: Message) -> ModelStop:
        stop = _STOPS.get(self._stop_reason)
        if stop is None or (stop is ModelStop.TOOL_USE and not message.tool_uses):
            return ModelStop.TOOL_USE if message.tool_uses else ModelStop.END
        return stop


def _shown(key: str, text: str) -> ModelText | ModelThought | None:
    if text and key == "text":
        return ModelText(text)
    if text and key == "thinking":
        return ModelThought(text)
    return None


def _tool_use(block: _Block, seen: dict[str, list[ToolUsePart]]) -> ToolUsePart | None:
    """The call; its id is made unique within the message, for a result must find its call.

    None for one equal to an earlier one, the id included: it is one call, sent twice.

    seen   the calls of the message so far as they were sent, by their ids
    """
    raw = block.joined("partial_json")
    arguments = as_object(block.start.get("input")) if not raw.strip() else read_arguments(raw)
    call_id, name = as_text(block.start.get("id")), as_text(block.start.get("name"))
    use = ToolUsePart(call_id, name, arguments, "" if arguments is not None else raw)
    sent = seen.setdefault(call_id, [])
    if call_id and use in sent:
        return None
    sent.append(use)
    return use if call_id and len(sent) == 1 else replace(use, id=f"toolu_{uuid.uuid4().hex[:24]}")
