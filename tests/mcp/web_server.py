"""An MCP server over HTTP on this machine that answers as it is told. Real sockets, hand-made HTTP."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

SCHEMA = {"type": "object", "properties": {"x": {"type": "string"}}}
ECHO = {"name": "echo", "description": "Says it again.", "inputSchema": SCHEMA}


@dataclass
class Request:
    """A request as it came in; `message` is its JSON, empty for GET and DELETE."""

    verb: str
    path: str
    headers: dict[str, str]
    message: dict[str, Any]

    @property
    def method(self) -> str:
        return self.message.get("method", "")

    def result(self, result: object) -> bytes:
        return json.dumps({"jsonrpc": "2.0", "id": self.message.get("id"), "result": result}).encode()

    def text(self, words: str) -> bytes:
        return self.result({"content": [{"type": "text", "text": words}]})


Answer: TypeAlias = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


def reply(writer: asyncio.StreamWriter, body: bytes = b"", status: str = "200 OK", **headers: str) -> None:
    said = {"content_type": "application/json", "content_length": str(len(body))} | headers
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in said.items() if value]
    writer.write("\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode() + body)


def stream(writer: asyncio.StreamWriter) -> None:
    """Begin an answer of events, which ends with the connection."""
    reply(writer, content_type="text/event-stream", content_length="")


def event(data: bytes) -> bytes:
    return b"event: message\r\nid: 1\r\ndata: " + data + b"\r\n\r\n"


@dataclass
class WebServer:
    """Answers by JSON-RPC method or HTTP verb with what is in `answers`, else as a good server does."""

    answers: dict[str, Answer] = field(default_factory=dict)
    tools: list[dict[str, Any]] = field(default_factory=lambda: [ECHO])
    session: str = "fake-session"
    asked: list[Request] = field(default_factory=list)
    port: int = 0
    came: asyncio.Event = field(default_factory=asyncio.Event)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await _read(reader)
            self.asked.append(request)
            self.came.set()
            answer = self.answers.get(request.method or request.verb, self._well)
            await answer(request, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort() if writer.transport.is_closing() else writer.close()

    async def _well(self, request: Request, writer: asyncio.StreamWriter) -> None:
        match request.method:
            case "initialize":
                info = {"name": "web", "version": "1"}
                result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
                reply(writer, request.result(result), mcp_session_id=self.session)
            case "tools/list":
                reply(writer, request.result({"tools": self.tools}))
            case "tools/call":
                reply(writer, request.text(request.message["params"]["arguments"].get("x", "")))
            case "ping":
                reply(writer, request.result({}))
            case "":
                reply(writer, status="405 Method Not Allowed" if request.verb == "GET" else "200 OK")
            case _:
                reply(writer, status="202 Accepted")

    def verbs(self) -> list[str]:
        return [request.method or request.verb for request in self.asked]


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip().split("\r\n")
    verb, path, _ = first.split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(verb, path, headers, json.loads(body) if body else {})


@asynccontextmanager
async def web_server(**answers: Answer) -> AsyncGenerator[WebServer]:
    """Serve on 127.0.0.1. Names of answers: `tools_call` for "tools/call"."""
    played = WebServer({name.replace("_", "/"): answer for name, answer in answers.items()})
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await played.accept(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    played.port = server.sockets[0].getsockname()[1]
    try:
        yield played
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
