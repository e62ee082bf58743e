"""fetch and web_scrape: a web page as text, and parts of a page by CSS selector.

The modules that read HTML cost 60 ms and 9 MiB, so they are loaded with the first page.
"""

from typing import TYPE_CHECKING, Annotated

import anyio.to_thread

from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import ToolError
from acp_agent.core.ports import ToolContext
from acp_agent.core.services import WebCaller, WebPage
from acp_agent.core.types import Diff, Subject, ToolKind, ToolResult, UrlSubject
from acp_agent.shape import Field
from acp_agent.tools.tool import WHOLE, Name, Params, Text, Tool

if TYPE_CHECKING:
    from bs4 import Tag

CUT = "[The page goes on: it is larger than what is read of one page]"
"""The last line of a page that arrived truncated."""
_HTML_TYPES = {"text/html", "application/xhtml+xml"}
MAX_CHARS = 1024 * 1024
"""Characters of all results together: elements contain one another, so a hundred may hold a page a hundred times."""

_ATTRIBUTE = "attr:"


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


class FetchParams(Params):
    """Read a web page as Markdown with its links. JSON and other text are returned unchanged. Only https URLs."""

    url: Name


class Fetch(Tool[FetchParams]):
    """The tool that reads a web page."""

    name = "fetch"
    kind = ToolKind.FETCH
    mutates = False
    cacheable = True
    external = True

    def subjects(self, params: FetchParams) -> tuple[Subject, ...]:
        return (UrlSubject(params.url),)

    async def run(self, params: FetchParams, context: ToolContext) -> ToolResult:
        page = await context.backends.web.get(params.url, WebCaller(self.name, context.call_id), truncate=True)
        text = await readable(page)
        return ToolResult(
            text or f"Nothing to read at {params.url}",
            envelope={"url": page.url, "content_type": page.content_type, "requested": params.url},
        )


class WebScrapeParams(Params):
    """Get the parts of a web page that match a CSS selector. Only https URLs."""

    url: Name
    select: Name = Field(description="CSS selector")
    extract: Text = Field(default="text", description="What to get of each: text, html, or attr:NAME such as attr:href")
    limit: Annotated[int, Field(ge=1, le=100), WHOLE] = Field(default=10, description="Most results")


class WebScrape(Tool[WebScrapeParams]):
    """The tool that reads parts of a web page."""

    name = "web_scrape"
    verb = "scrape"
    kind = ToolKind.FETCH
    mutates = False
    cacheable = True
    external = True

    def subjects(self, params: WebScrapeParams) -> tuple[Subject, ...]:
        return (UrlSubject(params.url),)

    async def preview(self, params: WebScrapeParams, files: FileSystem) -> tuple[Diff, ...]:
        """Check the selector, so that the user is not asked about an invalid one. There are no diffs."""
        del files
        await anyio.to_thread.run_sync(_check, params.select)
        return ()

    async def run(self, params: WebScrapeParams, context: ToolContext) -> ToolResult:
        caller = WebCaller(self.name, context.call_id)
        page = await context.backends.web.get(params.url, caller, truncate=True)
        if not is_html(page):
            message = (
                f"{page.url} is {page.content_type or 'of no known type'}, not HTML, so nothing can be selected from it"
            )
            raise ToolError.permanent(message, "Use fetch to read it.")
        text = await anyio.to_thread.run_sync(_scrape, page.text, params, abandon_on_cancel=True)
        cut = f"\n{CUT}" if page.truncated else ""
        return ToolResult(
            f"{text or f'No results for selector: {params.select}'}{cut}",
            envelope={"url": page.url, "content_type": page.content_type, "requested": params.url},
        )


def _check(selector: str) -> None:
    from acp_agent.tools.html_page import compiled  # noqa: PLC0415 - see the module's docstring

    compiled(selector)


def _scrape(markup: str, params: WebScrapeParams) -> str:
    """Return the results as one text, "" if there are none. Raises ToolError. It may take seconds."""
    from acp_agent.tools.html_page import selected  # noqa: PLC0415 - as above

    results: list[str] = []
    left = MAX_CHARS
    elements = selected(markup, params.select, params.limit + 1)
    notice = f"there are more than {params.limit} results" if len(elements) > params.limit else ""
    for number, element in enumerate(elements[: params.limit], start=1):
        result = _extracted(element, params.extract)
        left -= len(result)
        if left < 0:
            notice = f"results from number {number} on are left out: over {MAX_CHARS} characters in all"
            break
        if result:
            results.append(result)
    between = "\n\n" if any("\n" in result for result in results) else "\n"
    return between.join([*results, f"[{notice}]"] if notice else results)


def _extracted(element: "Tag", mode: str) -> str:
    """Return the requested part of one element, "" if there is nothing."""
    if mode == "html":
        return str(element)
    if not mode.startswith(_ATTRIBUTE):
        from acp_agent.tools.html_page import plain_text  # noqa: PLC0415 - as above

        return plain_text(element)
    value = element.get(mode.removeprefix(_ATTRIBUTE).strip().lower()) or ""
    return value if isinstance(value, str) else " ".join(value)
