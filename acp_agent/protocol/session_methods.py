"""The session methods of ACP: check the parameters, find the session and call it.

See https://agentclientprotocol.com/protocol/session-setup and the pages after it.
"""

import base64
import binascii
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from acp_agent.config.files import RULES_FOLDER
from acp_agent.config.section import holds_secret, is_everyday
from acp_agent.core.editor import SentPrompt
from acp_agent.core.errors import ConfigError, RequestError, StoreUnavailable
from acp_agent.core.messages import StopReason
from acp_agent.core.secrets import Redact, verbatim
from acp_agent.core.session_options import SessionOptions
from acp_agent.core.sessions import SessionRecord
from acp_agent.core.types import Json, JsonObject
from acp_agent.log import Log
from acp_agent.output.markdown_images import defused
from acp_agent.protocol import options
from acp_agent.protocol.client import read_servers
from acp_agent.protocol.editor import Connection
from acp_agent.protocol.jsonrpc import invalid_params, session_not_found
from acp_agent.protocol.peer import Incoming, NotificationHandler, RequestHandler
from acp_agent.protocol.updates import iso_time
from acp_agent.session.manager import SessionManager
from acp_agent.session.pool import unreadable
from acp_agent.session.session import Session, SessionWorkspace
from acp_agent.session.turn_slot import Answer
from acp_agent.store.known_answers import OpenedSession

_log = Log(__name__)
_LONGEST_ID = 128
"""The most characters of a session's id."""
PAGE = 50
"""The most stored sessions in an answer to `session/list`. The first answer also has open sessions without a prompt."""


