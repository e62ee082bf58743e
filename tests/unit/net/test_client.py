"""The HTTP client by itself: laziness, reuse, errors of every kind under our names, and no secret in any of them."""

import gzip
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import SplitResult

import anyio
import anyio.abc
import httpx
import pytest

from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.net import client
from acp_agent.net.client import ERROR_BODY_LIMIT, HttpClient, HttpRequest, provider_error, translated_httpx
from acp_agent.net.http1 import Address, HttpError
from tests.fakes.scripted_http import Cut, Hang, Reply, Reset, ScriptedHttp, Send
from tests.rows import each_row

pytestmark = pytest.mark.anyio

KEY = "fake-key-1234567890"


def post(url: str, *, timeout: float = 5.0, key: str = KEY) -> HttpRequest:
    return HttpRequest("acme", f"{url}/x?token={KEY}", {"authorization": f"Bearer {key}"}, b'{"a": 1}', timeout)


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    client = HttpClient()
    yield client
    await client.aclose()


async def read(http: HttpClient, request: HttpRequest) -> tuple[int, bytes]:
    with anyio.fail_after(10):
        async with http.send(request) as answer:
            return answer.status, b"".join([chunk async for chunk in answer.chunks()])


async def failure(http: HttpClient, request: HttpRequest) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await read(http, request)
    assert KEY not in str(caught.value)
    return caught.value


async def test_a_post_carries_headers_and_body_and_gives_status_headers_and_chunks(http: HttpClient) -> None:
    reply = Reply([Send(b"ab"), Send(b"c")], headers=(("Content-Type", "text/plain"), ("X-Odd", "1")))
    async with ScriptedHttp([reply]) as server, http.send(post(server.url)) as answer:
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/plain"
        assert answer.headers["x-odd"] == "1"
        assert b"".join([chunk async for chunk in answer.chunks()]) == b"abc"
    (request,) = server.requests
    assert (request.method, request.body) == ("POST", b'{"a": 1}')
    assert request.headers["authorization"] == f"Bearer {KEY}"


async def test_a_status_is_not_an_error_and_an_excerpt_is_bounded(http: HttpClient) -> None:
    reply = Reply([Send(b"x" * 50_000)] * 4, status=500)
    async with ScriptedHttp([reply]) as server, http.send(post(server.url)) as answer:
        assert answer.status == 500
        assert len(await answer.excerpt()) == ERROR_BODY_LIMIT


async def test_a_get_has_the_guards_of_a_post(http: HttpClient) -> None:
    get = HttpRequest("acme", "", {"authorization": f"Bearer {KEY}"}, read_timeout=0.1)
    assert KEY not in repr(get)
    async with ScriptedHttp(
        [Reply([Send(b"ab")]), Reply.plain(307, b"", location="/there"), Reply([Hang()])]
    ) as server:
        get = replace(get, url=f"{server.url}/list?limit=1")
        async with http.send(get) as answer:
            assert (answer.status, await answer.body(10)) == (200, b"ab")
        async with http.send(get) as answer:
            assert answer.status == 307, "a redirect is told, not followed"
        with pytest.raises(ProviderError, match=r"acme sent nothing for 0\.1 s") as caught:
            async with http.send(get) as answer:
                await answer.body(10)
        assert caught.value.kind is ProviderErrorKind.TIMEOUT
    assert [(request.method, request.path, request.body) for request in server.requests] == [
        ("GET", "/list?limit=1", b"")
    ] * 3
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


async def test_a_whole_body_is_bounded(http: HttpClient) -> None:
    packed = Reply.zipped(b"x" * 1_000_000)
    async with ScriptedHttp([Reply([Send(b"abc")]), Reply([Send(b"abcd")]), packed]) as server:
        async with http.send(post(server.url)) as answer:
            assert await answer.body(3) == b"abc"
        for _ in range(2):
            with pytest.raises(ProviderError, match="acme sent an answer of more than 3 bytes") as caught:
                async with http.send(post(server.url)) as answer:
                    await answer.body(3)
            assert caught.value.kind is ProviderErrorKind.PROTOCOL


