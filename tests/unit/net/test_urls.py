"""Where a server named by the user or their editor may be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.errors import ToolError
from acp_agent.net.hosts import RequestBlocked, why_forbidden
from acp_agent.net.urls import judge_endpoint, locate
from tests.rows import each_row

pytestmark = pytest.mark.anyio
ADDRESS = st.ip_addresses(v=4) | st.ip_addresses(v=6)


async def located(url, addresses, *, allow_private):
    async def resolve(host, port):
        return list(map(str, addresses))

    return (await locate(judge_endpoint(url, allow_private=allow_private), resolve)).addresses


@given(st.lists(ADDRESS, min_size=1, max_size=4, unique=True))
async def test_without_the_users_word_every_address_must_be_public(addresses):
    try:
        await located("https://mcp.example.com/", addresses, allow_private=False)
    except RequestBlocked:
        return
    assert all(why_forbidden(address) is None or getattr(address, "ipv4_mapped", None) for address in addresses)


@given(ADDRESS)
async def test_plain_http_leads_to_private_addresses_only(address):
    try:
        (found,) = await located("http://mcp.example.com/", [address], allow_private=True)
    except RequestBlocked:
        return
    assert found.startswith(("127.", "10.", "172.", "192.168.", "100.", "fc", "fd", "::1"))


CLOUDS = ["169.254.169.254", "100.100.100.200", "fd00:ec2::254", "fd20:ce::254", "::ffff:100.100.100.200"]


@each_row("address", [*CLOUDS, "0.0.0.0", "224.0.0.1", "fe80::1", "168.63.129.16", "::"])
async def test_some_addresses_are_refused_on_anybodys_word(address):
    for url in ("https://mcp.example.com/", "http://box.local/"):
        with pytest.raises(RequestBlocked) as blocked:
            await located(url, [address], allow_private=True)
        assert blocked.value.failure.suggestion == ""


@pytest.mark.parametrize("address", CLOUDS)
async def test_nobody_is_told_to_allow_what_never_is(address):
    with pytest.raises(RequestBlocked) as blocked:
        await located("https://mcp.example.com/", [address], allow_private=False)
    assert blocked.value.failure.suggestion == ""


@pytest.mark.parametrize("url", ["http://mcp.example.com/", "http://8.8.8.8/", "http://100.100.100.200/"])
def test_plain_http_to_a_public_host_is_no_matter_of_allowing_more(url):
    with pytest.raises(RequestBlocked) as blocked:
        judge_endpoint(url, allow_private=False)
    assert "allow_private" not in blocked.value.failure.suggestion


@pytest.mark.parametrize("url", ["http://localhost/", "http://box/", "http://127.0.0.1:1/", "http://[fd00::1]/"])
def test_plain_http_to_a_host_of_ones_own_may_be_allowed(url):
    with pytest.raises(RequestBlocked) as blocked:
        judge_endpoint(url, allow_private=False)
    assert "allow_private" in blocked.value.failure.suggestion


async def test_an_unknown_scheme_is_no_matter_of_allowing_more():
    with pytest.raises(RequestBlocked) as blocked:
        judge_endpoint("ftp://localhost/", allow_private=False)
    assert "allow_private" not in blocked.value.failure.suggestion


@each_row("address", ["127.0.0.1", "10.1.2.3", "172.31.0.1", "192.168.1.1", "100.64.0.1", "::1", "fd00::1"])
async def test_private_addresses_need_the_users_word(address):
    assert await located("http://box.local:8080/mcp", [address], allow_private=True)
    with pytest.raises(RequestBlocked, match="no public address"):
        await located("https://mcp.example.com/", [address], allow_private=False)


async def test_a_name_without_an_address_is_a_failure_that_may_pass():
    with pytest.raises(ToolError, match="cannot be resolved"):
        await located("https://mcp.example.com/", [], allow_private=False)


@pytest.mark.parametrize("addresses", [["not an address"], [f"8.8.8.{n}" for n in range(17)]])
async def test_odd_answers_are_refused(addresses):
    with pytest.raises(RequestBlocked):
        await located("https://mcp.example.com/", addresses, allow_private=True)


@pytest.mark.parametrize("allow_private", [True, False])
@each_row(
    "url",
    [
        *("", "mcp", "https://", "https:///x", "//host/x", "ws://example.com/", "file:///etc/passwd", "https://a b/"),
        *("https://user@example.com/", "https://u:p@example.com/", "https://@example.com/", "https://example.com:0/"),
        *("https://example.com:99999/", "https://exa\u200bmple.com/", "https://example.com/\n", "https://0x7f000001/"),
        *("https://127.1/", "https://[fe80::1%25eth0]/", "https://example.com\\@evil.com/", "https://" + "a" * 9000),
    ],
)
def test_a_url_that_is_malformed_or_ambiguous_is_refused(url, allow_private):
    with pytest.raises(RequestBlocked):
        judge_endpoint(url, allow_private=allow_private)


@pytest.mark.parametrize("host", ["localhost", "box", "printer.local", "metadata.google.internal"])
def test_a_local_name_needs_the_users_word(host):
    with pytest.raises(RequestBlocked, match="no public host"):
        judge_endpoint(f"https://{host}/", allow_private=False)
    assert judge_endpoint(f"http://{host}:99/x", allow_private=True).target.authority == f"{host}:99"


def test_an_endpoint_keeps_path_query_and_port():
    endpoint = judge_endpoint("https://MCP.Example.com:8443/a/b?c=d#e", allow_private=False)
    assert (endpoint.target.authority, endpoint.target.resource) == ("mcp.example.com:8443", b"/a/b?c=d")
