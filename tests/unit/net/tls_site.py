"""A real TLS server on 127.0.0.1 that plays every public host, and the dialler and resolver that lead there."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeAlias

import anyio
import httpcore
import trustme

PUBLIC = "93.184.216.34"
NOBODY = 1
"""A port where nobody listens wherever tests run (tcpmux)."""

Reply: TypeAlias = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


def reply(body: bytes = b"", status: str = "200 OK", **headers: str) -> bytes:
    """A whole answer. Underscores in header names become hyphens; a text type and the length are said if not given."""
    said = {"content_type": "text/plain", "content_length": str(len(body))} | headers
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in said.items()]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode() + body


def redirect(location: str, status: str = "302 Found") -> bytes:
    """An answer that sends the client on."""
    return reply(status=status, location=location)


@dataclass(frozen=True)
class Asked:
    """One request as the server saw it. `sni` is the name of the TLS handshake, None when it had none."""

    sni: str | None
    host: str
    path: str
    headers: dict[str, str]


class Site:
    """Answers by host and path (`example.com/x`), else by path alone. Use as an async context manager."""

    def __init__(self, ca: trustme.CA, *names: str) -> None:
        self.replies: dict[str, Reply] = {}
        self.asked: list[Asked] = []
        self.hung_up = anyio.Event()
        self._names: dict[ssl.SSLObject, str | None] = {}
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ca.issue_cert(*(names or ("example.com", "*.example.com", PUBLIC, "8.8.8.8"))).configure_cert(self._context)
        self._context.sni_callback = self._note_name
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    def _note_name(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        self._names[connection] = name

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            answer = self._answer(head, self._names.get(writer.get_extra_info("ssl_object")))
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            self.hung_up.set()
        finally:
            writer.transport.abort() if writer.transport.is_closing() else writer.close()
            self._tasks.discard(task)

    def _answer(self, head: str, sni: str | None) -> Reply:
        first, *lines = head.rstrip().split("\r\n")
        path = first.split(" ")[1]
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        self.asked.append(Asked(sni, headers["host"], path, headers))
        for key in (headers["host"] + path, path):
            if key in self.replies:
                return self.replies[key]
        return reply(status="404 Not Found")


class _Disguised(httpcore.AsyncNetworkStream):
    """A connection to 127.0.0.1 whose other end is said to be the address that was dialled."""

    def __init__(self, inner: httpcore.AsyncNetworkStream, address: str, port: int) -> None:
        self._inner = inner
        self._server_addr = (address, port)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._inner.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return await self._inner.start_tls(ssl_context, server_hostname, timeout)

    def get_extra_info(self, info: str) -> object:
        return self._server_addr if info == "server_addr" else self._inner.get_extra_info(info)


@dataclass
class Internet:
    """Every address leads to one port of this machine, and every name to PUBLIC unless `names` says otherwise.

    closed      addresses where connections are refused
    dead        addresses that never answer
    honest      whether a connection tells where it really leads
    """

    port: int
    names: dict[str, list[list[str]]] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    honest: bool = False
    dialled: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    async def dial(self, address: str, port: int) -> httpcore.AsyncNetworkStream:
        self.dialled.append(address)
        if address in self.dead:
            raise TimeoutError
        target = NOBODY if address in self.closed else self.port
        stream = await httpcore.AnyIOBackend().connect_tcp("127.0.0.1", target)
        return stream if self.honest else _Disguised(stream, address, port)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        lists = self.names.get(host, [[PUBLIC]])
        return lists[min(self.asked.count(host), len(lists)) - 1]
