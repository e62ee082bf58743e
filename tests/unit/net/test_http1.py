"""What servers may do with HTTP/1.1, byte for byte: framing, ends, connections that are kept or not, and TLS."""

import asyncio
import base64
import gc
import gzip
import socket
import ssl
import subprocess
import sys
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httptools
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.net import http1
from acp_agent.net.client import HttpClient, HttpRequest
from acp_agent.net.http1 import Address, DirectExchange, HttpConnection, HttpError, connect

pytestmark = pytest.mark.anyio


class RawServer:
    """A server that answers the requests of each connection in order with these bytes. None closes the connection."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = list(answers)
        self.heads: list[bytes] = []
        self.connections = 0
        self.idle_closed = anyio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.answers:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                answer = self.answers.pop(0)
                if answer is None:
                    break
                writer.write(answer)
                if self.answers and self.answers[0] is None:
                    self.answers.pop(0)
                    break
            else:
                await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()
        self.idle_closed.set()


@asynccontextmanager
async def serving(raw: RawServer, tls: ssl.SSLContext | None = None) -> AsyncGenerator[int]:
    async with await asyncio.start_server(raw.serve, "127.0.0.1", 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    client = HttpClient()
    yield client
    await client.aclose()


async def get(http: HttpClient, port: int, *, path: str = "/", timeout: float = 5.0) -> bytes:
    with anyio.fail_after(10):
        async with http.send(HttpRequest("acme", f"http://127.0.0.1:{port}{path}", {}, None, timeout)) as answer:
            return await answer.body(1_000_000)


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class PieceByPiece(HttpConnection):
    """A connection on which an answer arrives in these pieces."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        super().__init__()
        self._left = [piece for piece in pieces if piece]

    async def read(self, patience: float) -> bytes:
        return self._left.pop(0) if self._left else b""


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.lists(st.integers(0, 400), max_size=8))
async def test_a_chunked_body_is_the_same_however_it_arrives(pieces: Sequence[bytes], cuts: Sequence[int]) -> None:
    chunks = b"".join(b"%x;ext=1\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    answer = CHUNKED + chunks + b"0\r\nTrailer: x\r\n\r\n"
    edges = [0, *sorted(min(cut, len(answer)) for cut in cuts), len(answer)]
    exchange = DirectExchange(PieceByPiece([answer[start:end] for start, end in pairwise(edges)]), 1.0)
    await exchange.begin(b"")
    assert b"".join([piece async for piece in exchange.body()]) == b"".join(pieces)
    assert exchange.headers == {"transfer-encoding": "chunked"}
    assert exchange.reusable


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\nContent-Length:2\n\nab",
        CHUNKED + b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n",
        CHUNKED.replace(b"chunked", b"Chunked") + b"2\r\na\x62\r\n0\r\n\r\n",
    ],
)
async def test_an_answer_that_says_its_end_leaves_the_connection_for_the_next(http: HttpClient, answer: bytes) -> None:
    raw = RawServer(answer, answer)
    async with serving(raw) as port:
        assert [await get(http, port), await get(http, port)] == [b"ab", b"ab"]
        await http.aclose()
    assert raw.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nabHTTP/1.1 200 OK\r\n",
        CHUNKED + b"2\r\nab\r\n0\r\n\r\nmore",
    ],
)
async def test_a_connection_that_must_not_serve_again_does_not(http: HttpClient, answer: bytes) -> None:
    raw = RawServer(answer, answer)
    async with serving(raw) as port:
        assert [await get(http, port), await get(http, port)] == [b"ab", b"ab"]
        await http.aclose()
    assert raw.connections == 2


