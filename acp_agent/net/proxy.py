"""AllowlistProxy: the HTTP proxy through which sandboxed commands reach the hosts that the user lists.

A command names a host (`CONNECT host:443`, or `GET http://host/`). The name is compared with the list before it is
looked up, so that no other names are sent to a DNS server. The addresses of the name are checked as for the web tools,
and the proxy connects only to them. It does not inspect the data, which is encrypted for https.

It runs in a thread with its own event loop, because sandboxes are built by synchronous code. So a command that floods
the proxy slows down only itself. The limits below hold for one session.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final

import anyio

from acp_agent.core.data import frozen
from acp_agent.core.errors import ToolError
from acp_agent.core.services import BlockReason, Egress, WebCaller
from acp_agent.log import Log
from acp_agent.net.hosts import (
    HostPattern,
    RequestBlocked,
    Resolve,
    WebTarget,
    canonical_host,
    refuse_literal,
    system_resolve,
    why_local,
)
from acp_agent.text import lazy_regex

if TYPE_CHECKING:
    import httpcore

    from acp_agent.net.connection import Dial

_log = Log(__name__)

PORTS: Final = (443, 80)
"""The ports of https, which pip, npm, cargo and git use, and of http, which often redirects to https."""
MOST_CONNECTIONS: Final = 64
"""Connections that are served at once. Others wait."""
BURST: Final = 200
"""Connections that are served without a pause. Then `PER_SECOND` applies, so that a flood fills the audit slowly."""
PER_SECOND: Final = 50
HEAD_LIMIT: Final = 32 * 1024
HEAD_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 20.0
IDLE_SECONDS: Final = 300.0
"""Seconds without a byte in either direction after which a connection is closed."""
LINGER_SECONDS: Final = 15.0
"""The same, after the command has closed its side of the connection. The command has often ended by then."""
_PIECE: Final = 64 * 1024
_CLOSING_SECONDS: Final = 5.0
_FAREWELL_SECONDS: Final = 1.0

_HOST: Final = rb"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9.-]{1,254})"
_CONNECT: Final = lazy_regex(rb"CONNECT " + _HOST + rb":([0-9]{1,5}) HTTP/1\.[01]")
_ABSOLUTE: Final = lazy_regex(rb"([A-Z]{1,20}) http://" + _HOST + rb"(?::([0-9]{1,5}))?([/?][!-~]*)? (HTTP/1\.[01])")
_FIELD: Final = lazy_regex(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t -~\x80-\xff]*)")
_FOR_PROXIES: Final = frozenset((b"host", b"connection", b"keep-alive", b"te", b"upgrade"))


@frozen
class ProxyRequest:
    """A request of a command to the proxy. `head` is sent to the host first; it is empty for a tunnel."""

    host: str
    port: int
    head: bytes = b""

    @classmethod
    def read(cls, head: bytes) -> "ProxyRequest":
        """Return the request in a head that ends with an empty line.

        Raises:
            ValueError: It is not a request to a proxy, its host is not a plain name or address, or it is ambiguous.
                The message is for the user.

        """
        first, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
        read = [_FIELD.fullmatch(field) for field in fields]
        named = [(found[1].lower(), found[2].strip()) for found in read if found]
        if len(named) < len(fields):
            raise ValueError("a header cannot be read")
        if found := _CONNECT.fullmatch(first):
            if any(
                name == b"transfer-encoding" or (name == b"content-length" and value != b"0") for name, value in named
            ):
                raise ValueError("CONNECT has no body")
            return cls(_host(found[1]), int(found[2]))
        found = _ABSOLUTE.fullmatch(first)
        if not found or found[1] == b"CONNECT":
            raise ValueError("this is a proxy for CONNECT and http:// only, and takes plain host names")
        host, port, path = _host(found[2]), int(found[3] or 80), found[4] or b"/"
        kept = [
            field
            for (name, _), field in zip(named, fields, strict=True)
            if name not in _FOR_PROXIES and not name.startswith(b"proxy-")
        ]
        asked = b"%b %b %b" % (found[1], path if path.startswith(b"/") else b"/" + path, found[5])
        shown = f"[{host}]" if ":" in host else host
        host_field = f"Host: {shown if port == 80 else f'{shown}:{port}'}".encode()
        # One request for each connection: a second one could be meant for another host.
        return cls(host, port, b"\r\n".join((asked, host_field, b"Connection: close", *kept, b"", b"")))

    @property
    def place(self) -> str:
        """The host and port, for the audit. Paths are not recorded, since they may hold secrets."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def _host(text: bytes) -> str:
    try:
        return canonical_host(text.decode("ascii").removeprefix("[").removesuffix("]"))
    except ValueError as error:
        raise ValueError(f"the host cannot be used: {error}") from None


