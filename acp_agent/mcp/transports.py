"""The two transports of MCP: a program's stdin and stdout, and streamable HTTP.

Source: MCP 2025-11-25, "Transports". Over stdio each line is a message. Over HTTP each message to the server is a POST
request. A GET request keeps a stream open for requests and notifications of the server. Broken streams are not resumed:
the call fails, and the model may repeat it.
"""

import json
import re
import ssl
from contextlib import suppress
from dataclasses import replace
from typing import Final

import anyio
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp.types import JSONRPCNotification, JSONRPCRequest

from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory, ToolFailure
from acp_agent.core.mcp import HttpServer, McpServer, StdioServer
from acp_agent.core.types import Json
from acp_agent.mcp.channel import (
    MESSAGE_LIMIT,
    BrokenServerError,
    LineSplitter,
    MessageChannel,
    Sleep,
    SseSplitter,
)
from acp_agent.net.connection import Dial, McpHttpClient, McpResponse, NotSentError
from acp_agent.net.hosts import Resolve
from acp_agent.workspace.processes.program import PipedProgram, ProgramStart, server_environment

_SESSION: Final = "mcp-session-id"
_NOTICE_TIMEOUT: Final = 10.0
"""The most seconds to deliver a message that needs no answer."""
_END_TIMEOUT: Final = 1.0
_LISTEN_PAUSE: Final = 15.0
_LONGEST_ERROR: Final = 64 * 1024
_UNKNOWN_SESSION: Final = re.compile(rb"session|not initialized", re.IGNORECASE)
"""What many servers say with status 400 of a session that they have forgotten. The standard wants 404."""
_FORGOTTEN: Final = "the server has forgotten the session"
_NOTICES: Final = 8
"""The most messages without an answer that are sent at once. Further ones are dropped."""


