"""The HTTP client for model APIs. Connections are kept open and reused.

A model answers slowly and in pieces, so there is no total timeout. `CONNECT_TIMEOUT` limits connecting, and the
request's `read_timeout` limits the silence between two pieces.

Requests use our own HTTP/1.1 connections (`http1.py`). If the environment names a proxy, requests use httpx.
"""

import os
import ssl
import sys
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

import anyio
from anyio import to_thread

from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.net.http1 import (
    BROKEN,
    BROKEN_OFF,
    CONNECT_TIMEOUT,
    KEEPALIVE,
    NO_ADDRESS,
    NO_CONNECTION,
    NOT_HTTP,
    NOT_SENDABLE,
    NOT_TAKEN,
    SILENT,
    UNREACHABLE,
    WRITE_TIMEOUT,
    WRONGLY_PACKED,
    Address,
    DirectExchange,
    HttpConnection,
    HttpError,
    HttpRequest,
    address_of,
    connect,
    request_bytes,
    system_trust,
    unpacked,
    unusable,
)

if TYPE_CHECKING:
    import httpx


ERROR_BODY_LIMIT: Final = 64 * 1024
ERROR_BODY_PATIENCE: Final = 5.0
_MOST_IDLE: Final = 64
"""The most idle connections to one address that are kept open."""
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")

_Kind = ProviderErrorKind


class _Exchange(Protocol):
    """A request that was sent, and its response. `headers` have lower-case names."""

    status: int
    headers: Mapping[str, str]

    def body(self) -> AsyncGenerator[bytes]:
        """Yield the decoded body as it arrives. Raises HttpError."""
        ...


