"""Markdown of models as safe HTML.

markdown-it-py reads the Markdown: CommonMark with tables and struck text. HTML in it is shown as text. Every piece is
escaped where it enters the page, and links lead to the web only.
"""

import html
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from acp_agent.cli.session_text import clipped, shown

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
