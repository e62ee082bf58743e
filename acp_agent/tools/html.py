"""Web pages as text. The modules that read HTML cost 60 ms and 9 MiB, so they are loaded with the first page."""

import anyio.to_thread

from acp_agent.core.services import WebPage

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
        text = await anyio.to_thread.run_sync(_converted, text, page.url, abandon_on_cancel=True)
    return "\n\n".join(part for part in (text, CUT) if part) if page.truncated else text


def _converted(markup: str, url: str) -> str:
    from acp_agent.tools.html_page import page_markdown  # noqa: PLC0415 - see the module's docstring

    return page_markdown(markup, url)
