"""`session/list`: what there is, newest first, page by page (ACP "Session List"; requirements A9)."""

import base64
import binascii
import json
import os
from collections.abc import Sequence

from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.sessions import SessionRecord
from acp_agent.core.types import Json, JsonObject
from acp_agent.log import Log
from acp_agent.output.markdown_images import defused
from acp_agent.protocol.jsonrpc import invalid_params
from acp_agent.protocol.updates import iso_time
from acp_agent.session.locks import unreadable
from acp_agent.session.manager import SessionManager

_log = Log(__name__)
PAGE = 50

Position = tuple[int, str]
"""Behind which session a page begins: its `updated_at` and id."""


async def listed(sessions: SessionManager, params: JsonObject) -> JsonObject:
    """The answer to `session/list`. Raises RpcError for a cwd that is no absolute path and a cursor of nobody's.

    Those that were never prompted are listed while this process has them open only: editors open many for nothing.
    While the store cannot be read, what is open here is listed, and `_meta` says what is wrong. Where nothing was said
    in any of it, that is an error (RpcError -32603): such a list would say that there is no history.
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
        readable = sessions.store is not None and trouble is None
        open_here = (session.transcript.record for session in sessions.all())
        begun = [each for each in open_here if each.id not in ids and _wanted(each, cwd, listed=readable)]
    if trouble is not None and not any(each.prompts for each in begun):
        raise unreadable(trouble)
    newest_first = sorted((*reversed(begun), *found), key=lambda each: each.updated_at, reverse=True)
    answer: JsonObject = {"sessions": [_info(record) for record in newest_first]}
    if trouble is not None:
        _log.warning("kept sessions cannot be listed", reason=str(trouble))
        answer["_meta"] = {"acp_agent": {"incomplete": str(trouble)}}
    if len(found) == PAGE:
        answer["nextCursor"] = _cursor((found[-1].updated_at, found[-1].id))
    return answer


def _wanted(record: SessionRecord, cwd: str | None, *, listed: bool) -> bool:
    """Whether an open session belongs on the first page: the store, where it is `listed`, does not list it."""
    here = cwd is None or os.path.normpath(record.cwd) == cwd
    return here and not (listed and record.prompts)


def _info(record: SessionRecord) -> JsonObject:
    """ACP `SessionInfo`."""
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


def _cursor(position: Position) -> str:
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode()


def _position(value: Json) -> Position | None:
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
