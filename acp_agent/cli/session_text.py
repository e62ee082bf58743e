"""A stored session for a reader: its items, and their text for a terminal or a pager.

An item is a whole message, or a tool call together with its result. The text has no characters that a terminal
interprets. The functions for diffs, times, amounts and shortened texts also serve the HTML page.
"""

import difflib
import os
import textwrap
from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TextIO, TypeAlias, assert_never

from acp_agent.core.data import frozen
from acp_agent.core.events import (
    PlanChanged,
    PlanStatus,
    TextDelta,
    ThoughtDelta,
    ToolFinished,
    ToolStarted,
    UsageChanged,
    UserMessage,
)
from acp_agent.core.messages import LinkPart, PromptPart, ResourcePart, TextPart
from acp_agent.core.sessions import SessionSnapshot, StoredEvent
from acp_agent.core.types import Diff, ImagePart, ToolKind, ToolResult
from acp_agent.output.sanitize import sanitize
from acp_agent.store.session_json import joined_events
from acp_agent.text import counted, title, visible

_WAITING = 500
"""The most items that wait for an open call to end. With more, the call is taken for lost: no batch is so long."""


@dataclass(slots=True, eq=False)
class CallItem:
    """A tool call. `finished` is None if the agent was killed before the call ended.

    nested   the calls of its sub-agent, in the order in which they began
    """

    at: int
    started: ToolStarted
    finished: ToolFinished | None = None
    nested: list["CallItem"] = field(default_factory=list["CallItem"])

    @property
    def result(self) -> ToolResult | None:
        return None if self.finished is None else self.finished.result


@frozen
class MessageItem:
    """A whole message, a plan or a report of usage. `at` is in milliseconds since 1970, as in `CallItem`."""

    at: int
    event: UserMessage | TextDelta | ThoughtDelta | PlanChanged | UsageChanged


@frozen
class NoAnswerItem:
    """The end of a turn without a final answer: it was cancelled or interrupted, or it is still running.

    The store does not say which. Every other turn ends with a text, which may be that of an error.
    """


NO_ANSWER_TEXT = "No answer followed: the turn was cancelled or interrupted, or it is still running."

SessionItem: TypeAlias = MessageItem | CallItem | NoAnswerItem


class CallOutcome(StrEnum):
    """The end of a call. LOST means that its end is unknown."""

    DONE = "done"
    FAILED = "failed"
    LOST = "lost"


def call_outcome(call: CallItem) -> tuple[CallOutcome, str]:
    """Return how a call ended, and a phrase for it. A command with an exit code other than 0 has failed, too."""
    if call.finished is None:
        return CallOutcome.LOST, "did not end"
    result = call.finished.result
    if result.failure is not None:
        return CallOutcome.FAILED, result.failure.category.replace("_", " ")
    code = (result.envelope or {}).get("exit_code")
    if isinstance(code, int) and code:
        return CallOutcome.FAILED, f"exit {int(code)}" if abs(code) < 1000 else "exit"
    return CallOutcome.DONE, "done"


async def session_items(events: AsyncIterator[StoredEvent]) -> AsyncIterator[SessionItem]:
    """Yield the items in order, with each call where it began. At most 500 wait in memory for an open call to end."""
    begun = answered = False
    async for item in _in_order(events):
        match item:
            case MessageItem(event=UserMessage()):
                if begun and not answered:
                    yield NoAnswerItem()
                begun, answered = True, False
            case MessageItem(event=TextDelta(words)) if words.strip():
                answered = True
            case CallItem():
                answered = False
            case _:
                pass
        yield item
    if begun and not answered:
        yield NoAnswerItem()


