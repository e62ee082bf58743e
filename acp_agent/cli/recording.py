"""The recorded messages of a connection, and the tool calls that they show."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from acp_agent.core.types import Json, JsonObject


class Direction(StrEnum):
    """The direction of a message."""

    TO_AGENT = "to_agent"
    FROM_AGENT = "from_agent"


def at(value: Json, *path: str | int) -> Json:
    """Return the value at `path` (member names and list indexes) in `value`, or None."""
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def text_at(value: Json, *path: str | int) -> str:
    """Return the string at `path`, or ""."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def objects_at(value: Json, *path: str | int) -> list[JsonObject]:
    """Return the objects of the list at `path`, or an empty list."""
    found = at(value, *path)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


@dataclass(frozen=True, slots=True)
class RecordedFrame:
    """One JSON-RPC message. `time` is when it was written or read, in seconds of the monotonic clock."""

    direction: Direction
    message: JsonObject
    time: float

    @property
    def method(self) -> str:
        """The method of a request or notification; empty for a response."""
        return text_at(self.message, "method")

    @property
    def params(self) -> JsonObject:
        """The parameters of a request or notification, or an empty object."""
        params = self.message.get("params")
        return params if isinstance(params, dict) else {}

    @property
    def update(self) -> JsonObject:
        """The update of a `session/update`, or an empty object for any other message."""
        update = at(self.message, "params", "update")
        return update if self.method == "session/update" and isinstance(update, dict) else {}

    @property
    def is_request(self) -> bool:
        """True for a request, which needs an answer."""
        return "method" in self.message and "id" in self.message

    @property
    def is_response(self) -> bool:
        """True for the answer to a request."""
        return "method" not in self.message


class Recording:
    """The messages of a connection in both directions, in order. `watch` is called with each of them."""

    def __init__(self, watch: Callable[[RecordedFrame], None] | None = None) -> None:
        self.frames: list[RecordedFrame] = []
        self._watch = watch

    def add(self, frame: RecordedFrame) -> None:
        """Append a message."""
        self.frames.append(frame)
        if self._watch is not None:
            self._watch(frame)


_FINAL = frozenset({"completed", "failed"})


@dataclass(slots=True)
class SeenCall:
    """A tool call as the editor saw it: its `tool_call` and every `tool_call_update`, in order.

    `start` and `end` are indexes of the recording. `end` is -1 until the final update.
    """

    start: int
    first: JsonObject
    updates: list[JsonObject] = field(default_factory=list[JsonObject])
    end: int = -1

    def add(self, update: JsonObject, index: int) -> None:
        """Append an update, which is at `index` of the recording."""
        self.updates.append(update)
        if text_at(update, "status") in _FINAL:
            self.end = index

    @property
    def id(self) -> str:
        """The call's id."""
        return text_at(self.first, "toolCallId")

    @property
    def kind(self) -> str:
        """The call's kind."""
        return text_at(self.first, "kind")

    @property
    def final(self) -> JsonObject:
        """The final update, or an empty object before it."""
        return self.updates[-1] if self.end >= 0 else {}

    @property
    def status(self) -> str:
        """`completed`, `failed`, or `in_progress` while it runs."""
        return text_at(self.final, "status") or text_at(self.first, "status")

    @property
    def terminals(self) -> list[str]:
        """The ids of the editor's terminals in its content, in order of appearance."""
        content = [item for update in (self.first, *self.updates) for item in objects_at(update, "content")]
        found = [text_at(item, "terminalId") for item in content if item.get("type") == "terminal"]
        return list(dict.fromkeys(found))

    @property
    def diffs(self) -> list[JsonObject]:
        """The diffs in its content, in order."""
        content = [item for update in (self.first, *self.updates) for item in objects_at(update, "content")]
        return [item for item in content if item.get("type") == "diff"]

    @property
    def text(self) -> str:
        """The text of its final update."""
        return "\n".join(text_at(item, "content", "text") for item in objects_at(self.final, "content"))


def seen_calls(recording: Recording) -> list[SeenCall]:
    """Return all tool calls in the order of their start. Updates without a `tool_call` are ignored."""
    calls: dict[str, SeenCall] = {}
    for index, frame in enumerate(recording.frames):
        call_id = text_at(frame.update, "toolCallId")
        match text_at(frame.update, "sessionUpdate"):
            case "tool_call":
                calls.setdefault(call_id, SeenCall(index, frame.update))
            case "tool_call_update" if call_id in calls and calls[call_id].end < 0:
                calls[call_id].add(frame.update, index)
            case _:
                pass
    return list(calls.values())
