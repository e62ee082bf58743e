"""Check every message of the connection against the models of the official SDK: `ACP_AGENT_STRICT=1`.

A message that does not fit is reported on stderr in one line, and is then served as without the check. The SDK's models
take 17 MB and 0.4 s, so this module is loaded only if the variable is set.
"""

import json
import os
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, cast, get_args

from acp import schema
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from acp_agent.core.types import Json, JsonObject
from acp_agent.core.untrusted import json_kind
from acp_agent.protocol.jsonrpc import Frame, Ignored, Malformed, Notification, Request, RequestId, Response

_STDERR = 2
_SHOWN = 3  # the most problems of one message that are listed

_REQUESTS: Final[dict[str, tuple[Any, Any]]] = {
    "initialize": (schema.InitializeRequest, schema.InitializeResponse),
    "authenticate": (schema.AuthenticateRequest, schema.AuthenticateResponse),
    "logout": (schema.LogoutRequest, schema.LogoutResponse),
    "session/new": (schema.NewSessionRequest, schema.NewSessionResponse),
    "session/load": (schema.LoadSessionRequest, schema.LoadSessionResponse),
    "session/resume": (schema.ResumeSessionRequest, schema.ResumeSessionResponse),
    "session/fork": (schema.ForkSessionRequest, schema.ForkSessionResponse),
    "session/list": (schema.ListSessionsRequest, schema.ListSessionsResponse),
    "session/close": (schema.CloseSessionRequest, schema.CloseSessionResponse),
    "session/delete": (schema.DeleteSessionRequest, schema.DeleteSessionResponse),
    "session/prompt": (schema.PromptRequest, schema.PromptResponse),
    "session/set_mode": (schema.SetSessionModeRequest, schema.SetSessionModeResponse),
    "session/set_config_option": (
        schema.SetSessionConfigOptionBooleanRequest | schema.SetSessionConfigOptionSelectRequest,
        schema.SetSessionConfigOptionResponse,
    ),
    "session/request_permission": (schema.RequestPermissionRequest, schema.RequestPermissionResponse),
    "fs/read_text_file": (schema.ReadTextFileRequest, schema.ReadTextFileResponse),
    "fs/write_text_file": (schema.WriteTextFileRequest, schema.WriteTextFileResponse),
    "terminal/create": (schema.CreateTerminalRequest, schema.CreateTerminalResponse),
    "terminal/output": (schema.TerminalOutputRequest, schema.TerminalOutputResponse),
    "terminal/wait_for_exit": (schema.WaitForTerminalExitRequest, schema.WaitForTerminalExitResponse),
    "terminal/kill": (schema.KillTerminalRequest, schema.KillTerminalResponse),
    "terminal/release": (schema.ReleaseTerminalRequest, schema.ReleaseTerminalResponse),
    "elicitation/create": (schema.CreateElicitationRequest, schema.CreateElicitationResponse),
}
"""The models of the parameters and of the result of each request, in both directions."""
_UNKNOWN = (None, None)
_NOTIFICATIONS: Final[dict[str, Any]] = {
    "session/cancel": schema.CancelNotification,
    "session/update": schema.SessionNotification,
    "elicitation/complete": schema.CompleteElicitationNotification,
    "$/cancel_request": schema.CancelRequestNotification,
}
_NEWER_UPDATES: Final = ("compaction_summary_chunk", "compaction_update", "notice")
"""Updates of ACP that schema v1.19 lacks. The SDK's models were generated from that schema."""
_GAPS: Final[dict[str, str]] = {
    r"params\.update\.name: unknown member": "the name of a tool is newer than schema v1.19",
    r"params\.clientCapabilities\.session\.(compaction|notices): unknown member": "newer than schema v1.19",
    r".*\bconfigOptions\[\d+\]\.category: a string, .*": "ACP allows names with _ at the start",
}
"""Patterns of problems that are gaps in the SDK, not errors, each with the reason."""
_NAME = re.compile(r"(?:\$/|_)?[A-Za-z]{1,24}(?:[_/][A-Za-z]{1,24}){0,4}")
_GAP = re.compile("|".join(_GAPS))