async def _in_order(events: AsyncIterator[StoredEvent]) -> AsyncIterator[MessageItem | CallItem]:
    """Yield messages and calls. Items after an open call wait until the call has ended."""
    waiting: deque[MessageItem | CallItem] = deque()
    open_calls: dict[str, CallItem] = {}
    async for one in joined_events(events):
        match one.event:
            case ToolStarted() as event:
                open_calls[event.call_id] = call = CallItem(one.at, event)
                parent = open_calls.get(event.parent)
                (waiting if parent is None else parent.nested).append(call)
            case ToolFinished() as event:
                call = open_calls.pop(event.call_id, None)
                if call is None:  # its start was not stored, or it was taken for lost
                    call = CallItem(one.at, ToolStarted(event.call_id, event.name, event.name, ToolKind.OTHER, {}))
                    waiting.append(call)
                call.finished = event
            case UserMessage() as event:  # a new turn: no call of the last one is still running
                open_calls.clear()
                waiting.append(MessageItem(one.at, event))
            case TextDelta() | ThoughtDelta() | PlanChanged() | UsageChanged() as event:
                waiting.append(MessageItem(one.at, event))
            case _:
                assert_never(one.event)
        if len(waiting) > _WAITING:
            open_calls.clear()
        while waiting and not (
            isinstance(first := waiting[0], CallItem) and open_calls.get(first.started.call_id) is first
        ):
            yield waiting.popleft()
    for item in waiting:
        yield item


_CONTEXT = 3
_COMPARED = 1_000_000
"""The most pairs of lines that are compared. More would take seconds, so all lines are then removed and added."""


class LineChange(StrEnum):
    """The effect of a change on a line. OMITTED stands for unchanged lines that are not shown."""

    ADDED = "added"
    REMOVED = "removed"
    UNCHANGED = "unchanged"
    OMITTED = "omitted"


SIGNS = {LineChange.ADDED: "+", LineChange.REMOVED: "-", LineChange.UNCHANGED: " ", LineChange.OMITTED: "⋯"}


@frozen
class DiffLine:
    """A line without its line end. `number` starts at 1, in the old file for a removed line, else in the new one."""

    change: LineChange
    number: int
    text: str


def changed_lines(diff: Diff) -> Iterator[DiffLine]:
    """Yield the changed lines with three lines of context, in order. The time is linear in the length of the files."""
    old, new = _lines(diff.old_text or ""), _lines(diff.new_text)
    # Lines that are equal at the beginning and at the end need no comparison.
    most = min(len(old), len(new))
    start = next((n for n in range(most) if old[n] != new[n]), most)
    end = next((n for n in range(most - start) if old[-1 - n] != new[-1 - n]), most - start)
    yield from _each(LineChange.UNCHANGED, new, max(start - _CONTEXT, 0), start, 0)
    removed, added = old[start : len(old) - end], new[start : len(new) - end]
    if len(removed) * len(added) > _COMPARED:
        yield from _each(LineChange.REMOVED, removed, 0, len(removed), start)
        yield from _each(LineChange.ADDED, added, 0, len(added), start)
    else:
        yield from _compared(removed, added, start)
    yield from _each(LineChange.UNCHANGED, new, len(new) - end, min(len(new) - end + _CONTEXT, len(new)), 0)


def _lines(value: str) -> list[str]:
    lines = value.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _compared(removed: list[str], added: list[str], start: int) -> Iterator[DiffLine]:
    matcher = difflib.SequenceMatcher(None, removed, added)
    for tag, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        if tag != "equal":
            yield from _each(LineChange.REMOVED, removed, old_from, old_to, start)
            yield from _each(LineChange.ADDED, added, new_from, new_to, start)
        elif new_to - new_from <= 2 * _CONTEXT:
            yield from _each(LineChange.UNCHANGED, added, new_from, new_to, start)
        else:
            yield from _each(LineChange.UNCHANGED, added, new_from, new_from + _CONTEXT, start)
            yield DiffLine(LineChange.OMITTED, start + new_from + _CONTEXT + 1, "")
            yield from _each(LineChange.UNCHANGED, added, new_to - _CONTEXT, new_to, start)


