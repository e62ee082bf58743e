"""The extension methods `_acp_agent/...`, one function each, dispatched by jsonrpcserver.

jsonrpcserver finds the function and binds the parameters. The function itself runs afterwards, in the task of the
request: an exception inside jsonrpcserver would put its text on the wire, and a cancellation would be lost.
"""

import os
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Final, TypeAlias, cast

import anyio.to_thread
from jsonrpcserver import Error, Success
from jsonrpcserver.async_main import dispatch_to_serializable

from acp_agent.config import Loaded
from acp_agent.core.errors import AgentError
from acp_agent.core.sessions import StoredEvent
from acp_agent.core.types import Access, CommandSubject, Json, JsonObject, PathSubject, Subject, UrlSubject
from acp_agent.protocol import extension_types as given
from acp_agent.protocol import jsonrpc
from acp_agent.protocol.extension_types import (
    conduct_object,
    now,
    record_object,
    server_object,
    tally_object,
    tool_object,
)
from acp_agent.protocol.jsonrpc import RpcError, internal_error, invalid_params, method_not_found
from acp_agent.protocol.mcp_servers import read_servers
from acp_agent.session.extension_host import ExtensionHost
from acp_agent.session.manager import SessionManager
from acp_agent.store.session_file import NotASessionFile, event_object, read_session_file, session_object

Bound: TypeAlias = Callable[[ExtensionHost], Awaitable[JsonObject]]
"""A method whose parameters are read."""

_Entry: TypeAlias = Callable[..., Awaitable[object]]
# jsonrpcserver has no types that a strict checker accepts.
_dispatch = cast("Callable[..., Awaitable[dict[str, object]]]", dispatch_to_serializable)
_success, _error = cast("Callable[..., object]", Success), cast("Callable[..., object]", Error)


# ------------------------------------------------------------------------------------------ sessions


async def session_get(params: given.GetParams, host: ExtensionHost) -> JsonObject:
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
        "session": record_object(saved.record),
        "conduct": conduct_object(saved.conduct),
        "tally": tally_object(saved.usage),
        "events": [event_object(one) for one in page],
    }
    return {**answer, "next": page[-1].seq} if len(found) > len(page) else answer


async def session_export(params: given.OfSession, host: ExtensionHost) -> JsonObject:
    """Return a whole session, for `session/import` or `acp-agent sessions`."""
    saved = await host.saved(params.session_id)
    return {"session": await session_object(saved, host.events(params.session_id, 0)), "exportedAt": now()}


async def session_import(params: given.ImportParams, host: ExtensionHost) -> JsonObject:
    """Make a new session of an exported one with at most 10,000 events."""
    document = cast("JsonObject", params.session)
    try:
        saved, told = await anyio.to_thread.run_sync(read_session_file, document, abandon_on_cancel=True)
    except NotASessionFile as error:
        raise invalid_params("session", str(error)) from None
    return {"sessionId": await host.take_in(saved, told)}


async def session_delete(params: given.OfSession, host: ExtensionHost) -> JsonObject:
    """Delete a session, and say whether there was one."""
    return {"deleted": await host.delete(params.session_id)}


async def working_dir_update(params: given.WorkingDirParams, host: ExtensionHost) -> JsonObject:
    """Move a session to another folder, between turns."""
    cwd = params.cwd
    if not os.path.isabs(cwd) or ".." in cwd.split("/"):
        raise invalid_params("cwd", "expected an absolute path without ..")
    if not await anyio.to_thread.run_sync(os.path.isdir, cwd, abandon_on_cancel=True):
        raise invalid_params("cwd", "expected a folder that exists")
    await host.move(params.session_id, cwd)
    return {"updated": True}


async def status(params: given.OfSession, host: ExtensionHost) -> JsonObject:
    """Return the status of a session, for people and for machines."""
    found = await host.status(params.session_id)
    return {
        "lines": list(found.lines),
        "busy": found.busy,
        "conduct": conduct_object(found.options),
        "tally": tally_object(found.usage),
    }


# ----------------------------------------------------------------------------------- tools and rules


