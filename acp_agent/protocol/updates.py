"""Translate core events to `session/update` notifications, and build the parts that other messages share with them.

TypeScript clients close the connection on a line over 32 MiB, so everything that is sent here has a limit. Titles,
plans, notices and tool output quote models and servers, and editors show them as Markdown, so images in them are
escaped.
See https://agentclientprotocol.com/protocol/tool-calls.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, assert_never
from uuid import uuid4

from acp_agent.core import events
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.messages import LinkPart, PromptPart, ResourcePart, TextPart
from acp_agent.core.types import Containment, Diff, ImagePart, Json, JsonObject, Location, ToolKind, ToolResult
from acp_agent.core.untrusted import now_ms, utc
from acp_agent.output.markdown_images import defused
from acp_agent.protocol.client import Client, EditorPaths
from acp_agent.protocol.options import config_options

_FENCED = {ToolKind.EXECUTE, ToolKind.READ, ToolKind.SEARCH, ToolKind.FETCH}
_PLACES = {Containment.CONTAINED: "in the sandbox", Containment.OUTSIDE: "outside the sandbox"}
"""The words in a call's card that say where its commands run."""
_TOLD_IN_OUTPUT = ("output", "stdout", "stderr")
"""Members of a command's result that rawOutput leaves out, because the text for the user contains them."""
_LIVE_TAIL = 8 * 1024
"""The most characters of a running local command's output that are sent."""
IMAGES_LIMIT = 8 * 1024 * 1024
"""The most base64 characters of all images in one update."""
DIFFS_LIMIT = 4 * 1024 * 1024
"""The most characters of all diffs in one update."""
DIFF_LIMIT = 256 * 1024
"""The most characters, both sides together, of a diff that is sent whole."""
STRING_LIMIT = 16 * 1024
"""The most characters of a string in rawInput. The card's diff or terminal shows the rest."""
_CONTEXT_LINES = 3
INTERRUPTED = "interrupted"
"""The text in the card of a call whose end was never recorded."""


# ------------------------------------------------------------------------------------ events as updates


@dataclass(slots=True)
class _Card:
    """An open tool call, as the editor shows it."""

    started: events.ToolStarted
    terminal_id: str | None = None
    display_terminal: bool = False
    tail: str = ""


