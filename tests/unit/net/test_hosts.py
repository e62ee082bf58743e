"""Host names, the user's lists, the address table and the record's URLs, each by itself; and URLs for a browser."""

from ipaddress import ip_address
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.errors import ConfigError
from acp_agent.core.services import BlockReason
from acp_agent.net.hosts import (
    HostRules,
    RequestBlocked,
    browser_url,
    canonical_host,
    read_address,
    recordable_url,
    why_forbidden,
)
from acp_agent.net.urls import _agreed
from tests.rows import each_row

PUBLIC = [
    *("8.8.8.8", "8.8.4.4", "1.1.1.1", "1.0.0.1", "9.9.9.9", "208.67.222.222", "93.184.216.34", "140.82.121.4"),
    *("151.101.1.69", "185.199.108.153", "104.16.132.229", "172.217.16.142", "142.250.185.78", "13.107.42.14"),
    *("20.205.243.166", "52.95.110.1", "3.5.140.2", "34.117.59.81", "76.76.21.21", "199.232.68.133", "198.41.0.4"),
    *("192.5.5.241", "193.0.14.129", "202.12.27.33", "130.89.148.12", "194.187.168.100", "100.0.0.1", "100.128.0.1"),
    *("172.15.0.1", "172.32.0.1", "192.0.1.1", "192.0.3.1", "192.88.98.1", "192.167.1.1", "192.169.1.1", "198.17.0.1"),
    *("198.20.0.1", "198.51.99.1", "203.0.112.1", "169.253.1.1", "169.255.1.1", "11.0.0.1", "126.0.0.1", "128.0.0.1"),
    *("223.255.255.255", "1.0.0.0", "168.63.129.15", "168.63.129.17"),
    *("2606:4700:4700::1111", "2001:4860:4860::8888", "2620:fe::fe", "2a00:1450:4001:82b::200e", "2a04:4e42::81"),
    *("2606:50c0:8000::153", "2620:1ec:c11::200", "2600:1f18::1", "2400:cb00:2048:1::c629:d7a2", "2001:200::1"),
    *("2001:503:ba3e::2:30", "2001:500:2f::f", "2001:7fe::53", "2001:dc3::35", "2803:f800:50::6ca2:c0f0", "3ffe::1"),
    *("2001:db7::1", "2001:db9::1", "2003::1", "2c0f:fb50::1", "2a06:98c1:3121::3", "3000::1"),
]


@each_row("address", PUBLIC)
def test_no_public_address_is_refused(address: str) -> None:
    assert why_forbidden(read_address(address)) is None
    assert canonical_host(address) == str(ip_address(address))