async def tools(params: given.OfSession, host: ExtensionHost) -> JsonObject:
    """Return the tools that the model is offered now."""
    return {"tools": [tool_object(spec) for spec in await host.tools(params.session_id)]}


async def policy_check(params: given.CheckParams, host: ExtensionHost) -> JsonObject:
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
    return {"verdict": judged.verdict, "rule": judged.rule or None, "reasons": list(judged.reasons)}


async def audit_tail(params: given.TailParams, host: ExtensionHost) -> JsonObject:
    """Return the last audit records of a session."""
    return {"records": list(await host.audit(params.session_id, params.count))}


# --------------------------------------------------------------------------------------- MCP servers


async def mcp_list(params: given.OfSession, host: ExtensionHost) -> JsonObject:
    """Return the MCP servers of a session and their states."""
    return {"servers": [server_object(each) for each in await host.servers(params.session_id)]}


async def mcp_add(params: given.AddServerParams, host: ExtensionHost) -> JsonObject:
    """Start an MCP server for the rest of the session."""
    named = read_servers([cast("Json", params.server)])
    if named.problems:
        raise invalid_params("server", named.problems[0])
    await host.add_server(params.session_id, named.servers[0])
    return {"added": True}


async def mcp_remove(params: given.RemoveServerParams, host: ExtensionHost) -> JsonObject:
    """Stop an MCP server."""
    return {"removed": await host.remove_server(params.session_id, params.name)}


# ------------------------------------------------------------------------------------------ dispatch


def _entry(model: type[given.P], method: Callable[[given.P, ExtensionHost], Awaitable[JsonObject]]) -> _Entry:
    """Return the function that jsonrpcserver calls: it reads the parameters and returns the method with them."""

    async def bind(**params: Json) -> object:
        try:
            return _success(partial(method, given.read(model, params)))
        except RpcError as error:
            return _error(error.code, error.message, error.data)

    return bind


METHODS: Final[dict[str, _Entry]] = {
    "_acp_agent/session/get": _entry(given.GetParams, session_get),
    "_acp_agent/session/export": _entry(given.OfSession, session_export),
    "_acp_agent/session/import": _entry(given.ImportParams, session_import),
    "_acp_agent/session/delete": _entry(given.OfSession, session_delete),
    "_acp_agent/working_dir/update": _entry(given.WorkingDirParams, working_dir_update),
    "_acp_agent/status": _entry(given.OfSession, status),
    "_acp_agent/tools": _entry(given.OfSession, tools),
    "_acp_agent/policy/check": _entry(given.CheckParams, policy_check),
    "_acp_agent/audit/tail": _entry(given.TailParams, audit_tail),
    "_acp_agent/mcp/list": _entry(given.OfSession, mcp_list),
    "_acp_agent/mcp/add": _entry(given.AddServerParams, mcp_add),
    "_acp_agent/mcp/remove": _entry(given.RemoveServerParams, mcp_remove),
}


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


async def bound(method: str, params: JsonObject) -> Bound:
    """Find a method and read its parameters. Raises RpcError -32601 or -32602."""
    request = {"jsonrpc": "2.0", "id": 0, "method": method, "params": params}
    response = await _dispatch(request, METHODS, deserializer=_as_it_is, validator=_as_it_is)
    if "result" in response:
        return cast("Bound", response["result"])
    match cast("Json", response["error"]):
        case {"code": jsonrpc.METHOD_NOT_FOUND}:
            raise method_not_found(method)
        case {"code": jsonrpc.INVALID_PARAMS, "message": str(message), "data": dict(data)}:
            raise RpcError(jsonrpc.INVALID_PARAMS, message, data)
        case _:  # jsonrpcserver also answers -32000, which means "authentication required" in ACP
            raise internal_error()


def _as_it_is(request: object) -> object:
    return request


def extensions(sessions: SessionManager, configured: Callable[[str], Loaded], clock: Callable[[], int]) -> Extensions:
    """Return the extension methods over the sessions of this process.

    configured   reads the configuration for a session in a folder
    clock        milliseconds since 1970
    """
    return Extensions(ExtensionHost(sessions, configured, clock))