class SessionMethods:
    """The handlers of the session methods.

    editor    returns the connection, with the editor's capabilities from its last `initialize`
    warm_up   called after the response that opens a session, to load what the first prompt needs
    keep      called with the params and the answer of each `session/new`, and with the session
    fork      whether `session/fork`, an unstable method, is served
    """

    def __init__(
        self,
        sessions: SessionManager,
        editor: Callable[[], Connection],
        warm_up: Callable[[Session], None],
        keep: Callable[[JsonObject, JsonObject, Session], None],
        *,
        fork: bool = False,
    ) -> None:
        self._sessions = sessions
        self._editor = editor
        self._warm_up = warm_up
        self._keep = keep
        self.requests: dict[str, RequestHandler] = {
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/prompt": self._prompt,
            "session/set_mode": self._set_mode,
            "session/set_model": self._set_model,
            "session/set_config_option": self._set_config_option,
        }
        if fork:
            self.requests["session/fork"] = self._fork
        self.notifications: dict[str, NotificationHandler] = {"session/cancel": self._cancel}

    # ------------------------------------------------------------------------------- opening

    async def _new(self, params: JsonObject, incoming: Incoming) -> JsonObject:
        return (await self._new_session(params, incoming))[1]

    async def _new_session(
        self, params: JsonObject, incoming: Incoming, opened: OpenedSession | None = None
    ) -> tuple[Session, JsonObject]:
        workspace, problems = read_workspace(params)
        session = await self._sessions.new(workspace, self._editor(), opened)
        answer: JsonObject = {"sessionId": session.id, **self._opened(session, problems, incoming)}
        incoming.after_response(partial(self._keep, params, answer, session))
        return session, answer

    async def make_opened(self, opened: OpenedSession) -> None:
        """Make a session whose `session/new` is already answered. Notify the editor of what has changed since."""
        incoming = Incoming("", "session/new")
        try:
            session, answer = await self._new_session(opened.params, incoming, opened)
        except RequestError as error:
            _log.error("session not opened, although it was answered", session=opened.id, reason=str(error))
            return
        if answer != opened.answer:
            session.post_mode()
            session.post_options()
            await self._sessions.store_options(session)
        for callback in incoming.after:
            callback()

    async def _load(self, params: JsonObject, incoming: Incoming) -> JsonObject:
        """Open a stored session, and show its conversation before the response."""
        workspace, problems = read_workspace(params)
        async with self._sessions.load(_id(params), workspace, self._editor()) as session:
            try:
                await session.replay()
            except StoreUnavailable as error:
                _log.error("session not replayed to its end", session=session.id, reason=str(error))
                session.notices.warn(f"what was said before cannot be shown in full: {error}")
            if session.transcript.record.title:
                await session.editor.show(session.info())
            return self._opened(session, problems, incoming)

    async def _resume(self, params: JsonObject, incoming: Incoming) -> JsonObject:
        workspace, problems = read_workspace(params)
        async with self._sessions.load(_id(params), workspace, self._editor()) as session:
            return self._opened(session, problems, incoming)

    async def _fork(self, params: JsonObject, incoming: Incoming) -> JsonObject:
        workspace, problems = read_workspace(params)
        session = await self._sessions.fork(_id(params), workspace, self._editor())
        return {"sessionId": session.id, **self._opened(session, problems, incoming)}

    def _opened(self, session: Session, problems: tuple[str, ...], incoming: Incoming) -> JsonObject:
        for problem in problems:
            session.notices.warn(problem)
        incoming.after_response(lambda: self._warm_up(session))
        rules = _rules(session.workspace.cwd)
        meta: JsonObject = {"_meta": {"projectRules": rules}} if rules else {}
        return {"modes": options.modes(session.options), "configOptions": self._options(session), **meta}

    # ------------------------------------------------------------------------------- listing and ending

    async def _list(self, params: JsonObject, _incoming: Incoming) -> JsonObject:
        return await listed(self._sessions, params)

    async def _close(self, params: JsonObject, _incoming: Incoming) -> JsonObject:
        await self._sessions.close(_id(params))
        return {}

    async def _delete(self, params: JsonObject, _incoming: Incoming) -> JsonObject:
        """Delete a session. An id of no session is not an error: the session is gone in any case.

        Raises RpcError if the id is not a text.
        """
        session_id = _given_id(params)
        if 0 < len(session_id) <= _LONGEST_ID:
            await self._sessions.delete(session_id)
        return {}

    # ------------------------------------------------------------------------------- turns

    async def _prompt(self, params: JsonObject, incoming: Incoming) -> JsonObject:
        if not await self._sessions.loads.wait(_id(params)):
            return _prompt_response(Answer(StopReason.CANCELLED))
        session = self._sessions.get(_id(params))
        incoming.on_cancel(session.turns.cancel)
        answer = await session.prompt(partial(_read_prompt, params))
        incoming.after_response(partial(session.answered, answer))
        return _prompt_response(answer, session.redact)

    async def _cancel(self, params: JsonObject) -> None:
        session_id = params.get("sessionId")
        if isinstance(session_id, str):
            self._sessions.loads.cancel(session_id)
            if session := self._sessions.find(session_id):
                session.turns.cancel()

    # ------------------------------------------------------------------------------- options

    async def _set_mode(self, params: JsonObject, incoming: Incoming) -> JsonObject:
        await self._sessions.loads.wait(_id(params))
        session = self._sessions.get(_id(params))
        before = replace(session.options)
        options.set_mode(session.options, params.get("modeId"))
        if session.options != before:
            await self._keep_choice(session, before, incoming)
            incoming.after_response(session.post_mode)
            incoming.after_response(session.post_options)
        return {}

    async def _set_model(self, params: JsonObject, incoming: Incoming) -> JsonObject:
        """Set the model. Clients that are older than config options use this method."""
        await self._sessions.loads.wait(_id(params))
        session = self._sessions.get(_id(params))
        before = replace(session.options)
        options.set_model(session.options, params.get("modelId"), session.choices)
        if session.options != before:
            incoming.after_response(session.post_options)
            incoming.after_response(lambda: session.editor.post(session.info()))
            await self._keep_choice(session, before, incoming)
        return {}

    async def _set_config_option(self, params: JsonObject, incoming: Incoming) -> JsonObject:
        """Set an option. Sends no updates if nothing changes: JetBrains sets every option before each prompt."""
        await self._sessions.loads.wait(_id(params))
        session = self._sessions.get(_id(params))
        before = replace(session.options)
        options.set_option(session.options, params.get("configId"), params.get("value"), session.choices)
        if session.options != before:
            if session.options.freedom is not before.freedom:
                incoming.after_response(session.post_mode)
            if session.options.model != before.model:
                incoming.after_response(lambda: session.editor.post(session.info()))
            await self._keep_choice(session, before, incoming)
        return {"configOptions": self._options(session)}

    async def _keep_choice(self, session: Session, before: SessionOptions, incoming: Incoming) -> None:
        """Put a stricter choice in force, store the options, and tell the user if a looser choice counts only later.

        The options are set already, so `$/cancel_request` is ignored from now on.
        """
        incoming.on_cancel(lambda: None)
        session.tighten()
        await self._sessions.store_options(session)
        if session.options.freedom is not before.freedom:
            await session.apply_choice()

    def _options(self, session: Session) -> list[Json]:
        boolean = self._editor().client.boolean_options
        return options.config_options(session.options, session.choices, boolean=boolean)