async def test_a_client_with_headers_adds_them_to_each_request_over_the_same_connections(http: HttpClient) -> None:
    async with ScriptedHttp([Reply([Send(b"x")])]) as server:
        await read(http, post(server.url))
        titled = http.with_headers({"X-Title": "t", "User-Agent": "mine"})
        await read(titled, replace(post(server.url), headers={"user-agent": "ours", "x-ours": "1"}))
        await read(titled.with_headers({"x-title": "u"}), post(server.url))
        await read(http, post(server.url))
        assert server.connections == 1
    first, second, third, last = (request.headers for request in server.requests)
    assert (second["x-title"], second["user-agent"], second["x-ours"]) == ("t", "mine", "1")
    assert (third["x-title"], third["user-agent"]) == ("u", "mine")
    assert "x-title" not in first
    assert "x-title" not in last


async def test_the_head_of_a_request_is_made_once_and_serves_no_other_request(
    http: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, head_bytes = list[Address](), client.head_bytes

    def noted(parsed: SplitResult, address: Address, headers: Mapping[str, str], *, has_body: bool) -> bytes:
        made.append(address)
        return head_bytes(parsed, address, headers, has_body=has_body)

    monkeypatch.setattr(client, "head_bytes", noted)
    reply = [Reply([Send(b"x")])]
    async with ScriptedHttp(reply) as server, ScriptedHttp(reply) as elsewhere:
        one = HttpRequest("acme", f"{server.url}/a", {"x-key": "1"}, b"1", 5)
        other_body = replace(one, body=b"22")
        others = [
            replace(one, url=f"{server.url}/b"),
            replace(one, headers={"x-key": "2"}),
            replace(one, headers={"x-key": "1", "x-more": "1"}),
            replace(one, body=None),
        ]
        for other in others:
            for request in (one, other_body, other):
                await read(http, request)
        await read(http, one)
        await read(http, replace(one, url=f"{elsewhere.url}/a"))
        seen = [(each.method, each.path, each.headers["x-key"], each.body) for each in server.requests]
    assert len(made) == 2 * len(others) + 2
    assert [("x-more" in each.headers, each.headers.get("content-length")) for each in server.requests[6:9]] == [
        (False, "1"),
        (False, "2"),
        (True, "1"),
    ]
    same = [("POST", "/a", "1", b"1"), ("POST", "/a", "1", b"22")]
    assert seen == [
        *(*same, ("POST", "/b", "1", b"1")),
        *(*same, ("POST", "/a", "2", b"1")),
        *(*same, ("POST", "/a", "1", b"1")),
        *(*same, ("GET", "/a", "1", b"")),
        same[0],
    ]
    assert [each.path for each in elsewhere.requests] == ["/a"]


async def test_an_excerpt_of_a_broken_body_is_what_came(http: HttpClient) -> None:
    async with (
        ScriptedHttp([Reply([Send(b"half"), Cut()], status=500)]) as server,
        http.send(post(server.url)) as answer,
    ):
        assert await answer.excerpt() == b"half"


async def test_connections_are_reused_and_a_closed_client_starts_afresh(http: HttpClient) -> None:
    async with ScriptedHttp([Reply([Send(b"x")])]) as server:
        for _ in range(2):
            await read(http, post(server.url))
        assert server.connections == 1
        await http.aclose()
        await read(http, post(server.url))
        assert server.connections == 2


async def test_a_response_that_is_closed_twice_gives_its_connection_back_once(http: HttpClient) -> None:
    async with ScriptedHttp([Reply([Send(b"x")])]) as server:
        first = http.send(post(server.url))
        assert await (await first.open()).body(10) == b"x"
        await first.aclose()
        await first.aclose()
        second, third = http.send(post(server.url)), http.send(post(server.url))
        assert [await each.body(10) for each in (await second.open(), await third.open())] == [b"x", b"x"]
        await second.aclose()
        await third.aclose()
        assert server.connections == 2


async def test_leaving_early_closes_the_connection(http: HttpClient) -> None:
    async with ScriptedHttp([Reply([Send(b"x"), Hang()])]) as server:
        async with http.send(post(server.url)) as answer:
            assert await anext(answer.chunks()) == b"x"
        with anyio.fail_after(20):
            await server.client_closed.wait()


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (Reply([Reset()]), ProviderErrorKind.NETWORK, "acme"),
        (Reply([Send(b"x"), Cut()]), ProviderErrorKind.NETWORK, "before its answer ended"),
        (Reply([Hang()]), ProviderErrorKind.TIMEOUT, "acme sent nothing for 0.1 s"),
        (
            Reply([Send(b"not gzip")], headers=(("content-encoding", "gzip"),)),
            ProviderErrorKind.PROTOCOL,
            "content-encoding",
        ),
        (Reply([Send(b"x")], length=5), ProviderErrorKind.TIMEOUT, "nothing"),
    ],
)
async def test_a_broken_answer_has_a_kind_and_words(
    http: HttpClient, reply: Reply, kind: ProviderErrorKind, words: str
) -> None:
    async with ScriptedHttp([reply]) as server:
        error = await failure(http, post(server.url, timeout=0.1 if kind is ProviderErrorKind.TIMEOUT else 5))
    assert error.kind is kind
    assert words in str(error)


