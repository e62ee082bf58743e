"""Which IP addresses are of the public internet: a table of our own (T5.2, security.md 2.5).

`ipaddress` only parses here. Its `is_global` changes from one Python to the next and calls multicast, NAT64, 6to4
and a good twenty other forbidden addresses global (security.md 2.5, measured).
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address

_PUBLIC_V6: Final = IPv6Network("2000::/3")
"""All of IPv6 that is given out to networks. Everything else (loopback, fc00::/7, fe80::/10, fec0::/10, ff00::/8,
5f00::/16, NAT64, v4-compatible, ...) is refused without having to be known."""

_FORBIDDEN: Final = tuple(
    (ip_network(block), what)
    for block, what in (
        ("0.0.0.0/8", "this host"),
        ("10.0.0.0/8", "a private network"),
        ("100.64.0.0/10", "a provider's shared addresses"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "a cloud's own services"),  # Azure's, though the block is public
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
        # inside 2000::/3, and not public all the same
        ("2001::/23", "Teredo, benchmarking or another protocol's"),
        ("2001:db8::/32", "documentation"),
        ("2002::/16", "6to4, which holds any IPv4 address"),
        ("3fff::/20", "documentation"),
        # outside it; listed for the sake of the reason
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
    """The address a canonical text means; `::ffff:1.2.3.4` means the IPv4 address in it.

    Raises ValueError for everything else: octal, hex, short and decimal forms, and zone ids (T5.15).
    """
    if "%" in text:
        raise ValueError("an address with a zone id is of this network only")
    address = ip_address(text)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def why_forbidden(address: Address) -> str | None:
    """What makes an address no public one, in words; None when it is public."""
    for block, what in _FORBIDDEN:
        if address in block:
            return what
    if isinstance(address, IPv6Address) and address not in _PUBLIC_V6:
        return "outside the public part of IPv6"
    return None


def first_forbidden(addresses: Sequence[Address]) -> tuple[Address, str] | None:
    """The first address that is not public, and why; None when all are."""
    return next(((address, why) for address in addresses if (why := why_forbidden(address))), None)
