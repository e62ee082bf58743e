"""The extension methods, one function each, and the table jsonrpcserver dispatches by (requirements A26, A25.7).

jsonrpcserver finds the function and binds the parameters; the function runs when that is done, in the task of the
request. So nothing it raises passes through the package, which would put an exception's words on the wire and cannot
do with a cancellation (acp.md 3.3).
"""

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import TypeAlias, cast

import anyio.to_thread
from jsonrpcserver import Error, Success
from jsonrpcserver.async_main import dispatch_to_serializable

from acp_agent.core.errors import AgentError
from acp_agent.core.sessions import StoredEvent
from acp_agent.core.types import Access, CommandSubject, Json, JsonObject, PathSubject, Subject, UrlSubject
from acp_agent.protocol import extension_types as given
from acp_agent.protocol import jsonrpc
from acp_agent.protocol.extension_types import (
    ExtensionHost,
    conduct_object,
    now,
    record_object,
    server_object,
    tally_object,
    tool_object,
)
from acp_agent.protocol.jsonrpc import RpcError, internal_error, invalid_params, method_not_found
from acp_agent.protocol.mcp_servers import read_servers
from acp_agent.store.session_file import NotASessionFile, event_object, read_session_file, session_object

Bound: TypeAlias = Callable[[ExtensionHost], Awaitable[JsonObject]]
"""A method with its parameters."""

_Method: TypeAlias = Callable[[given.P, ExtensionHost], Awaitable[JsonObject]]
_Dispatch: TypeAlias = Callable[..., Awaitable[dict[str, object]]]
_dispatch = cast("_Dispatch", dispatch_to_serializable)
_success, _error = cast("Callable[..., object]", Success), cast("Callable[..., object]", Error)
_table: dict[str, Callable[..., Awaitable[object]]] = {}
METHODS: Mapping[str, Callable[..., Awaitable[object]]] = _table
"""By name; made by the decorators below."""


async def bound(method: str, params: JsonObject) -> Bound:
    """Find a method and read its parameters. Raises RpcError: -32601 or -32602."""
    request = {"jsonrpc": "2.0", "id": 0, "method": method, "params": params}
    response = await _dispatch(request, _table, deserializer=_as_it_is, validator=_as_it_is)
    if "result" in response:
        return cast("Bound", response["result"])
    match cast("Json", response["error"]):
        case {"code": jsonrpc.METHOD_NOT_FOUND}:
            raise method_not_found(method)
        case {"code": jsonrpc.INVALID_PARAMS, "message": str(message), "data": dict(data)}:
            raise RpcError(jsonrpc.INVALID_PARAMS, message, data)
        case _:  # among others -32000, which means something else in ACP
            raise internal_error()


def _as_it_is(request: object) -> object:
    return request


def _serves(name: str, model: type[given.P]) -> Callable[[_Method[given.P]], _Method[given.P]]:
    """Enter a function in the table."""

    def enter(method: _Method[given.P]) -> _Method[given.P]:
        async def bind(**params: Json) -> object:
            try:
                return _success(partial(method, given.read(model, params)))
            except RpcError as error:
                return _error(error.code, error.message, error.data)

        _table[f"_acp_agent/{name}"] = bind
        return method

    return enter


# ------------------------------------------------------------------------------------------ sessions


@_serves("session/get", given.GetParams)
async def session_get(params: given.GetParams, host: ExtensionHost) -> JsonObject:
    """A session and a page of what was told in it. `next` is there when there is more: the next page's `after`."""
    saved = await host.saved(params.session_id)
    found: list[StoredEvent] = []
    async with aclosing(host.told(params.session_id, params.after)) as told:
        async for one in told:
            found.append(one)
            if len(found) > params.limit:
                break
    page = found[: params.limit]
    answer: JsonObject = {
        "session": record_object(saved.record),
        "conduct": conduct_object(saved.conduct),
        "tally": tally_object(saved.usage),
        "events": [event_object(one) for one in page],
    }
    return {**answer, "next": page[-1].seq} if len(found) > len(page) else answer


