"""FakeWeb: a core.web.Web that holds a few pages."""

from collections.abc import Mapping

from acp_agent.core.errors import AgentError, ToolError, ToolErrorCategory
from acp_agent.core.web import WebCaller, WebPage


class FakeWeb:
    """Pages by URL; an error in place of a page is raised.

    asked   every (url, caller) in order
    """

    def __init__(self, pages: Mapping[str, WebPage | AgentError] | None = None) -> None:
        self.pages = dict(pages or {})
        self.asked: list[tuple[str, WebCaller]] = []

    def put(self, url: str, text: str, content_type: str = "text/html") -> None:
        """Make or replace a page."""
        self.pages[url] = WebPage(url, content_type, text)

    async def get(self, url: str, caller: WebCaller, *, redirects: int = 3) -> WebPage:
        del redirects
        self.asked.append((url, caller))
        page = self.pages.get(url)
        if page is None:
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"{url}: 404 Not Found")
        if isinstance(page, AgentError):
            raise page
        return page
