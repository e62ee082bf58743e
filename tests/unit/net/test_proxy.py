"""The proxy of contained commands, with real sockets: which hosts it reaches, what it refuses, and how it ends."""

import asyncio
import os
import re
import socket
import string
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing, suppress

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acp_agent.core.errors import ConfigError
from acp_agent.core.services import BlockReason, Egress
from acp_agent.net import proxy as module
from acp_agent.net.hosts import RequestBlocked
from acp_agent.net.proxy import AllowlistProxy, ProxyRequest, allowed_hosts, check_allowed
from tests.rows import each_row
from tests.unit.net.tls_site import PUBLIC, Internet

pytestmark = pytest.mark.anyio
ALLOWED = ("docs.example.com", "*.example.org", "8.8.8.8")
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Behind:
    """A proxy, the internet behind it, of which one server plays every host, and what was recorded."""

    def __init__(self) -> None:
        self.records: list[Egress] = []
        self.fails = False
        self.received: list[bytes] = []
        self.allowed = list(allowed_hosts(ALLOWED))
        self.serve: Serve = self.echo
        self.ended = anyio.Event()

    async def echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65536):
            self.received.append(piece)
            writer.write(piece)
            await writer.drain()
        writer.write(b"<end>")
        await writer.drain()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self.serve(reader, writer)
        except OSError:
            pass
        finally:
            writer.close()
            self.ended.set()

    def record(self, egress: Egress) -> None:
        if self.fails:
            raise RuntimeError("a fault")
        self.records.append(egress)

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.net = Internet(self.server.sockets[0].getsockname()[1])
        listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.proxy = AllowlistProxy(
            listener, lambda: self.allowed, self.record, resolve=self.net.resolve, dial=self.net.dial
        )

    async def stop(self) -> None:
        await anyio.to_thread.run_sync(self.proxy.close)
        self.server.close()

    async def ask(self, sent: bytes, then: bytes = b"") -> bytes:
        """Return all that the proxy answers to bytes after which nothing more is sent."""
        with anyio.fail_after(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.proxy.port)
            with closing(writer):
                writer.write(sent)
                if then:
                    await reader.readuntil(b"\r\n\r\n")
                    writer.write(then)
                writer.write_eof()
                return await reader.read()


@pytest.fixture
async def behind() -> AsyncIterator[Behind]:
    made = Behind()
    await made.start()
    yield made
    await made.stop()


def connect(place: str, *headers: str) -> bytes:
    return "\r\n".join([f"CONNECT {place} HTTP/1.1", f"Host: {place}", *headers, "", ""]).encode()


async def test_an_allowed_host_is_reached_and_bytes_pass_both_ways(behind: Behind):
    answer = await behind.ask(connect("docs.example.com:443"), b"hello")
    assert answer == b"hello<end>"
    assert behind.net.dialled == [PUBLIC]
    [record] = behind.records
    assert (record.method, record.url, record.host) == ("CONNECT", "docs.example.com:443", "docs.example.com")
    assert (record.address, record.block_reason) == (PUBLIC, None)


async def test_what_is_sent_before_the_answer_comes_is_not_lost(behind: Behind):
    answer = await behind.ask(connect("Docs.Example.COM.:443") + b"early")
    assert answer == b"HTTP/1.1 200 Connection established\r\n\r\nearly<end>"


async def test_a_request_for_http_is_sent_without_what_is_meant_for_the_proxy(behind: Behind):
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind.received.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        await writer.drain()

    behind.serve = reply
    head = b"GET http://a.example.org/x?key=v HTTP/1.1\r\nHost: evil.com\r\nProxy-Authorization: Basic x\r\n"
    answer = await behind.ask(head + b"Accept: */*\r\nConnection: keep-alive\r\n\r\n")
    assert answer.endswith(b"\r\n\r\nhi")
    assert behind.received == [
        b"GET /x?key=v HTTP/1.1\r\nHost: a.example.org\r\nConnection: close\r\nAccept: */*\r\n\r\n"
    ]
    assert behind.records[0].url == "a.example.org:80", "a path may hold secrets"