@each_row(
    "first, last",
    [
        ("0.0.0.0", "0.255.255.255"),
        ("10.0.0.0", "10.255.255.255"),
        ("100.64.0.0", "100.127.255.255"),
        ("127.0.0.0", "127.255.255.255"),
        ("169.254.0.0", "169.254.255.255"),
        ("172.16.0.0", "172.31.255.255"),
        ("192.0.0.0", "192.0.0.255"),
        ("192.168.0.0", "192.168.255.255"),
        ("198.18.0.0", "198.19.255.255"),
        ("224.0.0.0", "255.255.255.255"),
        ("::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("4000::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ],
)
def test_forbidden_blocks_are_forbidden_to_their_edges(first: str, last: str) -> None:
    assert why_forbidden(ip_address(first))
    assert why_forbidden(ip_address(last))


@each_row(
    "text, host",
    [
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        ("BÜCHER.de", "xn--bcher-kva.de"),
        ("XN--BCHER-KVA.de", "xn--bcher-kva.de"),
        ("例え。jp", "xn--r8jz45g.jp"),
        ("r3---sn-x.example.com", "r3---sn-x.example.com"),
        ("2606:4700:4700:0:0:0:0:1111", "2606:4700:4700::1111"),
        ("::ffff:1.1.1.1", "1.1.1.1"),
        ("1.1.1.1.", "1.1.1.1"),
    ],
)
def test_a_host_has_one_canonical_form_that_stays_as_it_is(text: str, host: str) -> None:
    assert canonical_host(text) == host
    assert canonical_host(host) == host


@each_row(
    "allowed, denied, host, block",
    [
        ((), (), "example.com", None),
        (("example.com",), (), "example.com", None),
        (("EXAMPLE.com.",), (), "example.com", None),
        (("example.com",), (), "www.example.com", BlockReason.ALLOWLIST),
        (("*.example.com",), (), "www.example.com", None),
        (("*.example.com",), (), "example.com", BlockReason.ALLOWLIST),
        (("*.example.com",), (), "a.www.example.com", BlockReason.ALLOWLIST),
        (("*.example.com",), (), "wwwexample.com", BlockReason.ALLOWLIST),
        (("*.bücher.de",), (), "www.xn--bcher-kva.de", None),
        ((), ("example.com",), "example.com", BlockReason.BLOCKLIST),
        ((), ("*.example.com",), "www.example.com", BlockReason.BLOCKLIST),
        ((), ("*.example.com",), "example.com", None),
        (("www.example.com",), ("*.example.com",), "www.example.com", BlockReason.BLOCKLIST),
        (("8.8.8.8",), (), "8.8.8.8", None),
        ((), ("[2606:4700:4700::1111]",), "2606:4700:4700::1111", BlockReason.BLOCKLIST),
        (("localhost", "*.internal"), (), "localhost", BlockReason.SSRF),
        (("localhost", "*.internal"), (), "x.internal", BlockReason.SSRF),
    ],
)
def test_deny_wins_and_a_non_empty_allow_list_is_a_whitelist(
    allowed: tuple[str, ...], denied: tuple[str, ...], host: str, block: BlockReason | None
) -> None:
    rules = HostRules(allowed, denied, (443,))
    if block is None:
        rules.check(host, 443)
    else:
        with pytest.raises(RequestBlocked) as caught:
            rules.check(host, 443)
        assert (caught.value.block, caught.value.host) == (block, host)


@each_row("text", ["*", "*.", "https://example.com", "example.com/x", "*.*.com", "a.*.com", "127.1", " "])
def test_a_domain_that_could_never_match_is_a_configuration_error_that_names_it(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^\[tools\.scrape\]: denied_domains = .*expected a host such as") as caught:
        HostRules((), (text,), (443,))
    assert repr(text) in str(caught.value)


@each_row(
    "url, recorded",
    [
        ("https://example.com/a?b=c#d", "https://example.com/a?b=c"),
        ("https://user:pass@example.com/a@b", "https://example.com/a@b"),
        ("https://a@b@example.com/", "https://example.com/"),
        ("user:pass@example.com", "example.com"),
        ("//user:pass@example.com/x", "//example.com/x"),
        ("https:\\\\user:pass@example.com\\x", "https:\\\\example.com\\x"),
        ("https://example.com/?mail=a@b.c", "https://example.com/?mail=a@b.c"),
        ("", ""),
    ],
)
def test_a_recorded_url_has_no_userinfo_and_no_fragment(url: str, recorded: str) -> None:
    assert recordable_url(url) == recorded


def test_a_recorded_url_is_bounded() -> None:
    assert len(recordable_url("https://example.com/" + "a" * 100_000)) == 8192


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("https://example.com/", "https://example.org/"),
        ("https://example.com/", "https://example.com:444/"),
        ("https://example.com:444/", "https://example.com/"),
        ("https://8.8.8.8/", "https://8.8.4.4/"),
    ],
)
def test_a_url_that_two_parsers_read_differently_is_refused(ours: str, theirs: str) -> None:
    assert _agreed(urlsplit(ours), httpx.URL(ours))
    with pytest.raises(RequestBlocked, match="two ways"):
        _agreed(urlsplit(ours), httpx.URL(theirs))


@each_row(
    "url, shown",
    [
        ("https://example.com/login?a=1&b=%20#x", "https://example.com/login?a=1&b=%20#x"),
        ("HTTPS://Example.COM", "https://example.com"),
        ("https://example.com:8443/", "https://example.com:8443/"),
        ("http://localhost:3000/cb", "http://localhost:3000/cb"),
        ("http://[::1]:3000/", "http://[::1]:3000/"),
        ("https://\u0430pple.com/", "https://xn--pple-43d.com/"),  # a Cyrillic a
        ("https://example.com/caf\u00e9", "https://example.com/caf%C3%A9"),
    ],
)
def test_the_host_is_spelt_as_the_dns_has_it_and_the_rest_in_ascii(url: str, shown: str):
    assert browser_url(url) == shown


@each_row(
    "url",
    [
        "http://example.com/",
        "http://localhost.example.com/",
        "ftp://example.com/",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "//example.com/",
        "https://",
        "https://user@example.com/",
        "https://bank.com%40evil.com@evil.com/",
        "https://example.com\\@evil.com/",
        "https://example.com/\u202emoc",
        "https://exa mple.com/",
        "https://example.com:99999/",
        "https://0x7f.1/",
        "https://example.com/" + "x" * 2048,
        "",
    ],
)
def test_what_may_mislead_is_refused(url: str):
    with pytest.raises(ValueError, match=r"\w"):
        browser_url(url)


@given(st.text(alphabet=st.characters(), max_size=60))
def test_any_text_is_judged_without_another_error(text: str):
    for url in (text, f"https://{text}", f"https://example.com/{text}"):
        try:
            shown = browser_url(url)
        except ValueError:
            continue
        assert shown.isascii()
        assert shown.isprintable()
        assert browser_url(shown) == shown or len(shown) > 2048
