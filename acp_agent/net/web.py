"""GuardedWeb, the client behind the web tools. It follows redirects itself and judges each hop like the first.

A request passes these modules: `urls` judges the URL by its text, `hosts` looks up and judges the addresses,
`connection` connects to one of them, and `exchange` sends the request and reads the answer.
"""

import ssl
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

import anyio

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.services import BlockReason, Egress, WebCaller, WebPage
from acp_agent.net.hosts import (
    HostRules,
    RequestBlocked,
    Resolve,
    ResolvedTarget,
    addresses_of,
    recordable_url,
    refuse_literal,
    system_resolve,
)

if TYPE_CHECKING:
    from acp_agent.net.connection import Dial
    from acp_agent.net.exchange import Hop, PageOrRedirect


class WebLimits(NamedTuple):
    """The limits of a request: seconds over all hops, and bytes of the body, packed or decoded."""

    timeout: float = 15.0
    max_body_bytes: int = 1024 * 1024


class GuardedWeb:
    """A client that reads pages of public hosts over https and reaches nothing else, whatever URL it is given.

    record       called with every request, made or refused, once it is over; also if it failed or was cancelled
    resolve      returns the addresses of a host and port; by default those of the machine's resolver
    dial         opens a TCP connection to an address; by default a plain one
    ssl_context  the certificates to trust; by default those of certifi, or of SSL_CERT_FILE

    It stores nothing between calls: no cookies, connections or addresses. Raises ConfigError for a domain that could
    never match.
    """

    def __init__(
        self,
        limits: WebLimits,
        *,
        allowed_domains: Sequence[str] = (),
        denied_domains: Sequence[str] = (),
        ports: Sequence[int] = (443,),
        record: Callable[[Egress], None],
        resolve: Resolve = system_resolve,
        dial: "Dial | None" = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._limits = limits
        self._rules = HostRules(allowed_domains, denied_domains, ports)
        self._record = record
        self._resolve = resolve
        self._dial = dial
        self._trust = ssl_context

    def refusal(self, url: str) -> RequestBlocked | None:
        """Return the refusal of a URL, or None if only a look-up of its host can tell. It does not use the network."""
        from acp_agent.net.urls import judge_url  # noqa: PLC0415 - httpx takes 0.1 s to load

        try:
            refuse_literal(judge_url(url, self._rules))
        except RequestBlocked as error:
            return error
        return None

    async def judge(self, url: str) -> ResolvedTarget:
        """Return the target and addresses of a URL that may be requested. It looks up the host at most once.

        Raises:
            RequestBlocked: The URL may not be requested. The error has the host and the kind of reason.

        """
        # httpx takes 0.1 s to load, so it is loaded only when a page is read.
        from acp_agent.net.urls import judge_url  # noqa: PLC0415 - see above

        target = judge_url(url, self._rules)
        return ResolvedTarget(target, await addresses_of(target, self._resolve))

    async def get(self, url: str, caller: WebCaller, *, redirects: int = 3, truncate: bool = False) -> WebPage:
        """See core.services.Web, also for what it raises. The limit on seconds covers all look-ups and redirects."""
        from acp_agent.net.exchange import Hop, Redirect  # noqa: PLC0415 - as above

        hop, first = Hop(0, url), ""
        with anyio.move_on_after(self._limits.timeout):
            while True:
                with self._recorded(hop, caller):
                    answer = await self._visit(hop, first, truncate=truncate)
                if not isinstance(answer, Redirect):
                    return answer
                if hop.number == redirects:
                    message = (
                        f"too many redirects: {hop.host} asked for one more than the {redirects} that are followed"
                    )
                    raise ToolError.permanent(message)
                first = first or hop.host
                hop = Hop(hop.number + 1, answer.url)
        message = f"{hop.host or 'the web'} did not give the whole page within {self._limits.timeout:g} s"
        raise ToolError(ToolErrorCategory.TIMEOUT, message)

    async def _visit(self, hop: "Hop", first: str, *, truncate: bool) -> "PageOrRedirect":
        """Request one hop. `first` is the host whose site it must stay on, or "" for the first hop."""
        from acp_agent.net import connection, exchange, urls  # noqa: PLC0415 - as above

        target = urls.judge_url(hop.url, self._rules)
        hop.locate(target.url, target.host)
        if first and _site(first) != _site(target.host):
            refuse_literal(target)  # an address of this machine is reported as such; no name is looked up
            hop.block(BlockReason.ALLOWLIST)
            message = f"{first} redirects to another site: {target.url}"
            raise ToolError.permanent(message, "Ask for that address itself.")
        judged = ResolvedTarget(target, await addresses_of(target, self._resolve))
        if self._trust is None:
            self._trust = await connection.trusted()
        dial, limit = self._dial or connection.system_dial, self._limits.max_body_bytes
        return await exchange.ask(judged, hop, dial=dial, trust=self._trust, limit=limit, truncate=truncate)

    @contextmanager
    def _recorded(self, hop: "Hop", caller: WebCaller) -> Generator[None]:
        started = monotonic()
        try:
            yield
        except RequestBlocked as error:
            hop.block(error.block, error.host)
            raise
        finally:
            self._record(
                Egress(
                    caller=caller,
                    url=recordable_url(hop.url),
                    host=hop.host,
                    hop=hop.number,
                    address=hop.address,
                    status=hop.status,
                    duration=monotonic() - started,
                    response_bytes=hop.received,
                    block_reason=hop.blocked,
                )
            )


def _site(host: str) -> str:
    """Return the part of a host that has one known owner. Other subdomains may belong to anyone."""
    return host.removeprefix("www.")
