"""HTML as a tree of limited size from which CSS selectors select. It is imported when the first page is scraped.

The time of soupsieve is proportional to the parts of the selector times the elements of the page, and both are limited.
Measured on hostile pages of 50,000 elements: at most 1.5 s for parsing and 4 s for selecting.
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
    builder = _Bounded()
    try:
        # without a line end bs4 takes one line for a file name and warns
        tree = BeautifulSoup(f"{markup}\n", builder=builder)
        return compiled(selector).select(tree, limit)
    except _TooMuch as excess:
        message, advice = f"the page is too large to select from: {excess}", "Use fetch to read its beginning."
        raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, message, advice) from None


def _no_selector(selector: str, reason: str) -> ToolError:
    message = f"select = {quote(selector)} is no usable CSS selector: {reason}"
    return ToolError(ToolErrorCategory.INVALID_PARAMETERS, message)


class _TooMuch(Exception):
    """The page exceeds a limit, which the message names."""


class _Bounded(HTMLTreeBuilder):
    """Builds a tree of bs4 from lxml's events and stops at the limits. Comments are left out."""

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
        """Do nothing: bs4 closes what is still open."""
