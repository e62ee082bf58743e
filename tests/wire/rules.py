"""The rules of the protocol that no schema can state, checked over a whole recording."""

from collections.abc import Iterator
from typing import Any

from acp_agent.capabilities import at
from acp_agent.cli.agent_process import Direction, RecordedFrame, Recording, objects_at, text_at

# What may be sent outside a turn: the rest belongs to one.
_ANYTIME = {
    "available_commands_update",
    "current_mode_update",
    "config_option_update",
    "session_info_update",
    "usage_update",
}
_FINAL = {"completed", "failed"}


def broken(recording: Recording) -> list[str]:
    """Every rule broken, one line each, with the frame."""
    judge = _Judge()
    return [
        f"frame {index}: {problem}" for index, frame in enumerate(recording.frames) for problem in judge.take(frame)
    ]


class _Judge:
    def __init__(self) -> None:
        self.asked: dict[Any, RecordedFrame] = {}
        self.sessions: set[str] = set()
        self.prompting: dict[str, int] = {}  # session -> prompts not yet answered
        self.loading: set[str] = set()  # sessions whose past is being told
        self.calls: dict[str, str] = {}  # id -> status
        self.sessions_of_calls: dict[str, str] = {}
        self.terminals: dict[str, str] = {}  # id -> "open" | "released"
        self.shown: dict[str, str] = {}  # terminal -> the call that embeds it
        self.scheduled: dict[str, str] = {}  # session -> the open card of a scheduled prompt, which begins its turn

    def take(self, frame: RecordedFrame) -> Iterator[str]:
        if frame.direction is Direction.TO_AGENT:
            self._client(frame)
        elif frame.update:
            yield from self._update(text_at(frame.params, "sessionId"), frame.update)
        elif frame.is_request:
            yield from self._agent_asks(frame)
        elif not frame.method:
            yield from self._agent_answers(frame)

    def _client(self, frame: RecordedFrame) -> None:
        if frame.is_request:
            self.asked[frame.message["id"]] = frame
            session = text_at(frame.params, "sessionId")
            if frame.method == "session/prompt":
                self.prompting[session] = self.prompting.get(session, 0) + 1
            elif frame.method in {"session/load", "session/resume"}:
                self.sessions.add(session)  # editors know it before they ask
            if frame.method == "session/load":
                self.loading.add(session)
                for call in [call for call, of in self.sessions_of_calls.items() if of == session]:
                    del self.calls[call], self.sessions_of_calls[call]  # they are told again
        elif made := text_at(frame.message, "result", "terminalId"):
            self.terminals.setdefault(made, "open")

    def _agent_answers(self, frame: RecordedFrame) -> Iterator[str]:
        asked = self.asked.pop(frame.message.get("id"), None)
        if asked is None:
            yield f"an answer to nothing that was asked, or the second one: id {frame.message.get('id')!r}"
            return
        session = text_at(asked.params, "sessionId")
        if asked.method in {"session/new", "session/fork"}:
            self.sessions.add(text_at(frame.message, "result", "sessionId"))
        elif asked.method == "session/load":
            self.loading.discard(session)
            for call, of in self.sessions_of_calls.items():
                if of == session and self.calls[call] not in _FINAL:
                    yield f"the past was told without the end of its tool call {call}"
        elif asked.method in {"session/close", "session/delete"} and "result" in frame.message:
            self.sessions.discard(session)
        elif asked.method == "session/prompt":
            self.prompting[session] -= 1
            if self.prompting[session] == 0:
                running = [call for call, status in self.calls.items() if status not in _FINAL]
                for call in running:
                    if self.sessions_of_calls[call] == session:
                        yield f"the turn ended before its tool call {call}"

    def _agent_asks(self, frame: RecordedFrame) -> Iterator[str]:
        path = text_at(frame.params, "path")
        if path and not path.startswith("/"):
            yield f"{frame.method} with a relative path"
        for place in _places(call := frame.params.get("toolCall") or {}):
            if not text_at(place, "path").startswith("/"):
                yield f"a question about {text_at(call, 'toolCallId')} with a relative path: {place.get('path')!r}"
        if frame.method == "terminal/release":
            yield from self._release(text_at(frame.params, "terminalId"))

    def _release(self, terminal: str) -> Iterator[str]:
        if self.terminals.get(terminal) != "open":
            yield f"release of terminal {terminal!r}, which is {self.terminals.get(terminal, 'unknown')}"
        if self.calls.get(self.shown.get(terminal, ""), "completed") not in _FINAL:
            yield f"terminal {terminal} released before the final update of the call that shows it"
        self.terminals[terminal] = "released"

    def _update(self, session: str, update: dict[str, Any]) -> Iterator[str]:
        kind = text_at(update, "sessionUpdate")
        if session not in self.sessions:
            yield f"{kind} for a session that was not answered yet"
        if kind == "tool_call" and update.get("name") == "schedule" and not self.prompting.get(session):
            self.scheduled[session] = text_at(update, "toolCallId")
        in_turn = self.prompting.get(session) or session in self.loading or session in self.scheduled
        if kind not in _ANYTIME and not in_turn:
            yield f"{kind} outside a turn"
        if text_at(update, "status") in _FINAL and self.scheduled.get(session) == text_at(update, "toolCallId"):
            del self.scheduled[session]
        if kind in {"tool_call", "tool_call_update"}:
            yield from self._call(session, kind, update)

    def _call(self, session: str, kind: str, update: dict[str, Any]) -> Iterator[str]:
        call, status = text_at(update, "toolCallId"), text_at(update, "status")
        known = self.calls.get(call)
        if kind == "tool_call":
            if known is not None and session not in self.loading:  # another session may be a copy
                yield f"tool call id {call} used twice"
            if status != "in_progress":
                yield f"tool call {call} begins as {status!r}"
        elif known is None:
            yield f"update of tool call {call} before its tool_call"
        elif known in _FINAL:
            yield f"update of tool call {call} after it was {known}"
        self.calls[call] = status or known or ""
        self.sessions_of_calls[call] = session
        if kind == "tool_call_update" and not status:
            yield f"update of tool call {call} without a status"
        if status in _FINAL and not text_at(update, "rawOutput", "output") and at(update, "rawOutput", "output") != "":
            yield f"tool call {call} ends without the text of its output"
        for place in _places(update):
            if not text_at(place, "path").startswith("/"):
                yield f"tool call {call} with a relative path: {place.get('path')!r}"
        for item in objects_at(update, "content"):
            if item.get("type") == "terminal" and session in self.loading:
                yield f"tool call {call} of the past shows a terminal"
            elif item.get("type") == "terminal":
                yield from self._embed(text_at(item, "terminalId"), call)

    def _embed(self, terminal: str, call: str) -> Iterator[str]:
        self.shown[terminal] = call
        if self.terminals.get(terminal) != "open" and terminal != call:  # its own id: a terminal the agent draws
            yield f"tool call {call} shows terminal {terminal!r}, which is {self.terminals.get(terminal, 'unknown')}"


def _places(call: dict[str, Any]) -> list[dict[str, Any]]:
    """The locations and diffs of a call, which all have a path."""
    diffs = [item for item in objects_at(call, "content") if item.get("type") == "diff"]
    return [*objects_at(call, "locations"), *diffs]
