"""HTML pages as text that is easy to read. Everything but content is removed; links stay.

The text is Markdown: headings, lists, quotes, code with its blanks, tables by rows, links as `[text](absolute URL)`. A
picture leaves only its alternative text, so that a renderer of the text does not load it.

A page is read as a stream of events, because hostile pages make other parsers slow. Measured on 60 pages of 1 MiB:
Python's html.parser is quadratic in repeated `<a` or `<!--` (over 30 s, in 3.11). lxml is quadratic in the attributes
of one element if it builds a tree (165 s for 100,000), and in end tags without a start below many open elements. lxml
that is fed in pieces, and stopped when a limit is reached, needs at most 0.4 s.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, cast
from urllib.parse import urljoin, urlsplit

import anyio.to_thread

from acp_agent.core.web import WebPage

MAX_DEPTH = 512
"""Elements open at once. Pages made by people stay below 100."""
MAX_ELEMENTS = 100_000
"""Elements of a page. The largest pages made by people have some 30,000."""
MAX_PIECES = 1_000_000
"""Pieces of text. Each entity is a piece, and so is a `<` that begins nothing."""
MAX_MARKUP = 8 * 1024 * 1024
"""Characters of a page."""
_PIECE = 16 * 1024


class EventTarget(Protocol):
    """Receives the events of a page. Attributes without a value have an empty one."""

    def start(self, tag: str, attrib: dict[str, str]) -> None: ...
    def end(self, tag: str) -> None: ...
    def data(self, data: str) -> None: ...
    def close(self) -> None: ...


class HtmlParser(Protocol):
    """An lxml parser with a target."""

    def feed(self, data: str) -> None: ...
    def close(self) -> object: ...


class Meter:
    """The amount of a page seen so far: elements, open elements, pieces of text."""

    def __init__(self, max_elements: int = MAX_ELEMENTS) -> None:
        self._max_elements = max_elements
        self.elements = 0
        self.depth = 0
        self.pieces = 0

    def opened(self) -> None:
        """Count the begin of an element."""
        self.elements += 1
        self.depth += 1

    def closed(self) -> None:
        """Count the end of an element."""
        self.depth -= 1

    def excess(self) -> str:
        """Return in words which limit is exceeded, "" if none is."""
        if self.depth > MAX_DEPTH:
            return f"it is nested more than {MAX_DEPTH} elements deep"
        if self.elements > self._max_elements:
            return f"it has more than {self._max_elements} elements"
        return f"it has more than {MAX_PIECES} pieces of text" if self.pieces > MAX_PIECES else ""


class _Lxml(Protocol):
    """The part of lxml.etree that is used."""

    LxmlError: type[Exception]

    def HTMLParser(self, *, target: EventTarget, huge_tree: bool) -> HtmlParser: ...  # noqa: N802 - lxml's own name


def _lxml() -> _Lxml:
    # It costs 10 ms, and most sessions never fetch.
    import lxml.etree  # noqa: PLC0415 # pyright: ignore[reportMissingImports]

    return cast("_Lxml", lxml.etree)  # pyright: ignore[reportUnknownMemberType] - it has no types


def html_parser(target: EventTarget) -> HtmlParser:
    """Return an HTML parser. It resolves only HTML's own entities and opens nothing."""
    return _lxml().HTMLParser(target=target, huge_tree=True)


def feed(markup: str, parser: HtmlParser, excess: Callable[[], str]) -> str:
    """Feed a page to a parser until it ends or `excess` names a limit. Return that text, else ""."""
    markup = markup.encode(errors="replace").decode()  # a lone surrogate is not a character
    reason = ""
    for at in range(0, len(markup), _PIECE):
        reason = excess() or (f"it has more than {MAX_MARKUP} characters" if at >= MAX_MARKUP else "")
        if reason:
            break
        parser.feed(markup[at : at + _PIECE])
    with suppress(_lxml().LxmlError):  # a page without an element
        parser.close()
    return reason or excess()


_BLANKS = re.compile(r"[ \t\n\r\f]+")  # HTML's own blanks; a no-break space stays
_DEEPEST = 12  # prefixes shown at once; deeper levels are not indented further


def collapsed(text: str) -> str:
    """Return the text on one line, as a browser shows it."""
    return _BLANKS.sub(" ", text).strip(" ")


