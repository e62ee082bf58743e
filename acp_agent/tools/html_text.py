"""HTML pages as text fit to read: what is not content is dropped, links stay (T5.10).

The text is Markdown as people write it: headings, lists, quotes, code with its blanks, tables by rows, links as
`[text](absolute URL)`. A picture leaves its alternative text only, so that nobody who draws the text fetches it.
"""

import anyio.to_thread

from acp_agent.core.web import WebPage
from acp_agent.tools.html_events import feed, html_parser
from acp_agent.tools.html_markdown import Markdown
from acp_agent.tools.html_words import Words

CUT = "[The page goes on: it is larger than what is read of one page]"
"""What stands at the end of a page that came truncated."""
_HTML_TYPES = {"text/html", "application/xhtml+xml"}


def is_html(page: WebPage) -> bool:
    """Whether a page is to be read as HTML: its type says so, or it has none and begins like it."""
    kind = page.content_type.partition(";")[0].strip()
    begins = page.text[:256].lstrip("\ufeff \t\r\n").lower()
    return kind in _HTML_TYPES or (not kind and begins.startswith(("<!doctype html", "<html")))


async def readable(page: WebPage) -> str:
    """A page as text: HTML made readable, in a thread; everything else as it is. One that was cut says so."""
    text = page.text
    if is_html(page):
        text = await anyio.to_thread.run_sync(html_text, text, page.url, abandon_on_cancel=True)
    return "\n\n".join(part for part in (text, CUT) if part) if page.truncated else text


def html_text(markup: str, url: str) -> str:
    """A page as Markdown, its title first. One that is too large to be read whole ends with a word about it."""
    page = Markdown(url)
    excess = feed(markup, html_parser(page), page.excess)
    return "\n\n".join(part for part in (page.text(), excess and f"[The page goes on: {excess}]") if part)


def plain_text(markup: str) -> str:
    """The words of a piece of HTML, one line a block, without any mark-up."""
    words = Words()
    feed(markup, html_parser(words), words.excess)
    return words.text()
