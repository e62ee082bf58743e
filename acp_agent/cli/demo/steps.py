"""The steps of the story, each judged by what went over the wire and by what is on the disk afterwards."""

from collections.abc import Callable
from pathlib import Path

from acp_agent.cli.demo.project import MENDED, STOCK
from acp_agent.cli.editor.calls import SeenCall, seen_calls
from acp_agent.cli.editor.frames import Direction, Recording, at, objects_at, text_at


class Evidence:
    """What happened: the recording and the project it was about. `stop_reason` is empty when no turn ended."""

    def __init__(self, recording: Recording, project: Path, stop_reason: str) -> None:
        self.recording = recording
        self.project = project
        self.stop_reason = stop_reason
        self.calls = seen_calls(recording)

    def requests(self, method: str) -> list[int]:
        """Where the agent asked the editor for something; indexes of the recording."""
        return [
            index
            for index, frame in enumerate(self.recording.frames)
            if frame.direction is Direction.FROM_AGENT and frame.is_request and frame.method == method
        ]

    def runs(self) -> list[SeenCall]:
        """The commands that ran in a terminal of the editor."""
        return [call for call in self.calls if call.kind == "execute" and call.terminals]


def _listed(seen: Evidence) -> bool:
    listings = [call for call in seen.calls if call.kind in {"search", "other"} and call.status == "completed"]
    return any("inventory" in call.text for call in listings)


def _read_through_the_editor(seen: Evidence) -> bool:
    asked = [text_at(seen.recording.frames[index].params, "path") for index in seen.requests("fs/read_text_file")]
    read = [call for call in seen.calls if call.kind == "read" and call.status == "completed"]
    return bool(read) and any(path.endswith(STOCK) for path in asked)


def _failed_first(seen: Evidence) -> bool:
    runs = seen.runs()
    return len(runs) > 1 and runs[0].status == "failed" and "FAILED" in _printed(runs[0])


def _asked_with_a_diff(seen: Evidence) -> bool:
    edits = {call.id for call in seen.calls if call.kind == "edit"}
    questions = [seen.recording.frames[index].params for index in seen.requests("session/request_permission")]
    return any(
        text_at(question, "toolCall", "toolCallId") in edits
        and any(item.get("type") == "diff" for item in objects_at(question, "toolCall", "content"))
        for question in questions
    )


def _edited(seen: Evidence) -> bool:
    edited = [call for call in seen.calls if call.kind == "edit" and call.status == "completed" and call.diffs]
    return bool(edited) and (seen.project / STOCK).read_text(encoding="utf-8").endswith(MENDED)


def _passed_last(seen: Evidence) -> bool:
    runs = seen.runs()
    return bool(runs) and runs[-1].status == "completed" and "OK" in _printed(runs[-1]).splitlines()


def _all_finished(seen: Evidence) -> bool:
    return bool(seen.calls) and all(call.end >= 0 for call in seen.calls) and seen.stop_reason == "end_turn"


def _all_released(seen: Evidence) -> bool:
    released = {text_at(seen.recording.frames[i].params, "terminalId"): i for i in seen.requests("terminal/release")}
    shown = [(call.end, terminal) for call in seen.runs() for terminal in call.terminals]
    return bool(shown) and all(released.get(terminal, -1) > end for end, terminal in shown)


def _printed(call: SeenCall) -> str:
    raw = at(call.final, "rawOutput")
    return raw if isinstance(raw, str) else text_at(raw, "output") or text_at(raw, "stdout")


STEPS: tuple[tuple[str, Callable[[Evidence], bool]], ...] = (
    ("the agent listed the project", _listed),
    ("it read the source through the editor", _read_through_the_editor),
    ("the test ran in the editor's terminal and failed", _failed_first),
    ("it asked before the edit, showing the diff", _asked_with_a_diff),
    ("the edit is on the disk", _edited),
    ("the test ran again and passed", _passed_last),
    ("every tool call ended before the turn did", _all_finished),
    ("every terminal was given back after its last update", _all_released),
)
"""What must have happened, in words for the reader, in the order of the story."""
