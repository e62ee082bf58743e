"""HTTP to one MCP server, with the guards of the web tools and bodies that may be long streams.

The transport of the `mcp` package follows redirects, unpacks bodies, reads bodies of any size and connects to whatever
address the resolver returns. This client does none of that. It opens one connection per request.
"""

import re
import ssl
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import anyio.to_thread
import httpcore

from acp_agent import __version__
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.net.connection import (
    REDIRECTS,
    Dial,
    PinnedBackend,
    network_errors,
    status_error,
    system_dial,
    system_trust,
)
from acp_agent.net.hosts import Resolve, system_resolve
from acp_agent.net.urls import judge_endpoint, locate

_OURS: Final = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "accept-encoding", "user-agent", "te", "upgrade")
)
"""Headers that only this client sets: they say how the request is framed and where it goes."""
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"([!-~]([ \t!-~]*[!-~])?)?")
"""Header values that every server understands (RFC 9110, 5.5): printable ASCII without a blank at either end."""


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
            message = f"{self._host} redirects to another address, which is not followed: name its final one"
            return ToolError(ToolErrorCategory.PERMANENT_FAILURE, message)
        error = status_error(self._host, self.status, self.headers.get("retry-after", ""))
        if self.status in {401, 403}:
            return ToolError(error.failure.category, f"{error}: check the headers given for it")
        return error

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the body as it arrives. Raises ToolError, also for a packed body, since none was asked for."""
        if self.headers.get("content-encoding", "identity").strip().lower() != "identity":
            message = f"{self._host} sent a packed answer without being asked to"
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, message)
        with _translated(self._host):
            async for chunk in self._response.aiter_stream():
                yield chunk

    async def body(self, limit: int) -> bytes:
        """Return the whole body. Raises ToolError if it has more than `limit` bytes."""
        body = bytearray()
        async for chunk in self.chunks():
            body += chunk
            if len(body) > limit:
                message = f"{self._host} sent an answer of more than {limit} bytes, and nothing of it was kept"
                raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, message)
        return bytes(body)


class McpHttpClient:
    """A client for one URL. It judges and pins the addresses for each request and follows no redirects.

    headers        sent with every request, except those that frame it
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
        """Send a request and hold its response open. `headers` override the server's own.

        Only connecting has a time limit.

        Raises:
            RequestBlocked: The server may not be reached.
            ToolError: There was no usable answer for another reason.

        """
        target = self._endpoint.target
        judged = await locate(self._endpoint, self._resolve)
        scheme = b"https" if self._endpoint.tls else b"http"
        url = httpcore.URL(scheme=scheme, host=target.host.encode(), port=target.port, target=target.resource)
        backend = PinnedBackend(judged, self._dial)
        trust = await self._trusted() if self._endpoint.tls else None
        try:
            with _translated(target.host):
                connection = httpcore.AsyncHTTPConnection(url.origin, ssl_context=trust, network_backend=backend)
                async with connection.stream(
                    method, url, headers=self._all(headers, body), content=body or None
                ) as response:
                    backend.head_received()
                    yield McpResponse(target.host, response)
        finally:
            await backend.aclose()

    async def _trusted(self) -> ssl.SSLContext:
        if self._trust is None:
            self._trust = await anyio.to_thread.run_sync(system_trust)
        return self._trust

    def _all(self, headers: Mapping[str, str], body: bytes) -> list[tuple[str, str]]:
        mine = {name.lower() for name in headers}
        kept = {name: value for name, value in self._headers.items() if name.lower() not in mine}
        return [
            ("Host", self._endpoint.target.authority),
            *kept.items(),
            *headers.items(),
            *((("Content-Length", str(len(body))),) if body else ()),
            ("User-Agent", f"acp-agent/{__version__}"),
            ("Accept-Encoding", "identity"),
            ("Connection", "close"),
        ]


def _check_header(name: str, value: str) -> None:
    """Raise Refused with the name of a header that cannot be sent. The value may be secret."""
    if not _NAME.fullmatch(name):
        raise Refused(f"{name[:60]!a} is no name of a header and cannot be sent")
    if not _VALUE.fullmatch(value):
        why = "it begins or ends with a blank, or holds a line end, a control or a letter outside ASCII"
        raise Refused(f"the value of the header {name[:60]} cannot be sent: {why}")


@contextmanager
def _translated(host: str) -> Generator[None]:
    """Raise network errors as `network_errors` does, and name headers that cannot be sent."""
    with network_errors(host):
        try:
            yield
        except httpcore.LocalProtocolError as error:
            message = f"the headers given for {host} cannot be sent"
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, message, "Tell the user to check them.") from error