def _rules(cwd: str) -> list[Json]:
    """Return the rules of a session's folder."""
    if not os.path.lexists(os.path.join(cwd, RULES_FOLDER)):
        return []
    from acp_agent.workspace.project_notes import rules_of  # noqa: PLC0415 - few folders have rules

    return [{"name": name} for name in rules_of(cwd)]


async def _read_prompt(params: JsonObject, redact: Redact) -> SentPrompt:
    from acp_agent.protocol.content import read_prompt  # noqa: PLC0415 - loaded with the first turn

    return await read_prompt(params, redact)


def _prompt_response(answer: Answer, redact: Redact = verbatim) -> JsonObject:
    """Return ACP `PromptResponse`. A failure goes into `_meta`, for clients without a user."""
    response: JsonObject = {"stopReason": answer.reason.value}
    if answer.failure is not None:
        response["_meta"] = {"acp_agent": {"failure": redact(str(answer.failure))}}
    return response


def _id(params: JsonObject) -> str:
    session_id = _given_id(params)
    if not 0 < len(session_id) <= _LONGEST_ID:
        raise session_not_found(session_id[:_LONGEST_ID])
    return session_id


def _given_id(params: JsonObject) -> str:
    session_id: Json = params.get("sessionId")
    if not isinstance(session_id, str):
        raise invalid_params("sessionId", "expected a string")
    return session_id


# ------------------------------------------------------------------------------- session/list


async def listed(sessions: SessionManager, params: JsonObject) -> JsonObject:
    """Return a page of sessions, newest first. Raises RpcError for a relative `cwd` and an invalid cursor.

    Sessions without a prompt are listed only while they are open in this process, because editors open many that they
    never use. They come last on the first page, because the user looks for the session that they used last. If the
    store cannot be read, the open sessions are listed and `_meta` says so. If none of the open sessions has a prompt,
    an error is raised instead, because the list would look like an empty history.
    """
    cwd, after = _cwd(params.get("cwd")), _position(params.get("cursor"))
    found: Sequence[SessionRecord] = ()
    trouble: StoreUnavailable | None = None
    if sessions.store is not None:
        try:
            found = await sessions.store.page(cwd=cwd, after=after, limit=PAGE, prompted=True)
        except StoreUnavailable as error:
            trouble = error
    begun: list[SessionRecord] = []
    if after is None:
        ids = {record.id for record in found}
        # If the store was read, open sessions with a prompt are on this page or a later one.
        stored = sessions.store is not None and trouble is None
        begun = [each for each in _open_in(cwd, sessions) if each.id not in ids and not (stored and each.prompts)]
    if trouble is not None and not any(each.prompts for each in begun):
        raise unreadable(trouble)
    newest_first = sorted(
        (*reversed(begun), *found), key=lambda each: (each.prompts > 0, each.updated_at), reverse=True
    )
    answer: JsonObject = {"sessions": [_info(record) for record in newest_first]}
    if trouble is not None:
        _log.warning("stored sessions cannot be listed", reason=str(trouble))
        answer["_meta"] = {"acp_agent": {"incomplete": str(trouble)}}
    if len(found) == PAGE:
        position = json.dumps((found[-1].updated_at, found[-1].id))
        answer["nextCursor"] = base64.urlsafe_b64encode(position.encode()).decode()
    return answer