@each_row(
    "place, block",
    [
        ("evil.com:443", BlockReason.ALLOWLIST),
        ("docs.example.com.evil.com:443", BlockReason.ALLOWLIST),
        ("xdocs.example.com:443", BlockReason.ALLOWLIST),
        ("example.org:443", BlockReason.ALLOWLIST),
        ("a.b.example.org:443", BlockReason.ALLOWLIST),
        ("docs.example.com:22", BlockReason.SSRF),
        ("127.0.0.1:443", BlockReason.ALLOWLIST),
        ("169.254.169.254:80", BlockReason.ALLOWLIST),
        ("localhost:443", BlockReason.ALLOWLIST),
        ("[::1]:443", BlockReason.ALLOWLIST),
        ("[::ffff:127.0.0.1]:443", BlockReason.ALLOWLIST),
    ],
)
async def test_a_refused_host_is_neither_looked_up_nor_dialled_and_the_answer_names_the_key(
    behind: Behind, place: str, block: BlockReason
):
    answer = await behind.ask(connect(place))
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"`[tools.sandbox] network_allow`" in answer
    assert behind.net.asked == behind.net.dialled == []
    assert behind.records[-1].block_reason is block


@each_row(
    "addresses",
    [
        ["127.0.0.1"],
        ["169.254.169.254"],
        ["10.0.0.1"],
        ["::1"],
        ["fe80::1%eth0"],
        [PUBLIC, "192.168.1.1"],
        ["::ffff:10.0.0.1"],
        ["64:ff9b::7f00:1"],
    ],
)
async def test_an_allowed_name_that_leads_to_a_private_address_is_refused(behind: Behind, addresses: list[str]):
    behind.net.names["docs.example.com"] = [addresses]
    assert (await behind.ask(connect("docs.example.com:443"))).startswith(b"HTTP/1.1 403 ")
    assert behind.net.dialled == []


async def test_a_name_that_changes_its_address_is_looked_up_once_a_connection(behind: Behind):
    behind.net.names["docs.example.com"] = [[PUBLIC], ["127.0.0.1"]]
    assert b"200" in await behind.ask(connect("docs.example.com:443"))
    assert (await behind.ask(connect("docs.example.com:443"))).startswith(b"HTTP/1.1 403 ")
    assert behind.net.dialled == [PUBLIC]


async def test_a_connection_that_leads_elsewhere_is_closed(behind: Behind):
    behind.net.honest = True
    assert (await behind.ask(connect("docs.example.com:443"))).startswith(b"HTTP/1.1 403 ")
    assert behind.received == []


async def test_a_host_that_is_not_there_is_no_wall(behind: Behind):
    behind.net.closed.add(PUBLIC)
    behind.net.names["a.example.org"] = [[]]
    assert (await behind.ask(connect("docs.example.com:443"))).startswith(b"HTTP/1.1 502 ")
    assert b"cannot be resolved" in await behind.ask(connect("a.example.org:443"))
    assert [(record.address, record.block_reason) for record in behind.records] == [(None, None)] * 2


async def test_what_the_list_loses_is_refused_from_the_next_connection_on(behind: Behind):
    assert b"200" in await behind.ask(connect("docs.example.com:443"))
    behind.allowed.clear()
    assert (await behind.ask(connect("docs.example.com:443"))).startswith(b"HTTP/1.1 403 ")


async def test_a_fault_of_our_own_costs_one_connection_and_not_the_proxy(behind: Behind):
    behind.fails = True
    with suppress(OSError):
        assert b"200" not in await behind.ask(connect("docs.example.com:443"))
    behind.fails = False
    assert await behind.ask(connect("docs.example.com:443"), b"hello") == b"hello<end>"


