"""FakeWeb: a core.web.Web that holds a few pages."""

from collections.abc import Mapping

import anyio
import anyio.lowlevel

from acp_agent.core.errors import AgentError, ToolError, ToolErrorCategory
from acp_agent.core.services import WebCaller, WebPage


class FakeWeb:
    """Pages by URL; an error in place of a page is raised. A truncated page is one too large to be had whole.

    silent      URLs that never answer
    asked       every (url, caller) in order
    redirects   how many redirects each `get` would have followed
    open, most  how many `get`s run now, and ran at once at most
    """

    def __init__(self, pages: Mapping[str, WebPage | AgentError] | None = None) -> None:
        self.pages = dict(pages or {})
        self.silent: set[str] = set()
        self.asked: list[tuple[str, WebCaller]] = []
        self.redirects: list[int] = []
        self.open = 0
        self.most = 0

    def put(self, url: str, text: str, content_type: str = "text/html") -> None:
        """Make or replace a page."""
        self.pages[url] = WebPage(url, content_type, text)

    async def get(self, url: str, caller: WebCaller, *, redirects: int = 3, truncate: bool = False) -> WebPage:
        self.asked.append((url, caller))
        self.redirects.append(redirects)
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            await (anyio.sleep_forever() if url in self.silent else anyio.lowlevel.checkpoint())
        finally:
            self.open -= 1
        page = self.pages.get(url)
        if page is None:
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"{url}: 404 Not Found")
        if isinstance(page, AgentError):
            raise page
        if page.truncated and not truncate:
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"{url} is too large")
        return page
