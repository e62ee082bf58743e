"""HTTP/1.1 to a model server: one request at a time over a connection of our own.

Every turn waits for it, so it does what model servers need and nothing else. A request is one write, and what has
arrived is one piece, of however many chunks the server made it. Sources: RFC 9112 (HTTP/1.1), RFC 9110 (its semantics).
"""

import asyncio
import base64
import os
import re
import select
import ssl
import zlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import field
from typing import Final, NamedTuple, cast
from urllib.parse import SplitResult, quote, unquote

import anyio

from acp_agent.core.data import frozen
from acp_agent.core.errors import ProviderErrorKind

CONNECT_TIMEOUT: Final = 10.0
WRITE_TIMEOUT: Final = 60.0
KEEPALIVE: Final = 60.0  # a tool call between two requests should not cost a new TLS handshake
_HEAD_LIMIT: Final = 100 * 1024
_LINE_LIMIT: Final = 4096
"""The most bytes of the line with a chunk's size."""
_BACKLOG: Final = 1024 * 1024
"""Bytes of an answer that are received before they are asked for. With more, the server has to wait."""
_UNPACKED: Final = 1024 * 1024
"""The most bytes that are unpacked at a time."""
_NEXT_ADDRESS: Final = 0.25
"""Seconds after which the next address of a host is tried beside the first (RFC 8305, 8)."""
_PORTS: Final = {"http": 80, "https": 443}

_Kind = ProviderErrorKind

# What failed. {peer}, {origin}, {reason} and {read:g} are filled in.
NO_CONNECTION: Final = "no connection to {peer} at {origin} within 10 s: check network and proxy"
SILENT: Final = "{peer} sent nothing for {read:g} s"
NOT_TAKEN: Final = "{peer} at {origin} did not take the request in time"
UNREACHABLE: Final = "cannot reach {peer} at {origin}{reason}: check base_url and the network"
BROKEN: Final = "the connection to {peer} broke{reason}"
BROKEN_OFF: Final = "{peer} at {origin} closed the connection before its answer ended"
WRONGLY_PACKED: Final = "{peer} sent a body that does not match its content-encoding"
NOT_HTTP: Final = "base_url of {peer} is not an http or https address"
NO_ADDRESS: Final = "base_url of {peer} is not a valid address"
NOT_SENDABLE: Final = "the request to {peer} cannot be sent: check its API key and base_url"


@frozen
class HttpRequest:
    """A request: POST with a body, GET without. `peer` is the provider's name, for messages. Times are in seconds.

    Headers and body are not in the repr, since they hold the key and the conversation.
    """

    peer: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(default=None, repr=False)
    read_timeout: float = 300.0


