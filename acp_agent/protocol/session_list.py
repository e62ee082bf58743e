"""`session/list`: what there is, newest first, page by page (ACP "Session List"; requirements A9)."""

import base64
import binascii
import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime

from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.sessions import SessionRecord
from acp_agent.core.types import Json, JsonObject
from acp_agent.log import Log
from acp_agent.output.markdown_images import defused
from acp_agent.protocol.errors import invalid_params
from acp_agent.protocol.sessions import Sessions

_log = Log(__name__)
PAGE = 50

Position = tuple[int, str]
"""Behind which session a page begins: its `updated_at` and id."""


async def listed(sessions: Sessions, params: JsonObject) -> JsonObject:
    """The answer to `session/list`. Raises RpcError for a cwd that is no absolute path and a cursor of nobody's.

    Those that were never prompted are listed while this process has them open only: editors open many for nothing.
    """
    cwd, after = _cwd(params.get("cwd")), _position(params.get("cursor"))
    kept = await _kept(sessions, cwd, after)
    found = kept or ()
    begun: list[SessionRecord] = []
    if after is None:
        ids = {record.id for record in found}
        open_here = (session.story.record for session in sessions.all())
        begun = [each for each in open_here if each.id not in ids and _wanted(each, cwd, listed=kept is not None)]
    newest_first = sorted((*reversed(begun), *found), key=lambda each: each.updated_at, reverse=True)
    answer: JsonObject = {"sessions": [_info(record) for record in newest_first]}
    if len(found) == PAGE:
        answer["nextCursor"] = _cursor((found[-1].updated_at, found[-1].id))
    return answer


async def _kept(sessions: Sessions, cwd: str | None, after: Position | None) -> Sequence[SessionRecord] | None:
    """Those in the store; None where there is none that can be read."""
    if sessions.store is None:
        return None
    try:
        return await sessions.store.page(cwd=cwd, after=after, limit=PAGE, prompted=True)
    except StoreUnavailable as error:  # what is open here can be told all the same
        _log.warning("kept sessions cannot be listed", reason=str(error))
        return None


def _wanted(record: SessionRecord, cwd: str | None, *, listed: bool) -> bool:
    """Whether an open session belongs on the first page: the store, where it is `listed`, does not list it."""
    here = cwd is None or os.path.normpath(record.cwd) == cwd
    return here and not (listed and record.prompts)


def _info(record: SessionRecord) -> JsonObject:
    """ACP `SessionInfo`."""
    info: JsonObject = {"sessionId": record.id, "cwd": record.cwd, "updatedAt": timestamp(record.updated_at)}
    if record.additional:
        info["additionalDirectories"] = list(record.additional)
    if record.title:
        info["title"] = defused(record.title)
    meta: JsonObject = {"createdAt": timestamp(record.created_at), "prompts": record.prompts}
    if record.model:
        meta["model"] = record.model
    return {**info, "_meta": {"acp_agent": meta}}


def timestamp(milliseconds: int) -> str:
    """RFC 3339, in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


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
