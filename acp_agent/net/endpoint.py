"""A URL the user or their editor named as a server's, judged: https to public hosts, others on the user's word.

As strict as `web_url` about how it is spelled. What may be reached differs: any port, and, where that was allowed,
this machine and private networks, there also by plain http. Never where clouds answer: link-local addresses, and a few
inside private networks.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import Final
from urllib.parse import urlsplit

import anyio

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.web import BlockReason
from acp_agent.net.addresses import Address, read_address, why_forbidden
from acp_agent.net.hosts import canonical_host, why_local
from acp_agent.net.lean_httpx import httpx
from acp_agent.net.lookup import LOOKUP_TIMEOUT, MAX_ANSWERS, Resolve
from acp_agent.net.target import MAX_URL, Blocked, Judged, Target

_PORTS: Final = {"https": 443, "http": 80}
_PRIVATE: Final = (
    *map(IPv4Network, ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")),
    *map(IPv6Network, ("::1/128", "fc00::/7")),
)
_METADATA: Final = frozenset(map(read_address, ("100.100.100.200", "fd00:ec2::254", "fd20:ce::254")))
"""Cloud metadata inside private networks: Alibaba's, Amazon's and Google's. Whoever reads it has the machine's keys."""
_ALLOW: Final = "To reach a server on this machine or a private network, set `allow_private` for it."


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server is, as far as its URL tells. `private`: it may be on this machine or a private network."""

    target: Target
    tls: bool
    private: bool


def judge_endpoint(url: str, *, allow_private: bool) -> Endpoint:
    """The endpoint a URL means; touches no network. Raises Blocked for one that may not, or cannot, be used."""
    if len(url) > MAX_URL or not url.isprintable() or " " in url or "\\" in url:
        raise _malformed("it is too long, or holds a blank, a backslash or a character that cannot be seen")
    try:
        split, parsed = urlsplit(url), httpx.URL(url)
        host, theirs = canonical_host(split.hostname or ""), canonical_host(parsed.raw_host.decode("ascii"))
        usual = _PORTS.get(split.scheme, 0)
        port, their_port = split.port or usual, parsed.port or usual
    except (httpx.InvalidURL, ValueError) as error:
        raise _malformed(f"it cannot be read ({error})") from None
    if split.port == 0 or (host, port, split.scheme) != (theirs, their_port, parsed.scheme):
        raise _malformed("it can be read in two ways")
    if "@" in split.netloc or parsed.userinfo:
        raise _malformed("it carries a user name or password; put them in a header")
    if split.scheme not in _PORTS or (split.scheme == "http" and not allow_private):
        own = split.scheme == "http" and _may_be_allowed(host)
        suggestion = _ALLOW if own else ""
        raise Blocked(BlockReason.SCHEME, f"{host}: only https:// may be used", host=host, suggestion=suggestion)
    if not allow_private and (why := why_local(host)) is not None:
        raise Blocked(BlockReason.SSRF, f"{host} is no public host: {why}", host=host, suggestion=_ALLOW)
    target = Target(str(parsed.copy_with(fragment=None)), host, port, parsed.raw_path)
    return Endpoint(target, split.scheme == "https", allow_private)


async def locate(endpoint: Endpoint, resolve: Resolve) -> Judged:
    """The endpoint with the only addresses a connection may go to, by at most one look-up.

    Raises Blocked for addresses that may not be reached, ToolError (network_error) when there are none.
    """
    target = endpoint.target
    addresses = await _addresses(target, resolve)
    for address in addresses:
        private = _is_private(address)
        why = why_forbidden(address)
        if why is not None and not (private and endpoint.private):
            message = f"{target.host} is at {address}, which is no public address ({why})"
            suggestion = _ALLOW if private else ""
            raise Blocked(BlockReason.SSRF, message, host=target.host, suggestion=suggestion)
        if not private and not endpoint.tls:
            message = f"{target.host} is at the public address {address}: only https:// may be used there"
            raise Blocked(BlockReason.SCHEME, message, host=target.host)
    return Judged(target, tuple(map(str, addresses)))


def _is_private(address: Address) -> bool:
    return address not in _METADATA and any(address in block for block in _PRIVATE)


def _may_be_allowed(host: str) -> bool:
    """Whether a host, as far as its name tells, is one that only the user's word makes reachable."""
    with suppress(ValueError):
        return _is_private(read_address(host))
    return why_local(host) is not None


async def _addresses(target: Target, resolve: Resolve) -> tuple[Address, ...]:
    with suppress(ValueError):
        return (read_address(target.host),)
    answers: Sequence[str] = ()
    with anyio.move_on_after(LOOKUP_TIMEOUT), suppress(OSError, UnicodeError):
        answers = await resolve(target.host, target.port)
    if not answers:
        raise ToolError(ToolErrorCategory.NETWORK_ERROR, f"{target.host} cannot be resolved")
    try:
        addresses = tuple(dict.fromkeys(map(read_address, answers)))
    except ValueError:
        raise _odd(target.host) from None
    if len(addresses) > MAX_ANSWERS:
        raise _odd(target.host)
    return addresses


def _odd(host: str) -> Blocked:
    return Blocked(BlockReason.SSRF, f"{host} has too many addresses, or one that is no public one", host=host)


def _malformed(why: str) -> Blocked:
    return Blocked(BlockReason.SSRF, f"this URL may not be used: {why}")
