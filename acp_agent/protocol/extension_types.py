"""The extension methods' parameters and their answers."""

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from acp_agent.core.clock import now_ms
from acp_agent.core.conduct import SessionOptions
from acp_agent.core.mcp import HttpServer, ListedServer
from acp_agent.core.sessions import SessionRecord, UsageTotals
from acp_agent.core.types import JsonObject, ToolSpec
from acp_agent.output.markdown_images import defused
from acp_agent.protocol.jsonrpc import invalid_params
from acp_agent.protocol.updates import iso_time

_LONGEST = 32 * 1024
"""Characters of a path, a URL or a name."""
SessionId = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,128}$")]
Line = Annotated[str, Field(min_length=1, max_length=_LONGEST, pattern=r"^[^\x00]*$")]


class ExtensionParams(BaseModel):
    """Parameters of an extension method. Unknown members are errors."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", strict=True, frozen=True)


class OfSession(ExtensionParams):
    """The parameters of a method about one session."""

    session_id: SessionId


class GetParams(OfSession):
    """A page of a session: `limit` events with a `seq` above `after`."""

    after: Annotated[int, Field(ge=0, le=2**53)] = 0
    limit: Annotated[int, Field(ge=1, le=1000)] = 200


class ImportParams(ExtensionParams):
    """A session as `session/export` returns it."""

    session: dict[str, object]


class WorkingDirParams(OfSession):
    """The folder to move to."""

    cwd: Line


class AddServerParams(OfSession):
    """A server as in `mcpServers` of `session/new`."""

    server: dict[str, object]


class RemoveServerParams(OfSession):
    """The name of the server to remove."""

    name: Line


class CheckParams(OfSession):
    """Exactly one of `command`, `path` and `url`; `write` goes with `path` only."""

    command: Annotated[str, Field(min_length=1, max_length=1024 * 1024)] | None = None
    path: Line | None = None
    url: Line | None = None
    write: bool = False


class TailParams(OfSession):
    """The number of records to return."""

    count: Annotated[int, Field(ge=1, le=1000)] = 20


P = TypeVar("P", bound=ExtensionParams)


def read(model: type[P], params: JsonObject) -> P:
    """Return the params as their model. ACP allows `_meta` in all of them.

    Raises RpcError (-32602), which names the first wrong member and what was expected, without the value.
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


def record_object(record: SessionRecord) -> JsonObject:
    """Return a session as in ACP's `SessionInfo`, with further members."""
    return {
        "sessionId": record.id,
        "cwd": record.cwd,
        "additionalDirectories": list(record.additional),
        "title": defused(record.title) or None,
        "createdAt": iso_time(record.created_at),
        "updatedAt": iso_time(record.updated_at),
        "prompts": record.prompts,
        "model": record.model or None,
    }


def conduct_object(conduct: SessionOptions) -> JsonObject:
    """Return the options that the user chose; null where the configuration decides."""
    return {
        "mode": conduct.mode.value,
        "autoApprove": conduct.auto_approve.value,
        "readonly": conduct.readonly,
        "model": conduct.model or None,
        "thoughtLevel": conduct.thought_level or None,
        "temperature": conduct.temperature or None,
    }


def tally_object(tally: UsageTotals) -> JsonObject:
    """Return the tokens, cost and calls of a session so far, with ACP's names of tokens."""
    usage = tally.usage
    return {
        "used": tally.used,
        "size": tally.size,
        "usage": {
            "inputTokens": usage.input,
            "outputTokens": usage.output,
            "cachedReadTokens": usage.cache_read,
            "cachedWriteTokens": usage.cache_write,
        },
        "cost": None if tally.cost is None else {"amount": tally.cost, "currency": "USD", "complete": tally.complete},
        "calls": tally.calls,
        "batches": tally.batches,
    }


def tool_object(spec: ToolSpec) -> JsonObject:
    """Return a tool's definition, with the MCP server that it comes from."""
    tool: JsonObject = {
        "name": spec.name,
        "description": spec.description,
        "kind": spec.kind.value,
        "mutates": spec.mutates,
        "parameters": spec.parameters,
    }
    return {**tool, "server": spec.server} if spec.server else tool


def server_object(listed: ListedServer) -> JsonObject:
    """Return the state of an MCP server, without its address and command, which may hold secrets."""
    server = listed.server
    return {
        "name": server.name,
        "type": "http" if isinstance(server.reach, HttpServer) else "stdio",
        "origin": server.origin.value,
        "state": listed.state.value,
        "tools": list(listed.tools),
        "problem": listed.problem or None,
    }


def now() -> str:
    """The time, as editors are sent it."""
    return iso_time(now_ms())
