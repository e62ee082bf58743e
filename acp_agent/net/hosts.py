"""The hosts that may be reached: canonical names, public addresses, the user's lists of domains, and DNS look-ups.

A model chooses the URLs of web tools, so a host is refused unless its name and all its addresses are public. The table
of other addresses is our own, because `ipaddress.is_global` changes between versions of Python, and is true for
multicast, NAT64, 6to4 and some twenty other special-purpose networks. This module does not import httpx.
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple, Self, TypeAlias
from urllib.parse import quote, urlsplit

import anyio

from acp_agent.core.data import frozen
from acp_agent.core.errors import ConfigError, Refused
from acp_agent.core.services import BlockReason

Address: TypeAlias = IPv4Address | IPv6Address

_PUBLIC_V6: Final = IPv6Network("2000::/3")
"""The part of IPv6 that is assigned to public networks. All other IPv6 addresses are refused."""

_FORBIDDEN: Final = tuple(
    (ip_network(block), what)
    for block, what in (
        ("0.0.0.0/8", "this host"),
        ("10.0.0.0/8", "a private network"),
        ("100.64.0.0/10", "a provider's shared addresses"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "a cloud's own services"),  # Azure's service address, in a public block
        ("169.254.0.0/16", "link-local or cloud metadata"),
        ("172.16.0.0/12", "a private network"),
        ("192.0.0.0/24", "protocol assignments"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "a 6to4 relay"),
        ("192.168.0.0/16", "a private network"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved or broadcast"),
        # inside 2000::/3 but not public
        ("2001::/23", "Teredo, benchmarking or another protocol's"),
        ("2001:db8::/32", "documentation"),
        ("2002::/16", "6to4, which holds any IPv4 address"),
        ("3fff::/20", "documentation"),
        # outside 2000::/3; listed only to give the reason
        ("::/128", "this host"),
        ("::1/128", "loopback"),
        ("64:ff9b::/96", "NAT64, which holds any IPv4 address"),
        ("64:ff9b:1::/48", "NAT64, which holds any IPv4 address"),
        ("fc00::/7", "a private network"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
)


def read_address(text: str) -> Address:
    """Return the address that a canonical text means. `::ffff:1.2.3.4` means the IPv4 address in it.

    Raises:
        ValueError: The text is anything else, such as an octal, hexadecimal, short or decimal form, or has a zone id.

    """
    if "%" in text:
        raise ValueError("an address with a zone id is of this network only")
    address = ip_address(text)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def why_forbidden(address: Address) -> str | None:
    """Return why an address is not public, as a text, or None if it is public."""
    for block, what in _FORBIDDEN:
        if address in block:
            return what
    if isinstance(address, IPv6Address) and address not in _PUBLIC_V6:
        return "outside the public part of IPv6"
    return None


MAX_URL: Final = 8192
"""The most characters of a URL. Common servers accept no more."""


def is_ambiguous(url: str) -> bool:
    """Return whether a URL has a blank, a backslash or a character that cannot be seen: parsers read it differently."""
    return not url.isprintable() or " " in url or "\\" in url


_USERINFO: Final = re.compile(r"^((?:(?:[^/\\?#@]*:)?[/\\]+)?)[^/\\?#]*@")


class RequestBlocked(Refused):
    """A request that must not be made. `host` is empty if the URL has no readable host."""

    def __init__(self, block: BlockReason, reason: str, *, host: str = "", suggestion: str = "") -> None:
        super().__init__(reason, suggestion)
        self.block = block
        self.host = host


@frozen
class WebTarget:
    """A URL that passed every check that needs no DNS look-up.

    url       normalised, without a fragment and without user information
    host      a lower-case ASCII name without a trailing dot, or a canonical IP address without brackets
    resource  path and query as they are sent
    """

    url: str
    host: str
    port: int
    resource: bytes

    @property
    def authority(self) -> str:
        """Return the value of the Host header."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == 443 else f"{name}:{self.port}"


class ResolvedTarget(NamedTuple):
    """A URL that may be requested, and the only addresses to connect to, in the order to try them."""

    target: WebTarget
    addresses: tuple[str, ...]


def recordable_url(url: str) -> str:
    """Return a URL for the audit: without user information and fragment, and cut to MAX_URL characters.

    Any text is accepted, since URLs that cannot be parsed are recorded too. The query is recorded because it was sent;
    the audit redacts secrets in it.
    """
    return _USERINFO.sub(r"\1", url[:MAX_URL].partition("#")[0])