def allowed_hosts(texts: Sequence[str]) -> tuple[HostPattern, ...]:
    """Return the patterns of `network_allow`. Raises ConfigError for one that could never match."""
    return tuple(HostPattern.read(text, "network_allow", "[tools.sandbox]") for text in texts)


def check_allowed(allowed: Sequence[HostPattern], host: str, port: int) -> None:
    """Raise RequestBlocked if a command may not reach a canonical host and port. Nothing is looked up."""
    if not any(pattern.matches(host) for pattern in allowed):
        raise RequestBlocked(BlockReason.ALLOWLIST, f"{host} is not in network_allow", host=host)
    if (why := why_local(host)) is not None:
        raise RequestBlocked(BlockReason.SSRF, f"{host} is no public host: {why}", host=host)
    if port not in PORTS:
        named = " and ".join(map(str, PORTS))
        raise RequestBlocked(BlockReason.SSRF, f"port {port} of {host} may not be reached, only {named}", host=host)
    refuse_literal(WebTarget(host, host, port, b"/"))


class AllowlistProxy:
    """A proxy on a listening socket. It serves until `close`.

    listener  the socket, in the network of the commands. The proxy closes it
    allowed   returns the hosts that may be reached now. It is called in the proxy's thread, for each connection
    record    called in that thread for each connection before its first byte is sent, and for each refused one
    resolve   returns the addresses of a host and port; by default those of the machine's resolver
    dial      opens a TCP connection to an address; by default a plain one
    """

    def __init__(
        self,
        listener: socket.socket,
        allowed: Callable[[], Sequence[HostPattern]],
        record: Callable[[Egress], None],
        *,
        resolve: Resolve = system_resolve,
        dial: "Dial | None" = None,
    ) -> None:
        self._listener = listener
        self._allowed = allowed
        self._record = record
        self._resolve = resolve
        self._dial = dial
        self._room = asyncio.Semaphore(MOST_CONNECTIONS)
        self._free_at = 0.0
        self._stop: Callable[[], object] | None = None
        self._begun = threading.Event()
        self.port: int = listener.getsockname()[1]
        # A process that dies must not wait for a connection of a command.
        self._thread = threading.Thread(target=anyio.run, args=(self._serve,), name="sandbox proxy", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            listener.close()
            raise OSError(f"no proxy for `network_allow` could be started: {error}") from None

    def close(self) -> None:
        """Close the socket and all connections. It blocks until that is done."""
        self._begun.wait(_CLOSING_SECONDS)
        if self._stop is not None:
            with suppress(RuntimeError):  # the thread's event loop has ended
                self._stop()
        self._thread.join(_CLOSING_SECONDS)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        with self._listener, anyio.CancelScope() as whole:
            self._stop = lambda: loop.call_soon_threadsafe(whole.cancel)
            self._begun.set()
            async with anyio.create_task_group() as tasks:
                while True:
                    await self._room.acquire()
                    await self._pause()
                    tasks.start_soon(self._converse, await self._accepted(loop))

    async def _pause(self) -> None:
        """Wait if more than BURST connections came faster than PER_SECOND."""
        now = monotonic()
        self._free_at = max(self._free_at, now - BURST / PER_SECOND) + 1 / PER_SECOND
        if self._free_at > now:
            await anyio.sleep(self._free_at - now)

    async def _accepted(self, loop: asyncio.AbstractEventLoop) -> socket.socket:
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError:  # the connection was aborted, or this process has too many open files
                await anyio.sleep(0.1)
            else:
                return connection

    async def _converse(self, connection: socket.socket) -> None:
        """Serve one connection of a command."""
        try:
            reader, writer = await asyncio.open_connection(sock=connection, limit=HEAD_LIMIT)
            writer.transport.set_write_buffer_limits(0)  # `drain` waits until all is sent
            try:
                with suppress(OSError, EOFError):
                    await self._answer(reader, writer)
                    writer.write_eof()
                    # If the command's bytes stay unread, closing discards the end of the answer.
                    with anyio.move_on_after(_FAREWELL_SECONDS):
                        while await reader.read(_PIECE):
                            pass
            finally:
                writer.transport.abort()
        except Exception:  # noqa: BLE001 - a bug ends only this connection, not the session's others
            _log.error("connection of a command failed", exc_info=True)
        finally:
            connection.close()
            self._room.release()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun, request = monotonic(), None
        try:
            with anyio.fail_after(HEAD_SECONDS):
                request = ProxyRequest.read(await reader.readuntil(b"\r\n\r\n"))
            check_allowed(self._allowed(), request.host, request.port)
            with anyio.fail_after(CONNECT_SECONDS):
                stream, address = await self._connected(request)
        except asyncio.LimitOverrunError:
            await _say(writer, 431, f"the request is longer than {HEAD_LIMIT} bytes")
        except ValueError as error:
            self._note(request, begun, blocked=BlockReason.SSRF)
            await _say(writer, 400, str(error))
        except RequestBlocked as error:
            self._note(request, begun, blocked=error.block)
            await _say(writer, 403, str(error))
        except (TimeoutError, ToolError) as error:
            if request is None:
                await _say(writer, 408, f"the request was not complete after {HEAD_SECONDS:g} s")
            else:
                self._note(request, begun)
                await _say(writer, 502, str(error) or f"{request.host} did not take a connection in time")
        else:
            try:
                self._note(request, begun, address)
                await _Tunnel(reader, writer, stream, request.host).run(request.head)
            finally:
                with anyio.CancelScope(shield=True):
                    await stream.aclose()

    async def _connected(self, request: ProxyRequest) -> "tuple[httpcore.AsyncNetworkStream, str]":
        """Return a connection to the host and its address. Raises RequestBlocked and ToolError."""
        from acp_agent.net import connection, urls  # noqa: PLC0415 - httpx takes 0.1 s to load

        target = WebTarget(request.place, request.host, request.port, b"/")
        judged = await urls.locate(urls.ServerEndpoint(target, tls=True, private=False), self._resolve)
        backend = connection.PinnedBackend(judged, self._dial or connection.system_dial)
        try:
            with connection.network_errors(request.host):
                stream = await backend.connect_tcp(request.host, request.port)
        except BaseException:
            await backend.aclose()
            raise
        backend.head_received()
        return stream, backend.address or ""

    def _note(
        self, request: ProxyRequest | None, begun: float, address: str | None = None, blocked: BlockReason | None = None
    ) -> None:
        self._record(
            Egress(
                caller=WebCaller("bash", ""),
                url="" if request is None else request.place,
                host="" if request is None else request.host,
                hop=0,
                address=address,
                status=None,
                duration=monotonic() - begun,
                response_bytes=0,
                block_reason=blocked,
                method="CONNECT",
            )
        )


class _Tunnel:
    """A tunnel that copies bytes between a command and a host, until the host closes or both are idle."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        stream: "httpcore.AsyncNetworkStream",
        host: str,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._stream = stream
        self._host = host
        self._patience = IDLE_SECONDS
        self._idle = anyio.CancelScope()

    async def run(self, head: bytes) -> None:
        """Send the head to the host, or if it is empty the 200 response to the command, and then copy all bytes."""
        with self._idle:
            self._alive()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._up, head)
                await self._down(b"" if head else b"HTTP/1.1 200 Connection established\r\n\r\n")
                tasks.cancel_scope.cancel()

    def _alive(self) -> None:
        self._idle.deadline = anyio.current_time() + self._patience

    async def _up(self, piece: bytes) -> None:
        from acp_agent.net.connection import network_errors  # noqa: PLC0415 - it is loaded already

        with suppress(ToolError), network_errors(self._host):
            if piece:
                await self._stream.write(piece)
            while piece := await self._reader.read(_PIECE):
                await self._stream.write(piece)
                self._alive()
        self._patience = LINGER_SECONDS
        self._alive()
        raw = self._stream.get_extra_info("socket")
        with suppress(OSError):  # it is closed already
            raw.shutdown(socket.SHUT_WR)

    async def _down(self, piece: bytes) -> None:
        from acp_agent.net.connection import network_errors  # noqa: PLC0415 - it is loaded already

        with suppress(ToolError), network_errors(self._host):
            if piece:
                await self._send(piece)
            while piece := await self._stream.read(_PIECE):
                await self._send(piece)

    async def _send(self, piece: bytes) -> None:
        self._writer.write(piece)
        await self._writer.drain()
        self._alive()


async def _say(writer: asyncio.StreamWriter, status: int, why: str) -> None:
    """Answer that there is no connection. The reason is in the status line, since many programs show only that."""
    line = "".join(letter if " " <= letter <= "~" else "?" for letter in why[:300])
    refused = "Commands in the sandbox reach only what the user lists in `[tools.sandbox] network_allow`.\n"
    body = f"acp-agent: {line}\n{refused if status == 403 else ''}"
    head = f"HTTP/1.1 {status} {line}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close"
    writer.write(f"{head}\r\n\r\n{body}".encode("ascii"))
    await writer.drain()