async def test_a_server_that_is_not_there_says_why_and_names_no_path(http: HttpClient) -> None:
    async with ScriptedHttp([Reply()]) as server:
        url = server.url
    error = await failure(http, post(url))
    assert error.kind is ProviderErrorKind.NETWORK
    assert str(error) == f"cannot reach acme at {url} (Connection refused): check base_url and the network"


@asynccontextmanager
async def ssh_server() -> AsyncIterator[int]:
    """The port of a server that answers anything in another protocol."""

    async def greet(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"SSH-2.0-fake\r\n")

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, greet)
        yield listener.extra(anyio.abc.SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(("scheme", "words"), [("http", "before its answer ended"), ("https", "[SSL")])
async def test_a_server_that_speaks_something_else_is_a_network_error(
    http: HttpClient, scheme: str, words: str
) -> None:
    async with ssh_server() as port:
        error = await failure(http, post(f"{scheme}://127.0.0.1:{port}"))
    assert error.kind is ProviderErrorKind.NETWORK
    assert words in str(error)


async def test_a_header_that_cannot_be_sent_is_never_quoted(http: HttpClient) -> None:
    async with ScriptedHttp([Reply()]) as server:
        error = await failure(http, post(server.url, key=f"{KEY}\nx"))
    assert error.kind is ProviderErrorKind.PROTOCOL


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "http://127.0.0.1:bad", "http://[::1", "127.0.0.1"])
async def test_an_address_that_is_none_is_a_protocol_error(http: HttpClient, url: str) -> None:
    assert (await failure(http, post(url))).kind is ProviderErrorKind.PROTOCOL


def every_error_of_httpx() -> list[type[Exception]]:
    found: list[type[Exception]] = [httpx.InvalidURL]
    level: list[type[Exception]] = [httpx.HTTPError]
    while level:
        found += level
        level = [sub for cls in level for sub in cls.__subclasses__()]
    return [cls for cls in found if cls is not httpx.HTTPStatusError]


@each_row("cls", every_error_of_httpx())
async def test_every_error_of_httpx_becomes_ours_and_never_quotes_its_text(cls: type[Exception]) -> None:
    with pytest.raises(HttpError) as caught, translated_httpx():
        raise cls(f"header {KEY}")
    error = provider_error(post("http://127.0.0.1:1"), caught.value)
    kinds = (ProviderErrorKind.NETWORK, ProviderErrorKind.TIMEOUT, ProviderErrorKind.PROTOCOL)
    assert error.kind in kinds
    assert KEY not in str(error)


async def test_no_repr_shows_a_key_or_a_conversation() -> None:
    shown = repr(HttpRequest("acme", "http://127.0.0.1:1", {"x-api-key": KEY}, b"my private words"))
    assert KEY not in shown
    assert "private" not in shown


PROXIED = """
import anyio, sys
from acp_agent.core.errors import ProviderError
from acp_agent.net.client import HttpClient, HttpRequest

async def main():
    http = HttpClient()
    try:
        async with http.send(HttpRequest("acme", sys.argv[1], {}, b"")) as answer:
            print(answer.status, (await answer.excerpt()).decode())
    except ProviderError as error:
        print(error.kind.value, error)
    await http.aclose()

anyio.run(main)
"""