@dataclass(slots=True)
class Updates:
    """A translator of the events of one session. Its state is the open tool calls.

    In ACP, `content` replaces the earlier content of a call's card, so every update has all of the content.
    """

    client: Client
    cwd: str
    paths: EditorPaths
    _cards: dict[str, _Card] = field(default_factory=dict[str, _Card])

    def translate(self, event: events.SessionEvent, at: int | None = None) -> Sequence[JsonObject]:
        """Return the `update` members for an event, in order. Empty if this client gets no update for the event.

        at   when the event happened, in milliseconds since 1970; None means now
        """
        match event:
            case events.ToolStarted():
                return (self._started(event, now_ms() if at is None else at),)
            case events.ToolProgress():
                return self._progress(event)
            case events.ToolFinished():
                return self._finished(event)
            case events.UserMessage(parts, message_id, scheduled):
                shown = () if scheduled else map(content_block, parts)
                blocks = (block for block in shown if block.get("text") != "")
                kind = "user_message_chunk"
                return [{"sessionUpdate": kind, "content": block, "messageId": message_id} for block in blocks]
            case events.TextDelta(text, message_id):
                return (chunk("agent_message_chunk", text, message_id),) if text else ()
            case events.ThoughtDelta(text, message_id):
                return (chunk("agent_thought_chunk", text, message_id),) if text else ()
            case events.CompactionChanged():  # other clients get a notice with the same text
                return (_compaction(event),) if self.client.compaction else ()
            case _:
                return (_state(event, self.client),)

    def interrupted(self) -> Sequence[JsonObject]:
        """Return updates that close all open calls as failed. Otherwise editors show them as running forever."""
        failed = ToolResult.failed(ToolFailure(ToolErrorCategory.CANCELLED, INTERRUPTED))
        cards, self._cards = self._cards, {}
        return [
            self._final(card, card.started.call_id, failed, {"toolName": card.started.name}) for card in cards.values()
        ]

    def _started(self, event: events.ToolStarted, at: int) -> JsonObject:
        card = self._cards[event.call_id] = _Card(event)
        is_command = event.kind is ToolKind.EXECUTE
        card.display_terminal = is_command and self.client.display_terminals and not self.client.terminal
        meta: JsonObject = {
            "claudeCode": {"toolName": event.name, "startedAt": iso_time(at), **_parent(event)},
        }
        content = _diff_content(self.paths, event.diffs)
        if card.display_terminal:
            meta["terminal_info"] = {"terminal_id": event.call_id, "cwd": self.cwd}
            content.append({"type": "terminal", "terminalId": event.call_id})
        content += _containment_content(card)
        update: JsonObject = {
            "sessionUpdate": "tool_call",
            "toolCallId": event.call_id,
            "title": self._title(defused(event.title)),
            "name": event.name,
            "kind": event.kind.value,
            "status": "in_progress",
            "rawInput": bounded_input(event.raw_input),
            "_meta": meta,
        }
        if content:
            update["content"] = content
        return update | self._locations(event.locations)

    def _progress(self, event: events.ToolProgress) -> Sequence[JsonObject]:
        card = self._cards.get(event.call_id)
        if card is None or (event.terminal_id is None and not event.output):
            return ()  # editors show a failed card for an unknown id
        # ACP lets an update leave the status out, but some editors replace the whole card and would show it as pending.
        update: JsonObject = {
            "sessionUpdate": "tool_call_update",
            "toolCallId": event.call_id,
            "status": "in_progress",
        }
        if event.terminal_id is not None:
            card.terminal_id = event.terminal_id
            update["content"] = [{"type": "terminal", "terminalId": event.terminal_id}, *_containment_content(card)]
        elif card.terminal_id is not None:
            # The editor shows its own terminal; the delta is for clients that do not.
            update["_meta"] = {"acp_agent": {"outputDelta": event.output}}
        elif card.display_terminal:
            update["_meta"] = {"terminal_output": {"terminal_id": event.call_id, "data": event.output}}
        else:
            card.tail = (card.tail + event.output)[-_LIVE_TAIL:]
            # The text of a sub-agent is Markdown; the output of a tool is not.
            draw = defused if card.started.kind is ToolKind.THINK else self._verbatim
            update["content"] = [text_content(draw(card.tail)), *_containment_content(card)]
        if parent := _parent(card.started):
            meta = update.get("_meta")
            update["_meta"] = {**(meta if isinstance(meta, dict) else {}), "claudeCode": parent}
        return (update,)

    def _finished(self, event: events.ToolFinished) -> Sequence[JsonObject]:
        card = self._cards.pop(event.call_id, None)
        if card is None:
            return ()
        timing: JsonObject = {"toolName": event.name, "elapsedMs": round(event.elapsed * 1000)}
        return (self._final(card, event.call_id, event.result, timing),)

    def _final(self, card: _Card, call_id: str, result: ToolResult, timing: JsonObject) -> JsonObject:
        meta: JsonObject = {"claudeCode": {**timing, **_parent(card.started)}}
        envelope = result.envelope or {}
        if result.stats is not None and result.stats.shown_lines < result.stats.raw_lines:
            meta["acp_agent"] = {"rawLines": result.stats.raw_lines, "shownLines": result.stats.shown_lines}
        if card.display_terminal:
            ending: JsonObject = {"exit_code": envelope.get("exit_code"), "signal": envelope.get("signal")}
            meta["terminal_exit"] = {"terminal_id": call_id, **ending}
        failed = result.failure is not None or envelope.get("exit_code", 0) != 0
        told = _TOLD_IN_OUTPUT if self.client.drawing.raw_output else ("output",)
        update: JsonObject = {
            "sessionUpdate": "tool_call_update",
            "toolCallId": call_id,
            "status": "failed" if failed else "completed",
            "content": self._final_content(card, result),
            # Always an object: editors that expect an object drop the whole update if this is a string.
            "rawOutput": {"output": result.shown, **{key: of for key, of in envelope.items() if key not in told}},
            "_meta": meta,
        }
        return update | self._locations(result.locations)

    def _final_content(self, card: _Card, result: ToolResult) -> list[Json]:
        # Diffs come first, because some clients look at the first item only.
        diffs, last = _diff_content(self.paths, result.diffs), _image_content(result.images)
        if result.ruling is None or not result.ruling.gate:  # no gate refused the call, so it ran
            last += _containment_content(card)
        if card.terminal_id is not None or card.display_terminal:
            # The text is in rawOutput. Text content in addition to a terminal would show everything twice.
            return [{"type": "terminal", "terminalId": card.terminal_id or card.started.call_id}, *diffs, *last]
        if self.client.drawing.raw_output or not result.shown:
            return [*diffs, *last]
        # A failure, or the result of an edit, with several lines quotes a file or the output of a program.
        quotes = "\n" in result.shown and (card.started.kind is ToolKind.EDIT or result.failure is not None)
        verbatim = card.started.kind in _FENCED or quotes
        return [*diffs, text_content(self._verbatim(result.shown) if verbatim else defused(result.shown)), *last]

    def _verbatim(self, text: str) -> str:
        """Return tool output in a form that the client shows unchanged."""
        return fenced(text) if self.client.drawing.markdown else text.rstrip()

    def _title(self, title: str) -> str:
        """Return a title in a form that the client shows completely."""
        return f"`{title}`" if ":" in title and "`" not in title and not self.client.drawing.whole_titles else title

    def _locations(self, locations: tuple[Location, ...]) -> JsonObject:
        """Return the `locations` member: absolute paths, lines from 1. Empty if there are none."""
        if not locations:
            return {}
        spelled = [(self.paths.spell(at.path), at.line) for at in locations]
        return {
            "locations": [{"path": path} if line is None else {"path": path, "line": line} for path, line in spelled]
        }


