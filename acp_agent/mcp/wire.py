"""Between a transport and the `mcp` package's session: what a server sends is sorted before anything believes it.

Only answers to requests under way go on, each once. Its pings are answered right here, and what it asks for
(sampling, roots) is refused, but for questions to the user where there is one; of what it tells, only that its tools
changed matters, and what becomes of such a question. Whatever else comes is
dropped, and slows down who sends much of it: nothing is read meanwhile, so a flood fills the sender's own pipe.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Final, Protocol, Self, TypeAlias, cast

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

MESSAGE_LIMIT: Final = 8 * 1024 * 1024
"""Bytes of one message: room for a picture of 5 MiB in base64."""


class BrokenServerError(Exception):
    """A server that cannot be listened to any longer; the message says why, as what follows its name."""


class Lines:
    """Splits at LF. Never holds more than one message's worth."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._held = 0

    def feed(self, data: bytes) -> Iterable[bytes]:
        """The lines these bytes complete, without their ends. Raises BrokenServerError for one that is too long."""
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


class Events:
    """The data of server-sent events (WHATWG HTML, 9.2). Their names and ids mean nothing here.

    Lines end at LF or CRLF. A CR alone ends one too by the standard, which no server makes use of.

    ignored   bytes so far that were part of no data
    """

    def __init__(self) -> None:
        self._lines = Lines()
        self._data: list[bytes] = []
        self._size = 0
        self.ignored = 0

    def feed(self, data: bytes) -> Iterable[bytes]:
        """The data of the events these bytes complete. Raises BrokenServerError for one that is too long."""
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
                self.ignored += len(line) + 1


Sleep: TypeAlias = Callable[[float], Awaitable[None]]

_QUEUE: Final = 64
_BATCH: Final = 100
_NODES: Final = 300_000
"""Lists and objects in one message: about 70 MB once they are read. Brackets in texts count too."""
_JUNK: Final = 1000
"""Lines in a row that are no message; programs print all kinds of things when they start."""
_FREE_MESSAGES: Final = 200
_FREE_BYTES: Final = 1024 * 1024
_PENALTY: Final = 0.05
"""Seconds of silence after so many messages, or bytes, that nobody asked for."""
_OWN_CODES: Final = 1_000_000
_ID_LIMIT: Final = 200
_CANCELLED: Final = "notifications/cancelled"
_ELICIT: Final = "elicitation/create"


class Asker(Protocol):
    """Whoever hears a server's questions to the user. Nothing here may wait."""

    def asked(self, identity: int | str, params: Json) -> None:
        """The server asks. Answered later by `Wire.answer` or `Wire.refuse`."""
        ...

    def withdrawn(self, identity: int | str) -> None:
        """The server does not want to know any more."""
        ...

    def visited(self, visit: str) -> None:
        """What a page was for is done, the server says."""
        ...


