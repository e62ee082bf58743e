"""What the extension methods may be given (requirements A26)."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from acp_agent.core.clock import now_ms
from acp_agent.core.conduct import Conduct
from acp_agent.core.mcp import HttpServer, ListedServer, McpServer
from acp_agent.core.sessions import SessionRecord, SessionSnapshot, StoredEvent, UsageTotals
from acp_agent.core.types import JsonObject, Subject, ToolSpec
from acp_agent.output.markdown_images import defused
from acp_agent.protocol.jsonrpc import invalid_params
from acp_agent.protocol.updates import iso_time


@dataclass(frozen=True, slots=True)
class Judged:
    """What would become of something, as `acp-agent check` says it.

    verdict   allow, ask, deny or blocked
    rule      what decided, in its author's words; empty when nothing of the kind did
    """

    verdict: str
    rule: str = ""
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """How a session is: the lines of /status, and the same for machines. `busy`: a turn runs."""

    lines: tuple[str, ...]
    conduct: Conduct
    tally: UsageTotals
    busy: bool


class ExtensionHost(Protocol):
    """The sessions, those of the store and those that are open here.

    Every method raises RpcError: -32002 for a session nobody knows, -32600 for what cannot be done in its present
    state. StoreUnavailable and other AgentErrors become -32603 with their message.
    """

    async def saved(self, session_id: str) -> SessionSnapshot:
        """What is kept of a session; need not be open here."""
        ...

    def told(self, session_id: str, after: int) -> AsyncGenerator[StoredEvent]:
        """What was told in it with a `seq` above `after`, oldest first."""
        ...

    async def take_in(self, saved: SessionSnapshot, told: Sequence[StoredEvent]) -> str:
        """Make a new session of one from elsewhere, whole or not at all; its id.

        The id of `saved` and the numbers of `told` do not count. Nor should its conduct: whoever wrote the file is
        not the one to say what runs without asking.
        """
        ...

    async def delete(self, session_id: str) -> bool:
        """Close and delete a session; False when there was none. Raises no -32002."""
        ...

    async def tools(self, session_id: str) -> Sequence[ToolSpec]:
        """The tools the model is offered as things are now. The session must be open here."""
        ...

    async def move(self, session_id: str, cwd: str) -> None:
        """Have an open session work in another folder, which exists: its roots, prompt and sandbox follow.

        -32600 while a turn runs.
        """
        ...

    async def servers(self, session_id: str) -> Sequence[ListedServer]:
        """The MCP servers of an open session."""
        ...

    async def add_server(self, session_id: str, server: McpServer) -> None:
        """Start one more. -32600 when there is one of that name. What its headers and variables hold is secret."""
        ...

    async def remove_server(self, session_id: str, name: str) -> bool:
        """End one and take its tools away; False when there is none of that name."""
        ...

    async def judge(self, session_id: str, subject: Subject) -> Judged:
        """What would become of a command, a path or a URL in an open session. Runs, asks and changes nothing."""
        ...

    async def audit(self, session_id: str, count: int) -> Sequence[JsonObject]:
        """The last records of a session, oldest first, as they stand in the file: redacted."""
        ...

    async def status(self, session_id: str) -> SessionStatus:
        """How an open session is."""
        ...


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


def record_object(record: SessionRecord) -> JsonObject:
    """As ACP's SessionInfo, with what we know besides."""
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


def conduct_object(conduct: Conduct) -> JsonObject:
    """What the user chose; null where the configuration decides."""
    return {
        "mode": conduct.mode.value,
        "autoApprove": conduct.auto_approve.value,
        "readonly": conduct.readonly,
        "model": conduct.model or None,
        "thoughtLevel": conduct.thought_level or None,
        "temperature": conduct.temperature or None,
    }


def tally_object(tally: UsageTotals) -> JsonObject:
    """What it took so far, the tokens as ACP names them."""
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
    """As the tool catalogue has it, with the server it comes from."""
    tool: JsonObject = {
        "name": spec.name,
        "description": spec.description,
        "kind": spec.kind.value,
        "mutates": spec.mutates,
        "parameters": spec.parameters,
    }
    return {**tool, "server": spec.server} if spec.server else tool


def server_object(listed: ListedServer) -> JsonObject:
    """Neither address nor command: they may hold what is nobody's business."""
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
