"""The HTML page of a session: its figures, the conversation, and charts of usage. It is written in one pass.

The page has no scripts and loads nothing; a Content-Security-Policy enforces both. The charts and the list of prompts
are known only at the end of the file, and CSS moves them to the top. The charts are inline SVG: the shapes are in a box
that is stretched to the page's width, and the texts are outside the box, so that they keep their size on every screen.
"""

import base64
import hashlib
import math
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from importlib.resources import files
from typing import assert_never

from acp_agent import __version__
from acp_agent.cli.page_parts import Pictures, card_html, markdown, text, user_html
from acp_agent.cli.session_text import (
    NO_ANSWER_TEXT,
    CallItem,
    MessageItem,
    NoAnswerItem,
    SessionItem,
    clipped,
    dollars,
    session_items,
    tokens,
)
from acp_agent.core.events import PlanChanged, PlanStatus, TextDelta, ThoughtDelta, UsageChanged, UserMessage
from acp_agent.core.messages import TextPart
from acp_agent.core.sessions import SessionSnapshot, StoredEvent

_POINTS = 1000
"""The most points of a line. For more calls only every second point is kept, then every fourth, and so on."""
_WIDTH, _HEIGHT = 1000, 120  # the width of the box in its own units, and its height in pixels
_ABOVE, _BELOW = 18, 24  # pixels for texts
_HEADROOM = 1.08  # the end of the scale, as a multiple of the highest value
_NEAR = 5  # a window above this multiple of the highest value is not drawn, since it would flatten the line


class UsageChart:
    """The charts of the reports of usage. It holds at most 1,000 readings and the last one."""

    def __init__(self) -> None:
        self._calls = 0
        self._every = 1
        self._readings: list[tuple[int, UsageChanged]] = []
        self._last: tuple[int, UsageChanged] | None = None

    def add(self, usage: UsageChanged) -> None:
        """Add the usage after one more model call."""
        self._calls += 1
        if usage.cost is not None and not 0 <= usage.cost < math.inf:
            usage = replace(usage, cost=None)
        self._last = (self._calls, usage)
        if (self._calls - 1) % self._every:
            return
        self._readings.append(self._last)
        if len(self._readings) == _POINTS:
            self._readings, self._every = self._readings[::2], 2 * self._every

    def html(self) -> str:
        """Return both charts as HTML, or "" if no model was called."""
        if self._last is None:
            return ""
        readings = self._readings if self._readings[-1] is self._last else [*self._readings, self._last]
        used = [(call, float(usage.used)) for call, usage in readings]
        last = readings[-1][1]
        share = f" of {tokens(last.size)}, {last.used / last.size:.0%}" if last.size > 0 else ""
        value = f"{tokens(last.used)} tokens{share}"
        charts = [_Chart("context", "Context", value, used, tokens, float(last.size)).html()]
        costs = [(call, usage.cost) for call, usage in readings if usage.cost is not None]
        if costs:
            charts.append(_Chart("cost", "Cost", f"{dollars(costs[-1][1])} in all", costs, dollars).html())
        return f'<section class="usage" aria-label="Usage">{"".join(charts)}</section>'


