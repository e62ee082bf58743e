"""The HTTP client for model APIs. Connections are kept open and reused.

A model answers slowly and in pieces, so there is no total timeout. `CONNECT_TIMEOUT` limits connecting, and the
request's `read_timeout` limits the silence between two pieces.

Requests use our own HTTP/1.1 connections (`http1.py`). If the environment names a proxy, requests use httpx.
"""

import os
import ssl
import sys
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import aclosing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias
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
    head_bytes,
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
_PROXY_VARIABLES: Final = ("http_proxy", "https_proxy", "all_proxy")

_Kind = ProviderErrorKind


class _Exchange(Protocol):
    """A request that was sent, and its response. `headers` have lower-case names."""

    status: int
    headers: Mapping[str, str]

    def body(self) -> AsyncGenerator[bytes]:
        """Yield the decoded body as it arrives. Raises HttpError."""
        ...

    async def aclose(self) -> None:
        """Read no more of the response."""
        ...


class StreamedResponse:
    """A response whose body is still being received. It is valid until its `SentRequest` is closed."""

    def __init__(self, request: HttpRequest, exchange: _Exchange) -> None:
        self._request = request
        self._exchange = exchange
        self.status = exchange.status
        self.headers = exchange.headers

    @property
    def succeeded(self) -> bool:
        """Whether the status is 2xx. Some gateways answer every POST with 201."""
        return 200 <= self.status < 300

    async def chunks(self, limit: int = sys.maxsize) -> AsyncGenerator[bytes]:
        """Yield the decoded body piece by piece as the network delivers it.

        Raises ProviderError, of kind PROTOCOL if it is longer than `limit` bytes.
        """
        received = 0
        try:
            async with aclosing(self._exchange.body()) as pieces:
                async for piece in pieces:
                    received += len(piece)
                    if received > limit:
                        message = f"sends an answer that does not end: stopped after {limit >> 20} MB"
                        raise self._protocol_error(message)
                    yield piece
        except HttpError as error:
            raise provider_error(self._request, error) from error

    async def body(self, limit: int) -> bytes:
        """Return the whole decoded body. Raises ProviderError, of kind PROTOCOL if it is longer than `limit` bytes."""
        body = bytearray()
        async with aclosing(self.chunks()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > limit:
                    raise self._protocol_error(f"sent an answer of more than {limit} bytes, which was discarded")
        return bytes(body)

    def _protocol_error(self, what: str) -> ProviderError:
        return ProviderError(f"{self._request.peer} {what}", kind=ProviderErrorKind.PROTOCOL, status=self.status)

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

    def send(self, request: HttpRequest) -> "SentRequest":
        """Return a request that `async with` sends. The block gets the open response. The end of the block closes it.

        A status is never an error here. Redirects are not followed, since the key must not be sent to another host.

        Raises:
            ProviderError: Of kind NETWORK, TIMEOUT or PROTOCOL; NOT_CONFIGURED for unusable proxy or TLS settings.

        """
        headers = {**{name.lower(): value for name, value in request.headers.items()}, **self._headers}
        return SentRequest(request, headers, self._connections)

    async def aclose(self) -> None:
        """Close idle connections now, and those in use after their requests. A later request opens new ones."""
        await self._connections.aclose()


class SentRequest:
    """A request that `open` or `async with` sends. It is a class, since a generator takes ten times as long."""

    def __init__(self, request: HttpRequest, headers: Mapping[str, str], connections: "_Connections") -> None:
        self._request = request
        self._headers = headers
        self._connections = connections
        self._exchange: _Exchange | None = None

    async def open(self) -> StreamedResponse:
        """Send the request and return its open response. Raises ProviderError."""
        try:
            self._exchange = await self._connections.begin(self._request, self._headers)
        except HttpError as error:
            raise provider_error(self._request, error) from error
        return StreamedResponse(self._request, self._exchange)

    async def aclose(self) -> None:
        """Close the response. The second call does nothing: the connection may serve another request by then."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            await exchange.aclose()

    async def __aenter__(self) -> StreamedResponse:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def provider_error(request: HttpRequest, error: HttpError) -> ProviderError:
    """Return an error of an exchange as a ProviderError, whose message is for users."""
    origin, reason = _origin(request.url), _reason(error)
    message = error.text.format(peer=request.peer, origin=origin, reason=reason, read=request.read_timeout)
    return ProviderError(message, kind=error.kind)


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


_Pool: TypeAlias = dict[Address, list[HttpConnection]]


class _Connections:
    """The connections to model servers. They belong to one event loop."""

    def __init__(self) -> None:
        self._idle: _Pool = {}
        self._tls: ssl.SSLContext | None = None
        self._proxied: bool | None = None  # None until it was looked up
        self._httpx: httpx.AsyncClient | None = None
        # The URL and headers of the last request, and its address and head.
        self._last: tuple[object, Address, bytes] = None, Address("", "", 0), b""

    async def begin(self, request: HttpRequest, headers: Mapping[str, str]) -> _Exchange:
        """Send a request with these headers and return it with its open response. Raises HttpError."""
        asked = request.url, headers, request.body is not None
        if self._last[0] != asked:
            self._last = asked, *_prepared(*asked)
        _, address, head = self._last
        if address.host not in _LOOPBACK and self._is_proxied():  # a proxy cannot reach a model on this machine
            if self._httpx is None:
                self._httpx = _httpx_client()
            return await _proxied_exchange(self._httpx, request, headers)
        connection = self._take(address) or await connect(address, await self._trusted(address))
        give_back = partial(self._give_back, self._idle, address, connection)
        exchange = DirectExchange(connection, request.read_timeout, give_back)
        try:
            await exchange.begin(request_bytes(head, request.body))
        except BaseException:
            await exchange.aclose()
            raise
        return exchange

    def _is_proxied(self) -> bool:
        if self._proxied is None:
            self._proxied = _names_proxy()
        return self._proxied

    def _take(self, address: Address) -> HttpConnection | None:
        idle = self._idle.get(address, [])
        while idle:
            connection = idle.pop()
            if connection.is_usable:
                return connection
            connection.close()
        return None

    def _give_back(self, pool: "_Pool", address: Address, connection: HttpConnection, usable: bool) -> None:  # noqa: FBT001 - a callback
        """Keep a connection for the next request, or close it. `pool` is the pool from which it was taken."""
        idle = pool.setdefault(address, [])
        if not usable or pool is not self._idle or len(idle) >= _MOST_IDLE:
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


def _prepared(url: str, headers: Mapping[str, str], has_body: bool) -> tuple[Address, bytes]:  # noqa: FBT001 - see `begin`
    """Return the address of a request and its head. Raises HttpError."""
    try:
        parsed = urlsplit(url)
    except ValueError:
        raise HttpError(_Kind.PROTOCOL, NO_ADDRESS) from None
    address = address_of(parsed)
    return address, head_bytes(parsed, address, headers, has_body=has_body)


# ------------------------------------------------------------------------------------------------ proxies


def _names_proxy() -> bool:
    """Return whether the environment, or the system's settings, name a proxy."""
    if sys.platform == "linux" and not any(name.lower() in _PROXY_VARIABLES for name in os.environ):
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


async def _proxied_exchange(
    client: "httpx.AsyncClient", request: HttpRequest, headers: Mapping[str, str]
) -> "_ProxiedExchange":
    from acp_agent.net.urls import httpx  # noqa: PLC0415 - only where there is a proxy

    timeout = httpx.Timeout(request.read_timeout, connect=CONNECT_TIMEOUT, write=WRITE_TIMEOUT, pool=CONNECT_TIMEOUT)
    with translated_httpx():
        method = "GET" if request.body is None else "POST"
        sent = {"accept-encoding": "gzip", **headers}
        made = client.build_request(method, request.url, headers=sent, content=request.body, timeout=timeout)
        return _ProxiedExchange(await client.send(made, stream=True))


class _ProxiedExchange:
    """A request over a proxy. See _Exchange."""

    def __init__(self, response: "httpx.Response") -> None:
        self._response = response
        self.status = response.status_code
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}

    async def aclose(self) -> None:
        await self._response.aclose()

    def body(self) -> AsyncGenerator[bytes]:
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
