"""The HTML page of a session: its figures, the conversation, and charts of usage. It is written in one pass.

The page has no scripts and loads nothing; a Content-Security-Policy enforces both. Every piece is escaped where it
enters the page, and links lead to the web only. markdown-it-py reads the Markdown of messages: CommonMark with tables
and struck text. HTML in it is shown as text. A tool call is a folding card: its headline has the tool's name, the
title, the outcome and the duration; the rest is inside.

The charts and the list of prompts are known only at the end of the file, and CSS moves them to the top. The charts are
inline SVG: the shapes are in a box that is stretched to the page's width, and the texts are outside the box, so that
they keep their size on every screen.
"""

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from importlib.resources import files
from typing import assert_never
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from acp_agent import __version__
from acp_agent.cli.session_text import (
    NO_ANSWER_TEXT,
    SIGNS,
    YEAR_10000,
    CallItem,
    CallOutcome,
    DiffLine,
    LineChange,
    MessageItem,
    NoAnswerItem,
    SessionItem,
    call_outcome,
    changed_lines,
    clipped,
    dollars,
    seconds,
    session_items,
    shown,
    tokens,
)
from acp_agent.core.events import (
    PlanChanged,
    PlanStatus,
    TextDelta,
    ThoughtDelta,
    ToolStarted,
    UsageChanged,
    UserMessage,
)
from acp_agent.core.messages import LinkPart, PromptPart, ResourcePart, TextPart
from acp_agent.core.sessions import SessionSnapshot, StoredEvent
from acp_agent.core.types import Diff, ImagePart, ToolKind, ToolResult
from acp_agent.output.sanitize import sanitize
from acp_agent.text import abbreviated, counted

_URL = re.compile(r"https?://[!-~]{1,2000}", re.IGNORECASE)  # only ASCII, which excludes lookalike letters
_BARE = re.compile(r"<?(https?://[^\s<>\"'`*|\[\]()]{1,2000}(?<![.,;:!?]))>?")
_NESTING = 40
"""Levels of lists and quotes. The library leaves out what is deeper, so such a text is shown as it is."""


def text(value: str) -> str:
    """Return escaped HTML text, which is also safe in a quoted attribute. Line ends and tabs stay."""
    return html.escape(shown(value))


def is_web(url: str) -> bool:
    """Return True for an ASCII http or https URL without user and password."""
    if not _URL.fullmatch(url):
        return False
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and "@" not in parts.netloc and "\\" not in url
    except ValueError:
        return False


def link(url: str, label: str) -> str:
    """Return a link as HTML. `label` is HTML. A URL that does not lead to the web is shown as text."""
    if not is_web(url):
        return f'{label} <span class="target">({text(clipped(url, 500))})</span>'
    return f'<a href="{text(url)}" rel="noopener noreferrer nofollow">{label}</a>'


def markdown(source: str) -> str:
    """Return HTML for a text. It never raises; text that is no Markdown is a paragraph."""
    options = {"html": False, "maxNesting": _NESTING, "xhtmlOut": False}
    reader = _Reader("commonmark", options, renderer_cls=_Renderer).enable(["table", "strikethrough"])
    # Entities, references to links, and links in angle brackets would hide text of the message.
    reader.disable(["autolink", "entity", "reference"])
    tokens = reader.parse(shown(source))
    if any(token.level >= _NESTING - 1 for token in tokens):
        return _code(source)
    return reader.renderer.render(tokens, reader.options, {}).rstrip("\n")


def _code(source: str, language: str = "") -> str:
    label = f'<span class="language">{text(language)}</span>' if language else ""
    return f'<pre class="code">{label}<code>{text(source.removesuffix(chr(10)))}</code></pre>\n'


class _Reader(MarkdownIt):
    """Leaves every URL as it is written. `link` decides what becomes of it."""

    def normalizeLink(self, url: str) -> str:
        return url

    def normalizeLinkText(self, link: str) -> str:
        return link

    def validateLink(self, url: str) -> bool:
        return True