_MAX_NAME: Final = 253
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LOCAL_ZONES: Final = (
    # Names and zones that mean this machine, this network or no part of the DNS (RFC 6761, 6762, 7686, 8375, 9476).
    *("localhost", "localdomain", "localdomain6", "local", "internal", "home.arpa", "onion", "alt"),
    # Infrastructure of the DNS itself: these names are addresses in reverse, not hosts with pages.
    *("in-addr.arpa", "ip6.arpa", "arpa"),
    # Top-level names that private networks use. ICANN has kept home, corp and mail out of the public DNS for good; the
    # others are not delegated either. They are refused even with a public address: internal services may have one.
    *("lan", "corp", "home", "mail", "intranet", "private", "priv", "localnet", "workgroup", "dhcp", "router"),
    *("fritz.box", "svc", "cluster", "k8s", "kube", "kubernetes", "consul", "docker"),
    # Names of cloud metadata services. Those that are not listed are in .internal or have a single label.
    *("metadata.goog", "metadata.tencentyun.com", "metadata.packet.net", "metadata.platformequinix.com"),
)
# .test, .example and .invalid are not listed. The public DNS has no such names, so the look-up fails. If a private
# resolver answers for them, the address decides as for every other name.


def canonical_host(text: str) -> str:
    """Return a host as it is compared, looked up and sent to the server: lower-case ASCII, or an IP address.

    IPv6 addresses are given without brackets.

    Raises:
        ValueError: The text is neither a name that can be looked up nor an address in its ordinary spelling. So
            `127.1`, `0x7f.0.0.1`, `017700000001` and addresses with a zone id are refused. The message says why.

    """
    if ":" in text:
        return str(read_address(text))
    name = _ascii_name(text).removesuffix(".")
    labels = name.split(".")
    if len(name) > _MAX_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("it is no host name")
    if _NUMBER.fullmatch(labels[-1]):  # no top-level domain is a number, so resolvers read the host as an IPv4 address
        try:
            return str(read_address(name))
        except ValueError:
            raise ValueError("it is an unusual spelling of an IP address") from None
    return name


def _ascii_name(text: str) -> str:
    if len(text) > _MAX_NAME + 1:
        raise ValueError("it is too long")
    lowered = text.lower()
    if lowered.isascii() and "xn--" not in lowered:
        return lowered  # nothing to translate; idna would refuse the `--` of names such as r3---sn-x.example.com
    import idna  # noqa: PLC0415 - few hosts need it

    return idna.encode(text, uts46=True, std3_rules=True).decode("ascii").lower()


def why_local(host: str) -> str | None:
    """Return the reason why a canonical host name is not public, or None for public names and all addresses."""
    if ":" in host:
        return None
    if "." not in host:
        return "it has a single label, which means a host of this network"
    zone = next((zone for zone in _LOCAL_ZONES if host == zone or host.endswith(f".{zone}")), None)
    return None if zone is None else f"{zone} means this machine, its network or its cloud"


@frozen
class HostPattern:
    """An entry of a list of hosts in the settings: a host, or `*.` and a host for exactly one more label."""

    host: str
    wildcard: bool

    def __str__(self) -> str:
        return f"*.{self.host}" if self.wildcard else self.host

    @classmethod
    def read(cls, text: str, setting: str, section: str = "[tools.scrape]") -> Self:
        """Return the pattern in a text. Raises ConfigError for a pattern that could never match."""
        host = text.strip().removeprefix("*.")
        wildcard = host != text.strip()
        try:
            return cls(canonical_host(host.removeprefix("[").removesuffix("]")), wildcard)
        except ValueError:
            expected = "a host such as docs.python.org, or *.example.com for one more label in front"
            raise ConfigError(section, setting, repr(text), expected) from None

    def matches(self, host: str) -> bool:
        """Return whether the pattern matches a canonical host."""
        return (host.partition(".")[2] if self.wildcard else host) == self.host


class HostRules:
    """The user's settings for hosts and ports.

    Denied hosts are refused, even if they are also allowed. If any host is allowed, all others are refused.
    """

    def __init__(self, allowed: Sequence[str], denied: Sequence[str], ports: Sequence[int]) -> None:
        self._allowed = tuple(HostPattern.read(text, "allowed_domains") for text in allowed)
        self._denied = tuple(HostPattern.read(text, "denied_domains") for text in denied)
        self._ports = frozenset(ports)

    def check(self, host: str, port: int) -> None:
        """Raise RequestBlocked if the settings, or the name itself, forbid a canonical host or a port."""
        if port not in self._ports:
            listed = ", ".join(map(str, sorted(self._ports)))
            raise _unusable(host, f"may not be reached at port {port}, only at {listed}", advice_about(host))
        if (why := why_local(host)) is not None:
            raise _unusable(host, f"is no public host: {why}", advice_about(host))
        if any(pattern.matches(host) for pattern in self._denied):
            raise RequestBlocked(BlockReason.BLOCKLIST, f"{host} is on the list of denied domains", host=host)
        if self._allowed and not any(pattern.matches(host) for pattern in self._allowed):
            raise RequestBlocked(BlockReason.ALLOWLIST, f"{host} is not on the list of allowed domains", host=host)


Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""A function that returns the IP addresses of a host and port, best first. It raises OSError if there are none."""

LOOKUP_TIMEOUT: Final = 5.0
MAX_ANSWERS: Final = 16


async def system_resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses that this machine's resolver finds. Raises OSError."""
    loop = asyncio.get_running_loop()
    answers = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [str(address[0]) for *_, address in answers]