@dataclass(frozen=True)
class _Chart:
    """A chart of a value over the model calls. `points` are pairs of a call number, in order, and a value from 0."""

    kind: str
    name: str
    value: str
    points: list[tuple[int, float]]
    label: Callable[[float], str]
    window: float = 0

    @cached_property
    def _top(self) -> float:
        peak = max(value for _, value in self.points) or 1.0
        return _HEADROOM * max(peak, self.window if self.window <= _NEAR * peak else 0)

    def html(self) -> str:
        line = " ".join(f"{self._x(call):g},{self._y(value):.1f}" for call, value in self.points)
        if len(self.points) == 1:  # a single call is drawn as a level line
            line = f"{line} {_WIDTH},{self._y(self.points[0][1]):.1f}"
        end = self._y(self.points[-1][1]) + _ABOVE
        return (
            f'<figure class="chart {self.kind}"><figcaption><b>{self.name}</b> {self.value}</figcaption>'
            f'<svg width="100%" height="{_ABOVE + _HEIGHT + _BELOW}" role="img" '
            f'aria-label="{self.name} over {self.points[-1][0]} model calls: {self.value}">'
            f"{''.join(self._scale())}"
            f'<svg y="{_ABOVE}" width="100%" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            f'preserveAspectRatio="none"><polygon class="area" points="0,{_HEIGHT} {line} {_WIDTH},{_HEIGHT}"/>'
            f'<polyline class="line" vector-effect="non-scaling-stroke" points="{line}"/></svg>'
            f'<circle class="end" cx="100%" cy="{end:.1f}" r="3.5"/>{self._calls()}</svg></figure>'
        )

    def _x(self, call: int) -> float:
        first, last = self.points[0][0], self.points[-1][0]
        return round(_WIDTH * (call - first) / max(last - first, 1), 1)

    def _y(self, value: float) -> float:
        return _HEIGHT * (1 - value / self._top)

    def _scale(self) -> Iterator[str]:
        """Yield a grid line with a label for each round number (1, 2 or 5 times a power of ten), and for the window."""
        window = self.window if 0 < self.window <= self._top else 0
        power = 10.0 ** math.floor(math.log10(self._top / 4))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= self._top / 4 * 0.999)
        for n in range(int(self._top / step) + 1):
            y = self._y(n * step) + _ABOVE
            yield f'<line class="grid" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'
            if n and not (window and abs(self._y(window) + _ABOVE - y) < 16):
                yield f'<text class="tick" y="{y - 4:.1f}">{self.label(n * step)}</text>'
        if window:
            y = self._y(window) + _ABOVE
            yield f'<line class="window" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text class="tick window" y="{y - 4:.1f}">window {self.label(window)}</text>'

    def _calls(self) -> str:
        """Return the labels of the axis of model calls."""
        y, first, last = _ABOVE + _HEIGHT + 17, self.points[0][0], self.points[-1][0]
        if first == last:
            return f'<text class="tick" y="{y}">model call {first}</text>'
        return (
            f'<text class="tick" y="{y}">{first}</text><text class="tick middle" x="50%" y="{y}">model calls</text>'
            f'<text class="tick right" x="100%" y="{y}">{last}</text>'
        )


_MOST_CHARS = 8 * 1024 * 1024
"""The characters of a page, pictures not counted, after which cards have only headlines and messages are shortened."""
_MESSAGE, _BRIEF = 100_000, 2_000  # characters of a message, normally and after _MOST_CHARS
_PROMPTS = 200  # prompts in the list
_STEPS = 200  # steps of a plan
_LABEL = 72  # characters of a prompt in the list
_END_OF_TIME = 253_402_300_800_000  # milliseconds: the year 10,000
_MARKS = {PlanStatus.PENDING: "to do", PlanStatus.IN_PROGRESS: "under way", PlanStatus.COMPLETED: "done"}
_FULL = '<p class="note">From here on the page shows less: it would grow too long. The JSON export has everything.</p>'


async def write_page(
    saved: SessionSnapshot, events: AsyncIterator[StoredEvent], write: Callable[[str], object]
) -> None:
    """Write the whole page of a session with `write`. Raises StoreUnavailable and the errors of `write`."""
    page = _Page(saved)
    write(page.head())
    async for item in session_items(events):
        write(page.piece(item))
    write(page.end())


