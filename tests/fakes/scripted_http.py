"""A real HTTP server on 127.0.0.1 that answers what a test tells it to, byte for byte, faults included."""

import asyncio
import contextlib
import gzip
import itertools
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self, TypeAlias

import anyio


@dataclass(frozen=True)
class Send:
    """Write these bytes, as one chunk of a chunked body, and see them off."""

    data: bytes


@dataclass(frozen=True)
class Until:
    """Wait for the test before going on."""

    event: anyio.Event


@dataclass(frozen=True)
class Hang:
    """Send nothing more; end when the client closes the connection."""


@dataclass(frozen=True)
class Cut:
    """Close the connection without ending the body."""


@dataclass(frozen=True)
class Reset:
    """Tear the connection down with a RST."""


Action: TypeAlias = Send | Until | Hang | Cut | Reset


@dataclass(frozen=True)
class Reply:
    """One answer. `length` announces a content-length instead of chunks (then Sends are written raw)."""

    actions: Sequence[Action] = ()
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("content-type", "text/event-stream"),)
    length: int | None = None

    @classmethod
    def stream(cls, body: bytes, cuts: Sequence[int] = ()) -> Self:
        """An event stream, written in pieces cut at these offsets."""
        edges = [0, *sorted(set(cuts)), len(body)]
        return cls([Send(body[a:b]) for a, b in itertools.pairwise(edges) if a < b])

    @classmethod
    def zipped(cls, body: bytes) -> Self:
        """An event stream, compressed, written in two pieces."""
        packed = gzip.compress(body)
        middle = len(packed) // 2
        headers = (("content-type", "text/event-stream"), ("content-encoding", "gzip"))
        return cls([Send(packed[:middle]), Send(packed[middle:])], headers=headers)

    @classmethod
    def plain(cls, status: int, body: bytes, content_type: str = "application/json", **headers: str) -> Self:
        """A whole answer at once. Underscores in header names become hyphens."""
        extra = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        return cls([Send(body)], status, (("content-type", content_type), *extra), length=len(body))


@dataclass(frozen=True)
class Request:
    """What a client sent. `connection` numbers the TCP connection it came on."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int


@dataclass
class ScriptedHttp:
    """Answers requests in order with `replies`; the last reply is repeated. Use as an async context manager.

    received        set once a whole request has come
    client_closed   set when a `Hang` ended because the client closed the connection
    """

    replies: Sequence[Reply]
    requests: list[Request] = field(default_factory=list)
    received: anyio.Event = field(default_factory=anyio.Event)
    client_closed: anyio.Event = field(default_factory=anyio.Event)
    connections: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
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
        self.connections += 1
        number = self.connections
        try:
            while (request := await _read_request(reader, number)) is not None:
                reply = self.replies[min(len(self.requests), len(self.replies) - 1)]
                self.requests.append(request)
                self.received.set()
                if not await self._answer(reply, reader, writer):
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _answer(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Play the reply; whether the connection can take another request."""
        lines = [f"HTTP/1.1 {reply.status} Scripted", *(f"{name}: {value}" for name, value in reply.headers)]
        lines.append("transfer-encoding: chunked" if reply.length is None else f"content-length: {reply.length}")
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        for action in reply.actions:
            match action:
                case Send(data):
                    writer.write(data if reply.length is not None else b"%x\r\n%s\r\n" % (len(data), data))
                    await writer.drain()
                    await asyncio.sleep(0)  # let the piece leave on its own
                case Until(event):
                    await event.wait()
                case Hang():
                    with contextlib.suppress(ConnectionError):
                        await reader.read(1)
                    self.client_closed.set()
                    return False
                case Cut():
                    return False
                case Reset():
                    sock: socket.socket = writer.get_extra_info("socket")
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    writer.transport.abort()
                    return False
        if reply.length is None:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


async def _read_request(reader: asyncio.StreamReader, connection: int) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, body, connection)
