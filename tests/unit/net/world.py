"""World: a GuardedWeb, the site it reads, and everything that is recorded."""

import ssl

import anyio
import pytest

from acp_agent.core.errors import AgentError, Refused, ToolError, ToolErrorCategory
from acp_agent.core.services import Egress, WebCaller, WebPage
from acp_agent.net.web import GuardedWeb, WebLimits
from tests.unit.net.tls_site import Internet, Site

CALLER = WebCaller("fetch", "call-1")
LIMIT = 64 * 1024
Category = ToolErrorCategory


class World:
    """A site, the internet around it, and a GuardedWeb that trusts both."""

    def __init__(self, site: Site, trust: ssl.SSLContext) -> None:
        self.site = site
        self.net = Internet(site.port)
        self.trust = trust
        self.records: list[Egress] = []

    def web(self, *, timeout: float = 5.0, trust: ssl.SSLContext | None = None) -> GuardedWeb:
        return GuardedWeb(
            WebLimits(timeout, LIMIT),
            record=self.records.append,
            resolve=self.net.resolve,
            dial=self.net.dial,
            ssl_context=trust or self.trust,
        )

    async def get(
        self,
        url: str = "https://example.com/",
        *,
        timeout: float = 5.0,
        truncate: bool = False,
    ) -> WebPage:
        with anyio.fail_after(10):
            return await self.web(timeout=timeout).get(url, CALLER, truncate=truncate)

    async def failure(self, url: str = "https://example.com/", *, timeout: float = 5.0) -> AgentError:
        with pytest.raises((ToolError, Refused)) as caught:
            await self.get(url, timeout=timeout)
        return caught.value

    async def category(self, url: str = "https://example.com/", *, timeout: float = 5.0) -> tuple[Category, str]:
        error = await self.failure(url, timeout=timeout)
        assert isinstance(error, ToolError)
        return error.failure.category, str(error)
