"""Host names: their one canonical form, those that never mean a public host, and the user's lists (T5.2, T5.7)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from acp_agent.core.errors import ConfigError
from acp_agent.core.web import BlockReason
from acp_agent.net.addresses import read_address
from acp_agent.net.target import Blocked

_MAX_NAME: Final = 253
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")

_LOCAL_ZONES: Final = (
    # Names and zones that mean this machine, this network or no part of the DNS (RFC 6761, 6762, 7686, 8375, 9476).
    *("localhost", "localdomain", "localdomain6", "local", "internal", "home.arpa", "onion", "alt"),
    # Infrastructure of the DNS itself: the names are addresses written backwards, and name no public page.
    *("in-addr.arpa", "ip6.arpa", "arpa"),
    # Top-level names that private networks use. ICANN has kept home, corp and mail out of the public DNS for good; the
    # others are not delegated either. Their addresses say nothing: an internal service may have a public one.
    *("lan", "corp", "home", "mail", "intranet", "private", "priv", "localnet", "workgroup", "dhcp", "router"),
    *("fritz.box", "svc", "cluster", "k8s", "kube", "kubernetes", "consul", "docker"),
    # Cloud metadata under names of their own; the others are in .internal or have a single label.
    *("metadata.goog", "metadata.tencentyun.com", "metadata.packet.net", "metadata.platformequinix.com"),
)
# .test, .example and .invalid are not here: the public DNS has none, so they fail at the look-up (T5.4), and where
# somebody's resolver does answer for them, the address decides as for every other name.


def canonical_host(text: str) -> str:
    """A host as it is compared, looked up and shown to the server: lower-case ASCII, or an IP address.

    Takes IPv6 addresses without brackets. Raises ValueError, with the reason, for what is neither a name that can
    be looked up nor an address in its ordinary spelling (`127.1`, `0x7f.0.0.1`, `017700000001`, zone ids).
    """
    if ":" in text:
        return str(read_address(text))
    name = _ascii_name(text).removesuffix(".")
    labels = name.split(".")
    if len(name) > _MAX_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("it is no host name")
    if _NUMBER.fullmatch(labels[-1]):  # no top-level domain is a number, so resolvers take it for an IPv4 address
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
    """Why a canonical host name means no public host, in words; None for public names and all addresses."""
    if ":" in host:
        return None
    if "." not in host:
        return "it has a single label, which means a host of this network"
    zone = next((zone for zone in _LOCAL_ZONES if host == zone or host.endswith(f".{zone}")), None)
    return None if zone is None else f"{zone} means this machine, its network or its cloud"


@dataclass(frozen=True, slots=True)
class HostPattern:
    """A line of `allowed_domains` or `denied_domains`: a host, or `*.` and a host for exactly one label before it."""

    host: str
    wildcard: bool

    @classmethod
    def read(cls, text: str, setting: str) -> Self:
        """Raises ConfigError for what could never match."""
        host = text.strip().removeprefix("*.")
        wildcard = host != text.strip()
        try:
            return cls(canonical_host(host.removeprefix("[").removesuffix("]")), wildcard)
        except ValueError:
            expected = "a host such as docs.python.org, or *.example.com for any one name in front"
            raise ConfigError("[tools.scrape]", setting, repr(text), expected) from None

    def matches(self, host: str) -> bool:
        """Whether it is about this canonical host."""
        return (host.partition(".")[2] if self.wildcard else host) == self.host


class HostRules:
    """What the user's settings say about hosts and ports. Deny wins; a non-empty allow list is a whitelist (T5.7)."""

    def __init__(self, allowed: Sequence[str], denied: Sequence[str], ports: Sequence[int]) -> None:
        self._allowed = tuple(HostPattern.read(text, "allowed_domains") for text in allowed)
        self._denied = tuple(HostPattern.read(text, "denied_domains") for text in denied)
        self._ports = frozenset(ports)

    def check(self, host: str, port: int) -> None:
        """Raises Blocked for a canonical host, or a port, that the settings or its very name rule out."""
        if port not in self._ports:
            listed = ", ".join(map(str, sorted(self._ports)))
            raise Blocked(BlockReason.SSRF, f"port {port} of {host} may not be reached, only {listed}", host=host)
        if (why := why_local(host)) is not None:
            raise Blocked(BlockReason.SSRF, f"{host} is no public host: {why}", host=host)
        if any(pattern.matches(host) for pattern in self._denied):
            raise Blocked(BlockReason.BLOCKLIST, f"{host} is on the list of denied domains", host=host)
        if self._allowed and not any(pattern.matches(host) for pattern in self._allowed):
            raise Blocked(BlockReason.ALLOWLIST, f"{host} is not on the list of allowed domains", host=host)
