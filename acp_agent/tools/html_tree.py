"""HTML as a bs4 tree of limited size, from which CSS selectors select. It is imported when the first page is read.

Hostile pages make parsers slow. Python's html.parser is quadratic in repeated `<a` or `<!--` (over 30 s for 1 MiB, in
3.11). lxml is quadratic in the attributes of one element if it builds a tree (165 s for 100,000), and in end tags
without a start below many open elements. lxml that is fed in pieces, and stopped when a limit is reached, needs at most
0.4 s, so bs4 gets its events from it. The time of soupsieve is proportional to the parts of the selector times the
elements of the page, and both are limited: at most 4 s.
"""

import re
from contextlib import suppress
from typing import Protocol, cast

import lxml.etree  # pyright: ignore[reportMissingImports]
import soupsieve
from bs4 import BeautifulSoup, Tag
from bs4.builder import HTMLTreeBuilder
from bs4.element import NavigableString, PageElement

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.tools.params import quote

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
MAX_ELEMENTS = 50_000
"""Elements of a page that is selected from: about 60 MiB of tree."""

LARGE = frozenset(
    {"blockquote", "dl", "figure", "hr", "ol", "pre", "table", "ul", *(f"h{level}" for level in range(1, 7))}
)
"""Blocks that make a table a means of layout, and that no link contains."""
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
    """Builds a tree of bs4 from lxml's events and stops at the limits. Comments are left out.

    lxml resolves only HTML's own entities, opens nothing, and ends every element that it begins.

    excess   which limit the page exceeds, in words; "" if none
    """

    def __init__(self, max_elements: int = MAX_ELEMENTS) -> None:
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
    return BeautifulSoup(
        f"{markup}\n", builder=builder
    )  # without a line end bs4 takes one line for a file name and warns


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
    """Return the first `limit` matching elements in order. Raises ToolError for the selector or a page too large."""
    builder = TreeBuilder(MAX_ELEMENTS)
    page = tree(markup, builder)
    if builder.excess:
        message, advice = f"the page is too large to select from: {builder.excess}", "Use fetch to read its beginning."
        raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, message, advice)
    return compiled(selector).select(page, limit)


def _no_selector(selector: str, reason: str) -> ToolError:
    message = f"select = {quote(selector)} is not a usable CSS selector: {reason}"
    return ToolError(ToolErrorCategory.INVALID_PARAMETERS, message)


def plain_text(element: Tag) -> str:
    """Return the words of an element, one line for each block, without mark-up. Code keeps its blanks."""
    lines, words = list[str](), list[str]()
    todo: list[PageElement | None] = [None, element]  # None ends the line; the last one is next
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
