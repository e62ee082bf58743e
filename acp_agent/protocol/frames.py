"""One line of the stream, judged strictly (JSON-RPC 2.0; acp.md 3.1, 3.4; security.md 3).

Lenient where clients in the field are: extra top-level members (JetBrains adds `type`), `params: null`, a
BOM, CRLF, blank lines, error answers with id null (Toad). Strict everywhere else, and nothing a peer sends
can raise.
"""

import json
import math
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

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
    """Not a message. `id` is the request's id where one could be read."""

    id: RequestId | None
    code: int
    message: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """Nothing to do: a blank line, or an answer to nothing we asked."""


Frame: TypeAlias = Request | Notification | Response | Malformed | Ignored


def parse(line: bytes) -> Frame:
    """Read one line, its newline removed or not."""
    line = line.strip(b" \t\r\n").removeprefix(b"\xef\xbb\xbf")
    if not line:
        return Ignored()
    try:
        value = cast("Json", _DECODER.decode(line.decode("utf-8")))
        if rb"\u" in line:
            value = _without_lone_surrogates(value)
    except RecursionError:
        return Malformed(None, PARSE_ERROR, "Parse error: nested too deeply")
    except ValueError as error:  # bad UTF-8, bad JSON, NaN, numbers of thousands of digits
        return Malformed(None, PARSE_ERROR, f"Parse error: {_short(error)}")
    if not isinstance(value, dict):
        what = "batches are not part of ACP" if isinstance(value, list) else "a message is a JSON object"
        return Malformed(None, INVALID_REQUEST, f"Invalid request: {what}")
    return _classify(value)


def _classify(message: JsonObject) -> Frame:
    request_id = message.get("id")
    known_id = request_id if isinstance(request_id, int | str) and not isinstance(request_id, bool) else None
    if message.get("jsonrpc") != "2.0":
        return Malformed(known_id, INVALID_REQUEST, 'Invalid request: "jsonrpc" must be "2.0"')
    if "method" not in message:
        return _response(message, known_id)
    method, params = message["method"], message.get("params")
    if not isinstance(method, str):
        return Malformed(known_id, INVALID_REQUEST, 'Invalid request: "method" must be a string')
    if "id" in message and known_id is None:
        return Malformed(None, INVALID_REQUEST, 'Invalid request: "id" must be a string or an integer')
    if isinstance(params, list):
        return Malformed(known_id, INVALID_PARAMS, 'Invalid params: "params" must be an object')
    if params is not None and not isinstance(params, dict):
        return Malformed(known_id, INVALID_REQUEST, 'Invalid request: "params" must be an object')
    if known_id is None:
        return Notification(method, params or {})
    return Request(known_id, method, params or {})


def _response(message: JsonObject, known_id: RequestId | None) -> Frame:
    if "result" not in message and "error" not in message:
        return Malformed(known_id, INVALID_REQUEST, 'Invalid request: "method" is missing')
    if known_id is None:
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
    if not math.isfinite(value):  # JSON has such numbers, but nobody could write one again
        raise NotJson("a number out of range")
    return value


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


def _short(error: ValueError) -> str:
    # Never the input itself: it may hold secrets, and the answer goes to a log.
    match error:
        case json.JSONDecodeError():
            return f"{error.msg} at character {error.pos}"
        case UnicodeDecodeError():
            return f"not UTF-8 at byte {error.start}"
        case NotJson():
            return str(error)
        case _:
            return "a number too long"


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
