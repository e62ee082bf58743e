"""Check URLs by their text, before any look-up: those of web tools, and those of servers that the user named.

Two parsers read each URL and must agree, so that no spelling means one host to us and another to the connection.

The URL of a web tool must be https to a public host on an allowed port. The URL of a server that the user or their
editor named may have any port. With `allow_private` the server may be on this machine or a private network, and its URL
may be http. Link-local addresses, where clouds serve their metadata, are always refused.
"""

from contextlib import suppress
from ipaddress import IPv4Network, IPv6Network
from typing import Final
from urllib.parse import SplitResult, urlsplit

from acp_agent.core.data import frozen
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.services import BlockReason
from acp_agent.log import without
from acp_agent.net.hosts import (
    MAX_URL,
    Address,
    HostRules,
    RequestBlocked,
    Resolve,
    ResolvedTarget,
    WebTarget,
    advice_about,
    canonical_host,
    is_ambiguous,
    looked_up,
    read_address,
    why_forbidden,
    why_local,
)

with without("httpx._main"):  # httpx would load its command line with click, rich and pygments: 60 ms and 4 MB
    import httpx

_HTTPS: Final = 443
_USE_HTTPS: Final = "Use the plain https:// address."


def judge_url(url: str, rules: HostRules) -> WebTarget:
    """Return the target of a web tool's URL.

    Raises RequestBlocked if it is malformed, ambiguous or against the rules.
    """
    _check_text(url)
    try:
        split, parsed = urlsplit(url), httpx.URL(url)
    except (httpx.InvalidURL, ValueError):
        raise _malformed("it cannot be read") from None
    if split.scheme != "https" or parsed.scheme != "https":
        named, host = f"not {split.scheme[:20]}" if split.scheme else "and none is named", ""
        with suppress(ValueError):
            host = canonical_host(split.hostname or "")  # for the record
        reason = f"only https may be used, {named}"
        advice = advice_about(host) or (_USE_HTTPS if split.scheme == "http" else "")
        raise RequestBlocked(BlockReason.SCHEME, reason, host=host, suggestion=advice)
    if "@" in split.netloc or parsed.userinfo:
        raise _malformed("it carries a user name or password, or an @ before the host")
    host, port = _agreed(split, parsed)
    rules.check(host, port)
    return WebTarget(str(parsed.copy_with(fragment=None)), host, port, parsed.raw_path)


def redirected(base: str, location: str) -> str:
    """Return the URL of a Location header, resolved against `base`. It must still be checked with `judge_url`."""
    try:
        _check_text(location)
        return str(httpx.URL(base).join(location))
    except (RequestBlocked, httpx.InvalidURL, ValueError):
        return location


def _check_text(url: str) -> None:
    """Refuse blanks, backslashes, and control and invisible characters: parsers treat them differently."""
    if len(url) > MAX_URL:
        raise _malformed(f"it has {len(url)} characters, and {MAX_URL} is the most")
    if is_ambiguous(url):
        raise _malformed("it holds a blank, a backslash or a character that cannot be seen")


def _agreed(split: SplitResult, parsed: httpx.URL) -> tuple[str, int]:
    """Return the host and the port, which must be the same for both parsers."""
    theirs = parsed.raw_host.decode("ascii")
    if not split.hostname or not theirs:
        raise _malformed("it names no host")
    try:
        host, port = canonical_host(split.hostname), split.port
        agreed = host == canonical_host(theirs) and (port or _HTTPS) == (parsed.port or _HTTPS)
    except ValueError as error:
        raise _malformed(f"its host or port cannot be used ({error})") from None
    if not agreed or port == 0:
        raise _malformed("its host or port can be read in two ways")
    return host, port or _HTTPS


def _malformed(why: str) -> RequestBlocked:
    return RequestBlocked(BlockReason.SSRF, f"this URL may not be used: {why}", suggestion=_USE_HTTPS)