AND_LOADED = f"{PROXIED}\nprint('urllib.request' in sys.modules or 'email' in sys.modules)"


async def through(url: str, script: str = PROXIED, **environment: str) -> str:
    """What a process of its own, with this environment, makes of a request."""
    process = await anyio.run_process([sys.executable, "-c", script, url], env=environment, stderr=subprocess.STDOUT)
    return process.stdout.decode().strip()


async def test_a_proxy_of_the_environment_is_used_but_never_for_this_machine() -> None:
    async with (
        ScriptedHttp([Reply([Send(b"the proxy")])]) as proxy,
        ScriptedHttp([Reply([Send(b"the model")])]) as model,
    ):
        assert await through("http://model.invalid/x", HTTP_PROXY=proxy.url) == "200 the proxy"
        assert await through(f"{model.url}/x", HTTP_PROXY=proxy.url, ALL_PROXY=proxy.url) == "200 the model"


@pytest.mark.parametrize("variable", ["NO_PROXY", "FTP_PROXY", "HTTP_PROXY"])
async def test_a_model_on_this_machine_loads_nothing_for_proxies(variable: str) -> None:
    async with ScriptedHttp([Reply([Send(b"the model")])]) as model:
        told = await through(f"{model.url}/x", AND_LOADED, **{variable: "127.0.0.1"})
    assert told == "200 the model\nFalse"


async def test_a_variable_that_only_spares_hosts_the_proxy_loads_nothing() -> None:
    told = await through("http://model.invalid/x", AND_LOADED, NO_PROXY="localhost")
    assert told.endswith("\nFalse"), told


@pytest.mark.parametrize("key", ["\u201csk-1\u201d", "sk-\xe9"])
async def test_a_key_that_a_proxy_cannot_be_sent_is_told(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    client = HttpClient()
    with pytest.raises(ProviderError, match="cannot be sent: check its API key"):
        async with client.send(HttpRequest("acme", "http://model.invalid/x", {"authorization": f"Bearer {key}"})):
            pass
    await client.aclose()


async def test_a_packed_answer_that_comes_over_a_proxy_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = gzip.compress(b"ab") + gzip.compress(b"cd")
    headers = (("content-encoding", "gzip"),)
    bodies = whole, whole[:-3], b"no gzip"
    async with ScriptedHttp([Reply([Send(body)], headers=headers) for body in bodies]) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        client = HttpClient()
        request = HttpRequest("acme", "http://model.invalid/x", {})
        assert await read(client, request) == (200, b"abcd")
        assert "whose end is missing" in str(await failure(client, request))
        assert "does not match its content-encoding" in str(await failure(client, request))
        await client.aclose()
    assert {request.headers["accept-encoding"] for request in proxy.requests} == {"gzip"}


@pytest.mark.parametrize("address", ["127.0.0.1:1/\udce9", "us\udce9r:word@127.0.0.1:1/", "user:w\udce9@127.0.0.1:1/"])
async def test_an_address_with_a_byte_that_is_no_utf8_is_told(address: str) -> None:
    with pytest.raises(ProviderError, match="not a valid address"):
        async with HttpClient().send(HttpRequest("acme", f"http://{address}", {})):
            pass


async def test_a_redirect_that_comes_over_a_proxy_is_told_and_not_followed() -> None:
    elsewhere = Reply([Send(b"go there")], status=307, headers=(("Location", "http://other.invalid/y"),))
    async with ScriptedHttp([elsewhere]) as proxy:
        assert await through("http://model.invalid/x", HTTP_PROXY=proxy.url) == "307 go there"
    assert len(proxy.requests) == 1


@pytest.mark.parametrize(
    "environment",
    [
        {"HTTPS_PROXY": "nonsense://user:secret@127.0.0.1:1"},
        {"HTTPS_PROXY": "http://user:secret@127.0.0.1:bad"},
        {"SSL_CERT_FILE": "/nonexistent/secret.pem"},
    ],
)
async def test_settings_of_the_environment_that_cannot_be_used_are_named_not_shown(environment: dict[str, str]) -> None:
    told = await through("https://model.invalid/x", **environment)
    assert told.startswith("not_configured acme cannot be reached: the proxy or certificate settings")
    assert "secret" not in told