def _open_in(cwd: str | None, sessions: SessionManager) -> Iterator[SessionRecord]:
    """Yield the open sessions of a folder, or of all folders for None."""
    for session in sessions.all():
        if cwd is None or os.path.normpath(session.transcript.record.cwd) == cwd:
            yield session.transcript.record


def _info(record: SessionRecord) -> JsonObject:
    """Return ACP `SessionInfo`."""
    info: JsonObject = {"sessionId": record.id, "cwd": record.cwd, "updatedAt": iso_time(record.updated_at)}
    if record.additional:
        info["additionalDirectories"] = list(record.additional)
    if record.title:
        info["title"] = defused(record.title)
    meta: JsonObject = {"createdAt": iso_time(record.created_at), "prompts": record.prompts}
    if record.model:
        meta["model"] = record.model
    return {**info, "_meta": {"acp_agent": meta}}


def _cwd(value: Json) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not os.path.isabs(value) or "\0" in value:
        raise invalid_params("cwd", "expected an absolute path")
    return os.path.normpath(value)


def _position(value: Json) -> tuple[int, str] | None:
    """Return the `updated_at` and id of the last session of a page."""
    if value is None:
        return None
    try:
        match json.loads(base64.urlsafe_b64decode(value if isinstance(value, str) else "!")):
            case [int(at), str(session_id)] if abs(at) < 2**62:
                return at, session_id
            case _:
                pass
    except (ValueError, binascii.Error, RecursionError):
        pass
    raise invalid_params("cursor", "expected the nextCursor of a former answer")


# ------------------------------------------------------------------------------- parameters that open a session


def read_workspace(params: JsonObject) -> tuple[SessionWorkspace, tuple[str, ...]]:
    """Return the workspace, and a line for the user about every MCP server that was left out. Raises RpcError."""
    mcp_servers = _list(params, "mcpServers")
    named = read_servers(mcp_servers)
    folders = _list(params, "additionalDirectories")
    workspace = SessionWorkspace(
        _checked_folder("cwd", params.get("cwd")),
        tuple(_checked_folder(f"additionalDirectories.{at}", folder) for at, folder in enumerate(folders)),
        named.servers,
        _wanted_tools(params),
        tuple(_secrets(mcp_servers)),
    )
    return workspace, named.problems


def _list(params: JsonObject, key: str) -> list[Json]:
    value = params.get(key)
    if value is not None and not isinstance(value, list):
        raise invalid_params(key, "expected a list")
    return value or []


def _secrets(mcp_servers: Iterable[Json]) -> Iterator[str]:
    """Yield the values of headers and variables whose names mean a secret. For `Bearer TOKEN`, also yield the token."""
    for server in mcp_servers:
        for key in ("headers", "env"):
            items = server.get(key) if isinstance(server, dict) else None
            for each in items if isinstance(items, list) else ():
                match each:
                    case {"name": str(name), "value": str(value)} if holds_secret(name) and not is_everyday(value):
                        yield from (value, *value.split(maxsplit=1)[1:])
                    case _:
                        pass


def _checked_folder(key: str, path: Json) -> str:
    if not isinstance(path, str) or not os.path.isabs(path) or "\0" in path:
        raise invalid_params(key, "expected an absolute path")
    if not os.path.isdir(path):
        raise invalid_params(key, "expected a folder that exists")
    return os.path.normpath(path)


def _wanted_tools(params: JsonObject) -> tuple[str, ...] | None:
    """Return the tools in `_meta.acp_agent.tools`; None without that member. Raises RpcError if it is malformed."""
    meta = params.get("_meta")
    if not isinstance(meta, dict) or "acp_agent" not in meta:
        return None
    from acp_agent.gates.selection import session_tools  # noqa: PLC0415 - few clients send it

    try:
        return session_tools(meta)
    except ConfigError as error:
        raise invalid_params(error.key, f"expected {error.expected}, not {error.value}") from None
