"""One request to a judged target and its answer: a page, or the URL to continue at.

httpcore's errors end here.
"""

import os
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

import httpcore

from acp_agent import __version__
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.services import BlockReason, WebPage
from acp_agent.net.body import Body, ContentType
from acp_agent.net.connection import REDIRECTS, Dial, PinnedBackend, status_error
from acp_agent.net.hosts import ResolvedTarget, WebTarget
from acp_agent.net.urls import redirected

_HEADERS: Final = (
    # No cookies, no credentials, no referrer; one connection per request.
    (b"User-Agent", f"acp-agent/{__version__}".encode()),
    (b"Accept", b"text/html, application/json, text/*;q=0.9, application/xml;q=0.9, */*;q=0.1"),
    (b"Accept-Encoding", b"gzip, deflate"),
    (b"Connection", b"close"),
)


@dataclass(slots=True)
class Hop:
    """What is known of one request so far. It becomes the request's audit record, however the request ends."""

    number: int
    url: str
    host: str = ""
    address: str | None = None
    status: int | None = None
    received: int = 0
    blocked: BlockReason | None = None

    def locate(self, url: str, host: str) -> None:
        """Set the URL and host as they were judged."""
        self.url, self.host = url, host

    def block(self, reason: BlockReason | None, host: str = "") -> None:
        """Set why the request is not made. `host` counts if none is known yet."""
        self.host, self.blocked = self.host or host, reason


@dataclass(frozen=True, slots=True)
class Redirect:
    """The answer redirects to a URL that was not judged yet."""

    url: str


PageOrRedirect: TypeAlias = WebPage | Redirect


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """The most bytes of a body, packed or not. A larger body is cut if `truncate`, else it is an error."""

    bytes: int
    truncate: bool


async def ask(
    judged: ResolvedTarget, hop: Hop, *, dial: Dial, trust: ssl.SSLContext, limit: BodyLimit
) -> PageOrRedirect:
    """Send a GET request over a connection of its own and return the answer.

    Raises:
        RequestBlocked: The connection led to another address.
        ToolError: There was no usable answer for another reason.

    """
    target = judged.target
    url = httpcore.URL(scheme=b"https", host=target.host.encode(), port=target.port, target=target.resource)
    headers = [(b"Host", target.authority.encode()), *_HEADERS]
    backend = PinnedBackend(judged, dial)
    try:
        with _translated(target.host):
            connection = httpcore.AsyncHTTPConnection(url.origin, ssl_context=trust, network_backend=backend)
            async with connection.stream("GET", url, headers=headers) as response:
                backend.head_received()
                hop.status = response.status
                return await _answer(target, response, hop, limit)
    finally:
        hop.address = backend.address
        await backend.aclose()


async def _answer(target: WebTarget, response: httpcore.Response, hop: Hop, limit: BodyLimit) -> PageOrRedirect:
    """Return what the answer means. The body is read only if the answer is the wanted page."""
    headers = _joined(response.headers)
    if response.status in REDIRECTS:
        return Redirect(redirected(target.url, _location(target, response.status, headers)))
    if not 200 <= response.status <= 299:
        raise status_error(target.host, response.status, headers.get("retry-after", ""))
    content_type = ContentType.read(headers.get("content-type", ""))
    if not content_type.is_text:
        message = f"the page of {target.host} is {content_type.mime[:80]!r}, and only text can be read"
        raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, message)
    # h11 accepts only digits. More than 18 digits are above every limit.
    announced = int(headers.get("content-length", "0")[:18])
    encoding = headers.get("content-encoding", "")
    body = Body(target.host, encoding, limit.bytes, announced=announced, truncate=limit.truncate)
    try:
        await body.read(response.aiter_stream())
    finally:
        hop.received = len(body.data)
    return WebPage(target.url, content_type.mime or "text/plain", body.text(content_type), body.truncated)


def _joined(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers by lower-case name. Repeated headers are joined with a comma (RFC 9110, 5.3)."""
    joined: dict[str, str] = {}
    for name, value in headers:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        joined[key] = f"{joined[key]}, {text}" if key in joined else text
    return joined


def _location(target: WebTarget, status: int, headers: dict[str, str]) -> str:
    try:
        return headers["location"].encode("latin-1").decode("utf-8")
    except (KeyError, UnicodeDecodeError):
        message = f"{target.host} answered {status}, a redirect, without saying where to"
        raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, message) from None


# -------------------------------------------------------------------------- translation of errors


@contextmanager
def _translated(host: str) -> Generator[None]:
    """Raise network errors as a ToolError that quotes only the operating system."""
    try:
        yield
    except httpcore.TimeoutException as error:
        raise ToolError(ToolErrorCategory.TIMEOUT, f"{host} did not take a connection in time") from error
    except (httpcore.NetworkError, OSError) as error:
        raise _broken(host, error) from error
    except httpcore.ProtocolError as error:
        message = f"{host} broke off its answer, or sent none that is HTTP"
        raise ToolError(ToolErrorCategory.NETWORK_ERROR, message) from error


def _broken(host: str, error: BaseException) -> ToolError:
    cause: BaseException | None = error
    while cause is not None:
        match cause:
            case ssl.SSLCertVerificationError():
                message = f"the certificate of {host} is not valid: {cause.verify_message}"
                return ToolError(ToolErrorCategory.PERMANENT_FAILURE, message, "Do not use this host. Tell the user.")
            case ssl.SSLError():
                said = cause.reason or "handshake failed"
                return ToolError(ToolErrorCategory.NETWORK_ERROR, f"no secure connection to {host} ({said})")
            case OSError() if cause.errno:
                said = os.strerror(cause.errno)
                return ToolError(ToolErrorCategory.NETWORK_ERROR, f"no connection to {host} ({said})")
            case _:
                cause = cause.__cause__ or cause.__context__
    return ToolError(ToolErrorCategory.NETWORK_ERROR, f"the connection to {host} broke")
