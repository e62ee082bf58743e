"""What the extension methods may be given (requirements A26)."""

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from acp_agent.core.types import JsonObject
from acp_agent.protocol.errors import invalid_params

_LONGEST = 32 * 1024  # characters of a path, a URL or a name; a command may be longer
SessionId = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,128}$")]
Line = Annotated[str, Field(min_length=1, max_length=_LONGEST, pattern=r"^[^\x00]*$")]


class Params(BaseModel):
    """Every member is named here, and has its type."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", strict=True, frozen=True)


class OfSession(Params):
    """A session."""

    session_id: SessionId


class GetParams(OfSession):
    """A page of a session: events behind the number `after`."""

    after: Annotated[int, Field(ge=0, le=2**53)] = 0
    limit: Annotated[int, Field(ge=1, le=1000)] = 200


class ImportParams(Params):
    """A session as `session/export` gave it."""

    session: dict[str, object]


class WorkingDirParams(OfSession):
    """Another folder."""

    cwd: Line


class AddServerParams(OfSession):
    """An entry as in `mcpServers` of session/new."""

    server: dict[str, object]


class RemoveServerParams(OfSession):
    """A server by its name."""

    name: Line


class CheckParams(OfSession):
    """Exactly one of the three; `write` with `path` only."""

    command: Annotated[str, Field(min_length=1, max_length=1024 * 1024)] | None = None
    path: Line | None = None
    url: Line | None = None
    write: bool = False


class TailParams(OfSession):
    """How many records."""

    count: Annotated[int, Field(ge=1, le=1000)] = 20


P = TypeVar("P", bound=Params)


def read(model: type[P], params: JsonObject) -> P:
    """The params as their model. `_meta` may be in any (ACP "Extensibility").

    Raises RpcError (-32602) that names the first wrong member and what was expected, never what came.
    """
    given = {key: value for key, value in params.items() if key != "_meta"}
    try:
        return model.model_validate(given, by_alias=True, by_name=False)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    if first["type"] == "extra_forbidden":
        known = ", ".join(field.alias or name for name, field in model.model_fields.items())
        raise invalid_params("params", f"expected no members but {known}")
    raise invalid_params(".".join(str(part) for part in first["loc"][:1]), first["msg"])