class HttpTransport:
    """A transport over HTTP. Each `initialize` request that passes through it begins a new session with the server."""

    def __init__(self, http: McpHttpClient, sleep: Sleep) -> None:
        self._http = http
        self._sleep = sleep
        self._session: dict[str, str] = {}
        self._version: dict[str, str] = {}
        self._posts: dict[int, anyio.CancelScope] = {}
        self._notices = 0

    async def serve(self, channel: MessageChannel) -> None:
        self._session, self._version = {}, {}
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._send_all, channel, tasks)
                await channel.lost.wait()
                tasks.cancel_scope.cancel()
        finally:
            if self._session:  # tells the server that the session has ended
                with anyio.move_on_after(_END_TIMEOUT, shield=True), suppress(ToolError, Refused):
                    async with self._http.ask("DELETE", self._headers()):
                        pass

    async def _send_all(self, channel: MessageChannel, tasks: anyio.abc.TaskGroup) -> None:
        async for item in channel.outgoing:
            if isinstance(item.metadata, ClientMessageMetadata) and item.metadata.headers:
                self._version = item.metadata.headers
            match item.message:
                case JSONRPCRequest():
                    tasks.start_soon(self._send_request, item, channel)
                case JSONRPCNotification(method="notifications/initialized"):
                    await self._send_notice(item, channel)  # no other message may be sent before it is answered
                    tasks.start_soon(self._listen, channel)
                case JSONRPCNotification(method="notifications/cancelled", params=params):
                    number = (params or {}).get("requestId")
                    if isinstance(number, int) and (scope := self._posts.get(number)) is not None:
                        scope.cancel()
                    tasks.start_soon(self._send_notice, item, channel)
                case _ if self._notices < _NOTICES:
                    tasks.start_soon(self._send_notice, item, channel)
                case _:
                    pass

    async def _send_request(self, item: SessionMessage, channel: MessageChannel) -> None:
        """Send a request. Its answer comes in the body, as JSON or as an event."""
        request = item.message
        assert isinstance(request, JSONRPCRequest)
        assert isinstance(request.id, int), "the session numbers its requests"
        may_have_run = request.method == "tools/call"
        with anyio.CancelScope() as scope:
            self._posts[request.id] = scope
            try:
                failure = await self._post_request(item, channel)
            except BrokenServerError as error:
                failure = ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, f"the server {error}")
            except (ToolError, Refused) as error:
                failure = error.failure
                may_have_run = may_have_run and not isinstance(error, NotSentError)
            finally:
                del self._posts[request.id]
            if failure is not None:
                is_lost = failure.category is ToolErrorCategory.NETWORK_ERROR
                if not (is_lost and may_have_run):  # else the session says that the call may have had effects
                    channel.answer_failure(item, failure)
                if is_lost:
                    channel.mark_lost(failure.message)

    async def _post_request(self, item: SessionMessage, channel: MessageChannel) -> ToolFailure | None:
        """Send a request and read the body. Return the failure to report if the server gave no answer."""
        request = item.message
        assert isinstance(request, JSONRPCRequest)
        async with self._http.ask("POST", self._headers(), _message_bytes(item)) as answer:
            error = answer.failure()
            if answer.status == 404 and self._session:
                _forgotten(channel, item)
            if request.method == "initialize" and error is None:
                name = answer.headers.get(_SESSION, "")
                if name and len(name) <= 1024 and name.isascii() and name.isprintable() and " " not in name:
                    self._session = {_SESSION: name}
            if error is not None and (answer.mime != "application/json" or answer.status in {401, 403}):
                return error.failure
            if error is None:
                await _receive_body(answer, channel, until=item)
            else:
                body, unaddressed = _addressed(await answer.body(MESSAGE_LIMIT), request.id)
                if unaddressed and answer.status == 400 and self._session and _UNKNOWN_SESSION.search(body):
                    _forgotten(channel, item)
                await channel.receive(body)
        if not channel.is_pending(item):
            return None
        said = error.failure if error else None
        return said or ToolFailure(ToolErrorCategory.SERVER_ERROR, "the server's answer held no result")

    async def _send_notice(self, item: SessionMessage, channel: MessageChannel) -> None:
        """Send a message that gets no answer. A failure is reported by the next request."""
        self._notices += 1
        try:
            with anyio.move_on_after(_NOTICE_TIMEOUT), suppress(ToolError, Refused):
                async with self._http.ask("POST", self._headers(), _message_bytes(item)) as answer:
                    if answer.status == 404 and self._session:
                        channel.mark_lost(_FORGOTTEN)
        finally:
            self._notices -= 1

    async def _listen(self, channel: MessageChannel) -> None:
        """Keep a stream open for messages that the server starts, if it offers one."""
        while True:
            try:
                async with self._http.ask("GET", self._headers(accept="text/event-stream")) as answer:
                    if answer.status != 200 or answer.mime != "text/event-stream":
                        return
                    await _receive_body(answer, channel)
            except BrokenServerError as error:
                channel.mark_lost(f"the server {error}")
            except (ToolError, Refused):
                pass  # the next request reports the problem
            await self._sleep(_LISTEN_PAUSE)

    def _headers(self, accept: str = "application/json, text/event-stream") -> dict[str, str]:
        return {"content-type": "application/json", "accept": accept, **self._session, **self._version}


def _forgotten(channel: MessageChannel, refused: SessionMessage) -> None:
    """End a connection whose session the server has forgotten. It has refused one request; others may have run."""
    if isinstance(refused.message, JSONRPCRequest) and refused.message.method == "tools/call":
        again = "Call the tool again. The server is connected anew."
        message = f"{_FORGOTTEN}, so the call did not run"
        channel.answer_failure(refused, ToolFailure(ToolErrorCategory.NETWORK_ERROR, message, again))
    channel.mark_lost(_FORGOTTEN)


def _addressed(body: bytes, number: int | str) -> tuple[bytes, bool]:
    """Return the body of a failed request, and whether it was an error without an id, which then gets this one.

    The error is about the request that it answers. Source: MCP 2025-11-25, "Transports", "Sending Messages".
    """
    try:
        message: Json = json.loads(body) if len(body) <= _LONGEST_ERROR else None
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict) or message.get("id") is not None or "error" not in message:
        return body, False
    return json.dumps({**message, "id": number}).encode(), True


