"""HTTP/1.1 to a model server: one request at a time over a connection of our own.

A turn waits for each request. So a request is sent with one write, and all that has arrived is read as one piece,
however many chunks it has. llhttp, the parser of Node.js, reads the responses.
Sources: RFC 9112 (HTTP/1.1), RFC 9110 (semantics).
"""

import asyncio
import base64
import os
import re
import select
import ssl
import zlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import field
from typing import Final, NamedTuple, cast
from urllib.parse import SplitResult, quote, unquote

import anyio
import httptools

from acp_agent.core.data import frozen
from acp_agent.core.errors import ProviderErrorKind

CONNECT_TIMEOUT: Final = 10.0
WRITE_TIMEOUT: Final = 60.0
KEEPALIVE: Final = 60.0  # a tool call between two requests should not cost a new TLS handshake
_HEAD_LIMIT: Final = 100 * 1024
_FINAL: Final = 200
"""The first status that answers a request; those below announce an answer."""
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
    """The address of a request. `host` stands without brackets."""

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
        self._transport.set_write_buffer_limits(1, 0)  # with 0, TLS would pause with nothing left to send

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
        """Whether an idle connection can take a request. It cannot if anything has arrived that nobody asked for."""
        if self._transport is None or self._ended or self._received or self._transport.is_closing():
            return False
        if self._unsent:  # the server answered before it had read the last request
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


class _Response:
    """The part of a response that llhttp has read: its head, and the pieces of the body that nobody has taken yet.

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
        """Read on. b"" is the end of the connection. Raises HttpError."""
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
        """Stop reading. Otherwise the parser, which refers to this object, would wait for the garbage collector."""
        del self._parser

    def taken(self) -> bytes:
        """Return what has arrived of the body, once."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data

    # What the parser calls.

    def on_message_begin(self) -> None:
        self.reusable = False  # nobody has asked for a second response

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:
            known, said = name.decode("latin-1").lower(), value.decode("latin-1")
            self.headers[known] = f"{self.headers[known]}, {said}" if known in self.headers else said

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self.status or status < _FINAL:  # the latter announces a response
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
    """A request over a connection of ours. See _Exchange."""

    def __init__(self, connection: HttpConnection, patience: float) -> None:
        self._connection = connection
        self._patience = patience
        self._response = _Response()

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    @property
    def reusable(self) -> bool:
        """Whether the response was received to its end and the connection may take another request."""
        return self._response.reusable

    def end(self) -> None:
        """Read no more of the response."""
        self._response.end()

    async def begin(self, request: bytes) -> None:
        """Send the request and receive the head of its response. Raises HttpError."""
        self._connection.write(request)
        received = 0
        while not self.status:
            data = await self._connection.read(self._patience)
            received += len(data)
            self._response.feed(data)
            if not self.status and received > _HEAD_LIMIT:
                raise _broken_off()

    async def body(self) -> AsyncGenerator[bytes]:
        """Yield the decoded body as it arrives.

        Raises HttpError if it cannot be decoded, if the connection breaks, or if nothing arrives in time.
        """
        packing = self.headers.get("content-encoding", "").lower()
        if packing not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise HttpError(_Kind.PROTOCOL, WRONGLY_PACKED)
        inflate = zlib.decompressobj(zlib.MAX_WBITS | 32) if packing not in ("", "identity") else None  # gzip or zlib
        arrived = other = 0  # bytes; the others are sizes of chunks, and fields behind the body
        while True:
            piece = self._response.taken()
            other = 0 if piece else other + arrived
            if other > _HEAD_LIMIT:
                raise _broken_off()
            if inflate is None and piece:
                yield piece
            while inflate is not None and piece and not inflate.eof:
                try:
                    unpacked = inflate.decompress(piece, _UNPACKED)
                except zlib.error as error:
                    raise HttpError(_Kind.PROTOCOL, WRONGLY_PACKED) from error
                piece = inflate.unconsumed_tail
                if unpacked:
                    yield unpacked
            if self._response.ended:
                return
            data = await self._connection.read(self._patience)
            arrived = len(data)
            self._response.feed(data)