BAD = [
    b"GET / HTTP/1.1\r\nHost: docs.example.com\r\n\r\n",
    b"CONNECT docs.example.com HTTP/1.1\r\n\r\n",
    b"CONNECT docs.example.com:443\r\n\r\n",
    b"CONNECT docs.example.com:443 HTTP/2.0\r\n\r\n",
    b"CONNECT  docs.example.com:443 HTTP/1.1\r\n\r\n",
    b"CONNECT evil.com\0.docs.example.com:443 HTTP/1.1\r\n\r\n",
    b"CONNECT evil.com%00.docs.example.com:443 HTTP/1.1\r\n\r\n",
    b"CONNECT evil.com\tdocs.example.com:443 HTTP/1.1\r\n\r\n",
    b"CONNECT user@docs.example.com:443 HTTP/1.1\r\n\r\n",
    b"CONNECT docs.example.com:443@evil.com:443 HTTP/1.1\r\n\r\n",
    b"CONNECT docs.example.com:443:443 HTTP/1.1\r\n\r\n",
    b"CONNECT docs_x.example.org:443 HTTP/1.1\r\n\r\n",
    b"CONNECT -a.example.org:443 HTTP/1.1\r\n\r\n",
    b"CONNECT ..example.org:443 HTTP/1.1\r\n\r\n",
    b"CONNECT docs.example.com..:443 HTTP/1.1\r\n\r\n",
    b"CONNECT d\xc3\xb6cs.example.org:443 HTTP/1.1\r\n\r\n",
    b"CONNECT xn--a.example.org:443 HTTP/1.1\r\n\r\n",
    b"CONNECT 8.8.2056:443 HTTP/1.1\r\n\r\n",
    b"CONNECT 134744072:443 HTTP/1.1\r\n\r\n",
    b"CONNECT 0x8.8.8.8:443 HTTP/1.1\r\n\r\n",
    b"CONNECT 010.8.8.8:443 HTTP/1.1\r\n\r\n",
    b"CONNECT 0x7f.1:443 HTTP/1.1\r\n\r\n",
    b"CONNECT [::1%25lo]:443 HTTP/1.1\r\n\r\n",
    b"CONNECT [::::]:443 HTTP/1.1\r\n\r\n",
    b"CONNECT ::1:443 HTTP/1.1\r\n\r\n",
    b"CONNECT docs.example.com:443 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"CONNECT docs.example.com:443 HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
    b"CONNECT docs.example.com:443 HTTP/1.1\r\nHost : x\r\n\r\n",
    b"CONNECT docs.example.com:443 HTTP/1.1\r\n folded\r\n\r\n",
    b"CONNECT docs.example.com:443 HTTP/1.1\nHost: x\r\n\r\n",
    b"CONNECT docs.example.com:443 HTTP/1.1\r\nA: b\rCONNECT evil.com:443 HTTP/1.1\r\n\r\n",
    b"CONNECT docs.example.com:443 HTTP/1.1\r\nA: \0\r\n\r\n",
    b"CONNECT docs.example.com:443 HTTP/1.1\r\nA:" + b" " * 32000 + b"\0\r\n\r\n",
    b"GET http://user:key@docs.example.com/ HTTP/1.1\r\n\r\n",
    b"GET http://docs.example.com@evil.com/ HTTP/1.1\r\n\r\n",
    b"GET http://evil.com\\@docs.example.com/ HTTP/1.1\r\n\r\n",
    b"GET http://evil.com#@docs.example.com/ HTTP/1.1\r\n\r\n",
    b"GET https://docs.example.com/ HTTP/1.1\r\n\r\n",
    b"GET ftp://docs.example.com/ HTTP/1.1\r\n\r\n",
    b"GET http://docs.example.com/a b HTTP/1.1\r\n\r\n",
    b"CONNECT http://docs.example.com/ HTTP/1.1\r\n\r\n",
    b"\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    b"\x05\x01\x00\r\n\r\n",
]


@each_row("sent", BAD)
async def test_what_can_be_read_in_two_ways_is_refused(behind: Behind, sent: bytes):
    answer = await behind.ask(sent)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert behind.net.asked == behind.net.dialled == behind.received == []
    assert "key" not in str(behind.records)


NASTY = st.text(
    st.sampled_from(list(string.ascii_letters + string.digits + ".-_:[]@%/\\#?\0\r\n\t 。．ＡⅠ①ß\u200d\u0130x0"))
)
NAMES = st.one_of(
    NASTY,
    st.tuples(NASTY, st.sampled_from(ALLOWED), NASTY).map("".join),
    st.ip_addresses().map(str),
    st.integers(0, 2**32).map(str),
    st.integers(0, 2**32).map(hex),
)


@given(name=NAMES, port=st.integers(-1, 70000), absolute=st.booleans())
@example(name="DOCS.EXAMPLE.COM?", port=0, absolute=True)
def test_whatever_name_a_command_sends_only_a_listed_host_gets_through(name: str, port: int, *, absolute: bool):
    line = f"GET http://{name}:{port}/ HTTP/1.1" if absolute else f"CONNECT {name}:{port} HTTP/1.1"
    try:
        request = ProxyRequest.read(f"{line}\r\nHost: docs.example.com\r\n\r\n".encode())
        check_allowed(allowed_hosts(ALLOWED), request.host, request.port)
    except (ValueError, RequestBlocked):
        return
    assert request.host in ("docs.example.com", "8.8.8.8") or (
        request.host.endswith(".example.org") and request.host.count(".") == 2
    )
    assert request.port in (443, 80)
    sent = re.split("[/?#]", name)[0] if absolute else name  # the port may be a part of a query
    assert sent.lower().removesuffix(".") == request.host
    assert request.head.count(b"\r\n\r\n") == int(absolute)


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_any_bytes_are_read_without_another_error(first: bytes, rest: bytes):
    for head in (first + b"\r\n" + rest, b"CONNECT docs.example.com:443 HTTP/1.1\r\n" + rest):
        try:
            request = ProxyRequest.read(head + b"\r\n\r\n")
        except ValueError:
            continue
        assert b"\r\n\r\n" not in request.head[:-4]


