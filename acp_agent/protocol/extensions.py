"""The extension methods `_acp_agent/...`, one function each, dispatched by jsonrpcserver.

jsonrpcserver finds the function and binds the parameters. The function itself runs afterwards, in the task of the
request: an exception inside jsonrpcserver would put its text on the wire, and a cancellation would be lost.
"""

import os
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Annotated, Final, TypeAlias, TypeVar, cast

import anyio.to_thread
from jsonrpcserver import Error, Success
from jsonrpcserver.async_main import dispatch_to_serializable
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from acp_agent.core.errors import AgentError
from acp_agent.core.mcp import HttpServer, ListedServer
from acp_agent.core.session_options import SessionOptions
from acp_agent.core.sessions import SessionRecord, StoredEvent, UsageTotals
from acp_agent.core.types import Access, CommandSubject, Json, JsonObject, PathSubject, Subject, ToolSpec, UrlSubject
from acp_agent.core.untrusted import now_ms
from acp_agent.output.markdown_images import defused
from acp_agent.protocol import jsonrpc
from acp_agent.protocol.client import read_servers
from acp_agent.protocol.jsonrpc import RpcError, internal_error, invalid_params, method_not_found
from acp_agent.protocol.updates import iso_time
from acp_agent.session.extension_host import ExtensionHost
from acp_agent.store.session_json import NotASessionFile, event_object, read_session_file, session_object

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


def _read(model: type[P], params: JsonObject) -> P:
    """Read params into a model. `_meta` is ignored, because ACP allows it in all params.

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


def _record_object(record: SessionRecord) -> JsonObject:
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


def _options_object(options: SessionOptions) -> JsonObject:
    """Return the options that the user chose; null where the configuration decides."""
    return {
        "mode": options.mode.value,
        "autoApprove": options.auto_approve.value,
        "readonly": options.readonly,
        "model": options.model or None,
        "thoughtLevel": options.thought_level or None,
        "temperature": options.temperature or None,
    }


def _usage_object(totals: UsageTotals) -> JsonObject:
    """Return the tokens, cost and calls of a session so far, with ACP's names of tokens."""
    usage, cost = totals.usage, totals.cost
    return {
        "used": totals.used,
        "size": totals.size,
        "usage": {
            "inputTokens": usage.input,
            "outputTokens": usage.output,
            "cachedReadTokens": usage.cache_read,
            "cachedWriteTokens": usage.cache_write,
        },
        "cost": None if cost is None else {"amount": cost, "currency": "USD", "complete": totals.complete},
        "calls": totals.calls,
        "batches": totals.batches,
    }


def _tool_object(spec: ToolSpec) -> JsonObject:
    """Return a tool's definition, with the MCP server that it comes from."""
    origin: JsonObject = {"server": spec.server} if spec.server else {}
    return {
        "name": spec.name,
        "description": spec.description,
        "kind": spec.kind.value,
        "mutates": spec.mutates,
        "parameters": spec.parameters,
        **origin,
    }


def _server_object(listed: ListedServer) -> JsonObject:
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


_Entry: TypeAlias = Callable[..., Awaitable[object]]
# jsonrpcserver has no types that a strict checker accepts.
_dispatch = cast("Callable[..., Awaitable[dict[str, object]]]", dispatch_to_serializable)
_success, _error = cast("Callable[..., object]", Success), cast("Callable[..., object]", Error)


# ------------------------------------------------------------------------------------------ sessions


async def session_get(params: GetParams, host: ExtensionHost) -> JsonObject:
    """Return a session and a page of its events. `next`, if present, is the `after` of the next page."""
    saved = await host.saved(params.session_id)
    found: list[StoredEvent] = []
    async with aclosing(host.events(params.session_id, params.after)) as told:
        async for one in told:
            found.append(one)
            if len(found) > params.limit:
                break
    page = found[: params.limit]
    answer: JsonObject = {
        "session": _record_object(saved.record),
        "conduct": _options_object(saved.options),
        "tally": _usage_object(saved.usage),
        "events": [event_object(one) for one in page],
    }
    return {**answer, "next": page[-1].seq} if len(found) > len(page) else answer


async def session_export(params: OfSession, host: ExtensionHost) -> JsonObject:
    """Return a whole session, for `session/import` or `acp-agent sessions`."""
    saved = await host.saved(params.session_id)
    return {"session": await session_object(saved, host.events(params.session_id, 0)), "exportedAt": iso_time(now_ms())}


async def session_import(params: ImportParams, host: ExtensionHost) -> JsonObject:
    """Make a new session of an exported one with at most 10,000 events."""
    document = cast("JsonObject", params.session)
    try:
        snapshot, events = await anyio.to_thread.run_sync(read_session_file, document, abandon_on_cancel=True)
    except NotASessionFile as error:
        raise invalid_params("session", str(error)) from None
    return {"sessionId": await host.import_session(snapshot, events)}


async def session_delete(params: OfSession, host: ExtensionHost) -> JsonObject:
    """Delete a session, and say whether there was one."""
    return {"deleted": await host.delete(params.session_id)}


async def working_dir_update(params: WorkingDirParams, host: ExtensionHost) -> JsonObject:
    """Move a session to another folder, between turns."""
    cwd = _normal_folder(params.cwd)
    if not await anyio.to_thread.run_sync(os.path.isdir, cwd, abandon_on_cancel=True):
        raise invalid_params("cwd", "expected a folder that exists")
    await host.move(params.session_id, cwd)
    return {"updated": True}


