"""Every row of the table, judged at the dialler: which addresses GuardedWeb really tried to connect to."""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Address, IPv6Address

import httpcore
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.services import BlockReason, Egress, WebCaller
from acp_agent.net.http1 import system_trust
from acp_agent.net.web import GuardedWeb, WebLimits
from tests.unit.net.ssrf_rows import PUBLIC_HOSTS, ROWS, Row

pytestmark = pytest.mark.anyio

CALLER = WebCaller("fetch", "call-1")


@cache
def trust() -> ssl.SSLContext:
    """Return the certificates that all tests here trust: to read them takes longer than a row."""
    return system_trust()


class Dialler:
    """Notes every address and lets nobody in."""

    def __init__(self) -> None:
        self.addresses: list[str] = []

    async def __call__(self, address: str, port: int) -> httpcore.AsyncNetworkStream:
        assert port == 443
        self.addresses.append(address)
        raise ConnectionRefusedError(111, "refused")


class Names:
    """A resolver that answers from a table, the n-th look-up with the n-th list; `*` stands for every other name."""

    def __init__(self, dns: Mapping[str, Sequence[Sequence[str]]]) -> None:
        self.dns = dns
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        lists = self.dns.get(host, self.dns.get("*", ()))
        if not lists:
            raise OSError(f"{host} is unknown")
        self.asked.append(host)
        return lists[min(self.asked.count(host), len(lists)) - 1]


def name_of(row: Row) -> str:
    return f"{row.why}: {row.url[:60]!r}".encode("ascii", "backslashreplace").decode()


@dataclass(frozen=True)
class Seen:
    """What came of a URL: what the caller was told and what was done for it."""

    told: str
    dialled: tuple[str, ...]
    looked_up_again: bool = False  # a second look-up may answer otherwise
    recorded: tuple[bool, ...] = ()  # whether the one request was let through
    statuses: tuple[int | None, ...] = ()


async def asked(row: Row) -> Seen:
    dial, names, records = Dialler(), Names(row.dns), list[Egress]()
    web = GuardedWeb(WebLimits(), record=records.append, resolve=names, dial=dial, ssl_context=trust())
    told = "an answer"
    try:
        await web.get(row.url, CALLER)
    except Refused:
        told = "refused"
    except ToolError as error:
        told = "not reached" if "Connection refused" in str(error) else str(error)
    let_through = tuple(record.block_reason is None for record in records)
    statuses = tuple(record.status for record in records)
    return Seen(told, tuple(dial.addresses), len(names.asked) > 1, let_through, statuses)


async def judged(row: Row) -> Seen:
    dial, names = Dialler(), Names(row.dns)
    web = GuardedWeb(WebLimits(), record=lambda _: None, resolve=names, dial=dial)
    try:
        told = " ".join((await web.judge(row.url)).addresses)
    except Refused:
        told = "refused"
    return Seen(told, tuple(dial.addresses), len(names.asked) > 1)


def due(row: Row) -> Seen:
    told = "not reached" if row.dials else "refused"
    return Seen(told, row.dials, recorded=(bool(row.dials),), statuses=(None,))


async def test_only_judged_public_addresses_are_dialled() -> None:
    seen = [(row, await asked(row)) for row in ROWS]
    assert not (broken := [(name_of(row), came) for row, came in seen if came != due(row)]), str(broken)


async def test_judging_says_what_asking_would_do() -> None:
    seen = [(row, await judged(row)) for row in ROWS]
    broken = [(name_of(row), came) for row, came in seen if came != Seen(" ".join(row.dials) or "refused", ())]
    assert not broken, str(broken)


def test_the_table_is_as_long_as_promised() -> None:
    assert len(ROWS) >= 120
    assert len(PUBLIC_HOSTS) >= 30
    assert len({(row.url, str(row.dns)) for row in ROWS}) >= len(ROWS) - 2


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://example.com/", BlockReason.SCHEME),
        ("https://127.0.0.1/", BlockReason.SSRF),
        ("https://user@example.com/", BlockReason.SSRF),
        ("https://bad.example.com/", BlockReason.BLOCKLIST),
        ("https://other.org/", BlockReason.ALLOWLIST),
    ],
)
async def test_the_record_says_why_a_request_was_not_made(url: str, reason: BlockReason) -> None:
    records: list[Egress] = []
    web = GuardedWeb(
        WebLimits(),
        allowed_domains=("*.example.com", "127.0.0.1"),
        denied_domains=("bad.example.com",),
        record=records.append,
        resolve=Names({"*": [["93.184.216.34"]]}),
        dial=Dialler(),
        ssl_context=trust(),
    )
    with pytest.raises(Refused):
        await web.get(url, CALLER)
    assert [record.block_reason for record in records] == [reason]