@each_row("text", ["https://a.com", "a.com:443", "*", "*.*.com", "127.1", "a.com/x", " ", "a b.com"])
def test_an_entry_that_could_never_match_is_a_configuration_error(text: str):
    with pytest.raises(ConfigError, match=r"^\[tools\.sandbox\]: network_allow = "):
        allowed_hosts((text,))


@each_row("text", ["localhost", "*.internal", "printer.local", "10.0.0.1", "169.254.169.254", "::1"])
def test_a_host_of_this_network_is_refused_even_where_it_is_listed(text: str):
    host = text.replace("*", "a")
    with pytest.raises(RequestBlocked) as caught:
        check_allowed(allowed_hosts((text,)), host, 443)
    assert caught.value.block is BlockReason.SSRF


# --------------------------------------------------------------------------------------------- bounds and ends


async def test_a_request_that_is_too_long_or_never_whole_is_answered(behind: Behind, monkeypatch: pytest.MonkeyPatch):
    assert (await behind.ask(b"CONNECT docs.example.com:443 HTTP/1.1\r\n" + b"A: b\r\n" * 9000)).startswith(
        b"HTTP/1.1 431 "
    )
    monkeypatch.setattr(module, "HEAD_SECONDS", 0.05)
    with anyio.fail_after(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", behind.proxy.port)
        with closing(writer):
            writer.write(b"CONNECT docs.exam")
            assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
    assert behind.net.asked == []


async def test_half_a_request_and_then_the_end_is_no_request(behind: Behind):
    assert await behind.ask(b"CONNECT docs.example.com:443 HTTP/1.1\r\n") == b""
    assert behind.records == []


async def test_a_silent_host_is_given_up(behind: Behind, monkeypatch: pytest.MonkeyPatch):
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    behind.serve = silent
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.05)
    with anyio.fail_after(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", behind.proxy.port)
        with closing(writer):
            writer.write(connect("docs.example.com:443"))
            assert (await reader.read()).endswith(b"\r\n\r\n")
        await behind.ended.wait()


async def test_a_host_that_never_takes_the_connection_is_given_up(behind: Behind):
    behind.net.dead.add(PUBLIC)
    assert (await behind.ask(connect("docs.example.com:443"))).startswith(b"HTTP/1.1 502 ")


async def test_a_large_answer_arrives_whole_though_the_host_hangs_up_at_once(behind: Behind):
    body = os.urandom(5_000_000)

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(body)
        await writer.drain()

    behind.serve = pour
    assert await behind.ask(connect("docs.example.com:443"), b"x") == body


async def test_two_hundred_connections_at_once_are_all_served(behind: Behind):
    answers: list[bytes] = []

    async def one() -> None:
        answers.append(await behind.ask(connect("docs.example.com:443"), b"hi"))

    async with anyio.create_task_group() as tasks:
        for _ in range(200):
            tasks.start_soon(one)
    assert answers == [b"hi<end>"] * 200
    assert len(behind.records) == 200


async def test_a_flood_is_slowed_down(behind: Behind, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "BURST", 3)
    paused: list[float] = []

    async def noted(seconds: float) -> None:
        paused.append(seconds)

    monkeypatch.setattr(module.anyio, "sleep", noted)
    for _ in range(8):
        await behind.ask(connect("evil.com:443"))
    assert paused


async def test_close_ends_everything_and_leaves_no_thread():
    made = Behind()
    await made.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", made.proxy.port)
    writer.write(connect("docs.example.com:443"))
    await reader.readuntil(b"\r\n\r\n")
    await made.stop()
    assert await reader.read() == b""
    writer.close()
    await made.ended.wait()
    assert "sandbox proxy" not in [thread.name for thread in threading.enumerate()]
    with pytest.raises(OSError, match="failed"):
        await asyncio.open_connection("127.0.0.1", made.proxy.port)
    await made.server.wait_closed()
    await anyio.to_thread.run_sync(made.proxy.close)  # a second time does nothing