@_serves("session/export", given.OfSession)
async def session_export(params: given.OfSession, host: ExtensionHost) -> JsonObject:
    """A session whole, for `session/import` here or elsewhere, or for `acp-agent sessions`."""
    saved = await host.saved(params.session_id)
    return {"session": await session_object(saved, host.told(params.session_id, 0)), "exportedAt": now()}


@_serves("session/import", given.ImportParams)
async def session_import(params: given.ImportParams, host: ExtensionHost) -> JsonObject:
    """A new session with the contents of an exported one, of at most 10,000 events."""
    document = cast("JsonObject", params.session)
    try:
        saved, told = await anyio.to_thread.run_sync(read_session_file, document, abandon_on_cancel=True)
    except NotASessionFile as error:
        raise invalid_params("session", str(error)) from None
    return {"sessionId": await host.take_in(saved, told)}


@_serves("session/delete", given.OfSession)
async def session_delete(params: given.OfSession, host: ExtensionHost) -> JsonObject:
    """Delete a session, and say whether there was one."""
    return {"deleted": await host.delete(params.session_id)}


@_serves("working_dir/update", given.WorkingDirParams)
async def working_dir_update(params: given.WorkingDirParams, host: ExtensionHost) -> JsonObject:
    """Another folder to work in, between turns."""
    cwd = params.cwd
    if not os.path.isabs(cwd) or ".." in cwd.split("/"):
        raise invalid_params("cwd", "expected an absolute path without ..")
    if not await anyio.to_thread.run_sync(os.path.isdir, cwd, abandon_on_cancel=True):
        raise invalid_params("cwd", "expected a folder that exists")
    await host.move(params.session_id, cwd)
    return {"updated": True}


@_serves("status", given.OfSession)
async def status(params: given.OfSession, host: ExtensionHost) -> JsonObject:
    """How a session is: for people, and for machines."""
    found = await host.status(params.session_id)
    return {
        "lines": list(found.lines),
        "busy": found.busy,
        "conduct": conduct_object(found.conduct),
        "tally": tally_object(found.tally),
    }


# ----------------------------------------------------------------------------------- tools and rules


@_serves("tools", given.OfSession)
async def tools(params: given.OfSession, host: ExtensionHost) -> JsonObject:
    """What the model may call now."""
    return {"tools": [tool_object(spec) for spec in await host.tools(params.session_id)]}


@_serves("policy/check", given.CheckParams)
async def policy_check(params: given.CheckParams, host: ExtensionHost) -> JsonObject:
    """What would become of a command, a path or a URL, and why."""
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
    return {"verdict": judged.verdict, "rule": judged.rule or None, "reasons": list(judged.reasons)}


@_serves("audit/tail", given.TailParams)
async def audit_tail(params: given.TailParams, host: ExtensionHost) -> JsonObject:
    """The last records of a session."""
    return {"records": list(await host.audit(params.session_id, params.count))}


# --------------------------------------------------------------------------------------- MCP servers


@_serves("mcp/list", given.OfSession)
async def mcp_list(params: given.OfSession, host: ExtensionHost) -> JsonObject:
    """The MCP servers of a session and how they are."""
    return {"servers": [server_object(each) for each in await host.servers(params.session_id)]}


@_serves("mcp/add", given.AddServerParams)
async def mcp_add(params: given.AddServerParams, host: ExtensionHost) -> JsonObject:
    """Start a server for the rest of the session."""
    named = read_servers([cast("Json", params.server)])
    if named.problems:
        raise invalid_params("server", named.problems[0])
    await host.add_server(params.session_id, named.servers[0])
    return {"added": True}


@_serves("mcp/remove", given.RemoveServerParams)
async def mcp_remove(params: given.RemoveServerParams, host: ExtensionHost) -> JsonObject:
    """End a server."""
    return {"removed": await host.remove_server(params.session_id, params.name)}


class Extensions:
    """Answers extension requests over a host."""

    def __init__(self, host: ExtensionHost) -> None:
        self._host = host

    async def request(self, method: str, params: JsonObject) -> JsonObject:
        """Return the answer to a request. Raises RpcError; anything else that it raises is a bug."""
        call = await bound(method, params)
        try:
            return await call(self._host)
        except AgentError as error:
            raise RpcError(jsonrpc.INTERNAL_ERROR, str(error)) from error
