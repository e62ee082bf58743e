"""Connections that go only to checked addresses, the errors of the network and of statuses, and HTTP to MCP servers.

httpcore gets a network backend that cannot look up a name. TLS and the Host header still use the host's name, because
the URL is not rewritten to an address.

The transport of the `mcp` package follows redirects, unpacks bodies, reads bodies of any size and connects to every
address that the resolver returns. `McpHttpClient` does none of that. It opens one connection per request.
"""

import os
import re
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, contextmanager
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final, TypeAlias, cast

import anyio
import anyio.to_thread
import httpcore

from acp_agent import __version__
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.services import BlockReason
from acp_agent.net.hosts import RequestBlocked, Resolve, ResolvedTarget, read_address, system_resolve
from acp_agent.net.http1 import system_trust
from acp_agent.net.urls import judge_endpoint, locate

Dial: TypeAlias = Callable[[str, int], Awaitable[httpcore.AsyncNetworkStream]]
"""A function that opens a TCP connection to an IP address. It raises OSError or httpcore's ConnectError.

The stream's extra info `server_addr` is the address at the other end of the connection (getpeername).
"""

CONNECT_TIMEOUT: Final = 4.0
"""Seconds for one address, so that an unreachable one leaves time for the next."""
HEAD_LIMIT: Final = 64 * 1024
"""The most bytes of an answer before its body, including interim (1xx) answers."""

_SocketOption: TypeAlias = (
    tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
)  # as in httpcore


async def system_dial(address: str, port: int) -> httpcore.AsyncNetworkStream:
    """Open a plain TCP connection."""
    backend = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())  # its type allows for a missing anyio
    return await backend.connect_tcp(address, port)


async def trusted() -> ssl.SSLContext:
    """Return a context that trusts the certificates of this machine, as `http1.system_trust` does. Raises ToolError."""
    try:
        return await anyio.to_thread.run_sync(system_trust)
    except OSError as error:
        message = f"the certificates of this machine cannot be read ({type(error).__name__})"
        raise ToolError.permanent(message, "Tell the user to check SSL_CERT_FILE and SSL_CERT_DIR.") from error


class PinnedBackend(httpcore.AsyncNetworkBackend):
    """A network backend that opens one connection, to one checked target.

    Always close it: a cancelled TLS handshake leaves the connection open.

    address   the address that it is connected to; None before
    sent      whether any byte of a request may have been sent
    """

    def __init__(self, judged: ResolvedTarget, dial: Dial) -> None:
        self._judged = judged
        self._dial = dial
        self._stream: httpcore.AsyncNetworkStream | None = None
        self._head_left: int | None = HEAD_LIMIT  # bytes; None once the headers are complete
        self.address: str | None = None
        self.sent = False

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[_SocketOption] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first checked address that works. Raises RequestBlocked, or the error of the last address."""
        del timeout, local_address, socket_options  # httpcore passes its defaults; the caller sets the deadline
        target = self._judged.target
        if (host, port) != (target.host, target.port):
            raise _elsewhere(target.host)
        failure: Exception = httpcore.ConnectError("no address")
        for address in self._judged.addresses:
            try:
                with anyio.fail_after(CONNECT_TIMEOUT):
                    self._stream = await self._dial(address, port)
            except (TimeoutError, httpcore.ConnectTimeout) as error:
                failure = httpcore.ConnectTimeout(str(error))
            except (OSError, httpcore.ConnectError) as error:
                failure = error
            else:
                self.address = address
                if not _leads_to(self._stream, address):
                    raise _elsewhere(target.host)
                return _HeadStream(self._stream, self)
        raise failure

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[_SocketOption] | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Raise RequestBlocked."""
        del path, timeout, socket_options
        raise _elsewhere(self._judged.target.host)

    def head_received(self) -> None:
        """End the limit on header bytes. The body has a limit of its own."""
        self._head_left = None

    async def read(self, stream: httpcore.AsyncNetworkStream, most: int, timeout: float | None) -> bytes:
        """Read from a stream of this connection. Raises ToolError if the headers exceed the limit."""
        if self._head_left is None:
            return await stream.read(most, timeout)
        if self._head_left == 0:
            raise ToolError.permanent(f"{self._judged.target.host} sent more than {HEAD_LIMIT} bytes of headers")
        data = await stream.read(min(most, self._head_left), timeout)
        self._head_left -= len(data)
        return data

    async def write(self, stream: httpcore.AsyncNetworkStream, data: bytes, timeout: float | None) -> None:
        """Write to a stream of this connection."""
        self.sent = True
        await stream.write(data, timeout)

    async def aclose(self) -> None:
        """Close the connection, also during a cancellation."""
        if self._stream is not None:
            with anyio.CancelScope(shield=True):
                await self._stream.aclose()


