"""HTML as a stream of events, at a bounded cost whoever wrote it (T5, threat rows 9 and 15 of security.md).

Measured on 60 hostile pages of 1 MiB: Python's html.parser is quadratic in `<a` or `<!--` repeated (over 30 s each,
in 3.11), and lxml quadratic in the attributes of one element when it builds a tree itself (165 s for 100,000), or in
end tags without a start below many open elements. lxml fed piece by piece, into a target that is asked after each
piece whether it has had enough, needs 0.4 s at most.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, cast

MAX_DEPTH = 512
"""Elements open at once; pages made by people stay below 100."""
MAX_ELEMENTS = 100_000
"""Elements of a page; the largest made by people have some 30,000."""
MAX_PIECES = 1_000_000
"""Pieces of text: an entity is one of its own, and so is a `<` that begins nothing."""
MAX_MARKUP = 8 * 1024 * 1024
"""Characters of a page."""
_PIECE = 16 * 1024


class Target(Protocol):
    """Who hears of the page. Attributes without a value have an empty one."""

    def start(self, tag: str, attrib: dict[str, str]) -> None: ...
    def end(self, tag: str) -> None: ...
    def data(self, data: str) -> None: ...
    def close(self) -> None: ...


class Parser(Protocol):
    """An lxml parser with a target."""

    def feed(self, data: str) -> None: ...
    def close(self) -> object: ...


class Meter:
    """How much of a page was heard of: elements begun, those still open, pieces of text."""

    def __init__(self, max_elements: int = MAX_ELEMENTS) -> None:
        self._max_elements = max_elements
        self.elements = 0
        self.depth = 0
        self.pieces = 0

    def opened(self) -> None:
        """An element begins."""
        self.elements += 1
        self.depth += 1

    def closed(self) -> None:
        """An element ends."""
        self.depth -= 1

    def excess(self) -> str:
        """What there is too much of, in words; empty when nothing."""
        if self.depth > MAX_DEPTH:
            return f"it is nested more than {MAX_DEPTH} elements deep"
        if self.elements > self._max_elements:
            return f"it has more than {self._max_elements} elements"
        return f"it has more than {MAX_PIECES} pieces of text" if self.pieces > MAX_PIECES else ""


class _Lxml(Protocol):
    """What is used of lxml.etree."""

    LxmlError: type[Exception]

    def HTMLParser(self, *, target: Target, huge_tree: bool) -> Parser: ...  # noqa: N802 - lxml's own name


def _lxml() -> _Lxml:
    # It costs 10 ms, and most sessions never fetch.
    import lxml.etree  # noqa: PLC0415 # pyright: ignore[reportMissingImports]

    return cast("_Lxml", lxml.etree)  # pyright: ignore[reportUnknownMemberType] - it has no types


def html_parser(target: Target) -> Parser:
    """A parser of HTML. It resolves no entities but HTML's own and opens nothing."""
    return _lxml().HTMLParser(target=target, huge_tree=True)


def feed(markup: str, parser: Parser, excess: Callable[[], str]) -> str:
    """Give a page to a parser until it ends or `excess` says why that is enough; gives that reason, else ""."""
    markup = markup.encode(errors="replace").decode()  # half a surrogate pair is no character
    reason = ""
    for at in range(0, len(markup), _PIECE):
        reason = excess() or (f"it has more than {MAX_MARKUP} characters" if at >= MAX_MARKUP else "")
        if reason:
            break
        parser.feed(markup[at : at + _PIECE])
    with suppress(_lxml().LxmlError):  # a page without an element
        parser.close()
    return reason or excess()
