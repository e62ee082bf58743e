"""The tool calls a recording shows, each with all it was given on the way."""

from dataclasses import dataclass, field

from acp_agent.cli.editor.frames import Recording, objects_at, text_at
from acp_agent.core.types import JsonObject

_FINAL = frozenset({"completed", "failed"})


@dataclass(slots=True)
class SeenCall:
    """One tool call as the editor saw it: its `tool_call` and every `tool_call_update`, in order.

    `start` and `end` are indexes of the recording; `end` is -1 while no final update has come.
    """

    start: int
    first: JsonObject
    updates: list[JsonObject] = field(default_factory=list[JsonObject])
    end: int = -1

    @property
    def id(self) -> str:
        """The call's id."""
        return text_at(self.first, "toolCallId")

    @property
    def kind(self) -> str:
        """How an editor draws it."""
        return text_at(self.first, "kind")

    @property
    def final(self) -> JsonObject:
        """The update that ended it; empty while there is none."""
        return self.updates[-1] if self.end >= 0 else {}

    @property
    def status(self) -> str:
        """`completed`, `failed`, or `in_progress` while it runs."""
        return text_at(self.final, "status") or text_at(self.first, "status")

    @property
    def terminals(self) -> list[str]:
        """The ids of the editor's terminals embedded in it, in order of appearance."""
        content = [item for update in (self.first, *self.updates) for item in objects_at(update, "content")]
        found = [text_at(item, "terminalId") for item in content if item.get("type") == "terminal"]
        return list(dict.fromkeys(found))

    @property
    def diffs(self) -> list[JsonObject]:
        """The diffs shown with it, in order."""
        content = [item for update in (self.first, *self.updates) for item in objects_at(update, "content")]
        return [item for item in content if item.get("type") == "diff"]

    @property
    def text(self) -> str:
        """The text its final update shows."""
        return "\n".join(text_at(item, "content", "text") for item in objects_at(self.final, "content"))


def seen_calls(recording: Recording) -> list[SeenCall]:
    """All tool calls in the order they began. An update without its `tool_call` is left out."""
    calls: dict[str, SeenCall] = {}
    for index, frame in enumerate(recording.frames):
        call_id = text_at(frame.update, "toolCallId")
        match text_at(frame.update, "sessionUpdate"):
            case "tool_call":
                calls.setdefault(call_id, SeenCall(index, frame.update))
            case "tool_call_update" if call_id in calls and calls[call_id].end < 0:
                calls[call_id].updates.append(frame.update)
                if text_at(frame.update, "status") in _FINAL:
                    calls[call_id].end = index
            case _:
                pass
    return list(calls.values())