async def test_many_connections_that_were_needed_at_the_same_time_are_kept(http: HttpClient) -> None:
    raw = RawServer(*[b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab"] * 80)
    async with serving(raw) as port:
        for _ in range(2):
            async with AsyncExitStack() as held:
                for _ in range(40):
                    request = HttpRequest("acme", f"http://127.0.0.1:{port}/", {}, None, 5.0)
                    answer = await held.enter_async_context(http.send(request))
                    assert await answer.body(10) == b"ab"
        await http.aclose()
    assert raw.connections == 40


async def test_an_exchange_leaves_nothing_to_the_garbage_collector(
    http: HttpClient, collect_new: Callable[[], int]
) -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab"
    async with serving(RawServer(answer, answer)) as port:
        await get(http, port)
        collect_new()
        await get(http, port)
        left = [each for each in gc.get_objects(0) if isinstance(each, httptools.HttpResponseParser)]
        await http.aclose()
    assert left == []


async def test_a_body_without_a_length_ends_with_the_connection(http: HttpClient) -> None:
    async with serving(RawServer(b"HTTP/1.1 200 OK\r\n\r\nab", None)) as port:
        assert await get(http, port) == b"ab"


async def test_an_idle_connection_that_the_server_closed_is_not_used(http: HttpClient) -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab"
    raw = RawServer(answer, None, answer)
    async with serving(raw) as port:
        assert await get(http, port) == b"ab"
        await raw.idle_closed.wait()
        assert await get(http, port) == b"ab"
        await http.aclose()
    assert raw.connections == 2


class HastyServer(RawServer):
    """A server that answers when it has read the head of a request, and reads no body."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 2\r\n\r\nab")
        await self.idle_closed.wait()
        writer.close()


async def test_a_connection_whose_request_the_server_has_not_read_is_not_used_again(http: HttpClient) -> None:
    raw = HastyServer()
    async with serving(raw) as port:
        for size in (30_000_000, 0):
            request = HttpRequest("acme", f"http://127.0.0.1:{port}/", {}, bytes(size), 5.0)
            async with http.send(request) as response:
                assert (response.status, await response.body(2)) == (413, b"ab")
        await http.aclose()
        raw.idle_closed.set()
    assert raw.connections == 2


async def test_who_leaves_with_the_last_piece_leaves_the_connection_too(http: HttpClient) -> None:
    answer = CHUNKED + b"2\r\nab\r\n0\r\n\r\n"
    raw = RawServer(answer, answer)
    async with serving(raw) as port:
        async with http.send(HttpRequest("acme", f"http://127.0.0.1:{port}/", {})) as response:
            assert await anext(response.chunks()) == b"ab"
        assert await get(http, port) == b"ab"
        await http.aclose()
    assert raw.connections == 1


@asynccontextmanager
async def open_connection() -> AsyncGenerator[tuple[HttpConnection, asyncio.Transport, socket.socket]]:
    """A connection, its transport, and the socket of the server."""
    here, there = socket.socketpair()
    there.setblocking(False)
    transport, connection = await asyncio.get_running_loop().create_connection(HttpConnection, sock=here)
    yield connection, transport, there
    connection.close()
    there.close()


async def test_a_server_that_sends_faster_than_anybody_reads_has_to_wait() -> None:
    async with open_connection() as (connection, transport, server):
        sending = asyncio.create_task(asyncio.get_running_loop().sock_sendall(server, bytes(8_000_000)))
        while transport.is_reading() and not sending.done():  # noqa: ASYNC110 - a transport has no event for it
            await asyncio.sleep(0)
        assert not sending.done()
        received = 0
        while received < 8_000_000:
            received += len(await connection.read(5.0))
        await sending
        assert received == 8_000_000


async def test_a_request_that_the_server_does_not_take_is_told_from_a_silent_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http1, "WRITE_TIMEOUT", 0.02)
    async with open_connection() as (connection, _, server):
        connection.write(bytes(8_000_000))
        with pytest.raises(HttpError, match="did not take the request in time"):
            await connection.read(1.0)
        await asyncio.get_running_loop().sock_sendall(server, b"ab")
        assert await connection.read(5.0) == b"ab"


async def test_over_tls_a_request_that_was_sent_is_not_waited_for_as_if_it_were_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http1, "WRITE_TIMEOUT", 0.02)
    ca, server, client = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    ca.issue_cert("localhost").configure_cert(server)  # pyright: ignore[reportUnknownMemberType]
    ca.configure_trust(client)  # pyright: ignore[reportUnknownMemberType]

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(2)
        for _ in range(4):
            await asyncio.sleep(0.03)
            writer.write(b"ab")
        writer.close()

    async with await asyncio.start_server(slow, "127.0.0.1", 0, ssl=server) as listening:
        connection = await connect(Address("https", "localhost", listening.sockets[0].getsockname()[1]), client)
        connection.write(b"go")
        assert [await connection.read(5.0) for _ in range(4)] == [b"ab"] * 4
        connection.close()


async def test_an_end_that_the_event_loop_has_not_seen_makes_an_idle_connection_unusable() -> None:
    async with open_connection() as (connection, _, server):
        connection.rest()
        assert connection.is_usable
        server.close()
        assert not connection.is_usable


async def test_what_nobody_asked_for_makes_an_idle_connection_unusable() -> None:
    async with open_connection() as (connection, _, server):
        connection.rest()
        server.send(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        for _ in range(10):  # the event loop reads it, so the socket has nothing more
            await asyncio.sleep(0)
        assert not connection.is_usable


async def test_a_connection_that_was_idle_for_too_long_is_not_used(
    http: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1, "KEEPALIVE", 0.0)
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab"
    raw = RawServer(answer, answer)
    async with serving(raw) as port:
        assert [await get(http, port), await get(http, port)] == [b"ab", b"ab"]
        await http.aclose()
    assert raw.connections == 2


async def test_a_connection_in_use_while_the_client_is_closed_is_closed_after_its_answer(http: HttpClient) -> None:
    raw = RawServer(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab")
    async with serving(raw) as port:
        async with http.send(HttpRequest("acme", f"http://127.0.0.1:{port}/", {})) as answer:
            await http.aclose()
            assert await answer.body(10) == b"ab"
        with anyio.fail_after(20):
            await raw.idle_closed.wait()


async def test_no_header_of_the_settings_frames_a_request(http: HttpClient) -> None:
    raw = RawServer(b"HTTP/1.1 204 No Content\r\n\r\n")
    async with serving(raw) as port:
        headers = {"Transfer-Encoding": "chunked", "Content-Length": "1"}
        async with http.send(HttpRequest("acme", f"http://127.0.0.1:{port}/", headers, b"body")) as answer:
            assert answer.status == 204
        await http.aclose()
    assert b"content-length: 4\r\n" in raw.heads[0]
    assert raw.heads[0].lower().count(b"content-length") == 1
    assert b"transfer-encoding" not in raw.heads[0].lower()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/2 200 OK\r\n\r\n",
        b"hello, this is no HTTP at all",
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2, 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\nab",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nab",
        CHUNKED + b"xyz\r\nab\r\n",
        CHUNKED + b"2\r\nabc\r\n",
        CHUNKED + b"1" * 5000,
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 200_000,
        CHUNKED + b"0\r\nx: " + b"a" * 2_000_000,
    ],
)
async def test_an_answer_that_breaks_the_rules_is_a_network_error(http: HttpClient, answer: bytes) -> None:
    async with serving(RawServer(answer, b"")) as port:
        with pytest.raises(ProviderError, match="closed the connection before its answer ended") as caught:
            await get(http, port)
        assert caught.value.kind is ProviderErrorKind.NETWORK
        await http.aclose()


@pytest.mark.parametrize(("coding", "pack"), [(b"gzip", gzip.compress), (b"deflate", zlib.compress)])
async def test_a_packed_body_is_unpacked(http: HttpClient, coding: bytes, pack: Callable[[bytes], bytes]) -> None:
    packed = pack(b"ab" * 900)
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: %s\r\ncontent-length: %d\r\n\r\n" % (coding, len(packed))
    async with serving(RawServer(head + packed)) as port:
        assert await get(http, port) == b"ab" * 900
        await http.aclose()


async def test_a_body_of_several_gzip_members_is_unpacked_however_it_arrives() -> None:
    packed = gzip.compress(b"ab") + gzip.compress(b"cd") + b"\0\0"
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)
    for cut in range(len(packed)):
        exchange = DirectExchange(PieceByPiece([head, packed[:cut], packed[cut:]]), 1.0)
        await exchange.begin(b"")
        assert b"".join([piece async for piece in exchange.body()]) == b"abcd"


async def test_a_body_that_unpacks_to_much_comes_in_pieces() -> None:
    packed = gzip.compress(bytes(8_000_000))
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)
    exchange = DirectExchange(PieceByPiece([head + packed]), 1.0)
    await exchange.begin(b"")
    sizes = [len(piece) async for piece in exchange.body()]
    assert (sum(sizes), max(sizes) <= 1024 * 1024) == (8_000_000, True)


async def unpacked_by(*pieces: bytes, coding: bytes = b"gzip") -> bytes:
    """What a response has for its body if it arrives in these pieces."""
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: %s\r\ncontent-length: %d\r\n\r\n" % (coding, sum(map(len, pieces)))
    exchange = DirectExchange(PieceByPiece([head, *pieces]), 1.0)
    await exchange.begin(b"")
    return b"".join([piece async for piece in exchange.body()])


@pytest.mark.parametrize(("coding", "pack"), [(b"gzip", gzip.compress), (b"deflate", zlib.compress)])
async def test_a_packed_body_that_is_cut_is_an_error(coding: bytes, pack: Callable[[bytes], bytes]) -> None:
    packed = pack(b"ab")
    for cut in range(1, len(packed)):
        with pytest.raises(HttpError, match="whose end is missing") as caught:
            await unpacked_by(packed[:cut], coding=coding)
        assert caught.value.kind is ProviderErrorKind.NETWORK
    assert await unpacked_by(coding=coding) == b"", "a body of nothing is whole"


async def test_a_later_member_of_a_packed_body_that_is_cut_is_an_error() -> None:
    member = gzip.compress(b"ab")
    for cut in range(2, len(member)):
        with pytest.raises(HttpError, match="whose end is missing"):
            await unpacked_by(member, member[:cut])


class CountingInflate:
    """zlib's decompressor, which counts the bytes that all of them are given."""

    given = 0
    make = zlib.decompressobj

    def __init__(self, bits: int) -> None:
        self._inflate = CountingInflate.make(bits)

    def decompress(self, data: bytes, most: int) -> bytes:
        CountingInflate.given += len(data)
        return self._inflate.decompress(data, most)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inflate, name)


async def test_twice_as_many_members_take_twice_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zlib, "decompressobj", CountingInflate)

    async def work(members: int) -> int:
        CountingInflate.given = 0
        await unpacked_by(gzip.compress(b"") * members)
        return CountingInflate.given

    assert await work(8000) < 2.5 * await work(4000)


