"""GuardedWeb: the Web port (T5). Follows redirects by hand, judging each hop as if it were the first.

What a request may cost and where it may go is decided here; the parts are
    web_url   the URL by its text       lookup    its addresses, all of them
    pinned    the connection            exchange  one request and its answer
"""

import ssl
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

import anyio

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.web import BlockReason, Egress, WebCaller, WebPage
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
    from acp_agent.net.exchange import BodyLimit, Hop, PageOrRedirect


class WebLimits(NamedTuple):
    """What a request may cost: seconds over all hops, bytes of the body, packed or decoded."""

    timeout: float = 15.0
    max_body_bytes: int = 1024 * 1024


class GuardedWeb:
    """Reads pages of public hosts over https, and reaches nothing else, whoever chose the URL (security.md 2.5).

    record       is told of every request, made or refused, when it is over; also when it failed or was cancelled
    resolve      host and port to addresses; the machine's resolver by default
    dial         opens a TCP connection to an address; by default a plain one
    ssl_context  whom to trust; by default who the model APIs are trusted by: certifi's list, or SSL_CERT_FILE's

    Keeps nothing between calls: no cookies, no connections, no addresses. Raises ConfigError for a domain that
    could never match.
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

    def refusal(self, url: str) -> str | None:
        """Why a URL is refused whatever a look-up would say; None when only that can tell. Touches no network."""
        from acp_agent.net.urls import judge_url  # noqa: PLC0415 - httpx takes 0.1 s to load

        try:
            refuse_literal(judge_url(url, self._rules))
        except RequestBlocked as error:
            return str(error)
        return None

    async def judge(self, url: str) -> ResolvedTarget:
        """Whether a URL may be asked for, and at which addresses, by at most one look-up; connects to nothing.

        Raises Blocked, which is a Refused that also tells the host and the kind of reason.
        """
        # httpx takes 0.1 s to load, which no session should wait for that reads no page.
        from acp_agent.net.urls import judge_url  # noqa: PLC0415 - see above

        target = judge_url(url, self._rules)
        return ResolvedTarget(target, await addresses_of(target, self._resolve))

    async def get(
        self, url: str, caller: WebCaller, *, redirects: int = 3, leave_site: bool = False, truncate: bool = False
    ) -> WebPage:
        """See core.web.Web. All of it, look-ups and redirects included, takes at most the limit's seconds."""
        from acp_agent.net.exchange import BodyLimit, Hop, Redirect  # noqa: PLC0415 - as above

        hop, first = Hop(0, url), ""
        limit = BodyLimit(self._limits.max_body_bytes, truncate)
        with anyio.move_on_after(self._limits.timeout):
            while True:
                with self._recorded(hop, caller):
                    answer = await self._visit(hop, first, limit)
                if not isinstance(answer, Redirect):
                    return answer
                if hop.number == redirects:
                    message = (
                        f"too many redirects: {hop.host} asked for one more than the {redirects} that are followed"
                    )
                    raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, message)
                first = first or ("" if leave_site else hop.host)
                hop = Hop(hop.number + 1, answer.url)
        message = f"{hop.host or 'the web'} did not give the whole page within {self._limits.timeout:g} s"
        raise ToolError(ToolErrorCategory.TIMEOUT, message)

    async def _visit(self, hop: "Hop", first: str, limit: "BodyLimit") -> "PageOrRedirect":
        """One hop. `first` is the host whose site it must stay on, empty when it need not."""
        from acp_agent.net import connection, exchange, urls  # noqa: PLC0415 - as above

        target = urls.judge_url(hop.url, self._rules)
        hop.url, hop.host = target.url, target.host
        if first and _site(first) != _site(target.host):
            refuse_literal(target)  # an attack is told as one, but no name is looked up
            hop.blocked = BlockReason.ALLOWLIST
            raise _another_site(first, target.url)
        judged = ResolvedTarget(target, await addresses_of(target, self._resolve))
        if self._trust is None:
            self._trust = await anyio.to_thread.run_sync(connection.system_trust)
        return await exchange.ask(
            judged, hop, dial=self._dial or connection.system_dial, trust=self._trust, limit=limit
        )

    @contextmanager
    def _recorded(self, hop: "Hop", caller: WebCaller) -> Generator[None]:
        started = monotonic()
        try:
            yield
        except RequestBlocked as error:
            hop.host, hop.blocked = hop.host or error.host, error.block
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
    """What hosts have in common that one owner is known to answer for; other subdomains may be anybody's."""
    return host.removeprefix("www.")


def _another_site(host: str, url: str) -> ToolError:
    message = f"{host} redirects to another site: {url}"
    return ToolError(ToolErrorCategory.PERMANENT_FAILURE, message, "Ask for that address itself.")