class StreamedResponse:
    """A response whose body is still being received. It is valid inside `HttpClient.send`."""

    def __init__(self, request: HttpRequest, exchange: _Exchange) -> None:
        self._request = request
        self._exchange = exchange
        self.status = exchange.status
        self.headers = exchange.headers

    @property
    def succeeded(self) -> bool:
        """Whether the status is 2xx. Some gateways answer every POST with 201."""
        return 200 <= self.status < 300

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the decoded body piece by piece as the network delivers it. Raises ProviderError."""
        with translated(self._request):
            async with aclosing(self._exchange.body()) as pieces:
                async for piece in pieces:
                    yield piece

    async def body(self, limit: int) -> bytes:
        """Return the whole decoded body. Raises ProviderError, of kind PROTOCOL if it is longer than `limit` bytes."""
        body = bytearray()
        async with aclosing(self.chunks()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > limit:
                    message = f"{self._request.peer} sent an answer of more than {limit} bytes, which was discarded"
                    raise ProviderError(message, kind=ProviderErrorKind.PROTOCOL, status=self.status)
        return bytes(body)

    async def excerpt(self, limit: int = ERROR_BODY_LIMIT) -> bytes:
        """Return at most `limit` bytes of the body that arrive within 5 s, for an error message. Never raises."""
        body = bytearray()
        with anyio.move_on_after(ERROR_BODY_PATIENCE):
            try:
                async with aclosing(self.chunks()) as chunks:
                    async for chunk in chunks:
                        body += chunk
                        if len(body) >= limit:
                            break
            except ProviderError:
                pass  # the status alone is reported then
        return bytes(body[:limit])


class HttpClient:
    """The HTTP client of all model APIs. Proxies and certificates come from the environment.

    Each model catalog has one. Its connections belong to the event loop of the first request.
    """

    def __init__(self, headers: Mapping[str, str] | None = None, *, connections: "_Connections | None" = None) -> None:
        self._connections = connections or _Connections()
        self._headers = {name.lower(): value for name, value in (headers or {}).items()}

    def with_headers(self, headers: Mapping[str, str]) -> "HttpClient":
        """Return a client that shares the connections and adds these headers to every request.

        Closing either closes both.
        """
        lowered = {name.lower(): value for name, value in headers.items()}
        return HttpClient({**self._headers, **lowered}, connections=self._connections)

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncGenerator[StreamedResponse]:
        """Send a request and yield its open response, which is closed at the end of the `async with` block.

        A status is never an error here. Redirects are not followed, since the key must not be sent to another host.

        Raises:
            ProviderError: Of kind NETWORK, TIMEOUT or PROTOCOL; NOT_CONFIGURED for unusable proxy or TLS settings.

        """
        headers = {**{name.lower(): value for name, value in request.headers.items()}, **self._headers}
        with translated(request):
            async with self._connections.exchange(request, headers) as exchange:
                yield StreamedResponse(request, exchange)

    async def aclose(self) -> None:
        """Close every connection, those in use after their requests. A later request opens new ones."""
        await self._connections.aclose()


@contextmanager
def translated(request: HttpRequest) -> Generator[None]:
    """Raise an HttpError of the `with` block as a ProviderError."""
    try:
        yield
    except HttpError as error:
        reason = _reason(error)
        message = error.text.format(
            peer=request.peer, origin=_origin(request.url), reason=reason, read=request.read_timeout
        )
        raise ProviderError(message, kind=error.kind) from error


def _origin(url: str) -> str:
    """Return scheme, host and port of a URL. User, path and query may hold secrets."""
    try:
        parsed = urlsplit(url)
        port = f":{parsed.port}" if parsed.port else ""
    except ValueError:
        return "its address"
    host = parsed.hostname or ""
    return f"{parsed.scheme}://{f'[{host}]' if ':' in host else host}{port}"


def _reason(error: BaseException) -> str:
    """Return the reason that the operating system or TLS gave, as " (Connection refused)", or ""."""
    said = ""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            said = (cause.strerror or "").partition("(_ssl")[0].strip()
        elif isinstance(cause, OSError) and cause.errno:
            # asyncio writes addresses into `strerror`; a failed DNS look-up has a negative errno
            said = os.strerror(cause.errno) if cause.errno > 0 else cause.strerror or ""
        cause = cause.__cause__ or cause.__context__
    return f" ({said})" if said else ""


# -------------------------------------------------------------------------------------------- connections


class _Connections:
    """The connections to model servers. They belong to one event loop."""

    def __init__(self) -> None:
        self._idle: dict[Address, list[HttpConnection]] = {}
        self._tls: ssl.SSLContext | None = None
        self._proxied: bool | None = None  # None until it was looked up
        self._httpx: httpx.AsyncClient | None = None

    @asynccontextmanager
    async def exchange(self, request: HttpRequest, headers: Mapping[str, str]) -> AsyncGenerator[_Exchange]:
        """Send a request with these headers and yield its open response. Raises HttpError."""
        try:
            parsed = urlsplit(request.url)
        except ValueError:
            raise HttpError(_Kind.PROTOCOL, NO_ADDRESS) from None
        address = address_of(parsed)
        if self._proxied is None:
            self._proxied = _names_proxy()
        if self._proxied and address.host not in _LOOPBACK:  # a proxy cannot reach a model on this machine
            if self._httpx is None:
                self._httpx = _httpx_client()
            async with _proxied_exchange(self._httpx, request, headers) as proxied:
                yield proxied
            return
        sent = request_bytes(request, parsed, address, headers)
        pool = self._idle
        connection = self._take(address) or await connect(address, await self._trusted(address))
        exchange = DirectExchange(connection, request.read_timeout)
        try:
            await exchange.begin(sent)
            yield exchange
        finally:
            self._give_back(address, connection, usable=exchange.reusable and pool is self._idle)
            exchange.end()

    def _take(self, address: Address) -> HttpConnection | None:
        idle = self._idle.get(address, [])
        while idle:
            connection = idle.pop()
            if connection.is_usable:
                return connection
            connection.close()
        return None

    def _give_back(self, address: Address, connection: HttpConnection, *, usable: bool) -> None:
        idle = self._idle.setdefault(address, [])
        if not usable or len(idle) >= _MOST_IDLE:
            connection.close()
            return
        connection.rest()
        idle.append(connection)

    async def _trusted(self, address: Address) -> ssl.SSLContext | None:
        """Return the TLS context for an address; None for plain HTTP. Raises HttpError."""
        if address.scheme == "https" and self._tls is None:
            try:
                self._tls = await to_thread.run_sync(system_trust)
            except OSError as error:
                raise unusable(error) from error
        return self._tls if address.scheme == "https" else None

    async def aclose(self) -> None:
        """Close every idle connection. Those in use are closed after their requests."""
        pool, self._idle = self._idle, {}
        for connection in (each for idle in pool.values() for each in idle):
            connection.close()
        through, self._httpx = self._httpx, None
        if through is not None:
            await through.aclose()


# ------------------------------------------------------------------------------------------------ proxies


def _names_proxy() -> bool:
    """Return whether the environment, or the system's settings, name a proxy."""
    if sys.platform == "linux" and not any(name.lower().endswith("_proxy") for name in os.environ):
        return False
    from urllib.request import getproxies  # noqa: PLC0415 - it loads all of Python's HTTP

    found = getproxies()
    return any(found.get(scheme) for scheme in ("http", "https", "all"))


