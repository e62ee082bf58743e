"""JSON-RPC in both directions over one stream: the editor's requests are served, and ours are answered.

The reader waits only for the stream: each request and notification runs in its own task, and the tasks start in the
order of the messages. A request is answered exactly once, whatever its handler does.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
import anyio.abc
import anyio.lowlevel

from acp_agent.core.errors import RequestError
from acp_agent.core.types import Json, JsonObject
from acp_agent.log import Log
from acp_agent.protocol import jsonrpc
from acp_agent.protocol.jsonrpc import ClientTimeout, ConnectionLost, RpcError, internal_error, method_not_found
from acp_agent.protocol.stdio import LineReader, MessageWriter, Overlong

if TYPE_CHECKING:
    from acp_agent.protocol.strict import StrictObserver

_log = Log(__name__)
_EOF_GRACE = 1.0
"""Seconds that running requests have to be answered after the end of the stream."""
INBOUND_BACKLOG = 16 * 1024 * 1024
"""While more than this many bytes of ours are still unread, the client's further requests are not read."""
MOST_RUNNING = 4096
"""The most requests that are served at once. While there are as many, further ones are not read."""
MOST_LATE = 256
"""The most requests that are remembered after their callers stopped waiting. A client may never answer them."""
_LOOK = 1.0
"""Seconds between two checks whether the client has closed the stream, while reading is paused."""


