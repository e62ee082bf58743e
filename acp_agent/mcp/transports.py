"""The streamable HTTP transport: a POST for each message, and a GET for what the server has to say by itself.

Source: MCP 2025-11-25, "Transports". Broken streams are not resumed: the call fails, and the model may repeat it.
"""

import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import anyio
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp.types import JSONRPCNotification, JSONRPCRequest

from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory, ToolFailure
from acp_agent.core.mcp import HttpServer, McpServer, StdioServer
from acp_agent.mcp.program import Program, server_environment
from acp_agent.mcp.wire import MESSAGE_LIMIT, BrokenServerError, Events, Lines, Sleep, Transport, Wire
from acp_agent.net.connection import Dial
from acp_agent.net.hosts import Resolve
from acp_agent.net.mcp_http import McpHttpClient, McpResponse

_SESSION: Final = "mcp-session-id"
_NOTICE_TIMEOUT: Final = 10.0
"""Seconds for a message that needs no answer."""
_GOODBYE: Final = 1.0
_LISTEN_PAUSE: Final = 15.0
_NOTICES: Final = 8
"""Messages without answer under way at once. Who asks faster than he takes our answers gets no more of them."""


class HttpTransport:
    """One session with a server after another, each begun by the `initialize` request that passes through."""

    def __init__(self, http: McpHttpClient, sleep: Sleep) -> None:
        self._http = http
        self._sleep = sleep
        self._session: dict[str, str] = {}
        self._version: dict[str, str] = {}
        self._posts: dict[int, anyio.CancelScope] = {}
        self._notices = 0

    async def serve(self, wire: Wire) -> None:
        self._session, self._version = {}, {}
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._send_all, wire, tasks)
                await wire.lost.wait()
                tasks.cancel_scope.cancel()
        finally:
            await self._say_goodbye()

    async def _send_all(self, wire: Wire, tasks: anyio.abc.TaskGroup) -> None:
        async for item in wire.outgoing:
            if isinstance(item.metadata, ClientMessageMetadata) and item.metadata.headers:
                self._version = item.metadata.headers
            match item.message:
                case JSONRPCRequest():
                    tasks.start_soon(self._request, item, wire)
                case JSONRPCNotification(method="notifications/initialized"):
                    await self._notify(item, wire)  # nothing may overtake it
                    tasks.start_soon(self._listen, wire)
                case JSONRPCNotification(method="notifications/cancelled", params=params):
                    self._abandon(params or {})
                    tasks.start_soon(self._notify, item, wire)
                case _ if self._notices < _NOTICES:
                    tasks.start_soon(self._notify, item, wire)
                case _:
                    pass

    def _abandon(self, params: Mapping[str, object]) -> None:
        number = params.get("requestId")
        if isinstance(number, int) and (scope := self._posts.get(number)) is not None:
            scope.cancel()

    # ------------------------------------------------------------------- messages

    async def _request(self, item: SessionMessage, wire: Wire) -> None:
        """A request: its answer comes in the body, as JSON or among events."""
        request = item.message
        assert isinstance(request, JSONRPCRequest)
        assert isinstance(request.id, int), "the session numbers its requests"
        with anyio.CancelScope() as scope:
            self._posts[request.id] = scope
            try:
                failure = await self._exchange(item, wire)
            except BrokenServerError as error:
                failure = ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, f"the server {error}")
            except (ToolError, Refused) as error:
                failure = error.failure
            finally:
                del self._posts[request.id]
            if failure is not None:
                wire.fail(item, failure)
                if failure.category is ToolErrorCategory.NETWORK_ERROR:
                    wire.lose(failure.message)

    async def _exchange(self, item: SessionMessage, wire: Wire) -> ToolFailure | None:
        """Post a request and take in what comes; what to say in the server's place when no answer was among it."""
        request = item.message
        assert isinstance(request, JSONRPCRequest)
        async with self._http.ask("POST", self._headers(), _body(item)) as answer:
            error = answer.failure()
            if answer.status == 404 and self._session:
                wire.lose("the server has forgotten the session")
            if request.method == "initialize" and error is None:
                self._begin(answer)
            if error is not None and (answer.mime != "application/json" or answer.status in {401, 403}):
                return error.failure
            await _take_body(answer, wire, until=item)
        if not wire.waits_for(item):
            return None
        said = error.failure if error else None
        return said or ToolFailure(ToolErrorCategory.SERVER_ERROR, "the server's answer held no result")

    async def _notify(self, item: SessionMessage, wire: Wire) -> None:
        """A message that gets no answer. Whether it arrived, only the next request tells."""
        self._notices += 1
        try:
            with anyio.move_on_after(_NOTICE_TIMEOUT), suppress(ToolError, Refused):
                async with self._http.ask("POST", self._headers(), _body(item)) as answer:
                    if answer.status == 404 and self._session:
                        wire.lose("the server has forgotten the session")
        finally:
            self._notices -= 1

    async def _listen(self, wire: Wire) -> None:
        """Keep a stream open for what the server says by itself, where it offers one."""
        while True:
            try:
                async with self._http.ask("GET", self._headers(accept="text/event-stream")) as answer:
                    if answer.status != 200 or answer.mime != "text/event-stream":
                        return
                    await _take_body(answer, wire)
            except BrokenServerError as error:
                wire.lose(f"the server {error}")
            except (ToolError, Refused):
                pass  # the next request will tell
            await self._sleep(_LISTEN_PAUSE)

    async def _say_goodbye(self) -> None:
        """End the session, if there is one and the server still listens."""
        if self._session:
            with anyio.move_on_after(_GOODBYE, shield=True), suppress(ToolError, Refused):
                async with self._http.ask("DELETE", self._headers()):
                    pass

    # ------------------------------------------------------------------- headers

    def _begin(self, answer: McpResponse) -> None:
        session = answer.headers.get(_SESSION, "")
        if session and len(session) <= 1024 and session.isascii() and session.isprintable() and " " not in session:
            self._session = {_SESSION: session}

    def _headers(self, accept: str = "application/json, text/event-stream") -> dict[str, str]:
        return {"content-type": "application/json", "accept": accept, **self._session, **self._version}


