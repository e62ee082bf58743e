"""The session methods of ACP: check, find the session, delegate (A4-A15)."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from acp_agent.config.masking import holds_secret, is_everyday
from acp_agent.core.editor import SentPrompt
from acp_agent.core.errors import ConfigError, StoreUnavailable
from acp_agent.core.messages import StopReason
from acp_agent.core.redaction import Redact, verbatim
from acp_agent.core.types import Json, JsonObject
from acp_agent.log import Log
from acp_agent.protocol import options
from acp_agent.protocol.editor import Connection
from acp_agent.protocol.jsonrpc import invalid_params, session_not_found
from acp_agent.protocol.mcp_servers import read_servers
from acp_agent.protocol.peer import Incoming, NotificationHandler, RequestHandler
from acp_agent.protocol.session_list import listed
from acp_agent.session.manager import SessionManager
from acp_agent.session.session import Session, SessionWorkspace
from acp_agent.session.turn_slot import Answer


def read_workspace(params: JsonObject) -> tuple[SessionWorkspace, tuple[str, ...]]:
    """Return the workspace, and a line for the user on every server that cannot be used. Raises RpcError."""
    mcp_servers = _list(params, "mcpServers")
    named = read_servers(mcp_servers)
    workspace = SessionWorkspace(
        _folder(params, "cwd"),
        _additional_folders(params),
        named.servers,
        _wanted_tools(params),
        tuple(_secrets(mcp_servers)),
    )
    return workspace, named.problems


def _additional_folders(params: JsonObject) -> tuple[str, ...]:
    folders = _list(params, "additionalDirectories")
    return tuple(_checked_folder(f"additionalDirectories.{index}", folder) for index, folder in enumerate(folders))


def _list(params: JsonObject, key: str) -> list[Json]:
    value = params.get(key)
    if value is not None and not isinstance(value, list):
        raise invalid_params(key, "expected a list")
    return value or []


def _secrets(mcp_servers: Iterable[Json]) -> Iterator[str]:
    """The values of headers and variables that hold a secret by their name; of `Bearer TOKEN` also the token alone."""
    for server in mcp_servers:
        for key in ("headers", "env"):
            for each in _items(server, key):
                match each:
                    case {"name": str(name), "value": str(value)} if holds_secret(name) and not is_everyday(value):
                        yield from (value, *value.split(maxsplit=1)[1:])
                    case _:
                        pass


def _items(server: Json, key: str) -> list[Json]:
    items = server.get(key) if isinstance(server, dict) else None
    return items if isinstance(items, list) else []


def _folder(params: JsonObject, key: str) -> str:
    return _checked_folder(key, params.get(key))


def _checked_folder(key: str, path: Json) -> str:
    if not isinstance(path, str) or not os.path.isabs(path) or "\0" in path:
        raise invalid_params(key, "expected an absolute path")
    if not os.path.isdir(path):
        raise invalid_params(key, "expected a folder that exists")
    return os.path.normpath(path)


def _wanted_tools(params: JsonObject) -> tuple[str, ...] | None:
    """The tools `_meta.acp_agent.tools` names; None when it names none. Raises RpcError for another shape."""
    meta = params.get("_meta")
    if not isinstance(meta, dict) or "acp_agent" not in meta:
        return None
    from acp_agent.gates.selection import session_tools  # noqa: PLC0415 - few clients send it

    try:
        return session_tools(meta)
    except ConfigError as error:
        raise invalid_params(error.key, f"expected {error.expected}, not {error.value}") from None


_log = Log(__name__)


class SessionMethods:
    """What an editor may ask about sessions.

    editor    gives the editor as it last described itself
    warm_up   told once a session has been announced: the moment to load what the first prompt needs
    fork      whether `session/fork`, which is not stable, is served
    """

    def __init__(
        self,
        sessions: SessionManager,
        editor: Callable[[], Connection],
        warm_up: Callable[[Session], None],
        *,
        fork: bool = False,
    ) -> None:
        self._sessions = sessions
        self._editor = editor
        self._warm_up = warm_up
        self.requests: dict[str, RequestHandler] = {
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/prompt": self._prompt,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_config_option,
        }
        if fork:
            self.requests["session/fork"] = self._fork
        self.notifications: dict[str, NotificationHandler] = {"session/cancel": self._cancel}

    # -------------------------------------------------------------------------------------- opening

    async def _new(self, params: JsonObject, incoming: Incoming) -> JsonObject:
        workspace, problems = read_workspace(params)
        session = await self._sessions.new(workspace, self._editor())
        return {"sessionId": session.id, **self._opened(session, problems, incoming)}

    async def _load(self, params: JsonObject, incoming: Incoming) -> JsonObject:
        """All of it is told again before the answer (A6.3, A6.4)."""
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
        return {"modes": options.modes(session.options), "configOptions": self._options(session)}

    # ------------------------------------------------------------------------------- list and end

    async def _list(self, params: JsonObject, _incoming: Incoming) -> JsonObject:
        return await listed(self._sessions, params)

    async def _close(self, params: JsonObject, _incoming: Incoming) -> JsonObject:
        await self._sessions.close(_id(params))
        return {}

    async def _delete(self, params: JsonObject, _incoming: Incoming) -> JsonObject:
        """One nobody knows is gone already (ACP "Session Delete"), and so is one that cannot be."""
        session_id = _given_id(params)
        if _can_be(session_id):
            await self._sessions.delete(session_id)
        return {}

    # -------------------------------------------------------------------------------------- turns

    async def _prompt(self, params: JsonObject, incoming: Incoming) -> JsonObject:
        if not await self._sessions.loads.over(_id(params)):
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

    # ------------------------------------------------------------------------------------ conduct

    async def _set_mode(self, params: JsonObject, incoming: Incoming) -> JsonObject:
        await self._sessions.loads.over(_id(params))
        session = self._sessions.get(_id(params))
        before = replace(session.options)
        options.set_mode(session.options, params.get("modeId"))
        if session.options != before:
            await self._sessions.store_options(session)
            incoming.after_response(session.post_mode)
            incoming.after_response(session.post_options)
        return {}

    async def _set_config_option(self, params: JsonObject, incoming: Incoming) -> JsonObject:
        """Cheap and silent when nothing changes: JetBrains sets every option before each prompt."""
        await self._sessions.loads.over(_id(params))
        session = self._sessions.get(_id(params))
        before = replace(session.options)
        options.set_option(session.options, params.get("configId"), params.get("value"), session.choices)
        if session.options != before:
            if session.options.mode is not before.mode:
                incoming.after_response(session.post_mode)
            if session.options.model != before.model:
                incoming.after_response(lambda: session.editor.post(session.info()))
            await self._sessions.store_options(session)
        return {"configOptions": self._options(session)}

    def _options(self, session: Session) -> list[Json]:
        boolean = self._editor().client.boolean_options
        return options.config_options(session.options, session.choices, boolean=boolean)


async def _read_prompt(params: JsonObject, redact: Redact) -> SentPrompt:
    from acp_agent.protocol.content import read_prompt  # noqa: PLC0415 - loaded with the first turn

    return await read_prompt(params, redact)


def _prompt_response(answer: Answer, redact: Redact = verbatim) -> JsonObject:
    """Return ACP `PromptResponse`. A failure goes into `_meta`, for clients without a person in front."""
    response: JsonObject = {"stopReason": answer.reason.value}
    if answer.failure is not None:
        response["_meta"] = {"acp_agent": {"failure": redact(str(answer.failure))}}
    return response


def _id(params: JsonObject) -> str:
    session_id = _given_id(params)
    if not _can_be(session_id):
        raise session_not_found(session_id[:128])
    return session_id


def _given_id(params: JsonObject) -> str:
    session_id: Json = params.get("sessionId")
    if not isinstance(session_id, str):
        raise invalid_params("sessionId", "expected a string")
    return session_id


def _can_be(session_id: str) -> bool:
    return 0 < len(session_id) <= 128
