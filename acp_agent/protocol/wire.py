"""The ACP types that a turn receives, and the errors of backends for error responses of the editor.

The SDK's `acp.schema` has all types, but takes 0.4 s and 17 MB to load, so the types are defined here, and a test
compares them with the SDK's. Unknown members are skipped. An optional member of the wrong type counts as missing, as in
the SDK. See the pages Content, Prompt Turn, Terminals and File System of https://agentclientprotocol.com/protocol.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias, TypeVar

from acp_agent.core.errors import BackendUnavailable, ToolError, ToolErrorCategory
from acp_agent.core.ports import Decision
from acp_agent.core.types import Json, JsonObject
from acp_agent.protocol import jsonrpc
from acp_agent.protocol.jsonrpc import ClientTimeout, ConnectionLost, RpcError, invalid_params
from acp_agent.shape import Field, NoneIfWrong, Shape, ShapeConfig, Tagged, ValidationError

_OptionalText: TypeAlias = Annotated[str | None, NoneIfWrong()]


class _Shape(Shape):
    shape_config = ShapeConfig(strict=False, forbid=False, camel=True)


class Text(_Shape):
    """A text block."""

    type: Literal["text"]
    text: str


class Image(_Shape):
    """An image block; `data` is base64."""

    type: Literal["image"]
    data: str
    mime_type: str


class Audio(_Shape):
    """An audio block; `data` is base64."""

    type: Literal["audio"]
    data: str
    mime_type: str


class Link(_Shape):
    """A reference to a resource that the agent may read."""

    type: Literal["resource_link"]
    name: str
    uri: str


class EmbeddedText(_Shape):
    """The contents of a text resource."""

    text: str
    uri: str
    mime_type: _OptionalText = None


class EmbeddedBlob(_Shape):
    """The contents of a binary resource; `blob` is base64."""

    blob: str
    uri: str
    mime_type: _OptionalText = None


class Embedded(_Shape):
    """A resource with its contents."""

    type: Literal["resource"]
    resource: EmbeddedText | EmbeddedBlob


class Unknown(_Shape):
    """A block of a later protocol version. It is left out and the user is told; the SDKs refuse the whole prompt."""

    type: str


Block: TypeAlias = Annotated[Text | Image | Audio | Link | Embedded | Unknown, Tagged("type", otherwise=Unknown)]


class _Prompt(_Shape):
    session_id: str
    prompt: list[Block]


class _FileText(_Shape):
    content: str


class _TerminalCreated(_Shape):
    terminal_id: str


class ExitStatus(_Shape):
    """The end of a command. Both members are None if the editor does not know how it ended."""

    exit_code: Annotated[Annotated[int, Field(ge=0)] | None, NoneIfWrong()] = None
    signal: _OptionalText = None


class TerminalOutput(_Shape):
    """The output of an editor's terminal so far."""

    output: str
    truncated: bool
    exit_status: Annotated[ExitStatus | None, NoneIfWrong()] = None


class _Cancelled(_Shape):
    outcome: Literal["cancelled"]


class _Selected(_Shape):
    outcome: Literal["selected"]
    option_id: str


class _Permission(_Shape):
    outcome: Annotated[_Cancelled | _Selected, Tagged("outcome")]


Model = TypeVar("Model", bound=Shape)


def prompt_blocks(params: JsonObject) -> Sequence[Block]:
    """Return the content blocks of `session/prompt`.

    Raises RpcError (-32602), which names the wrong member and never quotes it.
    """
    try:
        return _Prompt.model_validate(params).prompt
    except ValidationError as error:
        raise invalid_params(*_first_problem(error)) from None


def _first_problem(error: ValidationError) -> tuple[str, str]:
    """Return the path of the first wrong member and what was expected, without the value."""
    first = error.problems[0]
    expected = first["msg"].partition(" or instance of ")[0]  # the name of a class in this module
    steps = map(str, first["loc"])
    named = (step for step in steps if step and "[" not in step)  # the other steps name functions of pydantic
    return ".".join(named), expected


def _answer(method: str, model: type[Model], value: Json) -> Model:
    """Return the editor's result as its model. Raises RpcError (-32603) if it has another shape."""
    try:
        return model.model_validate(value if value is not None else {})
    except ValidationError as error:
        where, expected = _first_problem(error)
        found = f"the editor's answer to {method} does not fit the protocol: {where or 'all of it'}: {expected}"
        raise RpcError(jsonrpc.INTERNAL_ERROR, found) from None


def file_text(value: Json) -> str:
    """Return the text in a result of `fs/read_text_file`."""
    return _answer("fs/read_text_file", _FileText, value).content


def terminal_id(value: Json) -> str:
    """Return the id in a result of `terminal/create`."""
    return _answer("terminal/create", _TerminalCreated, value).terminal_id


def terminal_output(value: Json) -> TerminalOutput:
    """Read a result of `terminal/output`."""
    return _answer("terminal/output", TerminalOutput, value)


def exit_status(value: Json) -> ExitStatus:
    """Read a result of `terminal/wait_for_exit`."""
    return _answer("terminal/wait_for_exit", ExitStatus, value)


def decision(value: Json) -> Decision:
    """Return the decision in a result of `session/request_permission`; UNANSWERED for an option that is not ours."""
    outcome = _answer("session/request_permission", _Permission, value).outcome
    if isinstance(outcome, _Cancelled):
        return Decision.CANCELLED
    unoffered = (Decision.CANCELLED, Decision.UNANSWERED)
    offered = (known for known in Decision if known not in unoffered)
    return next((known for known in offered if known.value == outcome.option_id), Decision.UNANSWERED)


TELL_THE_USER = "Do not do it another way. Tell the user what the editor answered."
"""The suggestion to the model if the editor refused something."""


def backend_error(backend: str, method: str, error: RpcError) -> BackendUnavailable | ToolError:
    """Return the error of a tool call for an error response of the editor.

    It is BackendUnavailable if the editor lacks the method, so that another backend may do the same. It is ToolError if
    the editor refused, so that no other backend does it instead.
    """
    if error.code == jsonrpc.METHOD_NOT_FOUND:
        return BackendUnavailable(backend, f"{method}: {error.message}", permanent=True)
    message = f"the editor did not do {method}: {error.message}"
    return ToolError(ToolErrorCategory.POLICY_BLOCKED, message, TELL_THE_USER)


def unanswered(
    method: str, error: ClientTimeout | ConnectionLost, seconds: float, unknown: str, suggestion: str
) -> ToolError:
    """Return the error of an unanswered request that may have had its effect, so that no other backend repeats it.

    unknown   a clause that says what is unknown, such as "it is unknown whether FILE was written"
    """
    if isinstance(error, ConnectionLost):
        return ToolError.permanent(f"{error.message}; {unknown}", suggestion)
    message = f"the editor did not answer {method} within {seconds:g} s; {unknown}"
    return ToolError(ToolErrorCategory.TIMEOUT, message, suggestion)
