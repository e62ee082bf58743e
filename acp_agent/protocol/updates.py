"""Core events -> `session/update` (A19; requirements 2.1; acp.md 1.5, 1.6). The only place that knows the shapes.

`content` replaces what a card showed before, so every update carries all of it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, assert_never
from uuid import uuid4

from acp_agent.core import events
from acp_agent.core.clock import now_ms, utc
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.messages import LinkPart, PromptPart, ResourcePart, TextPart
from acp_agent.core.types import Diff, ImagePart, Json, JsonObject, Location, ToolKind, ToolResult
from acp_agent.output.markdown_images import defused
from acp_agent.protocol.client import Client
from acp_agent.protocol.paths import EditorPaths

DIFF_LIMIT = 256 * 1024
"""Characters of both sides of a diff that are sent whole."""
STRING_LIMIT = 16 * 1024
"""Characters of a string in rawInput; a diff or terminal beside it shows the rest."""
_CONTEXT = 3


def bounded_diff(diff: Diff, limit: int = DIFF_LIMIT) -> Diff | None:
    """Return the diff, of a big file only the changed lines and a little around them.

    None when even these have more characters than `limit`.
    """
    if _size(diff) <= DIFF_LIMIT:
        return diff
    region = _changed_region(diff)
    return region if _size(region) <= limit else None


def bounded_input(arguments: JsonObject) -> JsonObject:
    """Tool arguments with their long strings cut in the middle."""
    return {key: _bounded(value) for key, value in arguments.items()}


def _bounded(value: Json) -> Json:
    match value:
        case str() if len(value) > STRING_LIMIT:
            half = STRING_LIMIT // 2
            return f"{value[:half]}\n… {len(value) - 2 * half} characters left out …\n{value[-half:]}"
        case list():
            return [_bounded(item) for item in value]
        case dict():
            return bounded_input(value)
        case _:
            return value


def _size(diff: Diff) -> int:
    return len(diff.old_text or "") + len(diff.new_text)


def _changed_region(diff: Diff) -> Diff:
    old, new = (diff.old_text or "").split("\n"), diff.new_text.split("\n")
    same = min(len(old), len(new))
    start = next((at for at in range(same) if old[at] != new[at]), same)
    end = next((at for at in range(same - start) if old[-1 - at] != new[-1 - at]), same - start)
    first, kept = max(start - _CONTEXT, 0), max(end - _CONTEXT, 0)
    return replace(
        diff,
        old_text=None if diff.old_text is None else "\n".join(old[first : len(old) - kept]),
        new_text="\n".join(new[first : len(new) - kept]),
    )


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
                return translate(event, self.client)

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
        meta: JsonObject = {"claudeCode": {"toolName": event.name, "startedAt": iso_time(at)}}
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


_CURRENCY = "USD"

Stateless: TypeAlias = (
    events.UserMessage
    | events.TextDelta
    | events.ThoughtDelta
    | events.Notice
    | events.UsageChanged
    | events.PlanChanged
    | events.CompactionChanged
)


def translate(event: Stateless, client: Client) -> Sequence[JsonObject]:
    """The `update` members for one event, in order; none for what this client is not told."""
    match event:
        case events.UserMessage():
            return user_message(event)
        case events.TextDelta(text, message_id):
            return chunk("agent_message_chunk", text, message_id)
        case events.ThoughtDelta(text, message_id):
            return chunk("agent_thought_chunk", text, message_id)
        case events.Notice():
            return (notice(event, known=client.notices),)
        case events.UsageChanged():
            return (usage(event),)
        case events.PlanChanged():
            return (plan(event),)
        case events.CompactionChanged():
            # Notices tell of it, too: they are all that other clients get.
            return (compaction(event),) if client.compaction else ()
        case _:
            assert_never(event)


def content_block(part: PromptPart) -> JsonObject:
    """The ACP `ContentBlock` of one part."""
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case ImagePart(data, mime_type):
            return {"type": "image", "data": data, "mimeType": mime_type}
        case LinkPart(uri, name):
            return {"type": "resource_link", "uri": uri, "name": name}
        case ResourcePart(uri, text, mime_type):
            resource: JsonObject = {"uri": uri, "text": text}
            return {"type": "resource", "resource": resource | ({"mimeType": mime_type} if mime_type else {})}
        case _:
            assert_never(part)


def chunk(kind: str, text: str, message_id: str) -> Sequence[JsonObject]:
    """A piece of a message; none for no text (A18.2)."""
    if not text:
        return ()
    return ({"sessionUpdate": kind, "content": {"type": "text", "text": text}, "messageId": message_id},)


def user_message(event: events.UserMessage) -> Sequence[JsonObject]:
    """What the user sent, one chunk a part."""
    blocks = map(content_block, event.parts)
    return [
        {"sessionUpdate": "user_message_chunk", "content": block, "messageId": event.message_id}
        for block in blocks
        if block.get("text") != ""
    ]


def notice(event: events.Notice, *, known: bool) -> JsonObject:
    """A notice, or a message in its place for clients that do not know notices."""
    text = defused(event.text)
    if known:
        return {"sessionUpdate": "notice", "severity": event.severity.value, "title": text}
    if event.severity is events.Severity.INFO:
        (update,) = chunk("agent_thought_chunk", f"\n{text}\n", str(uuid4()))
    else:
        text = f"\n> **{event.severity.value}**: {text}\n\n"
        (update,) = chunk("agent_message_chunk", text, str(uuid4()))
    return update


def usage(event: events.UsageChanged) -> JsonObject:
    """How full the window is, and what all of it has cost where a price is known (A18.6)."""
    update: JsonObject = {"sessionUpdate": "usage_update", "used": event.used, "size": event.size}
    if event.cost is not None:
        update["cost"] = {"amount": event.cost, "currency": _CURRENCY}
    return update


def plan(event: events.PlanChanged) -> JsonObject:
    """The whole plan (A18.5)."""
    entries: list[Json] = [
        {"content": defused(entry.content), "priority": entry.priority.value, "status": entry.status.value}
        for entry in event.entries
    ]
    return {"sessionUpdate": "plan", "entries": entries}


def compaction(event: events.CompactionChanged) -> JsonObject:
    """How a compaction stands: only for clients that know these (ACP 1.25, `session.compaction`)."""
    update: JsonObject = {
        "sessionUpdate": "compaction_update",
        "compactionId": event.id,
        "status": event.status.value,
    }
    if event.summary:
        update["summary"] = [{"type": "text", "text": defused(event.summary)}]
    if event.error:
        update["error"] = defused(event.error)
    return update


def session_info(title: str, updated_at_ms: int, model: str = "") -> JsonObject:
    """`session_info_update`: an empty title clears the one there is (A18.1, A18.8).

    updated_at_ms   milliseconds since 1970
    model           `PROVIDER:MODEL` the next prompt goes to; empty where there is none
    """
    update: JsonObject = {
        "sessionUpdate": "session_info_update",
        "title": defused(title) or None,
        "updatedAt": iso_time(updated_at_ms),
    }
    if model:
        update["_meta"] = {"acp_agent": {"model": model}}
    return update


def iso_time(at_ms: int) -> str:
    """Milliseconds since 1970 as RFC 3339, in UTC: the one form of times that editors are sent."""
    return utc(at_ms / 1000).isoformat(timespec="milliseconds").replace("+00:00", "Z")
