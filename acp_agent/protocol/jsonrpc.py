"""One line of the stream, judged strictly (JSON-RPC 2.0; acp.md 3.1, 3.4; security.md 3).

Lenient where clients in the field are: extra top-level members (JetBrains adds `type`), `params: null`, a
BOM, CRLF, blank lines, error answers with id null (Toad). Strict everywhere else, and nothing a peer sends
can raise.
"""

import json
import math
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from acp_agent.core.errors import BackendUnavailable, ToolError, ToolErrorCategory
from acp_agent.core.types import Json, JsonObject

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800
AUTH_REQUIRED = -32000
RESOURCE_NOT_FOUND = -32002

RequestId: TypeAlias = int | str


class NotJson(ValueError):
    """Python's parser takes it, JSON does not."""


class _OverflowError(ValueError):
    """A number that JSON has, but that nobody could write again."""


@dataclass(frozen=True, slots=True)
class Request:
    """The peer wants an answer. The id is echoed as received."""

    id: RequestId
    method: str
    params: JsonObject


@dataclass(frozen=True, slots=True)
class Notification:
    """The peer tells something."""

    method: str
    params: JsonObject


@dataclass(frozen=True, slots=True)
class Response:
    """The peer answers request `id`; `error` is a JSON-RPC error object, or None."""

    id: RequestId
    result: Json
    error: JsonObject | None


@dataclass(frozen=True, slots=True)
class Malformed:
    """Not a message. `id` is the request's id as it was sent, where that is one at all."""

    id: RequestId | float | None
    code: int
    message: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """Nothing to do: a blank line, an answer to nothing we asked, or a notification that is wrong.

    problem   what is wrong with the notification. JSON-RPC answers none, so only the log can have it
    """

    problem: str = ""


Frame: TypeAlias = Request | Notification | Response | Malformed | Ignored


def parse(line: bytes) -> Frame:
    """Read one line, its newline removed or not."""
    line = line.strip(b" \t\r\n").removeprefix(b"\xef\xbb\xbf")
    if not line:
        return Ignored()
    try:
        return _classify(_decoded(line, _DECODER))
    except RecursionError:
        return Malformed(None, PARSE_ERROR, "Parse error: nested too deeply")
    except ValueError as error:  # bad UTF-8, bad JSON, NaN, a number that is too large or too long
        if type(error) in (_OverflowError, ValueError):
            return _overflowing(line)
        return Malformed(None, PARSE_ERROR, f"Parse error: {_short(error)}")


def _decoded(line: bytes, decoder: json.JSONDecoder) -> Json:
    value = cast("Json", decoder.decode(line.decode("utf-8")))
    return _without_lone_surrogates(value) if rb"\u" in line else value


def _overflowing(line: bytes) -> Frame:
    """What becomes of a message with a number that nobody could write again: its id is known all the same."""
    try:
        frame = _classify(_decoded(line, _LENIENT))
    except (RecursionError, ValueError):
        return Malformed(None, PARSE_ERROR, "Parse error: a number out of range, and more")
    what = "a number out of range"
    match frame:
        case Request(request_id):
            return Malformed(request_id, INVALID_REQUEST, f"Invalid request: {what}")
        case Response(request_id):
            error: JsonObject = {"code": INTERNAL_ERROR, "message": f"an answer with {what}"}
            return Response(request_id, None, error)
        case _:  # of a notification the number is left out: a cancellation must not get lost
            return frame


def _classify(message: Json) -> Frame:
    if not isinstance(message, dict):
        what = "batches are not part of ACP" if isinstance(message, list) else "a message is a JSON object"
        return Malformed(None, INVALID_REQUEST, f"Invalid request: {what}")
    known_id, method = _readable_id(message.get("id")), message.get("method")
    if "id" not in message and isinstance(method, str):
        return _notification(message, method)
    if message.get("jsonrpc") != "2.0":
        return Malformed(known_id, INVALID_REQUEST, 'Invalid request: "jsonrpc" must be "2.0"')
    if "method" not in message:
        return _response(message, known_id)
    if not isinstance(method, str):
        return Malformed(known_id, INVALID_REQUEST, 'Invalid request: "method" must be a string')
    if known_id is None or isinstance(known_id, float):
        return Malformed(known_id, INVALID_REQUEST, 'Invalid request: "id" must be a string or an integer')
    return _request(known_id, method, message.get("params"))


def _notification(message: JsonObject, method: str) -> Frame:
    params = message.get("params")
    if message.get("jsonrpc") != "2.0" or not isinstance(params, dict | None):
        return Ignored(f"{method[:80]}: not a notification of JSON-RPC 2.0 with an object for params")
    return Notification(method, params or {})