def test_a_model_that_asks_for_its_own_server_is_told_what_can_reach_it() -> None:
    web = GuardedWeb(WebLimits(), record=lambda _: None)
    for url, is_here in (
        ("http://localhost:3000/", True),
        ("http://127.0.0.1:8123/", True),
        ("https://127.0.0.1/", True),
        ("https://localhost:8443/", True),
        ("https://app.localhost/", True),
        ("https://[::1]/", True),
        ("http://example.com/", False),
        ("https://example.com:8443/", False),
        ("https://10.0.0.1/", False),
        ("https://localhost.example.lan/", False),
    ):
        refusal = web.refusal(url)
        assert refusal is not None
        assert ("curl" in refusal.failure.suggestion) is is_here, url
        assert ("https://" in refusal.failure.suggestion) is (url == "http://example.com/"), url
    assert web.refusal("https://example.com/") is None


# ------------------------------------------------------------------- any address, in any spelling


def v4_spellings(address: IPv4Address) -> list[str]:
    number, parts = int(address), address.packed
    return [
        str(address),
        f"{address}.",
        str(number),
        hex(number),
        f"0{number:o}",
        ".".join(map(hex, parts)),
        ".".join(f"0{part:o}" for part in parts),
        ".".join(f"{part:03}" for part in parts),
        f"{parts[0]}.{number & 0xFFFFFF}",
        f"{parts[0]}.{parts[1]}.{number & 0xFFFF}",
        "。".join(map(str, parts)),
        "".join(chr(0xFF10 + int(c)) if c.isdigit() else c for c in str(address)),
        f"[::ffff:{address}]",
        f"[::{address}]",
        f"[64:ff9b::{address}]",
        f"[2002:{parts[0]:02x}{parts[1]:02x}:{parts[2]:02x}{parts[3]:02x}::1]",
    ]


def v6_spellings(address: IPv6Address) -> list[str]:
    return [f"[{address}]", f"[{address.exploded}]", f"[{str(address).upper()}]", f"[{address}%25eth0]"]


SPECIAL_V4 = [
    *("127.0.0.1", "10.0.0.0", "169.254.169.254", "192.168.0.1", "172.16.0.0", "100.64.0.0", "0.0.0.0", "224.0.0.0"),
    *("240.0.0.0", "198.18.0.0", "192.0.2.0", "203.0.113.0", "198.51.100.0", "192.0.0.0", "192.88.99.0"),
]
near_special = st.builds(
    lambda base, offset: IPv4Address((int(IPv4Address(base)) + offset) % 2**32),
    st.sampled_from(SPECIAL_V4),
    st.integers(-300, 70_000),
)
v6 = st.builds(
    lambda prefix, rest: IPv6Address(int(IPv6Address(prefix)) | rest),
    st.sampled_from(["::", "::ffff:0:0", "64:ff9b::", "2001::", "2002::", "2001:db8::", "3fff::", "fc00::", "fe80::"]),
    st.integers(0, 2**32 - 1) | st.integers(0, 2**111 - 1),
)


def really_public(text: str) -> bool:
    """By the standard library's opinion and RFC 6890's list, written another way than in our table."""
    address = IPv6Address(text) if ":" in text else IPv4Address(text)
    if address.is_private or address.is_multicast or address.is_reserved or address.is_loopback:
        return False
    if isinstance(address, IPv6Address):
        return address.packed[0] >> 5 == 1 and not (address.teredo or address.sixtofour)
    first, second, third, _ = address.packed
    return not (first == 100 and second & 0xC0 == 64) and (first, second, third) not in {(192, 88, 99), (192, 0, 0)}