class _Page:
    """The state of the page while it is written."""

    def __init__(self, saved: SessionSnapshot) -> None:
        self._saved = saved
        self._room = _MOST_CHARS
        self._pictures = Pictures()
        self._chart = UsageChart()
        self._prompts: list[str] = []
        self._asked = 0

    @property
    def _brief(self) -> bool:
        return self._room < 0

    def head(self) -> str:
        """Return the page up to the conversation."""
        record, style = self._saved.record, files("acp_agent.cli").joinpath("page.css").read_text("utf-8")
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        name = text(clipped(record.title or "A session", 300))
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            f"style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light dark">'
            f'<meta name="generator" content="acp-agent {__version__}">\n<title>{name}</title>\n'
            f"<style>{style}</style></head>\n<body><header><h1>{name}</h1>"
            f'<p class="folder"><code>{text(clipped(record.cwd, 1000))}</code></p>'
            f'<dl class="figures">{"".join(self._figures())}</dl></header>\n<main>\n<section class="turn">'
        )

    def _figures(self) -> Iterator[str]:
        record, totals = self._saved.record, self._saved.usage
        yield _figure("Begun", _time(record.created_at))
        yield _figure("Last used", _time(record.updated_at))
        yield _figure("Model", text(clipped(record.model.partition(":")[2] or record.model, 200)))
        yield _figure("Prompts", f"{record.prompts:,}")
        yield _figure("Tool calls", f"{totals.calls:,}")
        usage = totals.usage
        yield _figure("Tokens in", tokens(usage.input + usage.cache_read + usage.cache_write))
        yield _figure("Tokens out", tokens(usage.output))
        if totals.cost is not None:
            yield _figure("Cost", ("" if totals.complete else "at least ") + dollars(totals.cost))

    def piece(self, item: SessionItem) -> str:
        """Return the next item of the conversation as HTML."""
        pictures, had_room = self._pictures.room, not self._brief
        match item:
            case CallItem():
                html = card_html(item, self._pictures, brief=self._brief)
            case NoAnswerItem():
                html = f'<p class="note">{NO_ANSWER_TEXT}</p>\n'
            case MessageItem():
                html = self._said(item)
            case _:
                assert_never(item)
        self._room -= len(html) - (pictures - self._pictures.room)
        return html + _FULL if had_room and self._brief else html

    def _said(self, said: MessageItem) -> str:
        limit = _BRIEF if self._brief else _MESSAGE
        match said.event:
            case UserMessage():
                return self._turn(said.event, said.at, limit)
            case TextDelta(words):
                return f'<div class="answer">{markdown(clipped(words, limit))}</div>\n' if words.strip() else ""
            case ThoughtDelta(words):
                if not words.strip():
                    return ""
                thought = markdown(clipped(words, limit))
                return f'<details class="thought"><summary>Thought</summary><div>{thought}</div></details>\n'
            case PlanChanged():
                return _plan(said.event)
            case UsageChanged():
                self._chart.add(said.event)
                return ""

    def _turn(self, message: UserMessage, at: int, limit: int) -> str:
        """Return the end of the last section and the beginning of a new one with the user's message."""
        self._asked += 1
        if self._asked <= _PROMPTS:
            first = next((part.text for part in message.parts if isinstance(part, TextPart) and part.text.strip()), "")
            line = first.strip().partition("\n")[0]
            label = text(line if len(line) <= _LABEL else f"{line[:_LABEL].rstrip()}…") or "…"
            self._prompts.append(f'<li><a href="#p{self._asked}">{label}</a></li>')
        return (
            f'</section>\n<section class="turn" id="p{self._asked}"><div class="asked"><p class="who">'
            f'<a href="#p{self._asked}">{self._asked}</a> {_time(at)}</p>'
            f"{user_html(message.parts, self._pictures, limit)}</div>\n"
        )

    def end(self) -> str:
        """Return the end of the page with the charts and the list of prompts."""
        record = self._saved.record
        prompts = (
            f'<nav aria-label="Prompts"><h2>Prompts</h2><ol>{"".join(self._prompts)}</ol></nav>'
            if len(self._prompts) > 1
            else ""
        )
        return (
            f"</section>\n</main>\n{self._chart.html()}\n{prompts}\n"
            f"<footer>Session <code>{text(clipped(record.id, 100))}</code>, exported by acp-agent {__version__}. "
            "Times are UTC.</footer></body></html>\n"
        )


def _plan(plan: PlanChanged) -> str:
    steps = "".join(
        f'<li class="{step.status.value}"><span>{_MARKS[step.status]}</span> {text(clipped(step.content, 1000))}</li>'
        for step in plan.entries[:_STEPS]
    )
    return f'<div class="plan"><h3>Plan</h3><ul>{steps}</ul></div>\n' if steps else ""


def _figure(name: str, value: str) -> str:
    return f"<div><dt>{name}</dt><dd>{value}</dd></div>" if value else ""


def _time(at: int) -> str:
    """Return the UTC time of `at`, in milliseconds since 1970, or "" if it is out of range."""
    if not 0 < at < _END_OF_TIME:
        return ""
    when = datetime.fromtimestamp(at / 1000, UTC)
    return f'<time datetime="{when:%Y-%m-%dT%H:%M:%SZ}">{when.day} {when:%b %Y, %H:%M}</time>'
