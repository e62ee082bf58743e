"""HTML pages: as Markdown with absolute links, and as trees of limited size for CSS selectors.

This module is imported when the first page is read. Hostile pages make parsers slow. Python's html.parser is quadratic
in repeated `<a` or `<!--` (over 30 s for 1 MiB, in 3.11). lxml is quadratic in the attributes of one element if it
builds a tree (165 s for 100,000), and in end tags without a start below many open elements. Here lxml builds no tree:
it is fed in pieces and stopped when a limit is reached, which takes at most 0.4 s, and bs4 builds the tree from its
events. The time of soupsieve is proportional to the parts of the selector times the elements of the page. Both are
limited, so it takes at most 4 s.

markdownify converts the tree. It calls itself for each level, so the tree is shallow. It needs quadratic time for the
numbers of list items, for the rows of a table's head and for blanks in code, and it repeats a cell that spans columns
up to a thousand times. So these parts are converted here.
"""

import re
from contextlib import suppress
from typing import Protocol, cast
from urllib.parse import urljoin, urlsplit

import lxml.etree  # pyright: ignore[reportMissingImports]
import soupsieve
from bs4 import BeautifulSoup, Tag
from bs4.builder import HTMLTreeBuilder
from bs4.element import NavigableString, PageElement
from markdownify import MarkdownConverter

from acp_agent.core.errors import ToolError
from acp_agent.tools.tool import quote

MAX_DEPTH = 512
"""Elements open at once. Pages made by people stay below 100."""
MAX_PIECES = 1_000_000
"""Pieces of text. Each entity is a piece, and so is a `<` that begins nothing."""
MAX_MARKUP = 8 * 1024 * 1024
"""Characters of a page."""
_CHUNK = 16 * 1024

MAX_SELECTOR = 256
"""Characters of a selector."""
MAX_PARTS = 32
"""Names, classes, attributes, pseudo-classes and combinators in one selector."""
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_PART = re.compile(r"[^\s>+~,.:#\[\]()*|]+|\*")
MAX_SELECTED = 50_000
"""Elements of a page that is selected from: about 60 MiB of tree."""

LARGE = frozenset(
    {"blockquote", "dl", "figure", "hr", "ol", "pre", "table", "ul", *(f"h{level}" for level in range(1, 7))}
)
"""Blocks that are in no link and in no table of data. A table with one of them only lays out the page."""
BLOCKS = LARGE | {
    *("address", "article", "aside", "body", "br", "caption", "center", "dd", "details", "div", "dt", "fieldset"),
    *("figcaption", "footer", "form", "header", "li", "main", "option", "p", "section", "summary", "title", "tr"),
}
NO_TEXT = frozenset({"script", "style", "template"})
_BLANKS = re.compile(r"[ \t\n\r\f]+")  # HTML's own blanks; a no-break space stays


_BLANK = NavigableString(" ")


def collapsed(text: str) -> str:
    """Return the text on one line, as a browser shows it."""
    return _BLANKS.sub(" ", text).strip(" ")


class _Parser(Protocol):
    def feed(self, data: str) -> None: ...
    def close(self) -> object: ...


class _Lxml(Protocol):
    """The part of lxml.etree that is used: it has no types."""

    LxmlError: type[Exception]

    def HTMLParser(self, *, target: object, huge_tree: bool) -> _Parser: ...  # noqa: N802 - lxml's own name


_LXML = cast("_Lxml", lxml.etree)  # pyright: ignore[reportUnknownMemberType]


