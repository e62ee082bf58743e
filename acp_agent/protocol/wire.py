"""What comes in, read with models of our own: the few shapes of ACP v1 a turn needs.

`acp.schema` has them all, and takes 0.4 s and 17 MB for it; a test holds these to what that one reads and refuses.
Members we do not know are skipped. An optional member of the wrong type counts as missing, as in the SDK. Source:
agentclientprotocol.com, "Content", "Prompt Turn", "Terminals", "File System"; schema v1.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias, TypeVar, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic.alias_generators import to_camel

from acp_agent.core.ports import Decision
from acp_agent.core.types import Json, JsonObject
from acp_agent.protocol import jsonrpc
from acp_agent.protocol.jsonrpc import RpcError, invalid_params


def _or_none(value: object, read: ValidatorFunctionWrapHandler) -> object:
    try:
        return read(value)
    except ValidationError:
        return None


_Salvaged = WrapValidator(_or_none)
_Word: TypeAlias = Annotated[str | None, _Salvaged]


class _Shape(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, frozen=True)


class Text(_Shape):
    """Words."""

    type: Literal["text"]
    text: str


class Image(_Shape):
    """A picture, base64."""

    type: Literal["image"]
    data: str
    mime_type: str


class Audio(_Shape):
    """A sound, base64."""

    type: Literal["audio"]
    data: str
    mime_type: str


class Link(_Shape):
    """A resource to be read by whoever wants it."""

    type: Literal["resource_link"]
    name: str
    uri: str


class EmbeddedText(_Shape):
    """The words of a resource."""

    text: str
    uri: str
    mime_type: _Word = None


class EmbeddedBlob(_Shape):
    """The bytes of a resource, base64."""

    blob: str
    uri: str
    mime_type: _Word = None


class Embedded(_Shape):
    """A resource that came along."""

    type: Literal["resource"]
    resource: EmbeddedText | EmbeddedBlob


class Unknown(_Shape):
    """A block of a later protocol. Both SDKs refuse the whole prompt for it; here it is left out, and the user told."""

    type: str


Block: TypeAlias = Text | Image | Audio | Link | Embedded | Unknown
_BLOCKS = frozenset({"text", "image", "audio", "resource_link", "resource"})


def _kind(block: object) -> str:
    kind = cast("dict[object, object]", block).get("type") if isinstance(block, dict) else None
    return kind if isinstance(kind, str) and kind in _BLOCKS else "unknown"


class _Prompt(_Shape):
    session_id: str
    prompt: list[
        Annotated[
            Annotated[Text, Tag("text")]
            | Annotated[Image, Tag("image")]
            | Annotated[Audio, Tag("audio")]
            | Annotated[Link, Tag("resource_link")]
            | Annotated[Embedded, Tag("resource")]
            | Annotated[Unknown, Tag("unknown")],
            Discriminator(_kind),
        ]
    ]


class _FileText(_Shape):
    content: str


class _TerminalCreated(_Shape):
    terminal_id: str


class ExitStatus(_Shape):
    """How a command ended; neither is known of one that was lost."""

    exit_code: Annotated[Annotated[int, Field(ge=0)] | None, _Salvaged] = None
    signal: _Word = None


class TerminalOutput(_Shape):
    """What an editor's terminal holds."""

    output: str
    truncated: bool
    exit_status: Annotated[ExitStatus | None, _Salvaged] = None


class _Cancelled(_Shape):
    outcome: Literal["cancelled"]


class _Selected(_Shape):
    outcome: Literal["selected"]
    option_id: str


class _Permission(_Shape):
    outcome: Annotated[_Cancelled | _Selected, Field(discriminator="outcome")]


Model = TypeVar("Model", bound=BaseModel)


def prompt_blocks(params: JsonObject) -> Sequence[Block]:
    """The content blocks of `session/prompt`. Raises RpcError (-32602) that names places, never contents."""
    try:
        return _Prompt.model_validate(params).prompt
    except ValidationError as error:
        raise invalid_params(*_first(error)) from None


def _first(error: ValidationError) -> tuple[str, str]:
    """Where something does not fit, and what was expected there; never what was found."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    expected = first["msg"].partition(" or instance of ")[0]  # of a class of ours
    return ".".join(str(part) for part in first["loc"]), expected


def _answer(method: str, model: type[Model], value: Json) -> Model:
    """A client's answer as its schema model. Raises RpcError (-32603) when it has another shape."""
    try:
        return model.model_validate(value if value is not None else {})
    except ValidationError as error:
        where, expected = _first(error)
        found = f"the editor's answer to {method} does not fit the protocol: {where or 'all of it'}: {expected}"
        raise RpcError(jsonrpc.INTERNAL_ERROR, found) from None


def file_text(value: Json) -> str:
    """The answer of `fs/read_text_file`."""
    return _answer("fs/read_text_file", _FileText, value).content


def terminal_id(value: Json) -> str:
    """The answer of `terminal/create`."""
    return _answer("terminal/create", _TerminalCreated, value).terminal_id


def terminal_output(value: Json) -> TerminalOutput:
    """The answer of `terminal/output`."""
    return _answer("terminal/output", TerminalOutput, value)


def exit_status(value: Json) -> ExitStatus:
    """The answer of `terminal/wait_for_exit`."""
    return _answer("terminal/wait_for_exit", ExitStatus, value)


def decision(value: Json) -> Decision:
    """The answer of `session/request_permission`: only a known option grants (A20.3, security.md 16)."""
    outcome = _answer("session/request_permission", _Permission, value).outcome
    if isinstance(outcome, _Cancelled):
        return Decision.CANCELLED
    offered = (Decision.ALLOW_ONCE, Decision.ALLOW_ALWAYS, Decision.REJECT_ONCE, Decision.REJECT_ALWAYS)
    return next((known for known in offered if known.value == outcome.option_id), Decision.UNANSWERED)