@given(st.binary(max_size=40).map(lambda data: data * 50), st.integers(1, 3000))
def test_nothing_stays_behind_when_a_piece_is_full(data: bytes, most: int) -> None:
    """A flushed part of a body is unpacked to its end, though zlib may hold more than a piece has room for."""
    packer = zlib.compressobj(wbits=31)
    flushed = packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)
    unpacker = http1.unpacker_of("gzip")
    assert unpacker is not None
    assert b"".join(unpacker.unpack(flushed, most)) == data
    assert not unpacker.complete


@pytest.mark.parametrize("host", ["a b", "a\x01b", "a\x7f", ""])
async def test_a_host_that_is_none_is_named_as_the_fault(http: HttpClient, host: str) -> None:
    with pytest.raises(ProviderError, match="is not a valid address"):
        async with http.send(HttpRequest("acme", f"http://{host}/", {})):
            pass


async def test_a_path_is_sent_as_it_stands_and_made_sendable(http: HttpClient) -> None:
    answer = b"HTTP/1.1 204 No Content\r\n\r\n"
    raw = RawServer(answer, answer, answer)
    async with serving(raw) as port:
        for path in ("/v1%2Fx/a:b?q=1&r=%20", "/größe x", ""):
            assert await get(http, port, path=path) == b""
        await http.aclose()
    lines = [head.split(b"\r\n")[0] for head in raw.heads]
    assert lines == [
        b"GET /v1%2Fx/a:b?q=1&r=%20 HTTP/1.1",
        b"GET /gr%C3%B6%C3%9Fe%20x HTTP/1.1",
        b"GET / HTTP/1.1",
    ]
    assert f"host: 127.0.0.1:{port}".encode() in raw.heads[0]