def _parent(event: events.ToolStarted) -> JsonObject:
    """Return the member of `_meta.claudeCode` that nests a sub-agent's call under the card of the call that runs it."""
    return {"parentToolUseId": event.parent} if event.parent else {}


def chunk(kind: str, text: str, message_id: str) -> JsonObject:
    """Return a piece of a message or of a thought."""
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}, "messageId": message_id}


def notice(event: events.Notice, *, known: bool) -> JsonObject:
    """Return a notice; for clients that do not know notices, a message or a thought with the same text.

    In such a message, `_meta.acp_agent.notice` has the severity, so that `acp-agent run` can tell it from model output.
    """
    text = defused(event.text)
    if known:
        return {"sessionUpdate": "notice", "severity": event.severity.value, "title": text}
    told = chunk("agent_message_chunk", f"\n> **{event.severity.value}**: {text}\n\n", str(uuid4()))
    if event.severity is events.Severity.INFO:
        told = chunk("agent_thought_chunk", f"\n{text}\n", str(uuid4()))
    return {**told, "_meta": {"acp_agent": {"notice": event.severity.value}}}


_State: TypeAlias = (
    events.Notice
    | events.UsageChanged
    | events.PlanChanged
    | events.CommandsChanged
    | events.ModeChanged
    | events.OptionsChanged
    | events.SessionInfoChanged
)


def _state(event: _State, client: Client) -> JsonObject:
    match event:
        case events.Notice():
            return notice(event, known=client.notices)
        case events.UsageChanged(used, size, cost):
            update: JsonObject = {"sessionUpdate": "usage_update", "used": used, "size": size}
            return update if cost is None else {**update, "cost": {"amount": cost, "currency": "USD"}}
        case events.PlanChanged(steps):
            entries: list[Json] = [
                {"content": defused(step.content), "priority": step.priority.value, "status": step.status.value}
                for step in steps
            ]
            return {"sessionUpdate": "plan", "entries": entries}
        case events.CommandsChanged(commands):
            listed: list[Json] = [
                {
                    "name": each.name,
                    "description": each.description,
                    **({"input": {"hint": each.hint}} if each.hint else {}),
                }
                for each in commands
            ]
            return {"sessionUpdate": "available_commands_update", "availableCommands": listed}
        case events.ModeChanged(mode):
            return {"sessionUpdate": "current_mode_update", "currentModeId": mode.value}
        case events.OptionsChanged(options, choices):
            config = config_options(options, choices, boolean=client.boolean_options)
            return {"sessionUpdate": "config_option_update", "configOptions": config}
        case events.SessionInfoChanged(title, updated_at, model):
            return session_info(title, updated_at, model)
        case _:
            assert_never(event)