class _HeadStream(httpcore.AsyncNetworkStream):
    """A stream that limits the bytes that arrive before the body. httpcore's own limit is 100 KiB for each header."""

    def __init__(self, inner: httpcore.AsyncNetworkStream, backend: PinnedBackend) -> None:
        self._inner = inner
        self._backend = backend

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._backend.read(self._inner, max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._backend.write(self._inner, buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return _HeadStream(await self._inner.start_tls(ssl_context, server_hostname, timeout), self._backend)

    def get_extra_info(self, info: str) -> object:
        return self._inner.get_extra_info(info)


def _leads_to(stream: httpcore.AsyncNetworkStream, address: str) -> bool:
    """Return whether the other end of a connection is the dialled address."""
    peer = cast("tuple[str, int] | None", stream.get_extra_info("server_addr"))
    try:
        return peer is not None and read_address(peer[0]) == read_address(address)
    except ValueError:
        return False


def _elsewhere(host: str) -> RequestBlocked:
    return RequestBlocked(BlockReason.SSRF, f"the connection to {host} led somewhere else and was closed", host=host)


@contextmanager
def network_errors(host: str) -> Generator[None]:
    """Raise network errors of the block as a ToolError that quotes only texts of the operating system and of TLS."""
    try:
        yield
    except httpcore.TimeoutException as error:
        raise ToolError(ToolErrorCategory.TIMEOUT, f"{host} did not take a connection in time") from error
    except (httpcore.NetworkError, OSError) as error:
        raise _connection_error(host, error) from error
    except httpcore.ProtocolError as error:
        message = f"{host} broke off its answer, or the answer is not HTTP"
        raise ToolError(ToolErrorCategory.NETWORK_ERROR, message) from error


def _connection_error(host: str, error: BaseException) -> ToolError:
    cause: BaseException | None = error
    while cause is not None:
        match cause:
            case ssl.SSLCertVerificationError():
                message = f"the certificate of {host} is not valid: {cause.verify_message}"
                return ToolError.permanent(message, "Do not use this host. Tell the user.")
            case ssl.SSLError():
                said = cause.reason or "handshake failed"
                return ToolError(ToolErrorCategory.NETWORK_ERROR, f"no secure connection to {host} ({said})")
            case OSError() if cause.errno:
                said = os.strerror(cause.errno)
                return ToolError(ToolErrorCategory.NETWORK_ERROR, f"no connection to {host} ({said})")
            case _:
                cause = cause.__cause__ or cause.__context__
    return ToolError(ToolErrorCategory.NETWORK_ERROR, f"the connection to {host} broke")


REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_CATEGORIES: Final = {
    400: ToolErrorCategory.INVALID_PARAMETERS,
    422: ToolErrorCategory.INVALID_PARAMETERS,
    401: ToolErrorCategory.POLICY_BLOCKED,
    403: ToolErrorCategory.POLICY_BLOCKED,
    429: ToolErrorCategory.RATE_LIMITED,
}
_WITH_RETRY_AFTER: Final = frozenset({429, 503})


def category_of(status: int) -> ToolErrorCategory:
    """Return the category of a status that is neither success nor a redirect."""
    if 500 <= status <= 599:
        return ToolErrorCategory.SERVER_ERROR
    return _CATEGORIES.get(status, ToolErrorCategory.PERMANENT_FAILURE)


def status_error(host: str, status: int, retry_after: str = "") -> ToolError:
    """Return the error for a status that is neither success nor a redirect. It contains no text from the server."""
    wait = _wait(retry_after) if status in _WITH_RETRY_AFTER else ""
    phrase = next((f" {known.phrase}" for known in HTTPStatus if known == status), "")
    return ToolError(category_of(status), f"{host} answered {status}{phrase}{wait}")


def _wait(retry_after: str) -> str:
    """Return the wait that a Retry-After header asks for, in seconds or as a date, or "" if it is neither."""
    value = retry_after.strip()
    if value.isascii() and value.isdigit() and len(value) <= 9:
        return f"; try again after {int(value)} s"
    try:
        return f"; try again after {parsedate_to_datetime(value).isoformat()}"
    except (ValueError, OverflowError):  # such as a year of eleven digits
        return ""


# ------------------------------------------------------------------------------------------- MCP servers

_OURS: Final = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "accept-encoding", "user-agent", "te", "upgrade")
)
"""Headers that only this client sets: they say how the request is framed and where it goes."""
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"([!-~]([ \t!-~]*[!-~])?)?")
"""Header values that every server understands (RFC 9110, 5.5): printable ASCII without a blank at either end."""


class NotSentError(ToolError):
    """An error that came before any byte of the request was sent, such as a failed connection or TLS handshake."""