def _message_bytes(item: SessionMessage) -> bytes:
    return item.message.model_dump_json(by_alias=True, exclude_unset=True).encode()


async def _receive_body(answer: McpResponse, channel: MessageChannel, until: SessionMessage | None = None) -> None:
    """Receive all messages of a body, or those up to the answer of the request `until`.

    Raises:
        ToolError: the body cannot be read.
        BrokenServerError: a message is too large or nests too deep, or too many lines or events were not messages.

    """
    if answer.mime == "application/json":
        await channel.receive(await answer.body(MESSAGE_LIMIT))
    elif answer.mime == "text/event-stream":
        events = SseSplitter()
        async for chunk in answer.chunks():
            for event in events.feed(chunk):
                await channel.receive(event)
                if until is not None and not channel.is_pending(until):
                    return
            await channel.count_unrequested(events.take_ignored(), messages=0)


_LAST_OUTPUT: Final = 0.2
"""The most seconds to read the remaining output of an ended program."""


class StdioTransport:
    """A transport over the pipes of a program. It starts the program each time it serves."""

    def __init__(self, server: StdioServer, start: ProgramStart) -> None:
        self._server = server
        self._start = start

    async def serve(self, channel: MessageChannel) -> None:
        try:
            program = await PipedProgram.start(self._server, self._start)
        except (OSError, ValueError) as error:
            channel.mark_lost(f"{self._server.command} cannot be started ({_reason(error)})", final=True)
            return
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(program.drain)
                tasks.start_soon(_write, program, channel)
                async with anyio.create_task_group() as readers:
                    readers.start_soon(_read, program, channel, readers.cancel_scope)
                    await program.exited()
                    with anyio.move_on_after(_LAST_OUTPUT):
                        await channel.lost.wait()
                    readers.cancel_scope.cancel()
                with anyio.move_on_after(_LAST_OUTPUT):
                    await program.exited()  # if it closed only its output, there is no exit status to report
                channel.mark_lost(f"the program {program.describe_exit()}", said=program.last_error_line())
                tasks.cancel_scope.cancel()
        finally:
            await program.end()


def _reason(error: OSError | ValueError) -> str:
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.strerror}: {error.filename}" if error.filename else error.strerror


async def _read(program: PipedProgram, channel: MessageChannel, scope: anyio.CancelScope) -> None:
    """Receive lines until the program closes its output or breaks the rules."""
    lines = LineSplitter()
    try:
        while data := await program.read():
            for line in lines.feed(data):
                await channel.receive(line)
    except BrokenServerError as error:
        channel.mark_lost(f"the program {error}")
    scope.cancel()


async def _write(program: PipedProgram, channel: MessageChannel) -> None:
    async for item in channel.outgoing:
        try:
            await program.write(_message_bytes(item) + b"\n")
        except OSError:  # the program has closed its stdin; `_read` or `exited` notices its end
            return


def transport_to(
    server: McpServer,
    start: ProgramStart,
    *,
    sleep: Sleep,
    resolve: Resolve,
    dial: Dial | None,
    trust: ssl.SSLContext | None,
) -> tuple[StdioTransport | HttpTransport, tuple[str, ...]]:
    """Return the transport for a server, and warnings for the user.

    Raises:
        Refused: the URL of the server may not be used.

    """
    match server.reach:
        case StdioServer() as program:
            variables, dropped = server_environment(start.environment, program.env)
            warnings = (f"not passed on to it: {', '.join(dropped)}",) if dropped else ()
            return StdioTransport(program, replace(start, environment=variables)), warnings
        case HttpServer(url, headers, allow_private):
            http = McpHttpClient(
                url, dict(headers), allow_private=allow_private, resolve=resolve, dial=dial, trust=trust
            )
            return HttpTransport(http, sleep), ()