class LineBuilder:
    """Joins pieces to lines, and lines to a text.

    size   characters of the finished lines
    """

    def __init__(self) -> None:
        self.size = 0
        self._done: list[str] = []
        self._pieces: list[str] = []
        self._prefixes: list[tuple[str, str]] = []
        self._gap = False

    def add(self, piece: str) -> None:
        """Add to the current line."""
        self._pieces.append(piece)

    def end(self, *, gap: bool = False, verbatim: bool = False) -> None:
        """End the current line, if there is one.

        gap        add an empty line before the next one
        verbatim   keep blanks and line ends, because it is code
        """
        text = "".join(self._pieces)
        self._pieces.clear()
        if verbatim:
            text = text.removeprefix("\n").rstrip()
            for line in text.split("\n") if text else ():
                self.whole(line)
        elif line := collapsed(text):
            self.whole(line)
        self._gap = self._gap or gap

    def whole(self, line: str) -> None:
        """Add a finished line unchanged."""
        if self._gap and self._done:
            self._done.append("")
        self._gap = False
        prefix = "".join(first for first, _ in self._prefixes[:_DEEPEST])
        self._prefixes = [(rest, rest) for _, rest in self._prefixes]
        self._done.append(f"{prefix}{line}".rstrip(" "))
        self.size += len(self._done[-1]) + 1

    def push(self, first: str, rest: str) -> None:
        """Begin the following lines with `rest`, and the next one with `first`."""
        self._prefixes.append((first, rest))

    def pop(self) -> None:
        """Remove the last prefix."""
        self._prefixes.pop()

    def text(self) -> str:
        """Return the finished lines."""
        return "\n".join(self._done)


MAX_CHARS = 16 * 1024 * 1024
"""Characters made of one page: three characters of a link may stand for an address of two thousand."""

LISTS = {"ul", "ol"}
HEADINGS = {"h1": "# ", "h2": "## ", "h3": "### ", "h4": "#### ", "h5": "##### ", "h6": "###### "}
LARGE = {"blockquote", "dl", "figure", "hr", "pre", "table", *LISTS, *HEADINGS}
"""Blocks that make a table a means of layout, and that no link contains."""
SPACED = {"form", "p", "section", *LARGE}
"""Blocks with an empty line around them."""
BLOCKS = SPACED | {
    *("address", "article", "aside", "body", "br", "caption", "center", "dd", "details", "div", "dt", "fieldset"),
    *("figcaption", "footer", "header", "li", "main", "option", "summary", "title", "tr"),
}
CELLS = {"td", "th"}
_NEVER = {"script", "style", "template"}


class Words:
    """Takes the events of a page and keeps its words, by lines."""

    def __init__(self) -> None:
        self._meter = Meter()
        self._skipped = 0
        self._code = 0
        self._lines = LineBuilder()

    def start(self, tag: str, attrib: dict[str, str]) -> None:
        self._meter.opened()
        if self._skipped or tag in _NEVER or self._hides(tag, attrib):
            self._skipped += 1
        else:
            self._begin(tag, attrib)

    def end(self, tag: str) -> None:
        if self._skipped:
            self._skipped -= 1
        else:
            self._finish(tag)
        self._meter.closed()

    def data(self, data: str) -> None:
        self._meter.pieces += 1
        if not self._skipped:
            self._add(data)

    def close(self) -> None:
        """Do nothing: `text` ends what is still open."""

    def excess(self) -> str:
        """Return which limit is exceeded, "" if none is."""
        return self._meter.excess() or (f"over {MAX_CHARS} characters" if self._lines.size > MAX_CHARS else "")

    def text(self) -> str:
        """Return the whole text. It ends the current line."""
        self._lines.end()
        return self._lines.text()

    def _hides(self, tag: str, attrib: dict[str, str]) -> bool:
        del tag, attrib
        return False

    def _add(self, text: str) -> None:
        self._lines.add(text)

    def _begin(self, tag: str, attrib: dict[str, str]) -> None:
        del attrib
        if tag in BLOCKS:
            self._lines.end(verbatim=self._code > 0)
        elif tag in CELLS:
            self._lines.add(" ")
        self._code += tag == "pre"

    def _finish(self, tag: str) -> None:
        if tag in BLOCKS:
            self._lines.end(verbatim=self._code > 0)
        self._code -= tag == "pre"


_LONGEST_URL = 2048
_NO_CONTENT = {"button", "canvas", "dialog", "iframe", "nav", "noscript", "object", "select", "svg", "textarea"}
_INVISIBLE = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_LANGUAGE = re.compile(r"(?:^|\s)lang(?:uage)?-([\w+#.-]{1,30})")


