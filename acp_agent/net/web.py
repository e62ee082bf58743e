"""GuardedWeb: the Web port (interim)."""

from collections.abc import Callable
from dataclasses import dataclass

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.web import Egress, WebCaller, WebPage


@dataclass(frozen=True, slots=True)
class WebLimits:
    """What a request may cost: seconds over all hops, bytes of the decoded body."""

    timeout: float = 15.0
    max_body_bytes: int = 1024 * 1024


class GuardedWeb:
    """Interim."""

    def __init__(
        self,
        limits: WebLimits,
        *,
        allowed_domains: tuple[str, ...] = (),
        denied_domains: tuple[str, ...] = (),
        ports: tuple[int, ...] = (443,),
        record: Callable[[Egress], None],
    ) -> None:
        del limits, allowed_domains, denied_domains, ports, record

    async def get(self, url: str, caller: WebCaller, *, redirects: int = 3) -> WebPage:
        del caller, redirects
        raise ToolError(ToolErrorCategory.NETWORK_ERROR, f"{url}: not there yet")