def _request(known_id: RequestId, method: str, params: Json) -> Frame:
    if isinstance(params, list):
        return Malformed(known_id, INVALID_PARAMS, 'Invalid params: "params" must be an object')
    if params is not None and not isinstance(params, dict):
        return Malformed(known_id, INVALID_REQUEST, 'Invalid request: "params" must be an object')
    return Request(known_id, method, params or {})


def _readable_id(request_id: Json) -> RequestId | float | None:
    """Return an id that an answer can carry, also one that no request may have: a fraction."""
    if isinstance(request_id, bool) or not isinstance(request_id, int | float | str):
        return None
    return request_id


def _response(message: JsonObject, known_id: RequestId | float | None) -> Frame:
    if "result" not in message and "error" not in message:
        return Malformed(known_id, INVALID_REQUEST, 'Invalid request: "method" is missing')
    if known_id is None or isinstance(known_id, float):
        return Ignored()
    if message.get("error") is None:
        return Response(known_id, message.get("result"), None)
    error = message["error"]
    malformed: JsonObject = {"code": INTERNAL_ERROR, "message": "malformed error answer"}
    return Response(known_id, None, error if isinstance(error, dict) else malformed)


def _refuse_constant(name: str) -> None:
    raise NotJson(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _OverflowError
    return value


def _whole_or_none(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:  # Python takes no more than some thousand digits
        return None


def _finite_or_none(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
_LENIENT: Final = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_int=_whole_or_none, parse_float=_finite_or_none
)


def _short(error: ValueError) -> str:
    # Never the input itself: it may hold secrets, and the answer goes to a log.
    match error:
        case json.JSONDecodeError():
            return f"{error.msg} at character {error.pos}"
        case UnicodeDecodeError():
            return f"not UTF-8 at byte {error.start}"
        case _:
            return str(error)


def _without_lone_surrogates(value: Json) -> Json:
    """Replace half characters (a high surrogate alone), which no UTF-8 file or socket could carry on."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return _scrub(value)
    return value


def _scrub(value: Json) -> Json:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode("utf-8")
        case list():
            return [_scrub(item) for item in value]
        case dict():
            return {cast("str", _scrub(key)): _scrub(item) for key, item in value.items()}
        case _:
            return value


TELL_THE_USER = "Do not do it another way. Tell the user what the editor answered."
"""What the model is told to do where the editor did not do what it was asked."""


class RpcError(Exception):
    """An error answer, sent or received. `data` never repeats what the peer sent."""

    def __init__(self, code: int, message: str, data: JsonObject | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def to_wire(self) -> JsonObject:
        """The JSON-RPC error object."""
        error: JsonObject = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        return error


class ConnectionLost(RpcError):
    """The editor is gone; nothing will be answered any more."""

    def __init__(self) -> None:
        super().__init__(INTERNAL_ERROR, "the client closed the connection")


class NoAnswer(RpcError):
    """The editor did not answer in time."""

    def __init__(self, method: str, seconds: float) -> None:
        super().__init__(INTERNAL_ERROR, f"the client did not answer {method} within {seconds:g} s")


def refused(backend: str, method: str, error: RpcError) -> BackendUnavailable | ToolError:
    """Return what an error answer of the editor means: that it cannot do this at all, or that it will not.

    Another backend may do what the editor cannot. Nothing may do what the editor would not: the call ends.
    """
    if error.code == METHOD_NOT_FOUND:
        return BackendUnavailable(backend, f"{method}: {error.message}", permanent=True)
    return ToolError(
        ToolErrorCategory.POLICY_BLOCKED,
        f"the editor did not do {method}: {error.message}",
        TELL_THE_USER,
    )


def invalid_request(message: str) -> RpcError:
    """The request cannot be served in this state."""
    return RpcError(INVALID_REQUEST, message)


def invalid_params(key: str, problem: str) -> RpcError:
    """A parameter is wrong; `problem` says what was expected."""
    return RpcError(INVALID_PARAMS, f"Invalid params: {key}: {problem}", {"key": key})


def session_not_found(session_id: str) -> RpcError:
    """No such session, or not any more."""
    return RpcError(RESOURCE_NOT_FOUND, "session not found", {"sessionId": session_id})


def method_not_found(method: str) -> RpcError:
    """Nobody serves this method."""
    return RpcError(METHOD_NOT_FOUND, "Method not found", {"method": method})


def internal_error() -> RpcError:
    """A bug of ours; the log has it, the wire does not (A5.6)."""
    return RpcError(INTERNAL_ERROR, "Internal error")


def result_of(response: Response) -> Json:
    """Return the result of a response. Raises RpcError for its error."""
    if response.error is None:
        return response.result
    code, message = response.error.get("code"), response.error.get("message")
    text = message if isinstance(message, str) else "error without a message"
    match response.error.get("data"):
        case {"details": str() as details}:  # where SDKs put what a handler said
            text = f"{text}: {details}"
        case _:
            pass
    raise RpcError(code if isinstance(code, int) else INTERNAL_ERROR, text)
