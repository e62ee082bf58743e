"""The one HTTP client, made on first use; httpx and its errors stay in this file.

A model answers slowly and in pieces, so there is no total timeout: `CONNECT_TIMEOUT` bounds the way in and
the request's `read_timeout` bounds the silence between two pieces (dependencies.md, condition 5).
"""

import os
import ssl
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio

from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.net.lean_httpx import httpx

CONNECT_TIMEOUT: Final = 10.0
WRITE_TIMEOUT: Final = 60.0
ERROR_BODY_LIMIT: Final = 64 * 1024
ERROR_BODY_PATIENCE: Final = 5.0
_KEEPALIVE: Final = 60.0  # a tool call between two requests should not cost a new TLS handshake
_LOOPBACK: Final = ("all://localhost", "all://127.0.0.1", "all://[::1]")


@dataclass(frozen=True, slots=True)
class Post:
    """One POST. `peer` is the provider's name, for messages; `read_timeout` is in seconds.

    Headers and body never show in a repr: they hold the key and the conversation.
    """

    peer: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    read_timeout: float = 300.0


@dataclass(frozen=True, slots=True)
class Get:
    """One GET, with the fields of `Post` but the body."""

    peer: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    read_timeout: float = 30.0


class StreamedResponse:
    """A response whose body still comes in. Lives inside `HttpClient.post` and `HttpClient.get`."""

    def __init__(self, request: Post | Get, response: httpx.Response) -> None:
        self._request = request
        self._response = response
        self.status = response.status_code
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}

    async def chunks(self) -> AsyncGenerator[bytes]:
        """The decoded body, piece by piece as the network gives it. Raises ProviderError."""
        with _translated(self._request):
            async for piece in self._response.aiter_bytes():
                yield piece

    async def body(self, limit: int) -> bytes:
        """The whole decoded body. Raises ProviderError: PROTOCOL when it is longer than `limit` bytes."""
        body = bytearray()
        async with aclosing(self.chunks()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > limit:
                    message = f"{self._request.peer} sends an answer of more than {limit} bytes: nothing of it was kept"
                    raise ProviderError(message, kind=ProviderErrorKind.PROTOCOL, status=self.status)
        return bytes(body)

    async def excerpt(self, limit: int = ERROR_BODY_LIMIT) -> bytes:
        """At most `limit` bytes of the body, for an error message; what came within 5 s. Never raises."""
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
    """Speaks HTTP for every model API. Proxies and certificates come from the environment, as users set them.

    One instance a process; the connection pool is made with the first request and belongs to its event loop.
    """

    def __init__(self) -> None:
        self._clients: dict[bool, httpx.AsyncClient] = {}  # by whether TLS is wanted
        self._headers: Mapping[str, str] = {}

    def with_headers(self, headers: Mapping[str, str]) -> "HttpClient":
        """The same connections, with these headers on every request; closing either closes them all."""
        client = HttpClient()
        client._clients = self._clients
        client._headers = {**self._headers, **{name.lower(): value for name, value in headers.items()}}
        return client

    @asynccontextmanager
    async def post(self, post: Post) -> AsyncGenerator[StreamedResponse]:
        """Send a request and hold the answer open. Leaving, on every path, closes the response.

        Raises ProviderError (NETWORK, TIMEOUT, PROTOCOL; NOT_CONFIGURED for unusable proxy or TLS settings).
        A status is never an error here. Redirects are not followed: a key must not travel on.
        """
        async with self._answer("POST", post, post.body) as answer:
            yield answer

    @asynccontextmanager
    async def get(self, get: Get) -> AsyncGenerator[StreamedResponse]:
        """Ask for a document, with the guards of `post`. Raises as it does."""
        async with self._answer("GET", get, None) as answer:
            yield answer

    async def aclose(self) -> None:
        """Close every connection. A later request starts afresh."""
        clients = list(self._clients.values())
        self._clients.clear()
        for client in clients:
            await client.aclose()

    @asynccontextmanager
    async def _answer(self, method: str, request: Post | Get, body: bytes | None) -> AsyncGenerator[StreamedResponse]:
        patience = request.read_timeout
        timeout = httpx.Timeout(patience, connect=CONNECT_TIMEOUT, write=WRITE_TIMEOUT, pool=CONNECT_TIMEOUT)
        headers = {**{name.lower(): value for name, value in request.headers.items()}, **self._headers}
        with _translated(request):
            async with self._opened(request).stream(
                method, request.url, headers=headers, content=body, timeout=timeout
            ) as response:
                yield StreamedResponse(request, response)

    def _opened(self, request: Post | Get) -> httpx.AsyncClient:
        tls = not request.url.startswith("http://")
        if tls not in self._clients:
            self._clients[tls] = _new_client(request.peer, tls=tls)
        return self._clients[tls]


def _new_client(peer: str, *, tls: bool) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=_KEEPALIVE)
    # Reading the certificate store takes tens of milliseconds; for plain HTTP a context that trusts nobody will do.
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
        # The values may hold a proxy's password, so only the names are told.
        message = (
            f"{peer} cannot be reached: the proxy or certificate settings of the environment are unusable "
            f"({type(error).__name__}): check HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR"
        )
        raise ProviderError(message, kind=ProviderErrorKind.NOT_CONFIGURED) from error


# ------------------------------------------------------------------------------------ the seam

_Kind = ProviderErrorKind

_TRANSLATIONS: Final[tuple[tuple[type[Exception], ProviderErrorKind, str], ...]] = (
    # Most specific first. {peer}, {origin}, {reason} and {read:g} are filled in. An error of httpx is told
    # only as far as its cause in the operating system: its own text may quote headers, and so the key.
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
def _translated(request: Post | Get) -> Generator[None]:
    """Every error of httpx becomes a ProviderError here, by the table above."""
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise _translation(request, error) from error


def _translation(request: Post | Get, error: Exception) -> ProviderError:
    kind, text = next((kind, text) for cls, kind, text in _TRANSLATIONS if isinstance(error, cls))
    origin, reason = _origin(request.url), _reason(error)
    message = text.format(peer=request.peer, origin=origin, reason=reason, read=request.read_timeout)
    return ProviderError(message, kind=kind)


def _origin(url: str) -> str:
    """Scheme, host and port: no user, path or query, which may hold secrets."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        return "its address"
    port = f":{parsed.port}" if parsed.port else ""
    return f"{parsed.scheme}://{parsed.host}{port}"


def _reason(error: BaseException) -> str:
    """What the operating system or TLS said, as " (Connection refused)", or nothing."""
    said = ""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            said = (cause.strerror or "").partition("(_ssl")[0].strip()
        elif isinstance(cause, OSError) and cause.errno:
            # asyncio writes addresses into `strerror`; a failed look-up of a name has a negative number of its own
            said = os.strerror(cause.errno) if cause.errno > 0 else cause.strerror or ""
        cause = cause.__cause__ or cause.__context__
    return f" ({said})" if said else ""
