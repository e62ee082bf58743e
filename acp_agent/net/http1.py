"""HTTP/1.1 to a model server: a connection carries one request at a time.

A turn waits for each request. For speed, a request is sent with one write, and all bytes that have arrived are read as
one piece, however many chunks they hold. llhttp, the parser of Node.js, parses the responses.
Sources: RFC 9112 (HTTP/1.1), RFC 9110 (semantics).
"""

import asyncio
import base64
import os
import re
import select
import ssl
import zlib
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import field
from typing import Final, NamedTuple, cast
from urllib.parse import SplitResult, quote, unquote

import anyio
import httptools

from acp_agent.core.data import frozen
from acp_agent.core.errors import ProviderErrorKind

CONNECT_TIMEOUT: Final = 10.0
WRITE_TIMEOUT: Final = 60.0
KEEPALIVE: Final = 60.0  # seconds; long enough for a tool call between two requests, to save a TLS handshake
_HEAD_LIMIT: Final = 100 * 1024
_FINAL: Final = 200
"""The lowest status of a final answer. Lower ones are interim."""
_BACKLOG: Final = 1024 * 1024
"""Above this many unread bytes of an answer, reading from the socket pauses."""
_GZIP: Final = b"\x1f\x8b"
"""The first bytes of every member of gzip data (RFC 1952, 2.3.1)."""
_PACKED: Final = 16 * 1024
"""The most bytes that are given to zlib at a time. It copies all that follow a member of gzip data."""
_UNPACKED: Final = 1024 * 1024
"""The most bytes that are unpacked at a time."""
_NEXT_ADDRESS: Final = 0.25
"""Seconds after which the next address of a host is tried while the first is still connecting (RFC 8305, 8)."""
_PORTS: Final = {"http": 80, "https": 443}

_Kind = ProviderErrorKind

# Messages for failures. `{peer}`, `{origin}`, `{reason}` and `{read:g}` are filled in.
NO_CONNECTION: Final = "no connection to {peer} at {origin} within 10 s: check network and proxy"
SILENT: Final = "{peer} sent nothing for {read:g} s"
NOT_TAKEN: Final = "{peer} at {origin} did not take the request in time"
UNREACHABLE: Final = "cannot reach {peer} at {origin}{reason}: check base_url and the network"
BROKEN: Final = "the connection to {peer} broke{reason}"
BROKEN_OFF: Final = "{peer} at {origin} closed the connection before its answer ended"
WRONGLY_PACKED: Final = "{peer} sent a body that does not match its content-encoding"
CUT: Final = "{peer} at {origin} sent a compressed body whose end is missing"
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
    """An exchange that failed. Its text is a template with the fields {peer}, {origin}, {reason} and {read:g}.

    The text never quotes the request, which may hold the key. Of other errors it quotes only the operating system's.
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
    """The address of a request. An IPv6 `host` has no brackets."""

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
    """Return a context that trusts the certificates of certifi, or of SSL_CERT_FILE or SSL_CERT_DIR. Raises OSError.

    It reads the certificates, which takes tens of milliseconds.
    """
    import certifi  # noqa: PLC0415 - plain HTTP needs none

    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    usual = None if folder else certifi.where()
    context = ssl.create_default_context(cafile=file or usual, capath=None if file else folder)
    context.set_alpn_protocols(["http/1.1"])
    return context


class HttpConnection(asyncio.Protocol):
    """A connection to a server, which sends and receives bytes."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._ended = self._paused = self._unsent = False
        self._failure: Exception | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(1, 0)  # with a high mark of 0, TLS would pause with nothing unsent

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
        """Send bytes without waiting. They stay in memory until the server reads them."""
        if self._transport is not None and not self._ended:
            self._transport.write(data)

    async def read(self, patience: float) -> bytes:
        """Wait for bytes and return all that have arrived; b"" at the end. Raises HttpError.

        patience   the most seconds without a byte
        """
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
        """Wait until bytes have arrived, or until the unsent bytes are sent."""
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
        """Note that the connection is idle from now on."""
        self._idle_since = asyncio.get_running_loop().time()

    @property
    def is_usable(self) -> bool:
        """Whether an idle connection can take a request. It cannot if bytes have arrived without a request."""
        if self._transport is None or self._ended or self._received or self._transport.is_closing():
            return False
        if self._unsent:  # the server answered before it had read the last request
            return False
        if asyncio.get_running_loop().time() - self._idle_since > KEEPALIVE:
            return False
        poll = select.poll()  # bytes or the end may have arrived that the event loop has not read yet
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