class StrictObserver:
    """A checker of the messages that a peer receives and sends. It reports each that does not fit."""

    def __init__(self) -> None:
        self._served: dict[RequestId, str] = {}  # methods of the editor's requests; two may have one id
        self._asked: dict[RequestId, str] = {}  # the methods of the requests that the editor answers
        self._messages = 0
        self._misfits = 0

    def received(self, frame: Frame) -> None:
        """Check a message of the editor."""
        match frame:
            case Request(request_id, method, params):
                self._served[request_id] = method
                self._check("received request", method, _REQUESTS.get(method, _UNKNOWN)[0], "params", params)
            case Notification(method, params):
                self._check("received notification", method, _NOTIFICATIONS.get(method), "params", params)
            case Response(request_id, result, error):
                self._check_answer("received answer to", self._asked.pop(request_id, ""), result, error)
            case Malformed(_, _, message) | Ignored(message):
                if message:
                    self._messages += 1
                    self._report(f"received message: {message}")

    def sent(self, message: JsonObject) -> None:
        """Check a message of ours."""
        method, request_id = message.get("method"), cast("RequestId", message.get("id"))
        if not isinstance(method, str):
            error = cast("JsonObject | None", message.get("error"))
            self._check_answer("sent answer to", self._served.get(request_id, ""), message.get("result"), error)
        elif "id" in message:
            self._asked[request_id] = method
            self._check("sent request", method, _REQUESTS.get(method, _UNKNOWN)[0], "params", message["params"])
        else:
            self._check("sent notification", method, _NOTIFICATIONS.get(method), "params", message["params"])

    def summarize(self) -> None:
        """Report how many messages were checked."""
        _write(f"{self._messages} messages checked, {self._misfits} do not fit")

    def _check_answer(self, what: str, method: str, result: Json, error: JsonObject | None) -> None:
        if error is not None:
            self._check(what, method or "a request", schema.Error, "error", error)
        elif not method:
            self._messages += 1
            self._report(f"{what} no request")
        else:
            self._check(what, method, _REQUESTS.get(method, _UNKNOWN)[1], "result", result)

    def _check(self, what: str, method: str, model: Any, member: str, value: Json) -> None:
        self._messages += 1
        update = value.get("update") if method == "session/update" and isinstance(value, dict) else None
        is_newer = isinstance(update, dict) and update.get("sessionUpdate") in _NEWER_UPDATES
        if method.startswith("_") or is_newer:
            return
        problems = [problem for problem in _problems(model, member, value) if not _GAP.fullmatch(problem)]
        if problems:
            more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
            self._report(f"{what} {_named(method)}: {'; '.join(problems[:_SHOWN])}{more}")

    def _report(self, text: str) -> None:
        self._misfits += 1
        _write(text)


def _problems(model: Any, member: str, value: Json) -> list[str]:
    """Return the problems of a value, each with its path. They do not quote the value."""
    if model is None:
        return ["this method is not in ACP, and extensions begin with _"]
    adapter = _adapter(model)
    try:
        read = adapter.validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        return [_described(member, each) for each in _errors_of_nearest(model, error)]
    return list(_lost(member, value, adapter.dump_python(read, mode="json", by_alias=True, exclude_unset=True)))


@cache
def _adapter(model: Any) -> TypeAdapter[Any]:
    return TypeAdapter(model)


def _errors_of_nearest(model: Any, error: ValidationError) -> list[ErrorDetails]:
    """Return the errors. For a union, return the errors of the model that fits best."""
    errors = error.errors(include_url=False)
    if not get_args(model):
        return errors
    names = dict.fromkeys(each["loc"][0] for each in errors)
    models = [[each for each in errors if each["loc"][0] == name] for name in names]
    return [{**each, "loc": each["loc"][1:]} for each in min(models, key=len)]


def _described(member: str, error: ErrorDetails) -> str:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{_named(step)}" for step in error["loc"])
    wanted = "unknown type" if error["type"] == "union_tag_invalid" else error["msg"]  # not the quoted tag
    return f"{member}{path}: {wanted}, got {json_kind(error['input'])}"


def _lost(path: str, given: Json, read: Json) -> Iterator[str]:
    """Yield the members that the model drops or replaces, because it reads many members leniently."""
    match given, read:
        case dict(), dict():
            for name, value in given.items():
                if name in read:
                    yield from _lost(f"{path}.{_named(name)}", value, read[name])
                else:
                    yield f"{path}.{_named(name)}: unknown member"
        case list(), list() if len(given) == len(read):
            for index, pair in enumerate(zip(given, read, strict=True)):
                yield from _lost(f"{path}[{index}]", *pair)
        case list(), list():
            yield f"{path}: {len(given) - len(read)} of {len(given)} items cannot be read"
        case str(), str():  # a URL may be read with a slash at its end
            pass
        case _ if given != read:
            yield f"{path}: {json_kind(given)}, which the SDK reads as {json_kind(read)}"
        case _:
            pass


def _named(name: str) -> str:
    """Return the name of a method or a member if it looks like one. Anything else might be a secret."""
    return name if _NAME.fullmatch(name) else f"(a name of {len(name)} characters)"


def _write(text: str) -> None:
    os.write(_STDERR, f"strict: {text}\n".encode("utf-8", "backslashreplace"))
