"""Pages the user linked in a prompt, read under the guards of the web tools (A24.7, A24.9)."""

from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from acp_agent.core.errors import AgentError
from acp_agent.core.web import Web, WebCaller
from acp_agent.tools.html import readable

MAX_PAGES = 5
"""Pages read for one prompt."""
TIMEOUT = 10.0
"""Seconds for one page (A24.9)."""


@dataclass(frozen=True, slots=True)
class LinkedPage:
    """A page as text, one too large up to the limit, or why there is none. `url` is where it came from."""

    url: str
    text: str = ""
    failure: str = ""


async def read_pages(urls: Sequence[str], web: Web, timeout: float = TIMEOUT) -> list[LinkedPage]:
    """The pages behind the URLs, in their order, all read at once and no redirect followed. Nothing of it raises."""
    pages = [LinkedPage(url, failure=f"at most {MAX_PAGES} linked pages are read") for url in urls]

    async def read(index: int) -> None:
        pages[index] = await _read(urls[index], web, timeout)

    async with anyio.create_task_group() as group:
        for index in range(min(len(urls), MAX_PAGES)):
            group.start_soon(read, index)
    return pages


async def _read(url: str, web: Web, timeout: float) -> LinkedPage:
    try:
        with anyio.fail_after(timeout):
            page = await web.get(url, WebCaller("resource_link", ""), redirects=0, truncate=True)
            return LinkedPage(page.url, await readable(page))
    except TimeoutError:
        return LinkedPage(url, failure=f"no answer within {timeout:g} s")
    except AgentError as error:
        return LinkedPage(url, failure=str(error))
