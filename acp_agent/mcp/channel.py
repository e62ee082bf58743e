"""The message channel between a transport and the session of the `mcp` package.

A server is not trusted, so the channel sorts every message before the session sees it. The channel passes on only
answers to open requests, each once. It answers pings itself and refuses sampling and roots. Elicitation requests go to
the elicitation handler. Of the notifications, only a changed tool list, a cancelled request and a completed
elicitation count. The channel drops everything else and pauses after each batch of unrequested messages: while it
pauses, nothing is read, so a server that floods fills its own pipe and slows itself down.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self, TypeAlias, cast

import anyio
from mcp.shared.message import SessionMessage
from mcp.types import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from pydantic import ValidationError
from pydantic_core import from_json

from acp_agent.core.errors import ToolFailure
from acp_agent.core.types import Json, JsonObject

if TYPE_CHECKING:
    from acp_agent.mcp.elicitation import ServerElicitations

MESSAGE_LIMIT: Final = 8 * 1024 * 1024
"""The largest message in bytes. A picture of 5 MiB in base64 fits."""


class BrokenServerError(Exception):
    """A server sent something that ends the connection. Its message begins with a verb; the reader adds the subject."""


class LineSplitter:
    """A splitter of bytes into lines that end at LF. It never holds more than `MESSAGE_LIMIT` bytes."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._held = 0

    def feed(self, data: bytes) -> Iterable[bytes]:
        """Yield the lines that these bytes complete, without their ends.

        Raises:
            BrokenServerError: a line is longer than `MESSAGE_LIMIT`.

        """
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._hold(end)
            line = b"".join(self._pieces)
            self._pieces, self._held = [], 0
            yield line
        self._hold(rest)

    def _hold(self, piece: bytes) -> None:
        self._held += len(piece)
        if self._held > MESSAGE_LIMIT:
            self._pieces = []
            raise BrokenServerError(f"sent a message of more than {MESSAGE_LIMIT} bytes")
        if piece:
            self._pieces.append(piece)


class SseSplitter:
    """A splitter of a stream of server-sent events into the data of each event (WHATWG HTML, section 9.2).

    It ignores the names and ids of events. Lines end at LF or CRLF; the standard also allows a single CR, which no
    server uses.
    """

    def __init__(self) -> None:
        self._lines = LineSplitter()
        self._data: list[bytes] = []
        self._size = 0
        self._ignored = 0

    def feed(self, data: bytes) -> Iterable[bytes]:
        """Yield the data of the events that these bytes complete.

        Raises:
            BrokenServerError: a line or an event is longer than `MESSAGE_LIMIT`.

        """
        for line in self._lines.feed(data):
            field, _, value = line.removesuffix(b"\r").partition(b":")
            if field == b"data":
                self._size += len(value)
                if self._size > MESSAGE_LIMIT:
                    raise BrokenServerError(f"sent an event of more than {MESSAGE_LIMIT} bytes")
                self._data.append(value.removeprefix(b" "))
            elif not field and not value and self._data:
                event, self._data, self._size = b"\n".join(self._data), [], 0
                yield event
            else:
                self._ignored += len(line) + 1

    def take_ignored(self) -> int:
        """Return how many bytes without data were read since the last call of this method."""
        ignored, self._ignored = self._ignored, 0
        return ignored


Sleep: TypeAlias = Callable[[float], Awaitable[None]]

_QUEUE_SIZE: Final = 64  # messages
_BATCH: Final = 100  # messages of a batch that are read; the others are dropped
_MOST_NODES: Final = 300_000
"""The most lists and objects in one message. Parsed, they take about 70 MB. Brackets in strings are counted too."""
_MOST_JUNK: Final = 1000
"""The most consecutive lines that are not messages. Programs print many things when they start."""
_FREE_MESSAGES: Final = 200
_FREE_BYTES: Final = 1024 * 1024
_PAUSE: Final = 0.05
"""The pause in seconds after `_FREE_MESSAGES` or `_FREE_BYTES` that no request asked for."""
_OWN_CODES: Final = 1_000_000  # our error code for request n is this plus n
_ID_LIMIT: Final = 200  # characters of the id of a server's request
_DIGITS: Final = 18  # the most digits of an id of our requests
_CANCELLED: Final = "notifications/cancelled"
_ELICIT: Final = "elicitation/create"