def _compaction(event: events.CompactionChanged) -> JsonObject:
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
    """Return a `session_info_update`.

    title           the new title; an empty one clears the title
    updated_at_ms   milliseconds since 1970
    model           `PROVIDER:MODEL` of the next prompt; empty for none
    """
    update: JsonObject = {
        "sessionUpdate": "session_info_update",
        "title": defused(title) or None,
        "updatedAt": iso_time(updated_at_ms),
    }
    if model:
        update["_meta"] = {"acp_agent": {"model": model}}
    return update


# ------------------------------------------------------------------------------- parts of messages


def iso_time(at_ms: int) -> str:
    """Return milliseconds since 1970 as RFC 3339 in UTC, the form of all times that are sent to editors."""
    return utc(at_ms / 1000).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def content_block(part: PromptPart) -> JsonObject:
    """Return the ACP `ContentBlock` of a part of a prompt."""
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


def text_content(text: str) -> Json:
    """Return a text as ACP tool call content."""
    return {"type": "content", "content": {"type": "text", "text": text}}


def fenced(text: str) -> str:
    """Return text in a Markdown fence that is longer than any in the text: tool output is not Markdown."""
    longest = max(map(len, re.findall("`{3,}", text)), default=2)
    ticks = "`" * (longest + 1)
    return f"{ticks}\n{text.rstrip()}\n{ticks}"


def bounded_diffs(
    paths: EditorPaths, diffs: tuple[Diff, ...], limit: int = DIFF_LIMIT
) -> Iterator[tuple[str, JsonObject | None]]:
    """Yield the path and the ACP diff of each change; `oldText` is null for a new file.

    The diff is None if `bounded_diff` returns None, or if it would bring all diffs over DIFFS_LIMIT.
    """
    left = DIFFS_LIMIT
    for diff in diffs:
        path, shown = paths.spell(diff.path), bounded_diff(diff, limit)
        if shown is None or _size(shown) > left:
            yield path, None
        else:
            left -= _size(shown)
            yield path, {"type": "diff", "path": path, "oldText": shown.old_text, "newText": shown.new_text}


def _containment_content(card: _Card) -> list[Json]:
    """Return the text that says where the commands of a call run. It comes last: some clients want diffs first."""
    return [] if card.started.containment is None else [text_content(_PLACES[card.started.containment])]


def _diff_content(paths: EditorPaths, diffs: tuple[Diff, ...]) -> list[Json]:
    return [
        diff or text_content(f"The change of {path} is too large to be shown.")
        for path, diff in bounded_diffs(paths, diffs)
    ]


def _image_content(images: tuple[ImagePart, ...]) -> list[Json]:
    content: list[Json] = []
    left = IMAGES_LIMIT
    for image in images:
        if len(image.data) > left:
            content.append(text_content(f"A picture ({image.mime_type}) is too large to be shown."))
        else:
            left -= len(image.data)
            content.append({"type": "content", "content": content_block(image)})
    return content


def bounded_diff(diff: Diff, limit: int = DIFF_LIMIT) -> Diff | None:
    """Return the diff. If it is over DIFF_LIMIT, return only the changed lines and a few around them.

    Return None if these lines alone have more than `limit` characters.
    """
    if _size(diff) <= DIFF_LIMIT:
        return diff
    region = _changed_region(diff)
    return region if _size(region) <= limit else None


def _size(diff: Diff) -> int:
    return len(diff.old_text or "") + len(diff.new_text)


def _changed_region(diff: Diff) -> Diff:
    """Return the lines from the first change to the last, with `_CONTEXT_LINES` around them."""
    old, new = (diff.old_text or "").split("\n"), diff.new_text.split("\n")
    shorter = min(len(old), len(new))
    above = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    below = next((at for at in range(shorter - above) if old[-1 - at] != new[-1 - at]), shorter - above)
    first, left_out = max(above - _CONTEXT_LINES, 0), max(below - _CONTEXT_LINES, 0)
    return replace(
        diff,
        old_text=None if diff.old_text is None else "\n".join(old[first : len(old) - left_out]),
        new_text="\n".join(new[first : len(new) - left_out]),
    )


def bounded_input(arguments: JsonObject) -> JsonObject:
    """Return tool arguments with the middle of long strings cut out."""
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