def _normal_folder(path: str) -> str:
    """Return a path as `session/new` stores it. Raises RpcError for a relative path and for one with `..`."""
    if not os.path.isabs(path) or ".." in path.split("/"):
        raise invalid_params("cwd", "expected an absolute path without ..")
    return os.path.normpath(path)


async def status(params: OfSession, host: ExtensionHost) -> JsonObject:
    """Return the status of a session, for people and for machines."""
    found = await host.status(params.session_id)
    return {
        "lines": list(found.lines),
        "busy": found.busy,
        "conduct": _options_object(found.options),
        "tally": _usage_object(found.usage),
    }


# ----------------------------------------------------------------------------------- tools and rules


async def tools(params: OfSession, host: ExtensionHost) -> JsonObject:
    """Return the tools that the model is offered now."""
    return {"tools": [_tool_object(spec) for spec in await host.tools(params.session_id)]}


async def policy_check(params: CheckParams, host: ExtensionHost) -> JsonObject:
    """Return what the gates would say of a command, a path or a URL, and why."""
    access = Access.WRITE if params.write else Access.READ
    subjects: list[Subject] = []
    if params.command is not None:
        subjects.append(CommandSubject(params.command))
    if params.path is not None:
        subjects.append(PathSubject(params.path, access))
    if params.url is not None:
        subjects.append(UrlSubject(params.url))
    if len(subjects) != 1:
        raise invalid_params("params", "expected one of command, path and url")
    if params.write and params.path is None:
        raise invalid_params("write", "expected with path only")
    judged = await host.judge(params.session_id, subjects[0])
    return {"verdict": judged.word, "rule": judged.rule or None, "reasons": list(judged.reasons)}


async def audit_tail(params: TailParams, host: ExtensionHost) -> JsonObject:
    """Return the last audit records of a session."""
    return {"records": list(await host.audit(params.session_id, params.count))}


# --------------------------------------------------------------------------------------- MCP servers


async def mcp_list(params: OfSession, host: ExtensionHost) -> JsonObject:
    """Return the MCP servers of a session and their states."""
    return {"servers": [_server_object(each) for each in await host.servers(params.session_id)]}


async def mcp_add(params: AddServerParams, host: ExtensionHost) -> JsonObject:
    """Start an MCP server for the rest of the session."""
    named = read_servers([cast("Json", params.server)])
    if named.problems:
        raise invalid_params("server", named.problems[0])
    await host.add_server(params.session_id, named.servers[0])
    return {"added": True}


async def mcp_remove(params: RemoveServerParams, host: ExtensionHost) -> JsonObject:
    """Stop an MCP server."""
    return {"removed": await host.remove_server(params.session_id, params.name)}


# ------------------------------------------------------------------------------------------ dispatch


def _entry(model: type[P], method: Callable[[P, ExtensionHost], Awaitable[JsonObject]]) -> _Entry:
    """Return the function that jsonrpcserver calls: it reads the parameters and returns the method bound to them."""

    async def bind(**params: Json) -> object:
        try:
            return _success(partial(method, _read(model, params)))
        except RpcError as error:
            return _error(error.code, error.message, error.data)

    return bind


METHODS: Final[dict[str, _Entry]] = {
    "_acp_agent/session/get": _entry(GetParams, session_get),
    "_acp_agent/session/export": _entry(OfSession, session_export),
    "_acp_agent/session/import": _entry(ImportParams, session_import),
    "_acp_agent/session/delete": _entry(OfSession, session_delete),
    "_acp_agent/working_dir/update": _entry(WorkingDirParams, working_dir_update),
    "_acp_agent/status": _entry(OfSession, status),
    "_acp_agent/tools": _entry(OfSession, tools),
    "_acp_agent/policy/check": _entry(CheckParams, policy_check),
    "_acp_agent/audit/tail": _entry(TailParams, audit_tail),
    "_acp_agent/mcp/list": _entry(OfSession, mcp_list),
    "_acp_agent/mcp/add": _entry(AddServerParams, mcp_add),
    "_acp_agent/mcp/remove": _entry(RemoveServerParams, mcp_remove),
}


class Extensions:
    """The extension methods, which act on the sessions of a host."""

    def __init__(self, host: ExtensionHost) -> None:
        self._host = host

    async def request(self, method: str, params: JsonObject) -> JsonObject:
        """Return the answer to a request. Raises RequestError; anything else that it raises is a bug."""
        request = {"jsonrpc": "2.0", "id": 0, "method": method, "params": params}
        response = await _dispatch(request, METHODS, deserializer=_unchanged, validator=_unchanged)
        if "result" not in response:
            raise _refused(method, cast("Json", response["error"]))
        call = cast("Callable[[ExtensionHost], Awaitable[JsonObject]]", response["result"])
        try:
            return await call(self._host)
        except AgentError as error:
            raise RpcError(jsonrpc.INTERNAL_ERROR, str(error)) from error


def _unchanged(request: object) -> object:
    return request


def _refused(method: str, error: Json) -> RpcError:
    match error:
        case {"code": jsonrpc.METHOD_NOT_FOUND}:
            return method_not_found(method)
        case {"code": jsonrpc.INVALID_PARAMS, "message": str(message), "data": dict(data)}:
            return RpcError(jsonrpc.INVALID_PARAMS, message, data)
        case _:  # jsonrpcserver also answers -32000, which means "authentication required" in ACP
            return internal_error()
