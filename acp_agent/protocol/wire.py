"""What comes in, read with the SDK's schema models. The only file that imports `acp`.

The import takes a third of a second, so the server loads this module in the background once `session/new`
is answered; nothing needed before the first prompt may import it.
"""

from collections.abc import Sequence
from typing import TypeAlias, TypeVar

from acp import schema
from pydantic import BaseModel, ValidationError

from acp_agent.core.ports import Decision
from acp_agent.core.types import Json, JsonObject
from acp_agent.protocol import frames
from acp_agent.protocol.errors import RpcError, invalid_params

Text = schema.TextContentBlock
Image = schema.ImageContentBlock
Audio = schema.AudioContentBlock
Link = schema.ResourceContentBlock
Embedded = schema.EmbeddedResourceContentBlock
EmbeddedText = schema.TextResourceContents
ExitStatus = schema.WaitForTerminalExitResponse
Block: TypeAlias = Text | Image | Audio | Link | Embedded

Model = TypeVar("Model", bound=BaseModel)


def prompt_blocks(params: JsonObject) -> Sequence[Block]:
    """The content blocks of `session/prompt`. Raises RpcError (-32602) that names places, never contents."""
    try:
        return schema.PromptRequest.model_validate(params).prompt
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        raise invalid_params(".".join(str(part) for part in first["loc"]), first["msg"]) from None


def answer(model: type[Model], value: Json) -> Model:
    """A client's answer as its schema model. Raises RpcError (-32603) when it has another shape."""
    try:
        return model.model_validate(value if value is not None else {})
    except ValidationError:
        raise RpcError(frames.INTERNAL_ERROR, f"the client's answer is not a {model.__name__}") from None


def file_text(value: Json) -> str:
    """The answer of `fs/read_text_file`."""
    return answer(schema.ReadTextFileResponse, value).content


def terminal_id(value: Json) -> str:
    """The answer of `terminal/create`."""
    return answer(schema.CreateTerminalResponse, value).terminal_id


def terminal_output(value: Json) -> schema.TerminalOutputResponse:
    """The answer of `terminal/output`."""
    return answer(schema.TerminalOutputResponse, value)


def exit_status(value: Json) -> ExitStatus:
    """The answer of `terminal/wait_for_exit`."""
    return answer(ExitStatus, value)


def decision(value: Json) -> Decision:
    """The answer of `session/request_permission`: only a known option grants (A20.3, security.md 16)."""
    outcome = answer(schema.RequestPermissionResponse, value).outcome
    if isinstance(outcome, schema.DeniedOutcome):
        return Decision.CANCELLED
    offered = (Decision.ALLOW_ONCE, Decision.ALLOW_ALWAYS, Decision.REJECT_ONCE, Decision.REJECT_ALWAYS)
    return next((known for known in offered if known.value == outcome.option_id), Decision.UNANSWERED)