def _httpx_client() -> "httpx.AsyncClient":
    """Return a client that takes its proxies from the environment. Raises HttpError."""
    from acp_agent.net.urls import httpx  # noqa: PLC0415 - only where there is a proxy

    try:
        return httpx.AsyncClient(
            trust_env=True,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=_MOST_IDLE, keepalive_expiry=KEEPALIVE),
            follow_redirects=False,
        )
    except (OSError, ValueError, ImportError, httpx.InvalidURL) as error:
        raise unusable(error) from error


@asynccontextmanager
async def _proxied_exchange(
    client: "httpx.AsyncClient", request: HttpRequest, headers: Mapping[str, str]
) -> "AsyncGenerator[_ProxiedExchange]":
    from acp_agent.net.urls import httpx  # noqa: PLC0415 - only where there is a proxy

    timeout = httpx.Timeout(request.read_timeout, connect=CONNECT_TIMEOUT, write=WRITE_TIMEOUT, pool=CONNECT_TIMEOUT)
    async with AsyncExitStack() as stack:
        with translated_httpx():
            method = "GET" if request.body is None else "POST"
            sent = {"accept-encoding": "gzip", **headers}
            sending = client.stream(method, request.url, headers=sent, content=request.body, timeout=timeout)
            response = await stack.enter_async_context(sending)
        yield _ProxiedExchange(response)


class _ProxiedExchange:
    """A request over a proxy. See _Exchange."""

    def __init__(self, response: "httpx.Response") -> None:
        self._response = response
        self.status = response.status_code
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}

    def body(self) -> AsyncGenerator[bytes]:
        """See _Exchange."""
        return unpacked(self._pieces(), self.headers.get("content-encoding", ""))

    async def _pieces(self) -> AsyncGenerator[bytes]:
        with translated_httpx():
            async for piece in self._response.aiter_raw():
                yield piece


_TRANSLATIONS: Final[tuple[tuple[str, ProviderErrorKind, str], ...]] = (
    # The errors of httpx, most specific first.
    ("ConnectTimeout", _Kind.TIMEOUT, NO_CONNECTION),
    ("ReadTimeout", _Kind.TIMEOUT, SILENT),
    ("TimeoutException", _Kind.TIMEOUT, NOT_TAKEN),
    ("ConnectError", _Kind.NETWORK, UNREACHABLE),
    ("ProxyError", _Kind.NETWORK, "the proxy refused to connect to {peer} at {origin}: check HTTPS_PROXY"),
    ("NetworkError", _Kind.NETWORK, BROKEN),
    ("RemoteProtocolError", _Kind.NETWORK, BROKEN_OFF),
    ("DecodingError", _Kind.PROTOCOL, WRONGLY_PACKED),
    ("UnsupportedProtocol", _Kind.PROTOCOL, NOT_HTTP),
    ("InvalidURL", _Kind.PROTOCOL, NO_ADDRESS),
    ("LocalProtocolError", _Kind.PROTOCOL, NOT_SENDABLE),
    ("HTTPError", _Kind.NETWORK, "the exchange with {peer} failed{reason}"),
)


@contextmanager
def translated_httpx() -> Generator[None]:
    """Raise every error of httpx as an HttpError. The text of httpx may quote headers, and so the key."""
    from acp_agent.net.urls import httpx  # noqa: PLC0415 - only where there is a proxy

    try:
        yield
    except UnicodeEncodeError as error:  # a header, since httpx sends only ASCII, or the address
        raise HttpError(_Kind.PROTOCOL, NOT_SENDABLE) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        failure: Exception = error
        kind, text = next((kind, text) for cls, kind, text in _TRANSLATIONS if isinstance(failure, getattr(httpx, cls)))
        raise HttpError(kind, text) from error
