"""JSON-RPC 2.0: parse one line of the stream as a message, and define the errors that are sent and received.

Parsing is lenient where existing clients need it: additional top-level members, `params: null`, a byte order mark,
CRLF, blank lines, and error responses with id null are accepted. Everything else is checked strictly. No input makes
`parse` raise an exception.
"""

import json
import math
from typing import Final, TypeAlias, cast

from acp_agent.core.data import frozen
from acp_agent.core.errors import InvalidField, InvalidState, LoginRequired, RequestError, SessionNotFound
from acp_agent.core.types import Json, JsonObject

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800
AUTH_REQUIRED = -32000
"""ACP's "authentication required". Editors answer it with a login dialog, so no other error has this code."""
RESOURCE_NOT_FOUND = -32002
"""ACP's code for an unknown session or file."""

RequestId: TypeAlias = int | str


# ----------------------------------------------------------------------------------------------- errors


class RpcError(RequestError):
    """An error response, sent or received. `data` never repeats what the peer sent."""

    def __init__(self, code: int, message: str, data: JsonObject | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def to_wire(self) -> JsonObject:
        """Return the JSON-RPC error object."""
        error: JsonObject = {"code": self.code, "message": self.message}
        return error if self.data is None else {**error, "data": self.data}

    @classmethod
    def of(cls, error: RequestError) -> "RpcError":
        """Return the error response for a request that a session cannot serve."""
        match error:
            case RpcError():
                return error
            case SessionNotFound():
                return session_not_found(error.session_id)
            case InvalidField():
                return invalid_params(error.key, error.problem)
            case InvalidState():
                return cls(INVALID_REQUEST, str(error))
            case LoginRequired():
                return cls(AUTH_REQUIRED, str(error))
            case _:
                return cls(INTERNAL_ERROR, str(error))


class ConnectionLost(RpcError):
    """The editor closed the connection, so no response will come."""

    def __init__(self) -> None:
        super().__init__(INTERNAL_ERROR, "the client closed the connection")


class ClientTimeout(RpcError):
    """The editor did not answer in time."""

    def __init__(self, method: str, seconds: float) -> None:
        super().__init__(INTERNAL_ERROR, f"the client did not answer {method} within {seconds:g} s")


def invalid_request(message: str) -> RpcError:
    """Return the error for a request that cannot be served in the present state."""
    return RpcError(INVALID_REQUEST, message)


def invalid_params(key: str, problem: str) -> RpcError:
    """Return the error for a wrong parameter; `problem` says what was expected."""
    return RpcError(INVALID_PARAMS, f"Invalid params: {key}: {problem}", {"key": key})


def session_not_found(session_id: str) -> RpcError:
    """Return the error for a session that does not exist."""
    return RpcError(RESOURCE_NOT_FOUND, "session not found", {"sessionId": session_id})


def method_not_found(method: str) -> RpcError:
    """Return the error for a method that is not served."""
    return RpcError(METHOD_NOT_FOUND, "Method not found", {"method": method})


def internal_error() -> RpcError:
    """Return the error for a bug in the agent. The details are in the log, never in the response."""
    return RpcError(INTERNAL_ERROR, "Internal error")


# ----------------------------------------------------------------------------------------------- messages


@frozen
class Request:
    """A message that wants a response. The id is echoed as received."""

    id: RequestId
    method: str
    params: JsonObject


@frozen
class Notification:
    """A message that wants no response."""

    method: str
    params: JsonObject


@frozen
class Response:
    """The response to our request `id`; `error` is a JSON-RPC error object, or None."""

    id: RequestId
    result: Json
    error: JsonObject | None

    def outcome(self) -> Json:
        """Return the result. Raises RpcError if the response is an error."""
        if self.error is None:
            return self.result
        code, message = self.error.get("code"), self.error.get("message")
        text = message if isinstance(message, str) else "error without a message"
        match self.error.get("data"):
            case {"details": str() as details}:  # the SDKs put the message of a handler's exception here
                text = f"{text}: {details}"
            case _:
                pass
        raise RpcError(code if isinstance(code, int) else INTERNAL_ERROR, text)


@frozen
class Malformed:
    """A line that is not a message. `id` is the id of the request if it can be read, else None."""

    id: RequestId | float | None
    code: int
    message: str


@frozen
class Ignored:
    """A line that needs no reaction: blank, a response to no request of ours, or an invalid notification.

    problem   what is wrong with the notification, for the log; JSON-RPC sends no response to notifications
    """

    problem: str = ""


Frame: TypeAlias = Request | Notification | Response | Malformed | Ignored


def parse(line: bytes) -> Frame:
    """Read one line, with or without its newline. Never raises."""
    line = line.strip(b" \t\r\n").removeprefix(b"\xef\xbb\xbf")
    if not line:
        return Ignored()
    try:
        return _classify(_decoded(line, _STRICT))
    except RecursionError:
        return Malformed(None, PARSE_ERROR, "Parse error: nested too deeply")
    except ValueError as error:
        if type(error) is ValueError:
            return _out_of_range(line)
        return Malformed(None, PARSE_ERROR, f"Parse error: {_problem(error)}")


def _decoded(line: bytes, decoder: json.JSONDecoder) -> Json:
    value = cast("Json", decoder.decode(line.decode("utf-8")))
    return writable(value) if rb"\u" in line else value


def writable(value: Json) -> Json:
    """Return the value with "?" for each lone surrogate, which UTF-8 cannot hold."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return _scrubbed(value)
    return value


def _out_of_range(line: bytes) -> Frame:
    """Parse a message with a number that cannot be written as JSON again. Its id can still be read.

    In a notification the number becomes null, so that a cancellation is not lost.
    """
    try:
        frame = _classify(_decoded(line, _LENIENT))
    except (RecursionError, ValueError):
        return Malformed(None, PARSE_ERROR, "Parse error: a number out of range, and more")
    match frame:
        case Request(request_id):
            return Malformed(request_id, INVALID_REQUEST, "Invalid request: a number out of range")
        case Response(request_id):
            return Response(
                request_id, None, {"code": INTERNAL_ERROR, "message": "an answer with a number out of range"}
            )
        case _:
            return frame


def _classify(message: Json) -> Frame:
    if not isinstance(message, dict):
        what = "batches are not part of ACP" if isinstance(message, list) else "a message is a JSON object"
        return Malformed(None, INVALID_REQUEST, f"Invalid request: {what}")
    given_id, method, params = message.get("id"), message.get("method"), message.get("params")
    if "id" not in message and isinstance(method, str):
        if message.get("jsonrpc") == "2.0" and isinstance(params, dict | None):
            return Notification(method, params or {})
        return Ignored(f"{method[:80]}: not a notification of JSON-RPC 2.0 with an object for params")
    # A response can have a fraction as its id, although requests never have one.
    known_id = None if isinstance(given_id, bool) or not isinstance(given_id, int | float | str) else given_id
    if message.get("jsonrpc") == "2.0" and "method" not in message:
        return _response(message, known_id)
    if (
        message.get("jsonrpc") != "2.0"
        or not isinstance(method, str)
        or known_id is None
        or isinstance(known_id, float)
    ):
        wrong = '"id" must be a string or an integer' if isinstance(method, str) else '"method" must be a string'
        if message.get("jsonrpc") != "2.0":
            wrong = '"jsonrpc" must be "2.0"'
        return Malformed(known_id, INVALID_REQUEST, f"Invalid request: {wrong}")
    if not isinstance(params, dict | None):
        code, what = (INVALID_PARAMS, "params") if isinstance(params, list) else (INVALID_REQUEST, "request")
        return Malformed(known_id, code, f'Invalid {what}: "params" must be an object')
    return Request(known_id, method, params or {})


def _response(message: JsonObject, known_id: RequestId | float | None) -> Frame:
    if "result" not in message and "error" not in message:
        return Malformed(known_id, INVALID_REQUEST, 'Invalid request: "method" is missing')
    if isinstance(known_id, float):  # JSON has one type of numbers: some editors answer request 7 as 7.0
        known_id = int(known_id) if known_id.is_integer() else None
    if known_id is None:
        return Ignored()
    error = message.get("error")
    if error is None:
        return Response(known_id, message.get("result"), None)
    malformed: JsonObject = {"code": INTERNAL_ERROR, "message": "malformed error answer"}
    return Response(known_id, None, error if isinstance(error, dict) else malformed)


# ----------------------------------------------------------------------------------------------- decoding


class _NotJson(ValueError):
    """A value that Python's parser accepts but JSON does not have, such as NaN."""


def _refuse_constant(name: str) -> None:
    raise _NotJson(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError  # as for an integer with more digits than Python converts: a number out of range
    return value


def _finite_or_none(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _int_or_none(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


_STRICT: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
"""Raises a plain ValueError for numbers out of range, and a subclass of it for everything else that is not JSON."""
_LENIENT: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=_int_or_none, parse_float=_finite_or_none)
"""The same decoder, with null for numbers out of range."""


def _problem(error: ValueError) -> str:
    """Describe a parse error without quoting the input, which may hold secrets: the message goes to logs."""
    match error:
        case json.JSONDecodeError():
            return f"{error.msg} at character {error.pos}"
        case UnicodeDecodeError():
            return f"not UTF-8 at byte {error.start}"
        case _:
            return str(error)


def _scrubbed(value: Json) -> Json:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode("utf-8")
        case list():
            return [_scrubbed(item) for item in value]
        case dict():
            return {cast("str", _scrubbed(key)): _scrubbed(item) for key, item in value.items()}
        case _:
            return value
