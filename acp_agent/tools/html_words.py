"""The words of an HTML page by lines, without any mark-up; the base of all that reads a page as text."""

from acp_agent.tools.html_events import Meter
from acp_agent.tools.text_lines import Lines

MAX_CHARS = 16 * 1024 * 1024
"""Characters made of one page: behind three characters of a link may stand an address of two thousand."""

LISTS = {"ul", "ol"}
HEADINGS = {"h1": "# ", "h2": "## ", "h3": "### ", "h4": "#### ", "h5": "##### ", "h6": "###### "}
LARGE = {"blockquote", "dl", "figure", "hr", "pre", "table", *LISTS, *HEADINGS}
"""Blocks that no cell of a table of words has, and no link."""
SPACED = {"form", "p", "section", *LARGE}
"""Blocks with an empty line around them."""
BLOCKS = SPACED | {
    *("address", "article", "aside", "body", "br", "caption", "center", "dd", "details", "div", "dt", "fieldset"),
    *("figcaption", "footer", "header", "li", "main", "option", "summary", "title", "tr"),
}
CELLS = {"td", "th"}
_NEVER = {"script", "style", "template"}


class Words:
    """Hears of a page's elements and keeps its words, by lines."""

    def __init__(self) -> None:
        self._meter = Meter()
        self._skipped = 0
        self._code = 0
        self._lines = Lines()

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
        """What is still open is ended by `text`."""

    def excess(self) -> str:
        """What there is too much of; empty when nothing."""
        return self._meter.excess() or (f"over {MAX_CHARS} characters" if self._lines.size > MAX_CHARS else "")

    def text(self) -> str:
        """The whole of it. Ends the line under way."""
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