@given(
    host=st.one_of(
        (st.ip_addresses(v=4) | near_special).flatmap(lambda address: st.sampled_from(v4_spellings(address))),
        (st.ip_addresses(v=6) | v6).flatmap(lambda address: st.sampled_from(v6_spellings(address))),
    ),
    tail=st.sampled_from(["", "/", ":443/", "/x?y=1#z"]),
)
async def test_no_spelling_of_any_address_leads_to_a_forbidden_one(host: str, tail: str) -> None:
    dial = Dialler()
    names = Names({"*": [["127.0.0.1"]]})
    web = GuardedWeb(WebLimits(), record=lambda _: None, resolve=names, dial=dial, ssl_context=trust())
    with pytest.raises((Refused, ToolError)):
        await web.get(f"https://{host}{tail}", CALLER)
    assert all(map(really_public, dial.addresses)), dial.addresses
    assert names.asked == [], "no spelling of an address is a name"


@given(answers=st.lists((st.ip_addresses() | near_special | v6).map(str), max_size=20))
async def test_no_answer_of_a_resolver_leads_to_a_forbidden_address(answers: list[str]) -> None:
    dial = Dialler()
    names = Names({"*": [answers]})
    web = GuardedWeb(WebLimits(), record=lambda _: None, resolve=names, dial=dial, ssl_context=trust())
    with pytest.raises((Refused, ToolError)):
        await web.get("https://host.example.com/", CALLER)
    assert all(map(really_public, dial.addresses)), dial.addresses


@given(url=st.text(max_size=60) | st.from_regex(r"https://[\x21-\uffff]{1,40}", fullmatch=True))
async def test_whatever_is_sent_as_a_url_is_refused_or_asked_for_and_never_breaks_anything(url: str) -> None:
    dial = Dialler()
    names = Names({"*": [["127.0.0.1"]]})
    web = GuardedWeb(WebLimits(), record=lambda _: None, resolve=names, dial=dial, ssl_context=trust())
    with pytest.raises((Refused, ToolError)):
        await web.get(url, CALLER)
    assert all(map(really_public, dial.addresses)), dial.addresses


# ------------------------------------------------------------------- any name below an internal zone

INTERNAL = (
    *("lan", "corp", "home", "home.arpa", "internal", "intranet", "private", "local", "localdomain", "localhost"),
    *("svc", "cluster.local", "default.svc.cluster.local", "in-addr.arpa", "ip6.arpa", "mail", "fritz.box"),
)
LABELS = st.lists(st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True), max_size=3)
FULLWIDTH = {ord(letter): chr(ord(letter) + 0xFEE0) for letter in "abcdefghijklmnopqrstuvwxyz0123456789"}


@st.composite
def internal_hosts(draw: st.DrawFn) -> str:
    """A name in or below an internal zone, in one of the spellings that resolvers and browsers take for it."""
    zone = draw(st.sampled_from(INTERNAL))
    host = ".".join((*draw(LABELS), zone)) + draw(st.sampled_from(("", ".")))
    spelling = draw(st.sampled_from(("plain", "upper", "fullwidth", "dots", "percent")))
    match spelling:
        case "upper":
            return host.upper()
        case "fullwidth":
            return host.removesuffix(zone) + host[host.rindex(zone) :].translate(FULLWIDTH)
        case "dots":
            return host.replace(".", draw(st.sampled_from("\u3002\uff0e\uff61")))
        case "percent":
            at = draw(st.integers(0, len(host) - 1))
            return f"{host[:at]}%{ord(host[at]):02x}{host[at + 1 :]}"
        case _:
            return host


@given(internal_hosts(), st.sampled_from(("", ":443")))
async def test_a_name_in_an_internal_zone_is_refused_whatever_it_resolves_to(host: str, port: str) -> None:
    row = Row(f"https://{host}{port}/", "internal", {"*": [["93.184.216.34"]]})
    assert (await asked(row)) == due(row)
    assert GuardedWeb(WebLimits(), record=lambda _: None).refusal(row.url) is not None


@pytest.mark.parametrize("allowed", ["nas.lan", "*.lan", "wiki.corp"])
async def test_an_allow_list_does_not_open_an_internal_zone(allowed: str) -> None:
    web = GuardedWeb(WebLimits(), allowed_domains=(allowed,), record=lambda _: None)
    assert "no public host" in str(web.refusal(f"https://{allowed.replace('*', 'nas')}/"))