def _each(change: LineChange, lines: list[str], first: int, end: int, start: int) -> Iterator[DiffLine]:
    return (DiffLine(change, start + n + 1, lines[n]) for n in range(first, end))


def shown(value: str) -> str:
    """Return the text with JSON escapes for invisible characters and those that change the text direction.

    Line ends and tabs stay.
    """
    value = value.replace("\r\n", "\n")
    flat = value.replace("\n", " ").replace("\t", " ")
    if visible(flat) == flat:
        return value
    return "\n".join("\t".join(map(visible, line.split("\t"))) for line in value.split("\n"))


def clipped(value: str, limit: int) -> str:
    """Return a text of about `limit` characters: the beginning, the number of omitted characters, and the end."""
    if len(value) <= limit:
        return value
    head, tail = limit * 2 // 3, limit // 3
    return f"{value[:head]}\n… {len(value) - head - tail:,} characters left out …\n{value[-tail:]}"


def seconds(elapsed: float) -> str:
    """Return a duration, given in seconds, with its unit: 12 ms, 3.4 s, 5 min 6 s."""
    if elapsed < 0.9995:
        return f"{max(elapsed, 0) * 1000:.0f} ms"
    return f"{elapsed:.1f} s" if elapsed < 60 else f"{elapsed // 60:.0f} min {elapsed % 60:.0f} s"


def dollars(cost: float) -> str:
    """Return an amount in US dollars with its significant digits."""
    if cost == 0 or cost >= 1:
        return f"${cost:,.2f}"
    return f"${cost:.3f}".removesuffix("0") if cost >= 0.01 else f"${cost:.5f}".rstrip("0").rstrip(".")


def tokens(count: float) -> str:
    """Return a number of tokens with about three digits."""
    if count < 10_000:
        return f"{count:,.0f}"
    return f"{count / 1000:,.0f}k" if count < 1_000_000 else f"{count / 1e6:,.3g}M"


_BOLD, _DIM, _RED, _GREEN = "1", "2", "31", "32"
_STYLES = {LineChange.ADDED: _GREEN, LineChange.REMOVED: _RED}
_WIDTH = 88
_MARKS = {PlanStatus.PENDING: "○", PlanStatus.IN_PROGRESS: "◐", PlanStatus.COMPLETED: "●"}
YEAR_10000 = 253_402_300_800_000  # milliseconds since 1970


async def write_text(saved: SessionSnapshot, events: AsyncIterator[StoredEvent], out: TextIO) -> None:
    """Write the whole session. Raises StoreUnavailable and the errors of `out`."""
    text = _Text(out)
    text.head(saved)
    async for item in session_items(events):
        match item:
            case CallItem():
                text.call(item)
            case NoAnswerItem():
                text.no_answer()
            case MessageItem():
                text.message(item)
            case _:
                assert_never(item)


def when(at: int) -> str:
    """Return the local time of `at`, in milliseconds since 1970, or "?" if it is out of range."""
    if not 0 < at < YEAR_10000:
        return "?".ljust(16)
    return f"{datetime.fromtimestamp(at / 1000).astimezone():%Y-%m-%d %H:%M}"


def call_title(name: str, about: str) -> str:
    """Return the name of a tool and the title of its call, which may begin with that name or with its verb."""
    verb, _, _ = about.partition(" ")
    return about if verb in (name, name.partition("_")[0]) else f"{name}  {about}"