def _body(item: SessionMessage) -> bytes:
    return item.message.model_dump_json(by_alias=True, exclude_unset=True).encode()


async def _take_body(answer: McpResponse, wire: Wire, until: SessionMessage | None = None) -> None:
    """Take in all messages of a body, or those up to the answer of a request. Raises ToolError, BrokenServerError."""
    if answer.mime == "application/json":
        await wire.take(await answer.body(MESSAGE_LIMIT))
    elif answer.mime == "text/event-stream":
        events = Events()
        async for chunk in answer.chunks():
            for event in events.feed(chunk):
                await wire.take(event)
                if until is not None and not wire.waits_for(until):
                    return
            ignored, events.ignored = events.ignored, 0
            await wire.overhear(ignored)


_LAST_WORDS: Final = 0.2
"""Seconds for what an ended program still had in its pipes."""


class StdioTransport:
    """Starts the program anew each time it serves."""

    def __init__(self, server: StdioServer, environment: Mapping[str, str]) -> None:
        self._server = server
        self._environment = environment

    async def serve(self, wire: Wire) -> None:
        try:
            program = await Program.start(self._server, self._environment)
        except (OSError, ValueError) as error:
            wire.lose(f"{self._server.command} cannot be started ({_why(error)})", final=True)
            return
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(program.drain)
                tasks.start_soon(_write, program, wire)
                async with anyio.create_task_group() as readers:
                    readers.start_soon(_read, program, wire, readers.cancel_scope)
                    await program.exited()
                    with anyio.move_on_after(_LAST_WORDS):
                        await wire.lost.wait()
                    readers.cancel_scope.cancel()
                with anyio.move_on_after(_LAST_WORDS):
                    await program.exited()  # it may only have closed its output; then there is no more to say
                wire.lose(f"the program {program.epitaph()}", said=program.last_words())
                tasks.cancel_scope.cancel()
        finally:
            await program.end()


def _why(error: OSError | ValueError) -> str:
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.strerror}: {error.filename}" if error.filename else error.strerror


async def _read(program: Program, wire: Wire, scope: anyio.CancelScope) -> None:
    """Take in lines until there are no more, or no more is wanted."""
    lines = Lines()
    try:
        while data := await program.read():
            for line in lines.feed(data):
                await wire.take(line)
    except BrokenServerError as error:
        wire.lose(f"the program {error}")
    scope.cancel()


async def _write(program: Program, wire: Wire) -> None:
    async for item in wire.outgoing:
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            await program.write(f"{line}\n".encode())
        except OSError:  # it closed its stdin; that it ended, or what it still answers, is read elsewhere
            return


def transport_to(
    server: McpServer,
    environment: Mapping[str, str],
    *,
    sleep: Sleep,
    resolve: Resolve,
    dial: Dial | None,
    trust: ssl.SSLContext | None,
    warn: Callable[[str], None],
) -> Transport:
    """The transport a server is reached by. Raises Refused for a URL that may not be used."""
    match server.reach:
        case StdioServer() as program:
            variables, dropped = server_environment(environment, program.env)
            if dropped:
                warn(f"not passed on to it: {', '.join(dropped)}")
            return StdioTransport(program, variables)
        case HttpServer(url, headers, allow_private):
            http = McpHttpClient(
                url, dict(headers), allow_private=allow_private, resolve=resolve, dial=dial, trust=trust
            )
            return HttpTransport(http, sleep)
