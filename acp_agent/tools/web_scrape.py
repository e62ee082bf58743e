"""web_scrape: parts of a web page, by CSS selector."""

from typing import TYPE_CHECKING, Annotated

import anyio.to_thread
from pydantic import Field

from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.ports import ToolContext
from acp_agent.core.services import WebCaller
from acp_agent.core.types import Diff, Subject, ToolKind, ToolResult, UrlSubject
from acp_agent.tools.html import CUT, is_html
from acp_agent.tools.tool import WHOLE, Name, Params, Text, Tool

if TYPE_CHECKING:
    from bs4 import Tag

MAX_CHARS = 1024 * 1024
"""Characters of all results together: elements contain one another, so a hundred may hold a page a hundred times."""

_ATTRIBUTE = "attr:"


class WebScrapeParams(Params):
    """Get the parts of a web page that match a CSS selector, such as `table.prices td` or `h2 > a`. Only https URLs."""

    url: Name
    select: Name = Field(description="CSS selector")
    extract: Text = Field(default="text", description="What to get of each: text, html, or attr:NAME such as attr:href")
    limit: Annotated[int, Field(ge=1, le=100), WHOLE] = Field(default=10, description="Most results")


class WebScrape(Tool[WebScrapeParams]):
    """Reads through the Web port."""

    name = "web_scrape"
    kind = ToolKind.FETCH
    mutates = False
    cacheable = True
    external = True
    params = WebScrapeParams

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
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, message, "Use fetch to read it.")
        text = await anyio.to_thread.run_sync(_scrape, page.text, params, abandon_on_cancel=True)
        cut = f"\n{CUT}" if page.truncated else ""
        return ToolResult(
            f"{text or f'No results for selector: {params.select}'}{cut}",
            envelope={"url": page.url, "content_type": page.content_type, "requested": params.url},
        )


def _check(selector: str) -> None:
    # Costs 50 ms and 7 MiB, and most sessions never scrape.
    from acp_agent.tools.html_page import compiled  # noqa: PLC0415

    compiled(selector)


def _scrape(markup: str, params: WebScrapeParams) -> str:
    """Return the results as one text, "" if there are none. Raises ToolError. It may take seconds."""
    from acp_agent.tools.html_page import selected  # noqa: PLC0415 - see _check

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
        from acp_agent.tools.html_page import plain_text  # noqa: PLC0415 - see _check

        return plain_text(element)
    value = element.get(mode.removeprefix(_ATTRIBUTE).strip().lower()) or ""
    return value if isinstance(value, str) else " ".join(value)