TRUSTING = """
import anyio, sys
from acp_agent.core.errors import ProviderError
from acp_agent.net.client import HttpClient, HttpRequest

async def main():
    http = HttpClient()
    for _ in range(2):
        try:
            async with http.send(HttpRequest("acme", sys.argv[1], {}, b"{}")) as answer:
                print(answer.status, (await answer.body(100)).decode())
        except ProviderError as error:
            print(error.kind.value, error)
    await http.aclose()

anyio.run(main)
"""


async def test_tls_goes_to_servers_that_a_trusted_certificate_names(tmp_path: Path) -> None:
    ca, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost").configure_cert(tls)  # pyright: ignore[reportUnknownMemberType]
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab"
    raw = RawServer(answer, answer)

    async def told(url: str, **environment: str) -> str:
        command = [sys.executable, "-c", TRUSTING, url]
        return (await anyio.run_process(command, env=environment, stderr=subprocess.STDOUT)).stdout.decode()

    async with serving(raw, tls) as port:
        trusted = str(tmp_path / "ca.pem")
        assert await told(f"https://localhost:{port}/", SSL_CERT_FILE=trusted) == "200 ab\n200 ab\n"
        assert raw.connections == 1
        assert "CERTIFICATE_VERIFY_FAILED" in await told(f"https://localhost:{port}/")
        assert "CERTIFICATE_VERIFY_FAILED" in await told(f"https://127.0.0.1:{port}/", SSL_CERT_FILE=trusted)


async def test_a_server_that_has_taken_the_request_has_its_own_time_to_answer() -> None:
    connection = HttpConnection()
    connection.pause_writing()
    asyncio.get_running_loop().call_soon(connection.resume_writing)
    with anyio.fail_after(10), pytest.raises(HttpError) as raised:
        await connection.read(0)
    assert raised.value.text == http1.SILENT


def test_a_user_of_the_address_without_a_password_has_an_empty_one() -> None:
    url = urlsplit("http://me@box/x")
    sent = http1.head_bytes(url, Address("http", "box", 80), {}, has_body=False)
    assert f"authorization: Basic {base64.b64encode(b'me:').decode()}".encode() in sent.splitlines()
