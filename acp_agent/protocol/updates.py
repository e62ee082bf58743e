"""Core events -> `session/update` (A19; requirements 2.1; acp.md 1.5, 1.6). The only place that knows the shapes.

`content` replaces what a card showed before, so every update carries all of it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from acp_agent.core import events
from acp_agent.core.clock import now_ms
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.types import Diff, ImagePart, Json, JsonObject, Location, ToolKind, ToolResult
from acp_agent.output.markdown_images import defused
from acp_agent.protocol import updates_stateless as stateless
from acp_agent.protocol.bounds import bounded_diff, bounded_input
from acp_agent.protocol.client import Client
from acp_agent.protocol.paths import EditorPaths

_FENCED = {ToolKind.EXECUTE, ToolKind.READ, ToolKind.SEARCH, ToolKind.FETCH}
_LIVE_TAIL = 8 * 1024
"""Characters of a running local command an editor is shown."""
IMAGES_LIMIT = 8 * 1024 * 1024
"""Base64 characters of the pictures in one update; see `bounds` for what happens to long lines."""
DIFFS_LIMIT = 4 * 1024 * 1024
"""Characters of all diffs in one update, likewise."""
INTERRUPTED = "interrupted"
"""What stands in the card of a call nobody knows the end of."""


@dataclass(slots=True)
class _Card:
    """What the editor was told about one call so far."""

    started: events.ToolStarted
    terminal_id: str | None = None
    display_terminal: bool = False
    tail: str = ""


@dataclass(slots=True)
class Updates:
    """Translates one session's events. Keeps open cards only."""

    client: Client
    cwd: str
    paths: EditorPaths
    _cards: dict[str, _Card] = field(default_factory=dict[str, _Card])

    def translate(self, event: events.Event, at: int | None = None) -> Sequence[JsonObject]:
        """The `update` members for one event, in order; none for what this client is not told.

        at   when it was told, in milliseconds since 1970; None means now
        """
        match event:
            case events.ToolStarted():
                return (self._started(event, now_ms() if at is None else at),)
            case events.ToolProgress():
                return self._progress(event)
            case events.ToolFinished():
                return self._finished(event)
            case _:
                return stateless.translate(event, self.client)

    def interrupted(self) -> Sequence[JsonObject]:
        """The ends of the calls that will never tell theirs: a card must not spin for ever (A12.16)."""
        failed = ToolResult.failed(ToolFailure(ToolErrorCategory.CANCELLED, INTERRUPTED))
        cards, self._cards = self._cards, {}
        return [
            self._final(card, card.started.call_id, failed, {"toolName": card.started.name}) for card in cards.values()
        ]

    def _started(self, event: events.ToolStarted, at: int) -> JsonObject:
        card = self._cards[event.call_id] = _Card(event)
        card.display_terminal = self.client.display_terminals and not self.client.terminal and _is_command(event)
        meta: JsonObject = {"claudeCode": {"toolName": event.name, "startedAt": stateless.iso_time(at)}}
        content = diff_content(self.paths, event.diffs)
        if card.display_terminal:
            meta["terminal_info"] = {"terminal_id": event.call_id, "cwd": self.cwd}
            content.append({"type": "terminal", "terminalId": event.call_id})
        update: JsonObject = {
            "sessionUpdate": "tool_call",
            "toolCallId": event.call_id,
            "title": defused(event.title),
            "name": event.name,
            "kind": event.kind.value,
            "status": "in_progress",
            "rawInput": bounded_input(event.raw_input),
            "_meta": meta,
        }
        return update | self._optional(content, event.locations)

    def _progress(self, event: events.ToolProgress) -> Sequence[JsonObject]:
        card = self._cards.get(event.call_id)
        if card is None or (event.terminal_id is None and not event.output):
            return ()  # editors draw a card that failed for an id they do not know (acp.md 4.1)
        # ACP lets an update leave the status out; editors that replace the whole card would take it for a new one.
        update: JsonObject = {
            "sessionUpdate": "tool_call_update",
            "toolCallId": event.call_id,
            "status": "in_progress",
        }
        if event.terminal_id is not None:
            card.terminal_id = event.terminal_id
            update["content"] = [{"type": "terminal", "terminalId": event.terminal_id}]
        elif card.terminal_id is not None:
            # The editor draws its own terminal; the delta is for clients that do not.
            update["_meta"] = {"acp_agent": {"outputDelta": event.output}}
        elif card.display_terminal:
            update["_meta"] = {"terminal_output": {"terminal_id": event.call_id, "data": event.output}}
        else:
            card.tail = (card.tail + event.output)[-_LIVE_TAIL:]
            update["content"] = [text_content(fenced(card.tail))]
        return (update,)

    def _finished(self, event: events.ToolFinished) -> Sequence[JsonObject]:
        card = self._cards.pop(event.call_id, None)
        if card is None:
            return ()
        told: JsonObject = {"toolName": event.name, "elapsedMs": round(event.elapsed * 1000)}
        return (self._final(card, event.call_id, event.result, told),)

    def _final(self, card: _Card, call_id: str, result: ToolResult, told: JsonObject) -> JsonObject:
        meta: JsonObject = {"claudeCode": told}
        if result.stats is not None and result.stats.shown_lines < result.stats.raw_lines:
            meta["acp_agent"] = {"rawLines": result.stats.raw_lines, "shownLines": result.stats.shown_lines}
        if card.display_terminal:
            meta["terminal_exit"] = {"terminal_id": call_id, **_exit(result)}
        update: JsonObject = {
            "sessionUpdate": "tool_call_update",
            "toolCallId": call_id,
            "status": "failed" if _is_failed(result) else "completed",
            "content": self._final_content(card, result),
            "rawOutput": _raw_output(result),
            "_meta": meta,
        }
        return update | self._optional([], result.locations)

    def _final_content(self, card: _Card, result: ToolResult) -> list[Json]:
        images = _image_content(result.images)
        if card.terminal_id is not None or card.display_terminal:
            # The text is in rawOutput: content beside a terminal would show everything twice.
            terminal: JsonObject = {"type": "terminal", "terminalId": card.terminal_id or card.started.call_id}
            return [terminal, *diff_content(self.paths, result.diffs), *images]
        as_it_is = card.started.kind in _FENCED and bool(result.shown)
        text = fenced(result.shown) if as_it_is else defused(result.shown)
        return [*tool_content(self.paths, result.diffs, text), *images]

    def _optional(self, content: list[Json], places: tuple[Location, ...]) -> JsonObject:
        update: JsonObject = {}
        if content:
            update["content"] = content
        if places:
            update["locations"] = locations(self.paths, places)
        return update