class HttpError(Exception):
    """An exchange that failed. Its text has the fields {peer}, {origin}, {reason} and {read:g}.

    It never quotes what was sent, which may hold the key, and of other errors only the cause in the operating system.
    """

    def __init__(self, kind: ProviderErrorKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


def unusable(error: Exception) -> HttpError:
    """Return the error for settings of the environment that cannot be used."""
    # The values may contain a proxy's password, so the message has only the names.
    text = (
        "{peer} cannot be reached: the proxy or certificate settings of the environment are unusable "
        f"({type(error).__name__}): check HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR"
    )
    return HttpError(_Kind.NOT_CONFIGURED, text)


def _broken_off() -> HttpError:
    return HttpError(_Kind.NETWORK, BROKEN_OFF)


class Address(NamedTuple):
    """Where a request goes. `host` stands without brackets."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def address_of(parsed: SplitResult) -> Address:
    """Return the address of a URL. Raises HttpError."""
    if parsed.scheme not in _PORTS:
        raise HttpError(_Kind.PROTOCOL, NOT_HTTP)
    try:
        host, port = parsed.hostname or "", parsed.port
        if not host.isascii():
            import idna  # noqa: PLC0415 - few hosts need it

            host = idna.encode(host).decode()
    except ValueError:
        host, port = "", None
    if not host or not host.isprintable() or " " in host:
        raise HttpError(_Kind.PROTOCOL, NO_ADDRESS)
    return Address(parsed.scheme, host, port or _PORTS[parsed.scheme])


def system_trust() -> ssl.SSLContext:
    """Return a context that trusts the certificates of certifi, or of SSL_CERT_FILE or SSL_CERT_DIR. Raises HttpError.

    It reads the certificates, which takes tens of milliseconds.
    """
    import certifi  # noqa: PLC0415 - plain HTTP needs none

    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    try:
        context = ssl.create_default_context(
            cafile=file or (None if folder else certifi.where()), capath=None if file else folder
        )
    except OSError as error:
        raise unusable(error) from error
    context.set_alpn_protocols(["http/1.1"])
    return context


class HttpConnection(asyncio.Protocol):
    """A connection to a server: bytes out, and bytes in."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._ended = self._paused = self._unsent = False
        self._failure: Exception | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(0)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > _BACKLOG and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def pause_writing(self) -> None:
        self._unsent = True

    def resume_writing(self) -> None:
        self._unsent = False
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended, self._failure = True, exc
        self._wake()

    def _wake(self, failure: Exception | None = None) -> None:
        if self._arrival is None or self._arrival.done():
            return
        if failure is None:
            self._arrival.set_result(None)
        else:
            self._arrival.set_exception(failure)

    def write(self, data: bytes) -> None:
        """Send bytes. They wait in memory while the server does not read."""
        if self._transport is not None and not self._ended:
            self._transport.write(data)

    async def read(self, patience: float) -> bytes:
        """Return what has arrived, as soon as there is anything; b"" at the end. Raises HttpError."""
        while not self._received and not self._ended:
            await self._wait(patience)
        if not self._received and self._failure is not None:
            raise HttpError(_Kind.NETWORK, BROKEN) from self._failure
        data = bytes(self._received)
        self._received.clear()
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    async def _wait(self, patience: float) -> None:
        """Wait until anything has arrived, or has been sent."""
        loop = asyncio.get_running_loop()
        self._arrival = loop.create_future()
        if self._unsent:
            timer = loop.call_later(WRITE_TIMEOUT, self._wake, HttpError(_Kind.TIMEOUT, NOT_TAKEN))
        else:
            timer = loop.call_later(patience, self._wake, HttpError(_Kind.TIMEOUT, SILENT))
        try:
            await self._arrival
        finally:
            timer.cancel()
            self._arrival = None

    def rest(self) -> None:
        """Note that there is no request on the connection now."""
        self._idle_since = asyncio.get_running_loop().time()

    @property
    def is_usable(self) -> bool:
        """Whether an idle connection can take a request. If anything has arrived, the server has closed it at best."""
        if self._transport is None or self._ended or self._received or self._transport.is_closing():
            return False
        if asyncio.get_running_loop().time() - self._idle_since > KEEPALIVE:
            return False
        poll = select.poll()  # the event loop may not have seen it yet
        poll.register(self._transport.get_extra_info("socket"), select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """Close the connection without waiting."""
        if self._transport is not None:
            self._transport.abort()


async def connect(address: Address, tls: ssl.SSLContext | None) -> HttpConnection:
    """Open a connection, with TLS if there is a context. Raises HttpError."""
    opening = asyncio.get_running_loop().create_connection
    name = address.host if tls else None
    try:
        with anyio.fail_after(CONNECT_TIMEOUT):
            _, connection = await opening(
                HttpConnection,
                address.host,
                address.port,
                ssl=tls,
                server_hostname=name,
                happy_eyeballs_delay=_NEXT_ADDRESS,
            )
    except TimeoutError as error:
        raise HttpError(_Kind.TIMEOUT, NO_CONNECTION) from error
    except (OSError, UnicodeError) as error:
        raise HttpError(_Kind.NETWORK, UNREACHABLE) from error
    return connection


# ---------------------------------------------------------------------------------------------- exchanges

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")
_SAFE: Final = "/%:=&?~+!$,;'@()*[]"
_HEAD_END: Final = re.compile(rb"\n\r?\n")
_STATUS: Final = re.compile(rb"HTTP/1\.([01]) (\d\d\d)(?: .*)?", re.DOTALL)
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?\r?", re.DOTALL)
_LINE_ENDS: Final = (b"", b"\r")


def request_bytes(request: HttpRequest, parsed: SplitResult, address: Address, headers: Mapping[str, str]) -> bytes:
    """Return a request as it is sent. Raises HttpError for a header that cannot be sent."""
    sent = {"host": address.authority, "accept": "*/*", "accept-encoding": "gzip, deflate", **headers}
    if parsed.username is not None:
        pair = f"{unquote(parsed.username)}:{unquote(parsed.password or '')}"
        sent["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    sent.pop("transfer-encoding", None)
    if request.body is not None:
        sent["content-length"] = str(len(request.body))
    target = quote(f"{parsed.path or '/'}{'?' if parsed.query else ''}{parsed.query}", safe=_SAFE)
    lines = [f"{'GET' if request.body is None else 'POST'} {target} HTTP/1.1"]
    for name, value in sent.items():
        if not (_TOKEN.fullmatch(name) and _VALUE.fullmatch(value)):
            raise HttpError(_Kind.PROTOCOL, NOT_SENDABLE)
        lines.append(f"{name}: {value}")
    return "\r\n".join((*lines, "", "")).encode("latin-1") + (request.body or b"")


class ChunkDecoder:
    """A decoder of the chunked transfer coding (RFC 9112, 7.1).

    ended   whether the body is over
    rest    what follows the body
    """

    def __init__(self) -> None:
        self._left = 0  # bytes of the chunk that are still to come
        self._line = b""  # an incomplete line
        self._after = self._trailing = self.ended = False
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """Return the content of these bytes. Raises HttpError."""
        data, content, at = self._line + data, list[bytes](), 0
        self._line = b""
        while not self.ended:
            if self._left:
                piece = data[at : at + self._left]
                content.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if self._left:
                    break
                self._after = True
            end = data.find(b"\n", at)
            if end < 0:
                self._line = data[at:]
                break
            self._take_line(data[at:end])
            at = end + 1
        if len(self._line) > _LINE_LIMIT:
            raise _broken_off()
        self.rest = data[at:] if self.ended else b""
        return b"".join(content)

    def _take_line(self, line: bytes) -> None:
        if self._trailing:
            self.ended = line in _LINE_ENDS
        elif self._after and line in _LINE_ENDS:
            self._after = False
        elif not self._after and (size := _SIZE.fullmatch(line)):
            self._left = int(size[1], 16)
            self._trailing = not self._left
        else:
            raise _broken_off()


class DirectExchange:
    """A request over a connection of ours. See _Exchange.

    reusable   whether the response was read to its end and the connection may take another request
    """

    def __init__(self, connection: HttpConnection, patience: float) -> None:
        self._connection = connection
        self._patience = patience
        self._received = b""
        self._persistent = False
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.reusable = False

    async def begin(self, request: bytes) -> None:
        """Send the request and receive the head of its response. Raises HttpError."""
        self._connection.write(request)
        while self.status < 200:  # the others announce a response
            self._read_head(await self._head())

    async def _head(self) -> bytes:
        while not (end := _HEAD_END.search(self._received)):
            if len(self._received) > _HEAD_LIMIT or not self._received.startswith(b"HTTP/1."[: len(self._received)]):
                raise _broken_off()
            self._received += await self._more()
        head = self._received[: end.start()]
        self._received = self._received[end.end() :]
        return head

    def _read_head(self, head: bytes) -> None:
        first, *lines = re.split(rb"\r?\n", head.removesuffix(b"\r"))
        status = _STATUS.fullmatch(first)
        if status is None:
            raise _broken_off()
        headers = dict[str, str]()
        for line in lines:
            name, colon, value = line.decode("latin-1").partition(":")
            if not colon or not _TOKEN.fullmatch(name):
                raise _broken_off()
            name, value = name.lower(), value.strip()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        self.status, self.headers = int(status[2]), headers
        said = headers.get("connection", "").lower()
        self._persistent = "close" not in said if status[1] == b"1" else "keep-alive" in said

    async def body(self) -> AsyncGenerator[bytes]:
        """See _Exchange."""
        packing = self.headers.get("content-encoding", "").lower()
        async with aclosing(self._content()) as pieces:
            if packing in ("", "identity"):
                async for piece in pieces:
                    if piece:
                        yield piece
                return
            if packing not in ("gzip", "x-gzip", "deflate"):
                raise HttpError(_Kind.PROTOCOL, WRONGLY_PACKED)
            inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)  # gzip or zlib
            async for piece in pieces:
                packed = piece
                while packed and not inflate.eof:
                    try:
                        unpacked = inflate.decompress(packed, _UNPACKED)
                    except zlib.error as error:
                        raise HttpError(_Kind.PROTOCOL, WRONGLY_PACKED) from error
                    packed = inflate.unconsumed_tail
                    if unpacked:
                        yield unpacked

    async def _content(self) -> AsyncGenerator[bytes]:
        """Yield the body without its transfer coding."""
        coding, lengths = self.headers.get("transfer-encoding", ""), self.headers.get("content-length")
        left = 0
        if self.status in (204, 304):
            lengths = "0"
        elif coding:
            if coding.lower() != "chunked":
                raise _broken_off()
            chunks = ChunkDecoder()
            content = chunks.feed(self._received)
            while not chunks.ended:
                yield content
                content = chunks.feed(await self._more())
            self.reusable = self._persistent and not chunks.rest  # now: the last piece is often all that is wanted
            yield content
            return
        piece = self._received
        if lengths is None:  # the end of the connection ends it
            yield piece
            while piece := await self._connection.read(self._patience):
                yield piece
            return
        each = {length.strip() for length in lengths.split(",")}
        if len(each) != 1 or not (said := each.pop()).isdecimal() or len(said) > 18:
            raise _broken_off()
        left = int(said)
        while left > len(piece):
            left -= len(piece)
            yield piece
            piece = await self._more()
        self.reusable = self._persistent and left == len(piece)
        yield piece[:left]

    async def _more(self) -> bytes:
        data = await self._connection.read(self._patience)
        if not data:
            raise _broken_off()
        return data