class TreeBuilder(HTMLTreeBuilder):
    """A builder of bs4 trees from lxml's events, which stops at the limits. Comments are left out.

    lxml resolves only HTML's own entities, opens nothing, and ends every element that it begins.

    excess   which limit the page exceeds, in words; "" if none
    """

    def __init__(self, max_elements: int = MAX_SELECTED) -> None:
        super().__init__()
        self.excess = ""
        self._max_elements = max_elements
        self._elements = self._depth = self._pieces = 0

    def feed(self, markup: str | bytes) -> None:
        assert isinstance(markup, str)
        markup = markup.encode(errors="replace").decode()  # a lone surrogate is not a character
        parser = _LXML.HTMLParser(target=self, huge_tree=True)
        for at in range(0, len(markup), _CHUNK):
            parser.feed(markup[at : at + _CHUNK])
            self.excess = self.exceeded() or (
                f"it has more than {MAX_MARKUP} characters" if len(markup) > MAX_MARKUP <= at + _CHUNK else ""
            )
            if self.excess:
                break
        with suppress(_LXML.LxmlError):  # a page without an element
            parser.close()

    def exceeded(self) -> str:
        if self._depth > MAX_DEPTH:
            return f"it is nested more than {MAX_DEPTH} elements deep"
        if self._elements > self._max_elements:
            return f"it has more than {self._max_elements} elements"
        return f"it has more than {MAX_PIECES} pieces of text" if self._pieces > MAX_PIECES else ""

    def start(self, tag: str, attrib: dict[str, str]) -> None:
        """Begin an element. lxml gives an attribute without a value an empty one."""
        self._elements += 1
        self._depth += 1
        self.begin(tag, attrib)

    def end(self, tag: str) -> None:
        """End the innermost element."""
        self.finish(tag)
        self._depth -= 1

    def data(self, data: str) -> None:
        """Add text."""
        self._pieces += 1
        self.write(data)

    def close(self) -> None:
        """Do nothing: bs4 closes what is still open."""

    def begin(self, tag: str, attrib: dict[str, str]) -> None:
        """Begin an element of the tree."""
        assert self.soup is not None
        self.soup.handle_starttag(tag, None, None, {**attrib})

    def finish(self, tag: str) -> None:
        """End the innermost element of the tree."""
        assert self.soup is not None
        self.soup.handle_endtag(tag)

    def write(self, data: str) -> None:
        """Add text to the tree."""
        assert self.soup is not None
        self.soup.handle_data(data)


def tree(markup: str, builder: TreeBuilder) -> BeautifulSoup:
    """Return a page as a tree. It ends where `builder` found it to exceed a limit."""
    # The line end keeps bs4 from taking a page of one line for the name of a file, with a warning.
    return BeautifulSoup(f"{markup}\n", builder=builder)


def compiled(selector: str) -> soupsieve.SoupSieve:
    """Compile a selector. Raises ToolError (invalid_parameters) with its mistake."""
    if len(selector) > MAX_SELECTOR:
        raise _no_selector(selector, f"longer than {MAX_SELECTOR} characters")
    if len(_PART.findall(_QUOTED.sub("", selector))) > MAX_PARTS:
        raise _no_selector(selector, f"it has more than {MAX_PARTS} parts")
    try:
        return soupsieve.compile(selector)
    except (soupsieve.SelectorSyntaxError, NotImplementedError, ValueError) as error:
        reason = str(error).partition("\n")[0]
    raise _no_selector(selector, reason)


def selected(markup: str, selector: str, limit: int) -> list[Tag]:
    """Return the first `limit` matching elements. Raises ToolError for a bad selector and for a page too large."""
    builder = TreeBuilder(MAX_SELECTED)
    page = tree(markup, builder)
    if builder.excess:
        message, advice = f"the page is too large to select from: {builder.excess}", "Use fetch to read its beginning."
        raise ToolError.permanent(message, advice)
    return compiled(selector).select(page, limit)


def _no_selector(selector: str, reason: str) -> ToolError:
    return ToolError.invalid(f"select = {quote(selector)} is not a usable CSS selector: {reason}")


def plain_text(element: Tag) -> str:
    """Return the words of an element, one line for each block, without mark-up. Code keeps its blanks."""
    lines, words = list[str](), list[str]()
    todo: list[PageElement | None] = [None, element]  # a stack of nodes; None ends the line
    while todo:
        node = todo.pop()
        if isinstance(node, Tag) and node.name != "pre":
            borders = [None] if node.name in BLOCKS else [_BLANK] if node.name in ("td", "th") else []
            todo += [*borders, *reversed(node.contents), *borders] if node.name not in NO_TEXT else []
        elif isinstance(node, NavigableString):
            words.append(node)
        else:
            lines.append(collapsed("".join(words)))
            words.clear()
            lines += (line.rstrip() for line in (node.get_text().strip("\n").split("\n") if node else ()))
    return "\n".join(line for line in lines if line)


