"""Two runs of the same conversation, made equal: what differs from run to run gets a name instead of a value."""

import json
import re
from collections.abc import Iterator
from typing import Any

from acp_agent import __version__
from acp_agent.cli.agent_process import Direction, RecordedFrame, objects_at

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)")
_SCRIPT = re.compile(r"/[^\s\"]*/[0-9a-f]{6}\.sh")
_MARK = re.compile(r"\d+\.[0-9a-f]{16}\b")
_SHELL = re.compile(r"/[a-z/]*/bash\b")
_MEASURED = {"elapsedMs", "used"}  # members whose number depends on the machine


def conversation(frames: list[RecordedFrame], places: dict[str, str]) -> list[dict[str, Any]]:
    """The frames as golden lines: {"from": who, "message": normalised}. `places` maps folders to their names.

    Polls of a running terminal and the output they brought are left out, and adjacent pieces of a message are one:
    how many there are is a matter of luck.
    """
    names = _Names(places)
    kept = [frame for frame in _without_polls(frames) if not _is_live_output(frame)]
    told = [
        {
            "from": "agent" if frame.direction is Direction.FROM_AGENT else "editor",
            "message": names.message(frame.message, frame.direction),
        }
        for frame in kept
    ]
    whole = list[dict[str, Any]]()
    for line in told:
        piece, before = _piece(line), _piece(whole[-1]) if whole else None
        if piece and before and all(piece[key] == before[key] for key in ("sessionUpdate", "messageId")):
            before["content"]["text"] += piece["content"]["text"]
        else:
            whole.append(line)
    return whole


def _piece(line: dict[str, Any]) -> dict[str, Any] | None:
    """The update of a line that is a piece of an answer or a thought."""
    update = line["message"].get("params", {}).get("update", {})
    return update if update.get("sessionUpdate") in ("agent_message_chunk", "agent_thought_chunk") else None


def lines(conversation: list[dict[str, Any]]) -> str:
    """As the file holds it, one message a line."""
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in conversation)


def said_by(who: str, conversation: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One side of a conversation: how the two sides interleave may differ between runs, each side's order not."""
    return [line["message"] for line in conversation if line["from"] == who]


class _Names:
    """Numbers everything arbitrary by its first appearance."""

    def __init__(self, places: dict[str, str]) -> None:
        self._places = sorted(places.items(), key=lambda place: -len(place[0]))
        self._uuids: dict[str, str] = {}
        self._ids: dict[tuple[Direction, Any], int] = {}

    def message(self, message: dict[str, Any], sent: Direction) -> dict[str, Any]:
        normal = self._value(message)
        if "id" in message and message["id"] is not None:
            # A request is numbered among its sender's; an answer carries the number of the other side's request.
            other = Direction.TO_AGENT if sent is Direction.FROM_AGENT else Direction.FROM_AGENT
            asker = sent if "method" in message else other
            mine = [key for key in self._ids if key[0] is asker]
            normal["id"] = self._ids.setdefault((asker, message["id"]), len(mine) + 1)
        if message.get("method") == "$/cancel_request":
            normal["params"]["requestId"] = self._ids.get((sent, message["params"]["requestId"]))
        return normal

    def _value(self, value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: self._value(item, key) for key, item in value.items()}
        if name == "env" and isinstance(value, list):
            return [self._value(item) for item in _set_on_purpose(value)]
        if isinstance(value, list):
            return [self._value(item) for item in value]
        if isinstance(value, str):
            return self._text(value)
        return 0 if name in _MEASURED else value

    def _text(self, text: str) -> str:
        text = _SCRIPT.sub("<script>", text)
        text = _MARK.sub("<mark>", text)
        for folder, name in self._places:
            text = text.replace(folder, name)
        text = _UUID.sub(lambda match: self._uuids.setdefault(match[0], f"<uuid {len(self._uuids) + 1}>"), text)
        text = _TIME.sub("<time>", text)
        text = _SHELL.sub("<bash>", text)
        return "<version>" if text == __version__ else text


def _set_on_purpose(variables: list[Any]) -> list[Any]:
    """The variables of a command but for those that are taken away: which there are depends on the machine."""
    return [each for each in variables if each.get("value") and each.get("name") != "ACP_AGENT_UNSET"]


def _without_polls(frames: list[RecordedFrame]) -> Iterator[RecordedFrame]:
    """Leave out every `terminal/output` but the last of each terminal, with its answer."""
    asked = [(frame.params["terminalId"], frame.message["id"]) for frame in frames if frame.method == "terminal/output"]
    last = dict(asked)
    dropped = {request_id for terminal, request_id in asked if last[terminal] != request_id}
    for frame in frames:
        answers = frame.direction is Direction.TO_AGENT and not frame.method
        polls = frame.method == "terminal/output" or answers
        if not (polls and frame.message.get("id") in dropped):
            yield frame


def _is_live_output(frame: RecordedFrame) -> bool:
    update = frame.update
    if update.get("sessionUpdate") != "tool_call_update" or update.get("status") != "in_progress":
        return False
    return not any(item.get("type") == "terminal" for item in objects_at(update, "content"))