def tool_content(paths: EditorPaths, diffs: tuple[Diff, ...], text: str) -> list[Json]:
    """ACP tool call content: diffs first, because some clients look at the first item only (acp.md 4.6)."""
    return [*diff_content(paths, diffs), *([text_content(text)] if text else [])]


def diff_content(paths: EditorPaths, diffs: tuple[Diff, ...]) -> list[Json]:
    """ACP diffs; `oldText` null for a new file."""
    content: list[Json] = []
    left = DIFFS_LIMIT
    for diff in map(paths.diff, diffs):
        shown = bounded_diff(diff)
        size = 0 if shown is None else len(shown.old_text or "") + len(shown.new_text)
        if shown is None or size > left:
            content.append(text_content(f"The change of {diff.path} is too large to be shown."))
        else:
            left -= size
            content.append({"type": "diff", "path": shown.path, "oldText": shown.old_text, "newText": shown.new_text})
    return content


def _image_content(images: tuple[ImagePart, ...]) -> list[Json]:
    content: list[Json] = []
    left = IMAGES_LIMIT
    for image in images:
        if len(image.data) > left:
            content.append(text_content(f"A picture ({image.mime_type}) is too large to be shown."))
            continue
        left -= len(image.data)
        picture: JsonObject = {"type": "image", "data": image.data, "mimeType": image.mime_type}
        content.append({"type": "content", "content": picture})
    return content


def locations(paths: EditorPaths, places: tuple[Location, ...]) -> list[Json]:
    """ACP locations: absolute path, 1-based line."""
    spelled = map(paths.location, places)
    return [{"path": at.path} if at.line is None else {"path": at.path, "line": at.line} for at in spelled]


def _is_command(event: events.ToolStarted) -> bool:
    return event.kind is ToolKind.EXECUTE


def _is_failed(result: ToolResult) -> bool:
    if result.failure is not None:
        return True
    return result.envelope is not None and result.envelope.get("exit_code", 0) != 0


def _raw_output(result: ToolResult) -> JsonObject:
    """Return an object for every result: editors that hold `rawOutput` as a record lose a card's end to a string.

    `output` is the text; the rest is what the tool says to machines.
    """
    return {"output": result.shown, **{key: of for key, of in (result.envelope or {}).items() if key != "output"}}


def _exit(result: ToolResult) -> JsonObject:
    envelope = result.envelope or {}
    return {"exit_code": envelope.get("exit_code"), "signal": envelope.get("signal")}


def text_content(text: str) -> Json:
    """Return a text as ACP tool call content."""
    return {"type": "content", "content": {"type": "text", "text": text}}


def fenced(text: str) -> str:
    """Return text in a fence nothing in it can end: editors render content as markdown, and output is not."""
    longest = max(map(len, re.findall("`{3,}", text)), default=2)
    ticks = "`" * (longest + 1)
    return f"{ticks}\n{text.rstrip()}\n{ticks}"