class McpResponse:
    """A response whose body is still being received.

    It is valid inside `McpHttpClient.ask`. Header names are lower-case.
    """

    def __init__(self, host: str, response: httpcore.Response) -> None:
        self._host = host
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers
        }

    @property
    def mime(self) -> str:
        """Return the MIME type of the body in lower case, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def failure(self) -> ToolError | None:
        """Return the error of an unsuccessful status, or None.

        Redirects are not followed, since a token must not be sent on.
        """
        if 200 <= self.status <= 299:
            return None
        if self.status in REDIRECTS:
            message = f"{self._host} redirects to another address, which is not followed: configure the final one"
            return ToolError.permanent(message)
        error = status_error(self._host, self.status, self.headers.get("retry-after", ""))
        if self.status in {401, 403}:
            return ToolError(error.failure.category, f"{error}: check the headers given for it")
        return error

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the body as it arrives. Raises ToolError, also for a compressed body, since none was asked for."""
        if self.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise ToolError.permanent(f"{self._host} sent a compressed answer without being asked to")
        with _http_errors(self._host):
            async for chunk in self._response.aiter_stream():
                yield chunk

    async def body(self, limit: int) -> bytes:
        """Return the whole body. Raises ToolError if it has more than `limit` bytes."""
        body = bytearray()
        async for chunk in self.chunks():
            body += chunk
            if len(body) > limit:
                message = f"{self._host} sent an answer of more than {limit} bytes, which was discarded"
                raise ToolError.permanent(message)
        return bytes(body)


class McpHttpClient:
    """A client for one URL. It checks the addresses for each request, connects only to them and follows no redirects.

    headers        sent with every request, except those that only this client sets (`_OURS`)
    allow_private  True if the user allowed the server to be on this machine or a private network

    It uses no proxies and no cookies. Raises RequestBlocked for a URL that may not be used, and Refused for a header
    that cannot be sent.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        allow_private: bool = False,
        resolve: Resolve = system_resolve,
        dial: Dial | None = None,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self._endpoint = judge_endpoint(url, allow_private=allow_private)
        self._headers = {name: value for name, value in headers.items() if name.lower() not in _OURS}
        for name, value in self._headers.items():
            _check_header(name, value)
        self._resolve = resolve
        self._dial = dial or system_dial
        self._trust = trust

    @asynccontextmanager
    async def ask(self, method: str, headers: Mapping[str, str], body: bytes = b"") -> AsyncGenerator[McpResponse]:
        """Send a request and yield its open response. Only connecting has a time limit.

        headers   override those of the constructor

        Raises:
            RequestBlocked: The server may not be reached.
            NotSentError: There was no connection to it, so nothing was sent.
            ToolError: There was no usable answer for another reason.

        """
        target = self._endpoint.target
        try:
            judged = await locate(self._endpoint, self._resolve)
        except ToolError as error:
            raise NotSentError(*_parts(error)) from error
        scheme = b"https" if self._endpoint.tls else b"http"
        url = httpcore.URL(scheme=scheme, host=target.host.encode(), port=target.port, target=target.resource)
        backend = PinnedBackend(judged, self._dial)
        trust = await self._trusted() if self._endpoint.tls else None
        try:
            with _http_errors(target.host):
                connection = httpcore.AsyncHTTPConnection(url.origin, ssl_context=trust, network_backend=backend)
                async with connection.stream(
                    method, url, headers=self._request_headers(headers), content=body or None
                ) as response:
                    backend.head_received()
                    yield McpResponse(target.host, response)
        except ToolError as error:
            if not backend.sent:
                raise NotSentError(*_parts(error)) from error
            raise
        finally:
            await backend.aclose()

    async def _trusted(self) -> ssl.SSLContext:
        if self._trust is None:
            self._trust = await trusted()
        return self._trust

    def _request_headers(self, headers: Mapping[str, str]) -> list[tuple[str, str]]:
        mine = {name.lower() for name in headers}
        kept = {name: value for name, value in self._headers.items() if name.lower() not in mine}
        return [
            ("Host", self._endpoint.target.authority),
            *kept.items(),
            *headers.items(),
            ("User-Agent", f"acp-agent/{__version__}"),
            ("Accept-Encoding", "identity"),
            ("Connection", "close"),
        ]


def _parts(error: ToolError) -> tuple[ToolErrorCategory, str, str]:
    return error.failure.category, error.failure.message, error.failure.suggestion


def _check_header(name: str, value: str) -> None:
    """Raise Refused with the name of a header that cannot be sent. The value may be secret."""
    if not _NAME.fullmatch(name):
        raise Refused(f"{name[:60]!a} is no name of a header and cannot be sent")
    if not _VALUE.fullmatch(value):
        why = "it begins or ends with a blank, or holds a line end, a control or a letter outside ASCII"
        raise Refused(f"the value of the header {name[:60]} cannot be sent: {why}")


@contextmanager
def _http_errors(host: str) -> Generator[None]:
    """Raise network errors as `network_errors` does, and report headers that cannot be sent."""
    with network_errors(host):
        try:
            yield
        except httpcore.LocalProtocolError as error:
            message = f"the headers given for {host} cannot be sent"
            raise ToolError.permanent(message, "Tell the user to check them.") from error