class MessageChannel:
    """The two streams of one `ClientSession`, which reads from `incoming` and writes to this object.

    on_list_changed   called each time the server says that its tools have changed
    asker             handles the server's elicitation requests; None refuses them
    outgoing          messages for the transport to send
    lost              set when the connection has ended
    reason, said      why it ended, in our words and in those of the server
    final             True if reconnecting cannot help
    """

    def __init__(
        self, *, on_list_changed: Callable[[], None], sleep: Sleep, asker: "ServerElicitations | None" = None
    ) -> None:
        self._on_list_changed = on_list_changed
        self._asker = asker
        self._sleep = sleep
        self._to_session, self.incoming = anyio.create_memory_object_stream[SessionMessage | Exception](_QUEUE_SIZE)
        self._to_transport, self.outgoing = anyio.create_memory_object_stream[SessionMessage](_QUEUE_SIZE)
        self._pending: set[int] = set()
        self._failures: dict[int, ToolFailure] = {}
        self._junk = self._messages = self._bytes = 0
        self.received = 0
        self.lost = anyio.Event()
        self.reason = self.said = ""
        self.final = False

    async def send(self, item: SessionMessage, /) -> None:
        """Queue a message without waiting.

        A server that does not read must not block a caller that has given up on it.

        Raises:
            anyio.BrokenResourceError: the queue is full, or the channel is closed.

        """
        match item.message:
            case JSONRPCRequest(id=int(number)):
                self._pending.add(number)
            case JSONRPCNotification(method=method, params=dict(params)) if method == _CANCELLED:
                self._pending.discard(cast("int", params.get("requestId")))
            case _:
                pass
        try:
            self._to_transport.send_nowait(item)
        except (anyio.WouldBlock, anyio.ClosedResourceError):
            raise anyio.BrokenResourceError from None

    async def aclose(self) -> None:
        """Stop sending messages."""
        self._to_transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: object, exc_val: object, exc_tb: object) -> None:
        await self.aclose()

    async def receive(self, data: bytes) -> None:
        """Sort a message, or a batch of messages, that the transport received.

        Raises:
            BrokenServerError: the message is too large or nests too deep, or too many lines were not messages.

        """
        try:
            message = _parse(data)
        except ValueError:
            await self._count_junk(len(data))
            return
        items = (message[:_BATCH] or [None]) if isinstance(message, list) else [message]
        for item in items:
            await self._sort_message(item, len(data) // len(items))

    def is_pending(self, message: SessionMessage) -> bool:
        """Return True if this message is a request that is still unanswered and was not cancelled."""
        return isinstance(message.message, JSONRPCRequest) and message.message.id in self._pending

    def answer_failure(self, message: SessionMessage, failure: ToolFailure) -> None:
        """Answer a pending request in place of the server. `take_failure` returns the failure to the caller.

        An error code identifies the failure, because the session passes on nothing else unchanged.
        """
        request = message.message
        if self.is_pending(message) and isinstance(request, JSONRPCRequest) and isinstance(request.id, int):
            self._pending.discard(request.id)
            code = _OWN_CODES + request.id
            self._failures[code] = failure
            error = JSONRPCError(jsonrpc="2.0", id=request.id, error=ErrorData(code=code, message=failure.message))
            try:
                self._to_session.send_nowait(SessionMessage(error))
            except (anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
                self.mark_lost("the server's answers come faster than they can be read")

    def take_failure(self, code: int) -> ToolFailure | None:
        """Return and forget the failure of an error code. Return None if the code came from the server."""
        return self._failures.pop(code, None)

    def mark_lost(self, reason: str, *, said: str = "", final: bool = False) -> None:
        """End the connection and every pending request. Only the first call counts."""
        if not self.lost.is_set():
            self.reason, self.said, self.final = reason, said, final
            self.lost.set()
            self._to_session.close()

    def close(self) -> None:
        """Close both ends of both streams."""
        for stream in (self._to_session, self.incoming, self._to_transport, self.outgoing):
            stream.close()

    async def _sort_message(self, item: Json, size: int) -> None:
        self.received += 1
        match item:
            case {"id": identity, "result": _} | {"id": identity, "error": _} if (
                number := _number(identity)
            ) in self._pending:
                self._pending.discard(number)
                self._junk = 0
                await self._pass_on_answer(number, item)
                return
            case {"method": str(method), "id": int(identity) | str(identity)} if (
                not isinstance(identity, bool) and len(str(identity)) <= _ID_LIMIT
            ):
                self._junk = 0
                self._answer_request(identity, method, item.get("params"))
            case {"method": str(method)} if "id" not in item:
                self._junk = 0
                self._read_notification(method, item.get("params"))
            case {"result": _} | {"error": _}:
                pass  # an answer that is late, repeated, or to no request
            case _:
                await self._count_junk(size)
                return
        await self.count_unrequested(size)

    async def _pass_on_answer(self, number: int, item: Mapping[str, Json]) -> None:
        answer: JSONRPCResponse | JSONRPCError
        try:
            if item.get("error") is not None:
                answer = JSONRPCError.model_validate({"jsonrpc": "2.0", "id": number, "error": item["error"]})
            else:
                answer = JSONRPCResponse.model_validate({"jsonrpc": "2.0", "id": number, "result": item.get("result")})
        except ValidationError:
            said = ErrorData(code=INTERNAL_ERROR, message="the server's answer has a wrong form")
            answer = JSONRPCError(jsonrpc="2.0", id=number, error=said)
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the channel is closing
            await self._to_session.send(SessionMessage(answer))

    def _answer_request(self, identity: int | str, method: str, params: Json) -> None:
        """Answer a request of the server, or pass it to the elicitation handler."""
        if method == _ELICIT and self._asker is not None:
            self._asker.asked(identity, params)
        elif method == "ping":
            self.answer(identity, {})
        else:
            self.refuse(identity, METHOD_NOT_FOUND, "this client does not offer this method")

    def _read_notification(self, method: str, params: Json) -> None:
        match method, params:
            case "notifications/tools/list_changed", _:
                self._on_list_changed()
            case "notifications/cancelled", {"requestId": int() | str() as identity} if self._asker is not None:
                self._asker.withdrawn(identity)
            case "notifications/elicitation/complete", {"elicitationId": str(visit)} if self._asker is not None:
                self._asker.visited(visit)
            case _:
                pass

    def answer(self, identity: int | str, result: JsonObject) -> None:
        """Answer a request of the server with a result."""
        self._reply(JSONRPCResponse(jsonrpc="2.0", id=identity, result=cast("dict[str, object]", result)))

    def refuse(self, identity: int | str, code: int, message: str) -> None:
        """Answer a request of the server with an error."""
        self._reply(JSONRPCError(jsonrpc="2.0", id=identity, error=ErrorData(code=code, message=message)))

    def _reply(self, answer: JSONRPCResponse | JSONRPCError) -> None:
        # If the server does not read its answers, the queue is full and they are dropped.
        with suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._to_transport.send_nowait(SessionMessage(answer))

    async def _count_junk(self, size: int) -> None:
        self._junk += 1
        if self._junk > _MOST_JUNK:
            raise BrokenServerError(f"sent {_MOST_JUNK} lines that are not messages")
        await self.count_unrequested(size)

    async def count_unrequested(self, size: int, messages: int = 1) -> None:
        """Count messages that no request asked for, and bytes that belong to no message. Pause after too many."""
        self._messages += messages
        self._bytes += size
        if self._messages >= _FREE_MESSAGES or self._bytes >= _FREE_BYTES:
            pauses = 1 + self._bytes // _FREE_BYTES
            self._messages = self._bytes = 0
            await self._sleep(_PAUSE * pauses)


def _number(identity: Json) -> int:
    """Return the number of a request; -1 for other ids. Some servers write the number as a string."""
    if isinstance(identity, str):
        return int(identity) if identity.isdecimal() and len(identity) <= _DIGITS else -1
    return identity if type(identity) is int else -1


def _parse(data: bytes) -> Json:
    """Return the parsed message. NaN and infinity are accepted, so that a message with them is not lost.

    Raises:
        ValueError: the data is not JSON.
        BrokenServerError: the message is too large or too deeply nested to be parsed.

    """
    if data.count(b"[") + data.count(b"{") > _MOST_NODES:
        raise BrokenServerError(f"sent a message of more than {_MOST_NODES} lists and objects")
    text = data.decode("utf-8", "replace")
    try:
        return cast("Json", from_json(text))
    except ValueError as error:
        if "recursion limit" in str(error):
            raise BrokenServerError("sent a message that nests too deep") from None
        if "hex escape" not in str(error) or len(text) > _MOST_MENDED:
            raise
        return cast("Json", from_json(_ESCAPE.sub(lambda found: r"\ufffd" if found["half"] else found[0], text)))


_MOST_MENDED = 256 * 1024
"""The most characters of a message in which halves of surrogate pairs are replaced, which takes some 50 ms."""
_ESCAPE = re.compile(r"\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(?P<half>\\u[dD][89a-fA-F]\w\w)|\\.")
"""An escape of JSON. JavaScript writes half of a surrogate pair where a text was cut, and `from_json` refuses it."""
