"""What an editor tells of its language servers without being asked (requirements A27.3, A27.4)."""

from collections.abc import Callable, Iterable

from acp_agent.core.types import JsonObject
from acp_agent.protocol.errors import invalid_params
from acp_agent.protocol.peer import NotificationHandler
from acp_agent.protocol.shared_languages import SharedLanguages

PUBLISH = "lsp/publishDiagnostics"
SAVED = "lsp/didSave"

_PREFIXES = ("", "_", "_acp_agent/")


def lsp_notifications(
    listening: Callable[[str | None], Iterable[SharedLanguages]],
) -> dict[str, NotificationHandler]:
    """What to do when the editor tells of problems and saved files, by every name it may use.

    listening   gives whom a session's id concerns, everybody for None; nobody for an id that is not known
    """

    async def publish(params: JsonObject) -> None:
        uri, found = _uri(params), params.get("diagnostics")
        if not isinstance(found, list):
            raise invalid_params("diagnostics", "expected a list")
        for each in listening(_session_id(params)):
            each.published(uri, found)

    async def saved(params: JsonObject) -> None:
        uri = _uri(params)
        for each in tuple(listening(_session_id(params))):
            await each.saved(uri)

    return {f"{prefix}{name}": told for prefix in _PREFIXES for name, told in ((PUBLISH, publish), (SAVED, saved))}


def _uri(params: JsonObject) -> str:
    uri = params.get("uri")
    if not isinstance(uri, str):
        raise invalid_params("uri", "expected a string")
    return uri


def _session_id(params: JsonObject) -> str | None:
    session_id = params.get("sessionId")
    if session_id is not None and not isinstance(session_id, str):
        raise invalid_params("sessionId", "expected a string")
    return session_id