MAX_CONVERTED = 100_000
"""Elements of a page. The largest pages made by people have some 30,000."""
MAX_CHARS = 16 * 1024 * 1024
"""Characters of all addresses, and of all lines with their prefixes: a page of 8 MiB may expand to gigabytes."""
_SHALLOW = 100
"""Levels of the tree. An element below them leaves only its contents."""
_INDENTED = 12
"""Levels of list items and quotes."""
_PREFIX = 8  # characters that a level adds to a line, at most

_NO_CONTENT = NO_TEXT | {
    *("button", "canvas", "dialog", "iframe", "nav", "noscript", "object", "select", "svg", "textarea"),
}
_INVISIBLE = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_LANGUAGE = re.compile(r"(?:^|\s)lang(?:uage)?-([\w+#.-]{1,30})")
_LONGEST_URL = 2048
_HEADINGS = {f"h{level}" for level in range(1, 7)}
_CONVERTED = _HEADINGS | {
    *("a", "blockquote", "br", "code", "div", "dl", "hr", "img", "li", "line", "ol", "p", "pre", "section", "table"),
    *("td", "th", "title", "tr", "ul"),
}
"""The elements that are converted. Others leave their contents. "line" is our own name for a block in code."""
_DIVS = BLOCKS - _CONVERTED
_TABLE = ["table", "tr", "td", "th"]
_NESTED = {"blockquote", "li"}


def page_markdown(markup: str, url: str) -> str:
    """Return a page as Markdown. A page over the limits ends with a note."""
    builder = _Readable(MAX_CONVERTED)
    page = tree(markup, builder)
    converter = _Converter(page, url)
    body = "\n".join(line.rstrip(" ") for line in converter.convert_soup(page).split("\n")).strip("\n")
    title = collapsed(page.title.get_text()) if page.title else ""
    heading = "" if not title or f"{body}\n".startswith(f"# {title}\n") else f"# {title}"
    notes = (f"[The page goes on: {builder.excess}]" if builder.excess else "", converter.note)
    return "\n\n".join(part for part in (heading, body, *notes) if part)


class _Readable(TreeBuilder):
    """A builder of the tree that a reader sees: without hidden elements, and shallow."""

    def __init__(self, max_elements: int) -> None:
        super().__init__(max_elements)
        self._names: list[str] = []  # those of the open elements; "" for an element that is not in the tree
        self._hidden = 0
        self._shown = 0
        self._indented = 0
        self._code = 0
        self._chars = 0

    def begin(self, tag: str, attrib: dict[str, str]) -> None:
        if self._hidden or _hides(tag, attrib):
            self._hidden += 1
            return
        name = self._name(tag)
        self._names.append(name)
        if name:
            self._shown += 1
            self._indented += name in _NESTED
            self._code += name == "pre"
            super().begin(name, attrib)
        elif tag in BLOCKS:
            super().write(" ")

    def _name(self, tag: str) -> str:
        """Return the name that an element gets in the tree, "" if only its contents are put there."""
        if self._shown == _SHALLOW or (self._indented == _INDENTED and tag in _NESTED):
            return ""
        if self._code and tag not in ("br", "code"):
            return "line" if tag in BLOCKS else "span"
        return "div" if tag in _DIVS else tag

    def finish(self, tag: str) -> None:
        if self._hidden:
            self._hidden -= 1
        elif name := self._names.pop():
            self._shown -= 1
            self._indented -= name in _NESTED
            self._code -= name == "pre"
            super().finish(name)
        elif tag in BLOCKS:
            super().write(" ")

    def write(self, data: str) -> None:
        if not self._hidden:
            self._chars += len(data) + (data.count("\n") * self._indented * _PREFIX if self._code else 0)
            super().write(data)

    def exceeded(self) -> str:
        return super().exceeded() or (f"it has more than {MAX_CHARS} characters" if self._chars > MAX_CHARS else "")


def _hides(tag: str, attrib: dict[str, str]) -> bool:
    if tag in ("html", "body"):  # some pages hide these until their scripts have run
        return False
    return (
        tag in _NO_CONTENT
        or "hidden" in attrib
        or attrib.get("aria-hidden") == "true"
        or attrib.get("role") in ("navigation", "search")
        or _INVISIBLE.search(attrib.get("style", "")[:1000]) is not None
    )