class _Text:
    """Writes the items of a session as text."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._colour = out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._prompts = 0

    def head(self, saved: SessionSnapshot) -> None:
        record, totals = saved.record, saved.usage
        self._line(self._paint(title(record.title) or "A session without a title", _BOLD))
        self._line(title(f"{record.id}  {record.cwd}"))
        figures = [
            f"{when(record.created_at)} to {when(record.updated_at)}",
            title(record.model),
            counted(record.prompts, "prompt"),
            counted(totals.calls, "tool call"),
            f"{tokens(totals.usage.context)} tokens",
            "" if totals.cost is None else ("at least " if not totals.complete else "") + dollars(totals.cost),
        ]
        self._line(self._paint("  ".join(filter(None, figures)), _DIM))

    def no_answer(self) -> None:
        self._line(f"\n  {self._paint('✘', _RED)} {NO_ANSWER_TEXT}")

    def message(self, item: MessageItem) -> None:
        match item.event:
            case UserMessage(parts, scheduled=scheduled):
                self._prompts += 1
                self._line(self._paint(f"\n── {self._prompts} ── {when(item.at)} {'─' * 48}", _DIM))
                self._say("scheduled" if scheduled else "you", "\n".join(map(_part, parts)), _BOLD)
            case TextDelta(words):
                self._say("agent", words, _BOLD)
            case ThoughtDelta(words):
                self._say("thinks", words, _DIM)
            case PlanChanged(entries):
                steps = "\n".join(f"{_MARKS[entry.status]} {entry.content}" for entry in entries)
                self._say("plan", steps, _BOLD)
            case UsageChanged():
                pass
            case _:
                assert_never(item.event)

    def _say(self, who: str, words: str, style: str) -> None:
        """Write a message beside the name of its author. Long lines are wrapped."""
        lines = [row for line in shown(words.strip()).split("\n") for row in _wrapped(line)]
        rest = (f"{' ' * 8}{line}".rstrip() for line in lines[1:])
        self._line("\n".join(("", self._paint(who.ljust(8), style) + lines[0], *rest)))

    def call(self, call: CallItem, indent: str = "  ") -> None:
        state, word = call_outcome(call)
        mark = self._paint("✔", _GREEN) if state is CallOutcome.DONE else self._paint("✘", _RED)
        result = call.result
        took = seconds(call.finished.elapsed) if call.finished is not None else ""
        ending = ", ".join(filter(None, ("" if state is CallOutcome.DONE else word, took)))
        about = self._paint(call_title(title(call.started.name), title(call.started.title)), _BOLD)
        self._line(f"\n{indent}{mark} {about}  {self._paint(ending, _DIM)}")
        for diff in (result.diffs if result is not None else ()) or call.started.diffs:
            self._line(self._paint(f"{indent}  {title(diff.path)}", _DIM))
            for line in changed_lines(diff):
                text = f"{indent}  {SIGNS[line.change]}{shown(line.text)}"
                self._line(self._paint(text.rstrip(), _STYLES.get(line.change, _DIM)))
        for line in _output(call.started.kind, result):
            self._line(self._paint(f"{indent}  │ {line}".rstrip(), _DIM))
        for nested in call.nested:
            self.call(nested, f"{indent}    ")

    def _line(self, text: str) -> None:
        self._out.write(text + "\n")

    def _paint(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._colour else text


def _part(part: PromptPart) -> str:
    match part:
        case TextPart(words):
            return words
        case ImagePart(data, mime_type):
            return f"[a picture, {mime_type}, {len(data) * 3 // 4:,} bytes]"
        case LinkPart(uri, name):
            return f"[{name}: {uri}]"
        case ResourcePart(uri, words):
            return f"[{uri}, {len(words):,} characters]"
        case _:
            assert_never(part)


def _output(kind: ToolKind, result: ToolResult | None) -> Iterator[str]:
    if result is None:
        return
    if clean := sanitize(result.shown, terminal=kind is ToolKind.EXECUTE).strip("\n"):
        yield from shown(clean).expandtabs(4).split("\n")
    yield from (shown(_part(image)) for image in result.images)


def _wrapped(line: str) -> list[str]:
    """Return a line wrapped to the width. A line that is short enough keeps its blanks."""
    line = line.expandtabs(4)
    if len(line) <= _WIDTH - 8:
        return [line]
    indent = " " * min(len(line) - len(line.lstrip()), 40)
    broken = textwrap.wrap(line, _WIDTH - 8, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return broken or [""]