_PORTS: Final = {"https": 443, "http": 80}
_PRIVATE: Final = (
    *map(IPv4Network, ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")),
    *map(IPv6Network, ("::1/128", "fc00::/7")),
)
_METADATA: Final = frozenset(map(read_address, ("100.100.100.200", "fd00:ec2::254", "fd20:ce::254")))
"""Cloud metadata services inside private networks: Alibaba, Amazon and Google. They hand out the machine's keys."""
_ALLOW: Final = "To reach a server on this machine or a private network, set `allow_private` for it."


@frozen
class ServerEndpoint:
    """The host and port of a server's URL. If `private`, it may be on this machine or a private network."""

    target: WebTarget
    tls: bool
    private: bool


def judge_endpoint(url: str, *, allow_private: bool) -> ServerEndpoint:
    """Return the endpoint of a URL, without using the network.

    Raises RequestBlocked if it may not be used.
    """
    if len(url) > MAX_URL or is_ambiguous(url):
        raise _unusable("it is too long, or holds a blank, a backslash or a character that cannot be seen")
    try:
        split, parsed = urlsplit(url), httpx.URL(url)
        host, theirs = canonical_host(split.hostname or ""), canonical_host(parsed.raw_host.decode("ascii"))
        usual = _PORTS.get(split.scheme, 0)
        port, their_port = split.port or usual, parsed.port or usual
    except (httpx.InvalidURL, ValueError) as error:
        raise _unusable(f"it cannot be read ({error})") from None
    if split.port == 0 or (host, port, split.scheme) != (theirs, their_port, parsed.scheme):
        raise _unusable("it can be read in two ways")
    if "@" in split.netloc or parsed.userinfo:
        raise _unusable("it carries a user name or password; put them in a header")
    if split.scheme not in _PORTS or (split.scheme == "http" and not allow_private):
        own = split.scheme == "http" and _may_be_allowed(host)
        suggestion = _ALLOW if own else ""
        raise RequestBlocked(BlockReason.SCHEME, f"{host}: only https:// may be used", host=host, suggestion=suggestion)
    if not allow_private and (why := why_local(host)) is not None:
        raise RequestBlocked(BlockReason.SSRF, f"{host} is no public host: {why}", host=host, suggestion=_ALLOW)
    target = WebTarget(str(parsed.copy_with(fragment=None)), host, port, parsed.raw_path)
    return ServerEndpoint(target, split.scheme == "https", allow_private)


async def locate(endpoint: ServerEndpoint, resolve: Resolve) -> ResolvedTarget:
    """Return the endpoint with the only addresses to connect to. Looks the host up at most once.

    Raises:
        RequestBlocked: An address may not be reached.
        ToolError: The host has no address (network_error).

    """
    target = endpoint.target
    addresses = await looked_up(target, resolve)
    if not addresses:
        raise ToolError(ToolErrorCategory.NETWORK_ERROR, f"{target.host} cannot be resolved")
    for address in addresses:
        private = _is_private(address)
        why = why_forbidden(address)
        if why is not None and not (private and endpoint.private):
            message = f"{target.host} is at {address}, which is no public address ({why})"
            suggestion = _ALLOW if private else ""
            raise RequestBlocked(BlockReason.SSRF, message, host=target.host, suggestion=suggestion)
        if not private and not endpoint.tls:
            message = f"{target.host} is at the public address {address}: only https:// may be used there"
            raise RequestBlocked(BlockReason.SCHEME, message, host=target.host)
    return ResolvedTarget(target, tuple(map(str, addresses)))


def _is_private(address: Address) -> bool:
    return address not in _METADATA and any(address in block for block in _PRIVATE)


def _may_be_allowed(host: str) -> bool:
    """Return whether `allow_private` would allow this host, judging by its name alone."""
    with suppress(ValueError):
        return _is_private(read_address(host))
    return why_local(host) is not None


def _unusable(why: str) -> RequestBlocked:
    return RequestBlocked(BlockReason.SSRF, f"this URL may not be used: {why}")