class _Converter(MarkdownConverter):
    """A converter that writes absolute addresses. It writes the texts of pictures, so that no renderer loads them.

    Inside a link or a cell, blocks become blanks. If one is too large for that (a list, code, another table), the link
    becomes plain text, and the cells of the table become blocks.

    note   what was left out, "" for nothing
    """

    def __init__(self, page: BeautifulSoup, url: str) -> None:
        super().__init__(
            convert=["[document]", *_CONVERTED],
            autolinks=False,
            escape_asterisks=False,
            escape_underscores=False,
            heading_style="atx",
            wrap=True,  # one line for each paragraph
            wrap_width=None,
        )
        self.note = ""
        self._room = MAX_CHARS
        self._base = url
        base = page.find("base", href=True)
        self._base = self._absolute(base) or url if isinstance(base, Tag) else url
        layouts = {id(table) for table in page.find_all("table") if table.find(LARGE)}
        for part in [part for part in page.find_all(_TABLE) if _is_layout(part, layouts)]:
            part.name = "div"
        self._numbers = {
            id(item): number
            for numbered in page.find_all("ol")
            for number, item in enumerate(numbered.find_all("li", recursive=False), start=1)
        }

    def convert_a(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        words, url = collapsed(text), self._absolute(el)
        if not words or not url or el.find(LARGE):
            return text
        self._room -= len(url)
        if self._room < 0:
            self.note = f"[Some links are left out: their addresses have more than {MAX_CHARS} characters]"
            return text
        return f"{text[: text[:1] == ' ']}[{words}]({url}){text[len(text) - (text[-1:] == ' ') :]}"

    def convert_img(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        return collapsed(f"{el.get('alt', '')}")

    def convert_title(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        return ""

    def convert_br(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        return " " if "_inline" in parent_tags else "\n"

    def convert_div(self, el: Tag, text: str, parent_tags: set[str], gap: str = "\n") -> str:
        border = " " if "_inline" in parent_tags else gap
        return f"{border}{text.strip()}{border}" if text.strip() else ""

    def convert_p(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        return self.convert_div(el, text, parent_tags, "\n" if "li" in parent_tags else "\n\n")

    convert_section = convert_dl = convert_p

    def convert_line(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        """Convert a block in code."""
        return f"\n{text}" if el.previous_sibling else text

    def convert_li(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        number = self._numbers.get(id(el))
        first = f"{number}. " if number else "- "
        text = text.strip().replace("\n", "\n" + " " * len(first))
        return f"{first}{text}\n" if text else "\n"

    def convert_pre(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        text = text.removeprefix("\n").rstrip()
        code = el.find("code")
        fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`{3,}", text)), 0)
        language = _language(el) or (_language(code) if isinstance(code, Tag) else "")
        return f"\n\n{fence}{language}\n{text}\n{fence}\n\n" if text else ""

    def convert_td(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        return f" {collapsed(text).replace('|', chr(92) + '|')} |"

    convert_th = convert_td

    def convert_tr(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        return f"|{text}\n" if text.strip(" |") else ""

    def convert_table(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        first = re.search(r"^\|.*\|\n", text, re.MULTILINE)
        if first:
            columns = first[0].replace("\\|", "").count("|") - 1
            text = f"{text[: first.end()]}{'|---' * columns}|\n{text[first.end() :]}"
        return f"\n\n{text.strip()}\n\n"

    def _absolute(self, link: Tag) -> str:
        """Return the absolute URL of a link, "" if it is not one for a browser or a mail program."""
        href = f"{link.get('href', '')}".strip()
        if not href or href.startswith("#"):
            return ""
        try:
            url = urljoin(self._base, href)
            scheme = urlsplit(url).scheme
        except ValueError:  # such as for `https://[`
            return ""
        if scheme not in ("http", "https", "mailto") or len(url) > _LONGEST_URL:
            return ""
        return collapsed(url).replace(" ", "%20").replace("(", "%28").replace(")", "%29")


def _language(element: Tag) -> str:
    found = _LANGUAGE.search(" ".join(element.get_attribute_list("class"))[:200])
    return found[1] if found else ""


def _is_layout(part: Tag, layouts: set[int]) -> bool:
    """Return whether a part of a table belongs to one of the tables that lay out a page, or to no table."""
    table = part if part.name == "table" else part.find_parent("table")
    return table is None or id(table) in layouts