async def addresses_of(target: WebTarget, resolve: Resolve) -> tuple[str, ...]:
    """Return the addresses that a connection to the target may go to, in the resolver's order.

    A host that is an IP address is not looked up.

    Raises:
        RequestBlocked: The host has no address, too many, or one that is not public. A name with both public and
            private addresses is an attack or a mistake.

    """
    addresses = await looked_up(target, resolve)
    if not addresses:
        raise _unusable(target.host, "cannot be resolved", "Check the spelling of the host name.")
    _refuse_forbidden(target, addresses)
    return tuple(map(str, addresses))


def refuse_literal(target: WebTarget) -> None:
    """Raise RequestBlocked if the host is itself an address that is not public."""
    _refuse_forbidden(target, _literal(target.host))


def _refuse_forbidden(target: WebTarget, addresses: tuple[Address, ...]) -> None:
    for address in addresses:
        if (why := why_forbidden(address)) is not None:
            means = "is" if str(address) == target.host else f"is at {address}, which is"
            raise _unusable(target.host, f"{means} no public address ({why})", advice_about(target.host))


def _literal(host: str) -> tuple[Address, ...]:
    try:
        return (read_address(host),)
    except ValueError:
        return ()


async def looked_up(target: WebTarget, resolve: Resolve) -> tuple[Address, ...]:
    """Return the addresses of a host. A host that is an address is returned itself.

    The result is empty if the resolver has no address or fails.

    Raises:
        RequestBlocked: The host has too many addresses, or one that is written in an unusual way.

    """
    if literal := _literal(target.host):
        return literal
    answers: Sequence[str] = ()
    # The system's reason for a failed look-up is often wrong, so messages do not contain it.
    with anyio.move_on_after(LOOKUP_TIMEOUT), suppress(OSError, UnicodeError):
        answers = await resolve(target.host, target.port)
    try:
        addresses = tuple(dict.fromkeys(map(read_address, answers)))
    except ValueError:
        raise _unusable(target.host, "resolves to something that is no public address") from None
    if len(addresses) > MAX_ANSWERS:
        raise _unusable(target.host, f"has {len(addresses)} addresses, and {MAX_ANSWERS} is the most")
    return addresses


def advice_about(host: str) -> str:
    """Return what the model is told to do instead of reading a page of this machine; "" for any other host."""
    here = host == "localhost" or host.endswith(".localhost") or any(each.is_loopback for each in _literal(host))
    return "Ask a server on this machine with `bash`, such as with curl." if here else ""


def _unusable(host: str, what: str, suggestion: str = "") -> RequestBlocked:
    return RequestBlocked(BlockReason.SSRF, f"{host} {what}", host=host, suggestion=suggestion)


_LONGEST: Final = 2048
_LOCAL: Final = frozenset(("localhost", "127.0.0.1", "::1"))
_PLAIN: Final = "%/:?#[]@!$&'()*+,;=-._~"


def browser_url(url: str) -> str:
    """Return a URL, which the user is asked to open in a browser, as ASCII: `xn--...` in its host, `%..` elsewhere.

    Nothing is fetched, so private addresses are allowed. The URL must not look like another one (ACP, "Elicitation":
    show the whole URL, and do not let the look of a host deceive the user).

    Raises:
        ValueError: The URL is neither https nor http on this machine, has a user name, or browsers may read it in
            different ways. The message says why.

    """
    if len(url) > _LONGEST:
        raise ValueError(f"the URL has {len(url)} characters, and {_LONGEST} is the most")
    if is_ambiguous(url):
        raise ValueError("the URL holds a blank, a backslash or a character that cannot be seen")
    try:
        parts = urlsplit(url)
        host, port = canonical_host(parts.hostname or ""), parts.port
    except ValueError:
        raise ValueError("the URL names no host that can be read") from None
    if "@" in parts.netloc:
        raise ValueError("the URL carries a user name, a password or an @ before its host")
    if parts.scheme != "https" and not (parts.scheme == "http" and host in _LOCAL):
        raise ValueError("only https may be opened, or http on this machine")
    shown = f"[{host}]" if ":" in host else host
    rest = parts._replace(scheme="", netloc="").geturl()
    return f"{parts.scheme}://{shown}{'' if port is None else f':{port}'}{quote(rest, safe=_PLAIN)}"
