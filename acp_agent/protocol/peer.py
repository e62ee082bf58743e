"""JSON-RPC both ways over one stream: requests in, answers out, and the other way round.

The reader never waits for anything but the stream (A4.2): every request and notification runs as a task of
its own, started in the order received. A request is answered exactly once, whatever its handler does.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import anyio
import anyio.abc
import anyio.lowlevel

from acp_agent.core.types import Json, JsonObject
from acp_agent.log import Log
from acp_agent.protocol import jsonrpc
from acp_agent.protocol.jsonrpc import ConnectionLost, NoAnswer, RpcError, internal_error, method_not_found, result_of
from acp_agent.protocol.stdio import LineReader, MessageWriter, Overlong

_log = Log(__name__)
_EOF_GRACE = 1.0
"""Seconds a request that was answered just before the end of the stream gets to be answered."""
_INBOUND_BACKLOG = 16 * 1024 * 1024
"""Unread bytes of ours beyond which no more requests are taken from a client that only talks."""


@dataclass(slots=True)
class Incoming:
    """A request being served. The handler may hang work on its answer, or say how it is cancelled."""

    id: jsonrpc.RequestId
    method: str
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    on_cancel: Callable[[], None] | None = None
    after: list[Callable[[], None]] = field(default_factory=list["Callable[[], None]"])

    def after_response(self, callback: Callable[[], None]) -> None:
        """Run `callback` once the answer is on its way: what it posts cannot come before it."""
        self.after.append(callback)

    def cancel(self) -> None:
        """The peer does not want the answer any more (`$/cancel_request`)."""
        (self.on_cancel or self.scope.cancel)()


RequestHandler = Callable[[JsonObject, Incoming], Awaitable[JsonObject]]
NotificationHandler = Callable[[JsonObject], Awaitable[None]]


@dataclass(slots=True)
class _Pending:
    done: anyio.Event
    response: jsonrpc.Response | None = None


class Peer:
    """The editor, as something that can be asked and that asks."""

    def __init__(self, reader: LineReader, writer: MessageWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._requests: Mapping[str, RequestHandler] = {}
        self._admit: Callable[[str], None] = lambda _method: None
        self._notifications: Mapping[str, NotificationHandler] = {}
        self._incoming: dict[jsonrpc.RequestId, Incoming] = {}
        self._pending: dict[int, _Pending] = {}
        self._late: dict[int, Callable[[Json], None]] = {}
        self._before: Callable[[str], Awaitable[None]] = _nothing
        self._reading = anyio.CancelScope()
        self._answered = anyio.Event()
        self._ended = False
        self._last_id = -1

    # ------------------------------------------------------------------------------- serving

    async def serve(
        self,
        requests: Mapping[str, RequestHandler],
        notifications: Mapping[str, NotificationHandler],
        admit: Callable[[str], None],
        on_end: Callable[[], None],
    ) -> None:
        """Serve until the stream ends, in either direction. `admit` raises RpcError for what may not be asked now.

        Then questions to the editor fail, `on_end` is told, what is being served gets a moment to answer,
        and the rest is cancelled.
        """
        self._requests = requests
        self._admit = admit
        self._notifications = {**notifications, "$/cancel_request": self._cancel_request}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._write)
            try:
                with self._reading:
                    async for line in self._reader.lines():
                        self._receive(line, tasks)
                        await self._writer.room(_INBOUND_BACKLOG)
            finally:  # also when a task of the group has crashed: what it holds up must not hold up the end
                self._fail_pending()
                on_end()
            with anyio.move_on_after(_EOF_GRACE):
                while self._incoming:
                    await self._answered.wait()
                await self._writer.flush()
            tasks.cancel_scope.cancel()

    def end(self) -> None:
        """Stop reading, as if the stream had ended."""
        self._reading.cancel()

    async def _write(self) -> None:
        await self._writer.run()
        self.end()  # nobody reads: nothing left to serve

    def _receive(self, line: bytes | Overlong, tasks: anyio.abc.TaskGroup) -> None:
        if isinstance(line, Overlong):
            self._refuse(None, RpcError(jsonrpc.INVALID_REQUEST, "Invalid request: message over 32 MiB"))
            return
        match jsonrpc.parse(line):
            case jsonrpc.Request() as request:
                incoming = Incoming(request.id, request.method)
                self._incoming[request.id] = incoming
                tasks.start_soon(self._answer, request, incoming)
            case jsonrpc.Notification() as notification:
                tasks.start_soon(self._heed, notification)
            case jsonrpc.Response() as response:
                self._settle(response)
            case jsonrpc.Malformed(request_id, code, message):
                self._refuse(request_id, RpcError(code, message))
            case jsonrpc.Ignored(problem):
                if problem:
                    _log.warning("notification ignored", reason=problem)

    async def _answer(self, request: jsonrpc.Request, incoming: Incoming) -> None:
        answer: JsonObject = {"jsonrpc": "2.0", "id": request.id}
        try:
            answer["result"] = await self._serve_one(request, incoming)
        except RpcError as error:
            answer["error"] = error.to_wire()
        except Exception:  # noqa: BLE001 - top of a request: whatever happens, it is answered
            _log.error("request failed", exc_info=True, method=request.method)
            answer["error"] = internal_error().to_wire()
        finally:
            if self._incoming.get(request.id) is incoming:
                del self._incoming[request.id]
            self._answered.set()
            self._answered = anyio.Event()
        self._post_answer(answer, request.method)
        for callback in incoming.after:
            callback()

    def _post_answer(self, answer: JsonObject, method: str) -> None:
        try:
            self._writer.post(answer)
        except (ValueError, TypeError, RecursionError) as error:  # no JSON: not finite, or nested too deeply
            _log.error("answer cannot be written", method=method, reason=str(error))
            self._writer.post({"jsonrpc": "2.0", "id": answer["id"], "error": internal_error().to_wire()})

    async def _serve_one(self, request: jsonrpc.Request, incoming: Incoming) -> JsonObject:
        self._admit(request.method)
        handler = self._requests.get(request.method)
        if handler is None:
            raise method_not_found(request.method)
        with incoming.scope:
            return await handler(request.params, incoming)
        raise RpcError(jsonrpc.REQUEST_CANCELLED, "Request cancelled")

    async def _heed(self, notification: jsonrpc.Notification) -> None:
        handler = self._notifications.get(notification.method)
        if handler is None:
            _log.debug("unknown notification", method=notification.method)
            return
        try:
            await handler(notification.params)
        except RpcError as error:  # a notification has nobody to tell
            _log.warning("notification refused", method=notification.method, reason=error.message)
        except Exception:  # noqa: BLE001 - as for a request: what one message meets ends nothing else
            _log.error("notification failed", exc_info=True, method=notification.method)

    async def _cancel_request(self, params: JsonObject) -> None:
        request_id = params.get("requestId")
        if isinstance(request_id, int | str) and not isinstance(request_id, bool) and request_id in self._incoming:
            self._incoming[request_id].cancel()

    def _refuse(self, request_id: jsonrpc.RequestId | float | None, error: RpcError) -> None:
        _log.warning("malformed message", code=error.code, reason=error.message)
        self._writer.post({"jsonrpc": "2.0", "id": request_id, "error": error.to_wire()})

    # -------------------------------------------------------------------------------- asking

    def ask_after(self, shown: Callable[[str], Awaitable[None]]) -> None:
        """Let every question about a session, by its id, wait until what was told in it was `shown`."""
        self._before = shown

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
        """Ask the editor. `timeout` in seconds; None waits for as long as the task lives.

        Raises RpcError as the editor sent it, NoAnswer, or ConnectionLost. An answer that comes after the
        asker gave up goes to `on_late` when it is a result, and is dropped otherwise. `withdraw` tells the editor
        that nobody waits any more (one that does not know `$/cancel_request` ignores it), `recall` also when the
        asking task is cancelled.

        The order of the editor's messages decides: an answer that follows the cancellation of the asking task is late.
        """
        await self._until_shown(method, params, timeout)
        if self._ended or self._writer.broken:
            raise ConnectionLost
        request_id = self._new_id()
        pending = self._pending[request_id] = _Pending(anyio.Event())
        self._post(method, params, request_id)
        limit = anyio.move_on_after(timeout)
        try:
            with limit:
                await pending.done.wait()
            await anyio.lowlevel.checkpoint_if_cancelled()
        except anyio.get_cancelled_exc_class():
            _clean_up(pending.response, on_late)
            raise
        finally:
            self._stop_waiting(request_id, on_late, withdraw=recall or (withdraw and limit.cancelled_caught))
        if pending.response is None:
            raise ConnectionLost if self._ended else NoAnswer(method, timeout or 0)
        return result_of(pending.response)

    def _stop_waiting(self, request_id: int, on_late: Callable[[Json], None] | None, *, withdraw: bool) -> None:
        if self._pending.pop(request_id).response is not None:
            return
        if on_late is not None:
            self._late[request_id] = on_late
        if withdraw and not self._ended:
            self._post("$/cancel_request", {"requestId": request_id}, None)

    async def _until_shown(self, method: str, params: JsonObject, timeout: float | None) -> None:
        """Wait for what was told before in the session, for up to `timeout` seconds: the editor may not be reading."""
        if isinstance(session_id := params.get("sessionId"), str):
            with anyio.move_on_after(timeout) as limit:
                await self._before(session_id)
            if limit.cancelled_caught:
                raise NoAnswer(method, timeout or 0)

    def tell(self, method: str, params: JsonObject) -> None:
        """Make a request whose answer does not matter, without waiting (terminal/kill, terminal/release)."""
        self._post(method, params, self._new_id())

    def _new_id(self) -> int:
        """Return an id that cannot be guessed, so that nobody answers a question before it is asked.

        Two million requests stay below 2**53, the largest integer that every JSON reader keeps.
        """
        self._last_id += 1 + secrets.randbelow(1 << 32)
        return self._last_id

    async def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification; waits while the editor is far behind in reading."""
        self.post_notification(method, params)
        await self._writer.room()

    def post_notification(self, method: str, params: JsonObject) -> None:
        """The same without waiting, for callbacks that send little."""
        self._post(method, params, None)

    def _post(self, method: str, params: JsonObject, request_id: int | None) -> None:
        numbered: JsonObject = {} if request_id is None else {"id": request_id}
        self._writer.post({"jsonrpc": "2.0", **numbered, "method": method, "params": params})

    def _settle(self, response: jsonrpc.Response) -> None:
        if not isinstance(response.id, int):
            return  # we number our requests; this answers somebody else's
        pending = self._pending.get(response.id)
        if pending is not None and pending.response is None:
            pending.response = response
            pending.done.set()
            return
        _clean_up(response, self._late.pop(response.id, None))

    def _fail_pending(self) -> None:
        self._ended = True
        for pending in self._pending.values():
            pending.done.set()


async def _nothing(session_id: str) -> None:
    del session_id


def _clean_up(response: jsonrpc.Response | None, on_late: Callable[[Json], None] | None) -> None:
    """Hand a result that came too late to `on_late`."""
    if on_late is not None and response is not None and response.error is None:
        on_late(response.result)