def head_bytes(parsed: SplitResult, address: Address, headers: Mapping[str, str], *, has_body: bool) -> bytes:
    """Return the head of a request, without the end and the length of its body.

    Raises HttpError for a header that cannot be sent.
    """
    sent = {"host": address.authority, "accept": "*/*", "accept-encoding": "gzip", **headers}
    for name in ("transfer-encoding", "content-length"):
        sent.pop(name, None)
    try:
        if parsed.username is not None:
            pair = f"{unquote(parsed.username)}:{unquote(parsed.password or '')}"
            sent["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        target = quote(f"{parsed.path or '/'}{'?' if parsed.query else ''}{parsed.query}", safe=_SAFE)
    except UnicodeEncodeError:  # a byte of the environment that is no UTF-8
        raise HttpError(_Kind.PROTOCOL, NO_ADDRESS) from None
    lines = [f"{'POST' if has_body else 'GET'} {target} HTTP/1.1"]
    for name, value in sent.items():
        if not (_TOKEN.fullmatch(name) and _VALUE.fullmatch(value)):
            raise HttpError(_Kind.PROTOCOL, NOT_SENDABLE)
        lines.append(f"{name}: {value}")
    return "\r\n".join((*lines, "")).encode("latin-1")


def request_bytes(head: bytes, body: bytes | None) -> bytes:
    """Return a request as it is sent."""
    return b"%s\r\n" % head if body is None else b"%scontent-length: %d\r\n\r\n%s" % (head, len(body), body)


class _Response:
    """The part of a response that llhttp has parsed: its head, and the pieces of its body since the last `taken`.

    ended       whether the response is complete
    reusable    whether the connection may take another request after it
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers = dict[str, str]()
        self.ended = self.reusable = False
        self._pieces = list[bytes]()
        self._framed = False  # whether the head says where the body ends
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True)  # RFC 9112, 2.2

    def feed(self, data: bytes) -> None:
        """Parse the next bytes. b"" means that the connection has ended. Raises HttpError."""
        if not data:
            self.ended = self.ended or (self.status >= _FINAL and not self._framed)
            if not self.ended:
                raise _broken_off()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.reusable = False
            if not self.ended:
                raise _broken_off() from error

    def end(self) -> None:
        """Delete the parser. It refers to this object, so otherwise only the garbage collector would free both."""
        del self._parser

    def taken(self) -> bytes:
        """Return and forget the pieces of the body."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data

    # The parser calls the methods below.

    def on_message_begin(self) -> None:
        self.reusable = False  # a response without a request

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:
            known, said = name.decode("latin-1").lower(), value.decode("latin-1")
            self.headers[known] = f"{self.headers[known]}, {said}" if known in self.headers else said

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self.status or status < _FINAL:  # trailers after the body, or an interim response
            self.headers = self.headers if self.status else {}
            return
        coding = self.headers.get("transfer-encoding", "").lower()
        if coding not in ("", "chunked"):
            raise httptools.HttpParserError("an unknown transfer coding")
        self._framed = bool(coding) or "content-length" in self.headers
        self.status = status

    def on_body(self, body: bytes) -> None:
        if not self.ended:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self.status and not self.ended:
            self.ended, self.reusable = True, self._parser.should_keep_alive()


class DirectExchange:
    """A request over an `HttpConnection`, with `status` and `headers` from the end of `begin` on. See `_Exchange`.

    on_end   called at the end, with True if the connection may take another request
    """

    def __init__(self, connection: HttpConnection, patience: float, on_end: Callable[[bool], object] = bool) -> None:
        self._connection = connection
        self._patience = patience
        self._on_end = on_end
        self._response = _Response()
        self.status = 0
        self.headers: Mapping[str, str] = {}

    @property
    def reusable(self) -> bool:
        """Whether the response was received to its end and the connection may take another request."""
        return self._response.reusable

    async def aclose(self) -> None:
        """Read no more of the response."""
        self._on_end(self.reusable)
        self._response.end()

    async def begin(self, request: bytes) -> None:
        """Send the request and receive the head of its response. Raises HttpError."""
        self._connection.write(request)
        received, response = 0, self._response
        while not response.status:
            data = await self._connection.read(self._patience)
            received += len(data)
            response.feed(data)
            if not response.status and received > _HEAD_LIMIT:
                raise _broken_off()
        self.status, self.headers = response.status, response.headers

    def body(self) -> AsyncGenerator[bytes]:
        """Yield the decoded body as it arrives.

        Raises HttpError if it cannot be decoded, if the connection breaks, or if nothing arrives in time.
        """
        return unpacked(self._pieces(), self.headers.get("content-encoding", ""))

    async def _pieces(self) -> AsyncGenerator[bytes]:
        """Yield the body as it arrives, packed. Raises HttpError."""
        arrived = other = 0  # bytes; `other` counts chunk sizes, and fields after the body
        while True:
            piece = self._response.taken()
            other = 0 if piece else other + arrived
            if other > _HEAD_LIMIT:
                raise _broken_off()
            if piece:
                yield piece
            if self._response.ended:
                return
            data = await self._connection.read(self._patience)
            arrived = len(data)
            self._response.feed(data)


# ------------------------------------------------------------------------------------------------ packing


def unpacked(pieces: AsyncGenerator[bytes], packing: str) -> AsyncGenerator[bytes]:
    """Return the pieces of a body without their content-encoding.

    Raises HttpError, and the pieces do, if the body does not match the encoding, or if its end is missing.
    """
    try:
        unpacker = unpacker_of(packing)
    except WrongPackingError as error:
        raise HttpError(_Kind.PROTOCOL, WRONGLY_PACKED) from error
    return pieces if unpacker is None else _unpacked(pieces, unpacker)


async def _unpacked(pieces: AsyncGenerator[bytes], unpacker: "Unpacker") -> AsyncGenerator[bytes]:
    async with aclosing(pieces):
        try:
            async for packed in pieces:
                for piece in unpacker.unpack(packed, _UNPACKED):
                    yield piece
        except WrongPackingError as error:
            raise HttpError(_Kind.PROTOCOL, WRONGLY_PACKED) from error
    if not unpacker.complete:
        raise HttpError(_Kind.NETWORK, CUT)


class WrongPackingError(ValueError):
    """The body does not have its content-encoding, or the content-encoding was not asked for."""


def unpacker_of(encoding: str) -> "Unpacker | None":
    """Return the unpacker for a Content-Encoding header, or None if the body is not packed.

    Raises WrongPackingError.
    """
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return Unpacker(gzip=True)
        case "deflate":
            return Unpacker(gzip=False)
        case _:
            raise WrongPackingError(encoding)


class Unpacker:
    """An unpacker of gzip with any number of members, of zlib, or of bare deflate.

    ended     True after the end of the packed data; later bytes are ignored
    complete  True if the body may end here: before the first byte, or after the end of packed data
    """

    def __init__(self, *, gzip: bool) -> None:
        self._gzip = gzip
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16) if gzip else None
        self._held = b""  # too few bytes to recognize the format
        self.ended = False
        self.complete = True

    def unpack(self, chunk: bytes, most: int) -> Iterator[bytes]:
        """Yield the bytes that a chunk unpacks to, at most `most` (at least 1) at a time. Raises WrongPackingError."""
        packed, self._held = memoryview(self._held + chunk), b""
        at, is_full = 0, False
        while not self.ended and (at < len(packed) or is_full):
            if self._inflate is None:
                at = self._begin(packed, at)
                continue
            inflate, part, self.complete = self._inflate, packed[at : at + _PACKED], False
            try:
                piece = inflate.decompress(part, most)
            except zlib.error:
                raise WrongPackingError from None
            at += len(part) - len(inflate.unused_data if inflate.eof else inflate.unconsumed_tail)
            is_full = len(piece) == most and not inflate.eof  # zlib may hold more
            if inflate.eof:
                self._inflate, self.complete, self.ended = None, True, not self._gzip
            if piece:
                yield piece

    def _begin(self, packed: memoryview, at: int) -> int:
        """Begin a gzip member, or zlib or deflate data, at a place in a chunk. Return the place of the next byte."""
        if self._gzip and not packed[at]:  # padding
            padded = bytes(packed[at : at + _PACKED])
            return at + len(padded) - len(padded.lstrip(b"\0"))
        start = bytes(packed[at : at + 2])
        if len(start) < 2:
            self._held, self.complete = start, self._gzip
            return len(packed)
        if not self._gzip:
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS if _is_zlib(start) else -zlib.MAX_WBITS)
        elif start == _GZIP:
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
        else:
            self.ended = True
        return at


def _is_zlib(start: bytes) -> bool:
    """Return whether data begins with the zlib header of "deflate". Some servers omit it (RFC 9110, 8.4.1.2)."""
    return start[0] & 0x0F == 8 and int.from_bytes(start[:2], "big") % 31 == 0
