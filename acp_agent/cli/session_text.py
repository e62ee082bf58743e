"""A session as text for a terminal or a pager: all that was said and done, nothing in it that a terminal acts on."""

import os
import textwrap
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import TextIO, assert_never

from acp_agent.cli.session_diff import SIGNS, Fate, changed_lines
from acp_agent.cli.session_story import NO_ANSWER, Call, Item, NoAnswer, Outcome, Said, outcome, story
from acp_agent.cli.session_words import counted, dollars, seconds, shown, tokens
from acp_agent.core.events import PlanChanged, TextDelta, ThoughtDelta, UsageChanged, UserMessage
from acp_agent.core.messages import TextPart
from acp_agent.core.plan import PlanStatus
from acp_agent.core.prompt import LinkPart, PromptPart, ResourcePart
from acp_agent.core.sessions import Saved, ToldAt
from acp_agent.core.types import Diff, ImagePart, ToolKind, ToolResult
from acp_agent.output.sanitize import sanitize
from acp_agent.tools.visible import title

_BOLD, _DIM, _RED, _GREEN = "1", "2", "31", "32"
_STYLES = {Fate.CAME: _GREEN, Fate.WENT: _RED}
_WIDTH = 88
_MARKS = {PlanStatus.PENDING: "○", PlanStatus.IN_PROGRESS: "◐", PlanStatus.COMPLETED: "●"}
_YEAR_10000 = 253_402_300_800_000


async def write_text(saved: Saved, told: AsyncIterator[ToldAt], out: TextIO) -> None:
    """Write the whole session. Raises StoreUnavailable, and what `out` raises."""
    text = _Text(out)
    text.head(saved)
    async for item in story(told):
        text.item(item)


def when(at: int) -> str:
    """A time of this place, `at` milliseconds since 1970; a question mark where that is no time."""
    if not 0 < at < _YEAR_10000:
        return "?".ljust(16)
    return f"{datetime.fromtimestamp(at / 1000).astimezone():%Y-%m-%d %H:%M}"


class _Text:
    """Writes one item after the other."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._colour = out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._prompts = 0

    def head(self, saved: Saved) -> None:
        record, tally = saved.record, saved.tally
        self._line(self._paint(title(record.title) or "A session without a title", _BOLD))
        self._line(title(f"{record.id}  {record.cwd}"))
        figures = [
            f"{when(record.created_at)} to {when(record.updated_at)}",
            title(record.model),
            counted(record.prompts, "prompt"),
            counted(tally.calls, "tool call"),
            f"{tokens(tally.usage.context)} tokens",
            "" if tally.cost is None else ("at least " if not tally.complete else "") + dollars(tally.cost),
        ]
        self._line(self._paint("  ".join(filter(None, figures)), _DIM))

    def item(self, item: Item) -> None:
        match item:
            case Call():
                self._call(item)
            case NoAnswer():
                self._line(f"\n  {self._paint('✘', _RED)} {NO_ANSWER}")
            case Said():
                self._said(item)
            case _:
                assert_never(item)

    def _said(self, item: Said) -> None:
        match item.event:
            case UserMessage(parts):
                self._prompts += 1
                self._line(self._paint(f"\n── {self._prompts} ── {when(item.at)} {'─' * 48}", _DIM))
                self._say("you", "\n".join(map(_part, parts)), _BOLD)
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
        """Words beside the name of who says them, broken where they are too long."""
        lines = [row for line in shown(words.strip()).split("\n") for row in _wrapped(line)]
        rest = (f"{' ' * 8}{line}".rstrip() for line in lines[1:])
        self._line("\n".join(("", self._paint(who.ljust(8), style) + lines[0], *rest)))

    def _call(self, call: Call) -> None:
        state, word = outcome(call)
        mark = self._paint("✔", _GREEN) if state is Outcome.DONE else self._paint("✘", _RED)
        result = call.finished.result if call.finished is not None else None
        took = seconds(call.finished.elapsed) if call.finished is not None else ""
        ending = ", ".join(filter(None, ("" if state is Outcome.DONE else word, took)))
        about = self._paint(title(call.started.title), _BOLD)
        self._line(f"\n  {mark} {title(call.started.name)}  {about}  {self._paint(ending, _DIM)}")
        for diff in (result.diffs if result is not None else ()) or call.started.diffs:
            self._patch(diff)
        for line in _output(call.started.kind, result):
            self._line(self._paint(f"    │ {line}".rstrip(), _DIM))

    def _patch(self, diff: Diff) -> None:
        self._line(self._paint(f"    {title(diff.path)}", _DIM))
        for line in changed_lines(diff):
            text = f"    {SIGNS[line.fate]}{shown(line.text)}"
            self._line(self._paint(text.rstrip(), _STYLES.get(line.fate, _DIM)))

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
    """A line as several that are not too long; its own blanks stay where it need not be broken."""
    line = line.expandtabs(4)
    if len(line) <= _WIDTH - 8:
        return [line]
    indent = " " * min(len(line) - len(line.lstrip()), 40)
    broken = textwrap.wrap(line, _WIDTH - 8, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return broken or [""]
