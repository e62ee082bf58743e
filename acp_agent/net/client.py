"""The HTTP client for model APIs. It is created at the first use.

A model answers slowly and in pieces, so there is no total timeout. `CONNECT_TIMEOUT` limits connecting, and the
request's `read_timeout` limits the silence between two pieces.
"""

import os
import ssl
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import field
from typing import Final

import anyio

from acp_agent.core.data import frozen
from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.net.urls import httpx

CONNECT_TIMEOUT: Final = 10.0
WRITE_TIMEOUT: Final = 60.0
ERROR_BODY_LIMIT: Final = 64 * 1024
ERROR_BODY_PATIENCE: Final = 5.0
_KEEPALIVE: Final = 60.0  # a tool call between two requests should not cost a new TLS handshake
_LOOPBACK: Final = ("all://localhost", "all://127.0.0.1", "all://[::1]")


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


class StreamedResponse:
    """A response whose body is still being received. It is valid inside `HttpClient.send`."""

    def __init__(self, request: HttpRequest, response: httpx.Response) -> None:
        self._request = request
        self._response = response
        self.status = response.status_code
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the decoded body piece by piece as the network delivers it. Raises ProviderError."""
        with _translated(self._request):
            async for piece in self._response.aiter_bytes():
                yield piece

    async def body(self, limit: int) -> bytes:
        """Return the whole decoded body. Raises ProviderError, of kind PROTOCOL if it is longer than `limit` bytes."""
        body = bytearray()
        async with aclosing(self.chunks()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > limit:
                    message = f"{self._request.peer} sends an answer of more than {limit} bytes: nothing of it was kept"
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
                pass  # the status says more than a broken body could
        return bytes(body[:limit])


class HttpClient:
    """The HTTP client of all model APIs. Proxies and certificates come from the environment.

    There is one instance per process. The connection pool is created by the first request and belongs to its event
    loop.
    """

    def __init__(
        self, headers: Mapping[str, str] | None = None, *, connections: dict[bool, httpx.AsyncClient] | None = None
    ) -> None:
        self._clients = {} if connections is None else connections  # by whether TLS is used
        self._headers = {name.lower(): value for name, value in (headers or {}).items()}

    def with_headers(self, headers: Mapping[str, str]) -> "HttpClient":
        """Return a client that shares the connections and adds these headers to every request.

        Closing either closes both.
        """
        lowered = {name.lower(): value for name, value in headers.items()}
        return HttpClient({**self._headers, **lowered}, connections=self._clients)

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncGenerator[StreamedResponse]:
        """Send a request and hold its response open. The response is closed when the body is left, on every path.

        A status is never an error here. Redirects are not followed, since the key must not be sent to another host.

        Raises:
            ProviderError: Of kind NETWORK, TIMEOUT or PROTOCOL; NOT_CONFIGURED for unusable proxy or TLS settings.

        """
        patience, method = request.read_timeout, "GET" if request.body is None else "POST"
        timeout = httpx.Timeout(patience, connect=CONNECT_TIMEOUT, write=WRITE_TIMEOUT, pool=CONNECT_TIMEOUT)
        headers = {**{name.lower(): value for name, value in request.headers.items()}, **self._headers}
        tls = not request.url.startswith("http://")
        with _translated(request):
            if tls not in self._clients:
                self._clients[tls] = _new_client(request.peer, tls=tls)
            async with self._clients[tls].stream(
                method, request.url, headers=headers, content=request.body, timeout=timeout
            ) as response:
                yield StreamedResponse(request, response)

    async def aclose(self) -> None:
        """Close every connection. A later request opens new ones."""
        clients = list(self._clients.values())
        self._clients.clear()
        for client in clients:
            await client.aclose()


def _new_client(peer: str, *, tls: bool) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=_KEEPALIVE)
    # Reading the certificate store takes tens of milliseconds. Plain HTTP needs none, so its context trusts no one.
    verify = True if tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        return httpx.AsyncClient(
            verify=verify,
            trust_env=True,
            limits=limits,
            follow_redirects=False,
            mounts=dict.fromkeys(_LOOPBACK),  # a model on this machine is never behind the proxy
        )
    except (OSError, ValueError, ImportError, httpx.InvalidURL) as error:
        # The values may contain a proxy's password, so the message has only the names.
        message = (
            f"{peer} cannot be reached: the proxy or certificate settings of the environment are unusable "
            f"({type(error).__name__}): check HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR"
        )
        raise ProviderError(message, kind=ProviderErrorKind.NOT_CONFIGURED) from error


_Kind = ProviderErrorKind

_TRANSLATIONS: Final[tuple[tuple[type[Exception], ProviderErrorKind, str], ...]] = (
    # Most specific first. {peer}, {origin}, {reason} and {read:g} are filled in. Of an error of httpx, the message has
    # only the cause in the operating system: the error's own text may quote headers, and so the key.
    (httpx.ConnectTimeout, _Kind.TIMEOUT, "no connection to {peer} at {origin} within 10 s: check network and proxy"),
    (httpx.ReadTimeout, _Kind.TIMEOUT, "{peer} sent nothing for {read:g} s"),
    (httpx.TimeoutException, _Kind.TIMEOUT, "{peer} at {origin} did not take the request in time"),
    (httpx.ConnectError, _Kind.NETWORK, "cannot reach {peer} at {origin}{reason}: check base_url and the network"),
    (httpx.ProxyError, _Kind.NETWORK, "the proxy refused to connect to {peer} at {origin}: check HTTPS_PROXY"),
    (httpx.NetworkError, _Kind.NETWORK, "the connection to {peer} broke{reason}"),
    (httpx.RemoteProtocolError, _Kind.NETWORK, "{peer} at {origin} closed the connection before its answer ended"),
    (httpx.DecodingError, _Kind.PROTOCOL, "{peer} sent a body that does not match its content-encoding"),
    (httpx.UnsupportedProtocol, _Kind.PROTOCOL, "base_url of {peer} is not an http or https address"),
    (httpx.InvalidURL, _Kind.PROTOCOL, "base_url of {peer} is not a valid address"),
    (httpx.LocalProtocolError, _Kind.PROTOCOL, "the request to {peer} cannot be sent: check its API key and base_url"),
    (httpx.HTTPError, _Kind.NETWORK, "the exchange with {peer} failed{reason}"),
)


@contextmanager
def _translated(request: HttpRequest) -> Generator[None]:
    """Raise every error of httpx as a ProviderError, by the table above."""
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise _translation(request, error) from error


def _translation(request: HttpRequest, error: Exception) -> ProviderError:
    kind, text = next((kind, text) for cls, kind, text in _TRANSLATIONS if isinstance(error, cls))
    origin, reason = _origin(request.url), _reason(error)
    message = text.format(peer=request.peer, origin=origin, reason=reason, read=request.read_timeout)
    return ProviderError(message, kind=kind)


def _origin(url: str) -> str:
    """Return scheme, host and port of a URL. User, path and query may hold secrets."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        return "its address"
    port = f":{parsed.port}" if parsed.port else ""
    return f"{parsed.scheme}://{parsed.host}{port}"


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