class Wire:
    """The pair of streams a ClientSession speaks over: `incoming` to read from, the wire itself to write to.

    list_changed   called when the server says that its tools changed, as often as it does
    asker          hears the server's questions to the user; None where these are refused
    outgoing       what is to be sent, for the transport
    lost           set when the server is gone or not worth listening to; `reason` says why in our words, `said` what
                   the server had to say about it, `final` that trying again would be of no use
    """

    def __init__(self, *, list_changed: Callable[[], None], sleep: Sleep, asker: Asker | None = None) -> None:
        self._list_changed = list_changed
        self._asker = asker
        self._sleep = sleep
        self._deliver, self.incoming = anyio.create_memory_object_stream[SessionMessage | Exception](_QUEUE)
        self._send, self.outgoing = anyio.create_memory_object_stream[SessionMessage](_QUEUE)
        self._pending: set[int] = set()
        self._failures: dict[int, ToolFailure] = {}
        self._junk = self._messages = self._bytes = 0
        self.received = 0
        self.lost = anyio.Event()
        self.reason = self.said = ""
        self.final = False

    # ------------------------------------------------------------------- what a ClientSession writes to

    async def send(self, item: SessionMessage, /) -> None:
        """Queue a message. Never waits: a server that does not read must not hold up who gives up on it.

        Raises anyio.BrokenResourceError when too many are waiting already, or the wire is closed.
        """
        match item.message:
            case JSONRPCRequest(id=int(number)):
                self._pending.add(number)
            case JSONRPCNotification(method=method, params=dict(params)) if method == _CANCELLED:
                self._pending.discard(cast("int", params.get("requestId")))
            case _:
                pass
        try:
            self._send.send_nowait(item)
        except (anyio.WouldBlock, anyio.ClosedResourceError):
            raise anyio.BrokenResourceError from None

    async def aclose(self) -> None:
        """No more messages come."""
        self._send.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()

    # ------------------------------------------------------------------- what a transport calls

    async def take(self, data: bytes) -> None:
        """Take in a message, or a batch of them, as it was received.

        Raises BrokenServerError when this was the last straw.
        """
        try:
            message = _parsed(data)
        except ValueError:
            await self._wasted(len(data))
            return
        items = (message[:_BATCH] or [None]) if isinstance(message, list) else [message]
        for item in items:
            await self._sort(item, len(data) // len(items))

    async def overhear(self, size: int) -> None:
        """Take note of bytes that were no message and meant nothing."""
        await self._charge(size, messages=0)

    def waits_for(self, message: SessionMessage) -> bool:
        """Whether a request is still unanswered, and somebody wants to know."""
        return isinstance(message.message, JSONRPCRequest) and message.message.id in self._pending

    def fail(self, message: SessionMessage, failure: ToolFailure) -> None:
        """Answer a request in the server's place, if it is still waiting; `failure_of` tells the caller what was said.

        The failure goes through the session as an error code, the only thing it hands on as it is.
        """
        request = message.message
        if self.waits_for(message) and isinstance(request, JSONRPCRequest) and isinstance(request.id, int):
            self._pending.discard(request.id)
            code = _OWN_CODES + request.id
            self._failures[code] = failure
            error = JSONRPCError(jsonrpc="2.0", id=request.id, error=ErrorData(code=code, message=failure.message))
            try:
                self._deliver.send_nowait(SessionMessage(error))
            except (anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
                self.lose("the server's answers come faster than they can be read")

    def failure_of(self, code: int) -> ToolFailure | None:
        """The failure behind an error code; None when the code is the server's own."""
        return self._failures.pop(code, None)

    def lose(self, reason: str, *, said: str = "", final: bool = False) -> None:
        """There is nobody to talk to any longer. Every request under way ends; the first reason counts."""
        if not self.lost.is_set():
            self.reason, self.said, self.final = reason, said, final
            self.lost.set()
            self._deliver.close()

    def close(self) -> None:
        """Close both streams, at both ends."""
        for stream in (self._deliver, self.incoming, self._send, self.outgoing):
            stream.close()

    # ------------------------------------------------------------------- sorting

    async def _sort(self, item: Json, size: int) -> None:
        self.received += 1
        match item:
            case {"id": int(number), "result": _} | {"id": int(number), "error": _} if (
                type(number) is int and number in self._pending
            ):
                self._pending.discard(number)
                self._junk = 0
                await self._hand_on(number, item)
                return
            case {"method": str(method), "id": int(identity) | str(identity)} if _is_id(identity):
                self._junk = 0
                self._serve(identity, method, item.get("params"))
            case {"method": str(method)} if "id" not in item:
                self._junk = 0
                self._heed(method, item.get("params"))
            case {"result": _} | {"error": _}:
                pass  # late, twice, or never asked for
            case _:
                await self._wasted(size)
                return
        await self._charge(size)

    async def _hand_on(self, number: int, item: Mapping[str, Json]) -> None:
        answer: JSONRPCResponse | JSONRPCError
        try:
            if item.get("error") is not None:
                answer = JSONRPCError.model_validate({"jsonrpc": "2.0", "id": number, "error": item["error"]})
            else:
                answer = JSONRPCResponse.model_validate({"jsonrpc": "2.0", "id": number, "result": item.get("result")})
        except ValidationError:
            said = ErrorData(code=INTERNAL_ERROR, message="the server's answer has a wrong form")
            answer = JSONRPCError(jsonrpc="2.0", id=number, error=said)
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # on the way out
            await self._deliver.send(SessionMessage(answer))

    def _serve(self, identity: int | str, method: str, params: Json) -> None:
        """Answer a request of the server's: we live, and but for questions to the user that is all it is told."""
        if method == _ELICIT and self._asker is not None:
            self._asker.asked(identity, params)
        elif method == "ping":
            self.answer(identity, {})
        else:
            self.refuse(identity, METHOD_NOT_FOUND, "this client offers no such thing")

    def _heed(self, method: str, params: Json) -> None:
        match method, params:
            case "notifications/tools/list_changed", _:
                self._list_changed()
            case "notifications/cancelled", {"requestId": int() | str() as identity} if self._asker is not None:
                self._asker.withdrawn(identity)
            case "notifications/elicitation/complete", {"elicitationId": str(visit)} if self._asker is not None:
                self._asker.visited(visit)
            case _:
                pass

    def answer(self, identity: int | str, result: JsonObject) -> None:
        """Answer a request of the server's."""
        self._reply(JSONRPCResponse(jsonrpc="2.0", id=identity, result=cast("dict[str, object]", result)))

    def refuse(self, identity: int | str, code: int, message: str) -> None:
        """Answer a request of the server's with an error."""
        self._reply(JSONRPCError(jsonrpc="2.0", id=identity, error=ErrorData(code=code, message=message)))

    def _reply(self, answer: JSONRPCResponse | JSONRPCError) -> None:
        # Who asks and does not read what is answered gets no answer.
        with suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._send.send_nowait(SessionMessage(answer))

    async def _wasted(self, size: int) -> None:
        self._junk += 1
        if self._junk > _JUNK:
            raise BrokenServerError(f"sent {_JUNK} lines that are no messages")
        await self._charge(size)

    async def _charge(self, size: int, messages: int = 1) -> None:
        self._messages += messages
        self._bytes += size
        if self._messages >= _FREE_MESSAGES or self._bytes >= _FREE_BYTES:
            pauses = 1 + self._bytes // _FREE_BYTES
            self._messages = self._bytes = 0
            await self._sleep(_PENALTY * pauses)


def _is_id(identity: int | str) -> bool:
    return not isinstance(identity, bool) and len(str(identity)) <= _ID_LIMIT


def _parsed(data: bytes) -> Json:
    """Raises ValueError for what is no JSON, BrokenServerError for what would cost too much to look at."""
    if data.count(b"[") + data.count(b"{") > _NODES:
        raise BrokenServerError(f"sent a message of more than {_NODES} lists and objects")
    try:
        return cast("Json", from_json(data.decode("utf-8", "replace"), allow_inf_nan=False))
    except ValueError as error:
        if "recursion limit" in str(error):
            raise BrokenServerError("sent a message that nests too deep") from None
        raise


class Transport(Protocol):
    """One connection to a server, made by whoever knows how it is reached."""

    async def serve(self, wire: Wire) -> None:
        """Carry messages until the server is gone, then say so by `wire.lose`. Raises nothing but cancellation."""
        ...
