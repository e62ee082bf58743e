"""fetch: a web page as text."""

from acp_agent.core.ports import ToolContext
from acp_agent.core.services import WebCaller
from acp_agent.core.types import Subject, ToolKind, ToolResult, UrlSubject
from acp_agent.tools.html import readable
from acp_agent.tools.tool import Name, Params, Tool


class FetchParams(Params):
    """Read a web page as Markdown with its links. JSON and other text are returned unchanged. Only https URLs."""

    url: Name


class Fetch(Tool[FetchParams]):
    """Reads through the Web port."""

    name = "fetch"
    kind = ToolKind.FETCH
    mutates = False
    cacheable = True
    external = True
    params = FetchParams

    def subjects(self, params: FetchParams) -> tuple[Subject, ...]:
        return (UrlSubject(params.url),)

    async def run(self, params: FetchParams, context: ToolContext) -> ToolResult:
        page = await context.backends.web.get(params.url, WebCaller(self.name, context.call_id), truncate=True)
        text = await readable(page)
        return ToolResult(
            text or f"Nothing to read at {params.url}",
            envelope={"url": page.url, "content_type": page.content_type, "requested": params.url},
        )
