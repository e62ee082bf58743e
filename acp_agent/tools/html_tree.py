"""HTML as a tree one can select from with CSS, bounded in size. Imported when the first page is scraped.

soupsieve takes time in proportion to the selector's parts times the page's elements, whatever their shape; both are
limited here. Measured on hostile pages of 50,000 elements: parsing 1.5 s, selecting 4 s at most.
"""

import re

import soupsieve
from bs4 import BeautifulSoup, Tag
from bs4.builder import HTMLTreeBuilder

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.tools.html import Meter, feed, html_parser
from acp_agent.tools.params import quote

MAX_SELECTOR = 256
"""Characters of a selector."""
MAX_PARTS = 32
"""Names, classes, attributes, pseudo-classes and combinators in one selector."""
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_PART = re.compile(r"[^\s>+~,.:#\[\]()*|]+|\*")
MAX_ELEMENTS = 50_000
"""Elements of a page that is selected from: about 60 MiB of tree."""


def compiled(selector: str) -> soupsieve.SoupSieve:
    """A selector, checked. Raises ToolError (invalid_parameters) with what is wrong with it."""
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
    """The first `limit` elements that match, in their order. Raises ToolError: the selector, a page too large."""
    builder = _Bounded()
    try:
        tree = BeautifulSoup(f"{markup}\n", builder=builder)  # bs4 takes one line for a file name, and warns
        return compiled(selector).select(tree, limit)
    except _TooMuch as excess:
        message, advice = f"the page is too large to select from: {excess}", "Use fetch to read its beginning."
        raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, message, advice) from None


def _no_selector(selector: str, reason: str) -> ToolError:
    message = f"select = {quote(selector)} is no usable CSS selector: {reason}"
    return ToolError(ToolErrorCategory.INVALID_PARAMETERS, message)


class _TooMuch(Exception):
    """The page is larger than the limits; the message says how."""


class _Bounded(HTMLTreeBuilder):
    """Builds a tree of bs4 from lxml's events; gives up on a page beyond the limits. Comments are left out."""

    def __init__(self) -> None:
        super().__init__()
        self._meter = Meter(MAX_ELEMENTS)

    def feed(self, markup: str | bytes) -> None:
        assert isinstance(markup, str)
        excess = feed(markup, html_parser(self), self._meter.excess)
        if excess:
            raise _TooMuch(excess)

    def start(self, tag: str, attrib: dict[str, str]) -> None:
        self._meter.opened()
        assert self.soup is not None
        self.soup.handle_starttag(tag, None, None, {**attrib})

    def end(self, tag: str) -> None:
        self._meter.closed()
        assert self.soup is not None
        self.soup.handle_endtag(tag)

    def data(self, data: str) -> None:
        self._meter.pieces += 1
        assert self.soup is not None
        self.soup.handle_data(data)

    def close(self) -> None:
        """What is still open is closed by bs4."""