@dataclass(slots=True)
class Incoming:
    """A request being served."""

    id: jsonrpc.RequestId
    method: str
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    after: list[Callable[[], None]] = field(default_factory=list["Callable[[], None]"])
    _cancel: Callable[[], None] | None = None

    def after_response(self, callback: Callable[[], None]) -> None:
        """Run `callback` once the response is queued, so that its messages are sent after the response."""
        self.after.append(callback)

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Call `callback` for `$/cancel_request` instead of cancelling the handler."""
        self._cancel = callback

    def cancel(self) -> None:
        """Cancel the request, as `$/cancel_request` asks."""
        (self._cancel or self.scope.cancel)()


RequestHandler = Callable[[JsonObject, Incoming], Awaitable[JsonObject]]
NotificationHandler = Callable[[JsonObject], Awaitable[None]]


@dataclass(slots=True)
class _Pending:
    done: asyncio.Event
    response: jsonrpc.Response | None = None
    timer: asyncio.TimerHandle | None = None


class Peer:
    """The editor at the other end of the stream.

    before_request   called with the session's id before each request about a session. What it returns is awaited, so
                     that earlier updates go out first. It returns None if none wait
    """

    def __init__(
        self,
        reader: LineReader,
        writer: MessageWriter,
        before_request: Callable[[str], Awaitable[None] | None],
        observer: "StrictObserver | None" = None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._observer = observer
        self._requests: Mapping[str, RequestHandler] = {}
        self._admit: Callable[[str], None] = lambda _method: None
        self._notifications: Mapping[str, NotificationHandler] = {}
        self._incoming: dict[jsonrpc.RequestId, Incoming] = {}
        self._running = 0  # requests, also those with the same id
        self._pending: dict[int, _Pending] = {}
        self._late: dict[int, Callable[[Json], None]] = {}
        self._before_request = before_request
        self._reading = anyio.CancelScope()
        self._answered = asyncio.Event()
        self._ended = False
        self._last_id = -1

    # ------------------------------------------------------------------------------- serving

    async def serve(
        self,
        requests: Mapping[str, RequestHandler],
        notifications: Mapping[str, NotificationHandler],
        admit: Callable[[str], None],
        on_end: Callable[[], None],
        one_by_one: Collection[str] = (),
    ) -> None:
        """Serve until the stream ends in either direction.

        At the end, pending requests to the editor fail and `on_end` is called. Running requests of the editor have a
        second to be answered and are then cancelled.

        admit        raises RpcError for a method that may not be called now
        one_by_one   methods with much work. The task of such a request begins before the next line is read. If many
                     such requests come together, the first then gets its answer long before the last
        """
        self._requests = requests
        self._admit = admit
        self._notifications = {**notifications, "$/cancel_request": self._cancel_request}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._write)
            try:
                with self._reading:
                    async for line in self._reader.lines():
                        method = self._receive(line, tasks)
                        del line  # the line may be megabytes long, and the next one may come much later
                        if method in one_by_one:
                            await asyncio.sleep(0)  # lets the task of this request begin before the next line is read
                        await self._wait_for_room()
            finally:  # also after a crash of a task, since the task group waits for tasks with pending requests
                self._ended = True
                for pending in self._pending.values():
                    pending.done.set()
                on_end()
            with anyio.move_on_after(_EOF_GRACE):
                while self._incoming:
                    await self._answered.wait()
                await self._writer.flush()
            tasks.cancel_scope.cancel()

    async def _wait_for_room(self) -> None:
        """Wait until the client has read more, or has more answers. Stop reading if it has closed the stream."""
        while self._running >= MOST_RUNNING or self._writer.unread > INBOUND_BACKLOG:
            with anyio.move_on_after(_LOOK) as look:
                await self._writer.room(INBOUND_BACKLOG)
                while self._running >= MOST_RUNNING:
                    await self._answered.wait()
            if look.cancelled_caught and self._reader.is_closed():
                self.end()
                return

    def end(self) -> None:
        """Stop reading, as if the stream had ended."""
        self._reading.cancel()

    async def _write(self) -> None:
        await self._writer.run()
        self.end()  # the editor no longer reads, so nothing can be answered

    def _receive(self, line: bytes | Overlong, tasks: anyio.abc.TaskGroup) -> str:
        """Handle a line, and return the method of a request; "" for other lines."""
        if isinstance(line, Overlong):
            self._refuse(None, RpcError(jsonrpc.INVALID_REQUEST, "Invalid request: message over 32 MiB"))
            return ""
        frame = jsonrpc.parse(line)
        if self._observer is not None:
            self._observer.received(frame)
        match frame:
            case jsonrpc.Request() as request:
                incoming = Incoming(request.id, request.method)
                self._incoming[request.id] = incoming
                self._running += 1
                tasks.start_soon(self._answer, request, incoming)
                return request.method
            case jsonrpc.Notification() as notification:
                tasks.start_soon(self._handle, notification)
            case jsonrpc.Response() as response:
                self._settle(response)
            case jsonrpc.Malformed(request_id, code, message):
                self._refuse(request_id, RpcError(code, message))
            case jsonrpc.Ignored(problem):
                if problem:
                    _log.warning("notification ignored", reason=problem)
        return ""

    async def _answer(self, request: jsonrpc.Request, incoming: Incoming) -> None:
        answer: JsonObject = {"jsonrpc": "2.0", "id": request.id}
        try:
            self._admit(request.method)
            handler = self._requests.get(request.method)
            if handler is None:
                answer["error"] = method_not_found(request.method).to_wire()
            else:
                with incoming.scope:
                    answer["result"] = await handler(request.params, incoming)
            if incoming.scope.cancelled_caught:
                answer["error"] = RpcError(jsonrpc.REQUEST_CANCELLED, "Request cancelled").to_wire()
        except RequestError as error:
            answer["error"] = RpcError.of(error).to_wire()
        except Exception:  # noqa: BLE001 - top of a request: whatever happens, it is answered
            _log.error("request failed", exc_info=True, method=request.method)
            answer["error"] = internal_error().to_wire()
        finally:
            if self._incoming.get(request.id) is incoming:
                del self._incoming[request.id]
            self._running -= 1
            self._answered.set()
            self._answered = asyncio.Event()
        try:
            self._send(answer)
        except (ValueError, TypeError, RecursionError) as error:  # not JSON: not finite, or nested too deeply
            _log.error("answer cannot be written", method=request.method, reason=str(error))
            self._send({"jsonrpc": "2.0", "id": request.id, "error": internal_error().to_wire()})
        for callback in incoming.after:
            callback()

    async def _handle(self, notification: jsonrpc.Notification) -> None:
        handler = self._notifications.get(notification.method)
        if handler is None:
            _log.debug("unknown notification", method=notification.method)
            return
        try:
            await handler(notification.params)
        except RequestError as error:  # JSON-RPC has no response for a notification
            _log.warning("notification refused", method=notification.method, reason=str(error))
        except Exception:  # noqa: BLE001 - as for a request: one failed message must not stop the others
            _log.error("notification failed", exc_info=True, method=notification.method)

    async def _cancel_request(self, params: JsonObject) -> None:
        request_id = params.get("requestId")
        if isinstance(request_id, int | str) and not isinstance(request_id, bool) and request_id in self._incoming:
            self._incoming[request_id].cancel()

    def _refuse(self, request_id: jsonrpc.RequestId | float | None, error: RpcError) -> None:
        _log.warning("malformed message", code=error.code, reason=error.message)
        self._send({"jsonrpc": "2.0", "id": request_id, "error": error.to_wire()})

    # -------------------------------------------------------------------------------- asking

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        timeout: float | None = None,
        withdraw: bool = False,
        recall: bool = False,
        on_late: Callable[[Json], None] | None = None,
    ) -> Json:
        """Send a request to the editor and return its result.

        Raises the editor's RpcError, ClientTimeout, or ConnectionLost. If the editor cancels the calling task and then
        sends the response, the response counts as late, even if both are read at once.

        timeout    seconds for earlier updates and the answer together; None waits without a limit
        withdraw   send `$/cancel_request` after a timeout; editors that do not know it ignore it
        recall     send `$/cancel_request` also if the calling task is cancelled
        on_late    called with a result that arrives after the timeout or cancellation. None drops such a result
        """
        left = await self._wait_before(method, params, timeout)
        if self._ended or self._writer.broken:
            raise ConnectionLost
        request_id = self._new_id()
        pending = self._pending[request_id] = _Pending(asyncio.Event())
        self._post(method, params, request_id)
        if left is not None:  # a scope of anyio takes ten times as long as a timer
            pending.timer = asyncio.get_running_loop().call_later(left, pending.done.set)
        try:
            await pending.done.wait()
            await anyio.lowlevel.checkpoint_if_cancelled()
        except anyio.get_cancelled_exc_class():
            _pass_on_late(pending.response, on_late)
            raise
        finally:
            self._stop_waiting(request_id, on_late, withdraw=recall or (withdraw and pending.done.is_set()))
        if pending.response is None:
            raise ConnectionLost if self._ended else ClientTimeout(method, timeout or 0)
        return pending.response.outcome()

    def _stop_waiting(self, request_id: int, on_late: Callable[[Json], None] | None, *, withdraw: bool) -> None:
        pending = self._pending.pop(request_id)
        if pending.timer is not None:
            pending.timer.cancel()
        if pending.response is not None:
            return
        if on_late is not None:
            self._late[request_id] = on_late
            if len(self._late) > MOST_LATE:
                del self._late[min(self._late)]  # the oldest, since ids grow
        if withdraw and not self._ended:
            self._post("$/cancel_request", {"requestId": request_id}, None)

    async def _wait_before(self, method: str, params: JsonObject, timeout: float | None) -> float | None:
        """Wait until earlier updates of the session are sent. Return the seconds that are left of `timeout`.

        Raises ClientTimeout, since the editor may not read.
        """
        session_id = params.get("sessionId")
        waiting = self._before_request(session_id) if isinstance(session_id, str) else None
        if waiting is None:
            return timeout
        with anyio.move_on_after(timeout) as limit:
            await waiting
        if limit.cancelled_caught:
            raise ClientTimeout(method, timeout or 0)
        return None if timeout is None else limit.deadline - anyio.current_time()

    def tell(self, method: str, params: JsonObject) -> None:
        """Send a request whose response does not matter, without waiting: terminal/kill, terminal/release."""
        self._post(method, params, self._new_id())

    async def tell_behind(self, method: str, params: JsonObject, within: float) -> None:
        """Do as `tell` after the session's earlier updates are sent, or after `within` seconds if they are not."""
        with suppress(ClientTimeout):
            await self._wait_before(method, params, within)
        self.tell(method, params)

    def _new_id(self) -> int:
        """Return an id that the editor cannot guess, so that no response comes before its request.

        The ids of two million requests stay below 2**53, the largest integer that every JSON parser reads exactly.
        """
        self._last_id += 1 + int.from_bytes(os.urandom(4), "big")
        return self._last_id

    async def notify(self, method: str, params: JsonObject, *, at_once: bool = True) -> None:
        """Send a notification, and wait while the editor has many unread bytes.

        at_once   False for one of many notifications, which are written together
        """
        self._send({"jsonrpc": "2.0", "method": method, "params": params}, at_once=at_once)
        await self._writer.room()

    def post_notification(self, method: str, params: JsonObject) -> None:
        """Send a notification without waiting, for callbacks that send few bytes."""
        self._post(method, params, None)

    def _post(self, method: str, params: JsonObject, request_id: int | None) -> None:
        numbered: JsonObject = {} if request_id is None else {"id": request_id}
        self._send({"jsonrpc": "2.0", **numbered, "method": method, "params": params})

    def _send(self, message: JsonObject, *, at_once: bool = True) -> None:
        self._writer.post(message, at_once=at_once)
        if self._observer is not None:
            self._observer.sent(message)

    def _settle(self, response: jsonrpc.Response) -> None:
        if not isinstance(response.id, int):
            return  # our ids are integers, so this is not a response to us
        pending = self._pending.get(response.id)
        if pending is not None and pending.response is None:
            pending.response = response
            pending.done.set()
            return
        _pass_on_late(response, self._late.pop(response.id, None))


def _pass_on_late(response: jsonrpc.Response | None, on_late: Callable[[Json], None] | None) -> None:
    if on_late is not None and response is not None and response.error is None:
        on_late(response.result)