@dataclass(slots=True)
class _Kept:
    """Text held until its element ends: a link, a cell, a title, code. `note` is the URL or the language."""

    tag: str
    depth: int
    note: str = ""
    pieces: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class _Table:
    """A table whose cells contain only words so far. `row` has the cells of the current row."""

    rows: int = 0
    row: list[str] = field(default_factory=list[str])


class Markdown(Words):
    """Keeps structure and links as well.

    Inside a link or a cell, blocks become blanks. If one is too large for that (a list, code, another table), the link
    becomes plain text, and the cells of the table become blocks.

    kept       texts that are held, the innermost last
    prefixed   depths of the elements that added a prefix to lines
    lists      for each open list the number of its last item; None if it is not numbered
    addresses  characters of the URLs written so far
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self._base = url
        self._title = ""
        self._kept: list[_Kept] = []
        self._prefixed: list[int] = []
        self._lists: list[int | None] = []
        self._table: _Table | None = None
        self._addresses = 0

    def text(self) -> str:
        self._release()
        body = super().text()
        heading = f"# {self._title}"
        if not self._title or body == heading or body.startswith(f"{heading}\n"):
            return body
        return f"{heading}\n\n{body}".rstrip("\n")

    def excess(self) -> str:
        return super().excess() or (f"over {MAX_CHARS} characters" if self._addresses > MAX_CHARS else "")

    def _hides(self, tag: str, attrib: dict[str, str]) -> bool:
        if tag in ("html", "body"):  # some pages hide these until their scripts have run
            return False
        return (
            tag in _NO_CONTENT
            or "hidden" in attrib
            or attrib.get("aria-hidden") == "true"
            or attrib.get("role") in ("navigation", "search")
            or _INVISIBLE.search(attrib.get("style", "")[:1000]) is not None
        )

    def _add(self, text: str) -> None:
        if self._kept:
            self._kept[-1].pieces.append(text)
        else:
            self._lines.add(text)

    # ------------------------------------------------------------------------------ beginnings

    def _begin(self, tag: str, attrib: dict[str, str]) -> None:
        if self._kept and self._kept[-1].tag == "pre":
            self._begin_in_code(tag, attrib)
            return
        if tag in LARGE:
            self._release()
        if tag in BLOCKS:
            self._block(tag)
        match tag:
            case "title" | "code" | "pre":
                self._keep(tag, _language(attrib))
            case "a":
                self._keep(tag, self._absolute(attrib.get("href", "")))
            case "td" | "th":
                self._begin_cell(tag)
            case "table":
                self._table = _Table()
            case "tr":
                self._end_row()
            case "img":
                self._add(f" {attrib.get('alt', '')} ")
            case "base":
                self._base = self._absolute(attrib.get("href", "")) or self._base
            case "hr":
                self._lines.whole("---")
                self._lines.end(gap=True)
            case _:
                self._begin_prefix(tag)

    def _begin_cell(self, tag: str) -> None:
        if self._table is not None:
            self._keep(tag)
        else:
            self._block(tag)

    def _begin_prefix(self, tag: str) -> None:
        """Begin a list, an item, a quote or a heading: lines that begin with a sign."""
        if tag in LISTS:
            self._lists.append(0 if tag == "ol" else None)
        if self._kept or tag not in ("li", "blockquote", *HEADINGS):
            return
        first, rest = "> ", "> "
        if tag == "li":
            first = self._bullet()
            rest = " " * len(first)
        elif tag in HEADINGS:
            first, rest = HEADINGS[tag], ""
        self._lines.push(first, rest)
        self._prefixed.append(self._meter.depth)

    def _bullet(self) -> str:
        number = self._lists[-1] if self._lists else None
        if number is None:
            return "- "
        self._lists[-1] = number + 1
        return f"{number + 1}. "

    def _begin_in_code(self, tag: str, attrib: dict[str, str]) -> None:
        code = self._kept[-1]
        if tag == "br" or (tag in BLOCKS and code.pieces and not code.pieces[-1].endswith("\n")):
            code.pieces.append("\n")
        code.note = code.note or _language(attrib)

    def _block(self, tag: str) -> None:
        """End the current line at the border of a block. Inside a link or a cell there is only one line."""
        if self._kept:
            self._add(" ")
        else:
            self._lines.end(gap=tag in SPACED and not (self._lists and tag in (*LISTS, "p")))

    def _keep(self, tag: str, note: str = "") -> None:
        if all(kept.tag != tag for kept in self._kept):  # one in another of its kind is part of it
            self._kept.append(_Kept(tag, self._meter.depth, note))

    # ------------------------------------------------------------------------------ ends

    def _finish(self, tag: str) -> None:
        if self._kept and self._kept[-1].depth == self._meter.depth:
            self._finish_kept(self._kept.pop())
        elif self._kept and self._kept[-1].tag == "pre":
            return
        elif tag in BLOCKS or tag in CELLS:
            self._block(tag)
        if self._prefixed and self._prefixed[-1] == self._meter.depth:
            self._prefixed.pop()
            self._lines.pop()
        if tag in LISTS and self._lists:
            self._lists.pop()
            self._lines.end(gap=not self._lists)
        elif tag in ("tr", "table"):
            self._end_row()
            self._table = None if tag == "table" else self._table

    def _finish_kept(self, kept: _Kept) -> None:
        text = "".join(kept.pieces)
        line = collapsed(text)
        match kept.tag:
            case "pre":
                self._write_code(text, kept.note)
            case "title":
                self._title = self._title or line
            case "a" if line and kept.note:
                self._add(f"[{line}]({kept.note})")
                self._addresses += len(kept.note)
            case "code" if line:
                self._add(f"`` {line} ``" if "`" in line else f"`{line}`")
            case "td" | "th" if self._table is not None:
                self._table.row.append(line.replace("|", "\\|"))
            case _:
                self._add(text)

    def _write_code(self, text: str, language: str) -> None:
        longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
        fence = "`" * (longest + 1)
        lines = text.removeprefix("\n").rstrip().split("\n")
        for line in (f"{fence}{language}", *lines, fence) if any(lines) else ():
            self._lines.whole(line)
        self._lines.end(gap=True)

    def _end_row(self) -> None:
        if self._table is None or not self._table.row:
            return
        row, self._table.row = self._table.row, []
        if any(row):
            self._lines.whole(f"| {' | '.join(row)} |")
            self._table.rows += 1
            if self._table.rows == 1:
                self._lines.whole("|---" * len(row) + "|")

    def _release(self) -> None:
        """Release a held text whose element turned out to be something else."""
        self._end_row()
        self._table = None
        pieces = [piece for kept in self._kept if kept.tag != "title" for piece in kept.pieces]
        self._kept.clear()
        for piece in pieces:
            self._lines.add(piece)

    def _absolute(self, href: str) -> str:
        """Return the URL that a link leads to, "" if no tool could follow it."""
        href = href.strip()
        if not href or href.startswith("#") or len(href) > _LONGEST_URL:
            return ""
        try:
            url = urljoin(self._base, href)
            scheme = urlsplit(url).scheme
        except ValueError:  # https://[
            return ""
        if scheme not in ("http", "https", "mailto") or len(url) > _LONGEST_URL:
            return ""
        return collapsed(url).replace(" ", "%20").replace("(", "%28").replace(")", "%29")


def _language(attrib: dict[str, str]) -> str:
    found = _LANGUAGE.search(attrib.get("class", "")[:200])
    return found[1] if found else ""


CUT = "[The page goes on: it is larger than what is read of one page]"
"""The last line of a page that arrived truncated."""
_HTML_TYPES = {"text/html", "application/xhtml+xml"}


def is_html(page: WebPage) -> bool:
    """Return whether a page is HTML: its type says so, or it has no type and begins like HTML."""
    kind = page.content_type.partition(";")[0].strip()
    begins = page.text[:256].lstrip("\ufeff \t\r\n").lower()
    return kind in _HTML_TYPES or (not kind and begins.startswith(("<!doctype html", "<html")))


async def readable(page: WebPage) -> str:
    """Return a page as text. HTML is converted in a thread; other text is unchanged. A truncated page says so."""
    text = page.text
    if is_html(page):
        text = await anyio.to_thread.run_sync(html_text, text, page.url, abandon_on_cancel=True)
    return "\n\n".join(part for part in (text, CUT) if part) if page.truncated else text


def html_text(markup: str, url: str) -> str:
    """Return a page as Markdown, its title first. A page over the limits ends with a note."""
    page = Markdown(url)
    excess = feed(markup, html_parser(page), page.excess)
    return "\n\n".join(part for part in (page.text(), excess and f"[The page goes on: {excess}]") if part)


def plain_text(markup: str) -> str:
    """Return the words of a piece of HTML, one line for each block, without mark-up."""
    words = Words()
    feed(markup, html_parser(words), words.excess)
    return words.text()
