"""`acp-agent check url`: what the web tools would say to a URL, and why. Connects to nothing."""

from collections.abc import Mapping, Sequence

from acp_agent.config.tool_settings import ScrapeSettings
from acp_agent.core.errors import Refused, ToolErrorCategory
from acp_agent.core.types import JsonObject
from acp_agent.net.hosts import canonical_host
from acp_agent.net.lookup import Resolve, system_resolve
from acp_agent.net.target import Blocked
from acp_agent.net.web import GuardedWeb, WebLimits

Dns = Mapping[str, Sequence[Sequence[str]]]
"""Answers by host: the n-th look-up takes the n-th list, and the last one is repeated."""


async def verdict(url: object, settings: ScrapeSettings, dns: Dns | None) -> JsonObject:
    """Judge one URL, as the first request of a web tool would be judged, by at most one look-up.

    url     anything; what is no string is denied as type_mismatch
    dns     answers to use in place of the machine's resolver; a host it does not name cannot be resolved

    Gives url, verdict ("allow" or "deny"), reason, category (null when allowed), host ("" when there is none) and
    addresses (the only ones that would be dialled, in order). Raises ConfigError for unusable settings.
    """
    if not isinstance(url, str):
        reason = f"a URL is a string, not {type(url).__name__}"
        return _answer(None, reason, ToolErrorCategory.TYPE_MISMATCH, "")
    web = GuardedWeb(
        WebLimits(settings.timeout, settings.max_body_bytes),
        allowed_domains=settings.allowed_domains,
        denied_domains=settings.denied_domains,
        ports=settings.ports,
        record=lambda _: None,  # nothing leaves this machine but a look-up
        resolve=system_resolve if dns is None else _scripted(dns),
    )
    try:
        judged = await web.judge(url)
    except Refused as error:
        host = error.host if isinstance(error, Blocked) else ""
        return _answer(url, str(error), error.failure.category, host)
    return _answer(url, "a public host", None, judged.target.host, judged.addresses)


def _answer(
    url: str | None, reason: str, category: ToolErrorCategory | None, host: str, addresses: Sequence[str] = ()
) -> JsonObject:
    return {
        "url": url,
        "verdict": "allow" if category is None else "deny",
        "reason": reason,
        "category": None if category is None else category.value,
        "host": host,
        "addresses": list(addresses),
    }


def _scripted(dns: Dns) -> Resolve:
    """A resolver that knows these hosts only. Names are compared as they are looked up: case and final dot aside."""
    answers = {_name(host): list(lists) for host, lists in dns.items()}

    async def resolve(host: str, port: int) -> Sequence[str]:
        del port
        lists = answers.get(host) or [[]]
        return lists.pop(0) if len(lists) > 1 else lists[0]

    return resolve


def _name(host: str) -> str:
    try:
        return canonical_host(host)
    except ValueError:
        return host.lower()