class _Renderer(RendererHTML):
    """Writes the page's own elements. The environment has "linked" inside a link."""

    @staticmethod
    def renderAttrs(token: Token) -> str:
        start = token.attrGet("start")
        return "" if start is None else f' start="{int(start)}"'

    def renderInline(self, tokens: Sequence[Token], options: OptionsDict, env: EnvType) -> str:
        pieces, begin = list[str](), 0
        for at, token in enumerate(tokens):
            if token.type == "link_open":
                pieces.append(super().renderInline(tokens[begin:at], options, env))
                begin = at
            elif token.type == "link_close":
                pieces.append(self._link(tokens[begin], tokens[begin + 1 : at], options, env))
                begin = at + 1
        return "".join([*pieces, super().renderInline(tokens[begin:], options, env)])

    def _link(self, opened: Token, inside: Sequence[Token], options: OptionsDict, env: EnvType) -> str:
        """Return a link. A label that is a URL itself is replaced, so that it cannot hide another target."""
        url = f"{opened.attrGet('href')}"
        if is_web(self.renderInlineAsText(inside, options, env).strip()):
            return link(url, text(url))
        return link(url, super().renderInline(inside, options, {**env, "linked": True}))

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Return a link to the picture, since the page must load nothing."""
        words = self.renderInlineAsText(tokens[idx].children, options, env)
        label = f'<span class="picture">{text(words or "picture")}</span>'
        return label if "linked" in env else link(f"{tokens[idx].attrGet('src')}", label)

    def text(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Return words. URLs in them become links."""
        words, at = tokens[idx].content, 0
        pieces = list[str]()
        for found in _BARE.finditer(words) if "linked" not in env else ():
            pieces += text(words[at : found.start()]), link(found[1], text(found[1]))
            at = found.end()
        return "".join([*pieces, text(words[at:])])

    def code_inline(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f"<code>{text(tokens[idx].content)}</code>"

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return _code(tokens[idx].content)

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return _code(tokens[idx].content, tokens[idx].info.strip()[:100])

    def heading_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f"<{_heading(tokens[idx])}>"

    def heading_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f"</{_heading(tokens[idx])}>\n"

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return '<div class="scroll"><table>\n'

    def table_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "</table></div>\n"


def _heading(token: Token) -> str:
    return f"h{min(int(token.tag[1]) + 2, 6)}"  # the page itself uses the first two levels


_LINES, _LINE = 400, 600  # lines of a diff, and characters of a line


def diff_html(diff: Diff) -> str:
    """Return a diff as HTML: the path, the numbers of added and removed lines, and the first 400 lines."""
    rows, more, counts = list[str](), 0, dict.fromkeys(LineChange, 0)
    for line in changed_lines(diff):
        counts[line.change] += 1
        if len(rows) < _LINES:
            rows.append(_row(line))
        else:
            more += 1
    if more:
        rows.append(f'<tr class="omitted"><td></td><td>… {counted(more, "more line")}</td></tr>')
    added, removed = counts[LineChange.ADDED], counts[LineChange.REMOVED]
    new = '<span class="badge">new file</span>' if diff.old_text is None else ""
    return (
        f'<figure class="diff"><figcaption><code>{text(clipped(diff.path, 500))}</code>{new}'
        f'<span class="added">+{added:,}</span> <span class="removed">\N{MINUS SIGN}{removed:,}</span>'
        f'</figcaption><div class="scroll"><table><tbody>{"".join(rows)}</tbody></table></div></figure>'
    )


def _row(line: DiffLine) -> str:
    number = "" if line.change is LineChange.OMITTED else line.number
    shown = text(abbreviated(line.text, _LINE))
    return f'<tr class="{line.change.value}"><td>{number}</td><td>{SIGNS[line.change]}{shown}</td></tr>'


_TYPES = {"image/png", "image/jpeg", "image/gif", "image/webp"}  # no SVG, which may hold scripts
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_ROOM = 48 * 1024 * 1024
"""The Base64 characters that all pictures of a page may have together."""
_SMALLEST = 16


class Pictures:
    """Turns pictures into HTML. `room` is the number of characters that are left for them on the page."""

    def __init__(self) -> None:
        self.room = _ROOM

    def html(self, picture: ImagePart) -> str:
        """Return an image element, or a note for a picture of another type or one that is too large."""
        if picture.mime_type not in _TYPES or len(picture.data) < _SMALLEST or not _BASE64.fullmatch(picture.data):
            return f'<p class="note">a picture that cannot be shown ({text(clipped(picture.mime_type, 60))})</p>'
        if len(picture.data) > self.room:
            return '<p class="note">a picture was left out: the page is full</p>'
        self.room -= len(picture.data)
        return f'<img alt="picture" src="data:{picture.mime_type};base64,{picture.data}">'


_TITLE, _INPUT, _OUTPUT = 400, 6_000, 24_000  # characters that are shown of a call
_DIFFS = 20
_ARGUMENTS = 100
_SHORT = 14  # lines; a card with a longer output is closed
_IN_DIFF = {"path", "content", "old_text", "new_text"}
"""Arguments that are not shown if there is a diff."""


def card_html(call: CallItem, pictures: Pictures, *, brief: bool = False) -> str:
    """Return a card as HTML, open if its content is short or important. If `brief`, it has only its headline."""
    state, word = call_outcome(call)
    body, unfolded = ("", False) if brief else _body(call, state, pictures)
    took = f"<time>{seconds(call.finished.elapsed)}</time>" if call.finished is not None else ""
    return (
        f'<details class="tool {state.value}"{" open" if unfolded else ""}><summary><i class="dot"></i>'
        f'<span class="name">{text(clipped(call.started.name, 80))}</span> '
        f'<span class="title">{text(clipped(call.started.title, _TITLE))}</span> '
        f'<span class="state">{word}</span> {took}</summary><div class="body">{body}</div></details>\n'
    )


def _body(call: CallItem, state: CallOutcome, pictures: Pictures) -> tuple[str, bool]:
    """Return the content of a card, and True if the card is open: for a change, a failure or a short output."""
    started, result = call.started, call.result
    diffs = (result.diffs if result is not None else ()) or started.diffs
    output = _output(started.kind, result)
    screen = f'<pre class="output {state.value}">{text(output)}</pre>' if output else ""
    if started.kind is ToolKind.EXECUTE:
        screen = _screen(call, output)
    body = (
        _input(started, hide=_IN_DIFF if diffs else set[str]()),
        "".join(map(diff_html, diffs[:_DIFFS])),
        f'<p class="note">and {len(diffs) - _DIFFS} more files</p>' if len(diffs) > _DIFFS else "",
        screen,
        "".join(map(pictures.html, result.images)) if result is not None else "",
        "".join(card_html(nested, pictures) for nested in call.nested),
    )
    is_short = started.kind is ToolKind.EXECUTE and output.count("\n") < _SHORT and 0 < len(output) < 2_000
    return "".join(body), bool(diffs) or state is CallOutcome.FAILED or is_short


def _output(kind: ToolKind, result: ToolResult | None) -> str:
    """Return the output as the user saw it, shortened. Terminal control characters of commands are applied."""
    if result is None:
        return ""
    clean = sanitize(clipped(result.shown, 4 * _OUTPUT), terminal=kind is ToolKind.EXECUTE)
    return clipped(clean, _OUTPUT).strip("\n")


def _screen(call: CallItem, output: str) -> str:
    """Return the output of a terminal as HTML, after its command."""
    command = call.started.raw_input.get("command")
    prompt = f'<b class="prompt">$ {text(clipped(command, _INPUT))}</b>\n' if isinstance(command, str) else ""
    return f'<pre class="screen">{prompt}{text(output)}</pre>' if prompt or output else ""


def _input(started: ToolStarted, hide: set[str]) -> str:
    """Return the arguments as HTML, without those that the diff, the title or the command already shows."""
    if started.kind is ToolKind.EXECUTE and isinstance(started.raw_input.get("command"), str):
        hide = {*hide, "command"}
    rows = ""
    for name, value in list(started.raw_input.items())[:_ARGUMENTS]:
        if name not in hide and value != started.title:
            words = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            rows += f"<dt>{text(clipped(name, 100))}</dt><dd>{text(clipped(words, _INPUT))}</dd>"
    return f'<dl class="input">{rows}</dl>' if rows else ""


_ATTACHED = 4_000  # characters of an attached text
_PARTS = 200


def _part(part: PromptPart, pictures: Pictures, limit: int) -> str:
    """Return a part of a user's message as HTML. A text has at most `limit` characters."""
    match part:
        case TextPart(words):
            return f'<p class="typed">{text(clipped(words.strip(), limit))}</p>' if words.strip() else ""
        case ImagePart():
            return pictures.html(part)
        case LinkPart(uri, name):
            label = text(clipped(name or uri, 300))
            return f'<p class="attached">{link(uri, label) if is_web(uri) else _named(label, uri)}</p>'
        case ResourcePart(uri, words):
            name = text(clipped(uri.rstrip("/").rpartition("/")[2] or uri, 300))
            return (
                f'<details class="attached"><summary>{_named(name, uri)}</summary>'
                f'<pre class="output">{text(clipped(words, min(limit, _ATTACHED)))}</pre></details>'
            )
        case _:
            assert_never(part)


def _named(label: str, uri: str) -> str:
    return f'{label} <span class="target">{text(clipped(uri, 500))}</span>'


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
        said = "".join(_part(part, self._pictures, limit) for part in message.parts[:_PARTS])
        if len(message.parts) > _PARTS:
            said += f'<p class="note">and {len(message.parts) - _PARTS} more parts</p>'
        return (
            f'</section>\n<section class="turn" id="p{self._asked}"><div class="asked"><p class="who">'
            f'<a href="#p{self._asked}">{self._asked}</a> {_time(at)}</p>'
            f"{said}</div>\n"
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
    if not 0 < at < YEAR_10000:
        return ""
    when = datetime.fromtimestamp(at / 1000, UTC)
    return f'<time datetime="{when:%Y-%m-%dT%H:%M:%SZ}">{when.day} {when:%b %Y, %H:%M}</time>'
