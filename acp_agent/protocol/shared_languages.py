"""What a session has of its editor's language servers. `EditorLanguages` is loaded for the editors that share some."""

from typing import TYPE_CHECKING, Protocol

from acp_agent.core.redaction import Redact
from acp_agent.core.services import LanguageServers
from acp_agent.core.types import Json
from acp_agent.protocol.peer import Peer


class SharedLanguages(LanguageServers, Protocol):
    """Language servers that also tell something without being asked (requirements A27.3, A27.4)."""

    def published(self, uri: str, found: Json) -> None:
        """The editor says what is wrong with a file now. Raises ToolError for no list."""
        ...

    async def saved(self, uri: str) -> None:
        """The user saved a file."""
        ...


if TYPE_CHECKING:
    from acp_agent.config import Loaded
    from acp_agent.core.backends import FileSystem
    from acp_agent.session.session import Session


def languages(peer: Peer, session: "Session", loaded: "Loaded") -> SharedLanguages | None:
    """The editor's language servers; None where it does not share them, or the user does not want it (A27.6).

    Those the session has stay its own: they know what the editor has told, and will not tell again.
    """
    lsp = loaded.settings.acp.lsp
    if not (session.client.lsp_methods and lsp.enabled):
        return None
    if session.languages is not None:
        return session.languages
    from acp_agent.protocol.client_lsp import EditorLanguages, KeptDiagnostics  # noqa: PLC0415 - few editors have any

    place = session.place
    return EditorLanguages(
        peer,
        session.id,
        session.client,
        session.paths,
        (place.cwd, *place.additional),
        kept=KeptDiagnostics(lsp.max_diagnostic_files, lsp.max_diagnostics_per_file),
        timeout=lsp.request_timeout_secs,
        fetch_on_save=lsp.auto_diagnostics_on_save,
    )


async def complaints(shared: SharedLanguages | None, files: "FileSystem", redact: Redact) -> str:
    """What `@diagnostics` in a prompt stands for; "" when there is nothing (A24.12)."""
    if shared is None:
        return ""
    from acp_agent.protocol.client_lsp import diagnostics_block  # noqa: PLC0415 - few editors have any

    return redact(await diagnostics_block(shared, files))
