"""The parts of the page of a session: tool calls as folding cards, diffs, pictures, messages, and Markdown as HTML.

The headline of a card has the tool's name, the title, the outcome and the duration; the rest is inside. markdown-it-py
reads the Markdown: CommonMark with tables and struck text. HTML in it is shown as text. Every piece is escaped where it
enters the page, and links lead to the web only.
"""

import html
import json
import re
from collections.abc import Sequence
from typing import assert_never
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from acp_agent.cli.session_text import (
    SIGNS,
    CallItem,
    CallOutcome,
    DiffLine,
    LineChange,
    call_outcome,
    changed_lines,
    clipped,
    seconds,
    shown,
)
from acp_agent.core.events import ToolStarted
from acp_agent.core.messages import LinkPart, PromptPart, ResourcePart, TextPart
from acp_agent.core.types import Diff, ImagePart, Json, ToolKind, ToolResult
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


_LINES = 400
_LINE = 600
"""The characters of a line that are shown."""


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


_TITLE = 400
_OUTPUT = 24_000
"""The characters of a tool's output that are shown."""
_INPUT = 6_000
_DIFFS = 20
_ARGUMENTS = 100
_SHORT = 14  # lines; a card with a longer output is closed
_IN_DIFF = {"path", "content", "old_text", "new_text"}
"""Arguments that are not shown if there is a diff."""


def card_html(call: CallItem, pictures: Pictures, *, brief: bool = False) -> str:
    """Return a card as HTML, open if its content is short or important. If `brief`, it has only its headline."""
    result = call.finished.result if call.finished is not None else None
    state, word = call_outcome(call)
    body, unfolded = ("", False) if brief else _body(call, result, state, pictures)
    took = f"<time>{seconds(call.finished.elapsed)}</time>" if call.finished is not None else ""
    return (
        f'<details class="tool {state.value}"{" open" if unfolded else ""}><summary><i class="dot"></i>'
        f'<span class="name">{text(clipped(call.started.name, 80))}</span> '
        f'<span class="title">{text(clipped(call.started.title, _TITLE))}</span> '
        f'<span class="state">{word}</span> {took}</summary><div class="body">{body}</div></details>\n'
    )


def _body(call: CallItem, result: ToolResult | None, state: CallOutcome, pictures: Pictures) -> tuple[str, bool]:
    """Return the content of a card, and True if the card is open: for a change, a failure or a short output."""
    started = call.started
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
    rows = [
        f"<dt>{text(clipped(name, 100))}</dt><dd>{_value(value)}</dd>"
        for name, value in list(started.raw_input.items())[:_ARGUMENTS]
        if name not in hide and value != started.title
    ]
    return f'<dl class="input">{"".join(rows)}</dl>' if rows else ""


def _value(value: Json) -> str:
    words = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text(clipped(words, _INPUT))


_ATTACHED = 4_000
"""The characters of an attached text that are shown."""
_PARTS = 200


def user_html(parts: Sequence[PromptPart], pictures: Pictures, limit: int) -> str:
    """Return a user's message as HTML. Each of its texts has at most `limit` characters."""
    rest = f'<p class="note">and {len(parts) - _PARTS} more parts</p>' if len(parts) > _PARTS else ""
    return "".join(_part(part, pictures, limit) for part in parts[:_PARTS]) + rest


def _part(part: PromptPart, pictures: Pictures, limit: int) -> str:
    match part:
        case TextPart(words):
            return f'<p class="typed">{text(clipped(words.strip(), limit))}</p>' if words.strip() else ""
        case ImagePart():
            return pictures.html(part)
        case LinkPart(uri, name):
            label = text(clipped(name or uri, 300))
            return f'<p class="attached">{link(uri, label) if is_web(uri) else _named(label, uri)}</p>'
        case ResourcePart(uri, words):
            return (
                f'<details class="attached"><summary>{_named(text(_last(uri)), uri)}</summary>'
                f'<pre class="output">{text(clipped(words, min(limit, _ATTACHED)))}</pre></details>'
            )
        case _:
            assert_never(part)


def _named(label: str, uri: str) -> str:
    return f'{label} <span class="target">{text(clipped(uri, 500))}</span>'


def _last(uri: str) -> str:
    """Return the last part of a path, the file's name."""
    return clipped(uri.rstrip("/").rpartition("/")[2] or uri, 300)
