"""The editor's language servers, over our LSP extension. Loaded only for editors that offer it.

Editors name a method `lsp/...`, `_lsp/...` or `_acp_agent/lsp/...`. A request uses the name that the editor offered.
"""

from collections.abc import Sequence
from contextlib import suppress

from acp_agent.core.editor import LanguageSettings
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.types import Json, JsonObject
from acp_agent.protocol.client import Client, EditorPaths
from acp_agent.protocol.jsonrpc import ClientTimeout, ConnectionLost, RpcError
from acp_agent.protocol.peer import Peer
from acp_agent.tools.lsp import file_uri, uri_path
from acp_agent.tools.lsp_answer import LspDiagnostic, diagnostics

GET_DIAGNOSTICS = "get_diagnostics"
"""The method that returns the diagnostics of all files. If the editor lacks it, published diagnostics are used."""


class PublishedDiagnostics:
    """The diagnostics of the most recently reported files.

    max_files      the most files; the file that was reported longest ago is dropped first
    max_per_file   the most diagnostics of a file; the most severe are kept
    """

    def __init__(self, max_files: int, max_per_file: int) -> None:
        self._max_files = max_files
        self._max_per_file = max_per_file
        self._files: dict[str, tuple[LspDiagnostic, ...]] = {}  # the most recent last

    def put(self, uri: str, answer: Json) -> None:
        """Replace the diagnostics of a file. Raises ToolError if `answer` is not a list."""
        found = diagnostics(answer, uri)[: self._max_per_file]
        key = uri_path(uri) or uri
        self._files.pop(key, None)
        if found:
            self._files[key] = tuple(found)
        if len(self._files) > self._max_files:
            del self._files[next(iter(self._files))]

    def to_wire(self) -> list[Json]:
        """Return all diagnostics in the form of an editor's answer, the most recent file first."""
        return [found.to_wire() for file in reversed(self._files.values()) for found in file]


DIAGNOSTICS = "lsp/diagnostics"

_MAX_FETCHES = 5
"""Files whose diagnostics are fetched at the same time."""


class EditorLanguages:
    """The editor's language servers for one session.

    folders   the session's folders as the editor spells them; diagnostics of other files are dropped
    """

    def __init__(
        self,
        peer: Peer,
        session_id: str,
        client: Client,
        paths: EditorPaths,
        folders: Sequence[str],
        settings: LanguageSettings,
    ) -> None:
        self._peer = peer
        self._session_id = session_id
        # The keys are the methods' names without the prefix of extensions.
        spelled = sorted(client.lsp_methods)
        self._methods = {each.removeprefix("_acp_agent/").removeprefix("_"): each for each in spelled}
        self._paths = paths
        self._folders = tuple(folders)
        self._published = PublishedDiagnostics(settings.max_files, settings.max_per_file)
        self._timeout = settings.timeout
        self._fetch_on_save = settings.fetch_on_save
        self._fetching: set[str] = set()

    # ------------------------------------------------------------------------------------- asking

    def offers(self, method: str) -> bool:
        return method in self._methods

    async def ask(self, method: str, params: JsonObject) -> Json:
        """See LanguageServers. The editor gets a `uri` in its own spelling."""
        if not self.offers(method):
            if method == GET_DIAGNOSTICS:
                return self._published.to_wire()
            raise ToolError.permanent(f"the editor does not offer {method}")
        uri = params.get("uri")
        asked: JsonObject = {"sessionId": self._session_id, **params}
        if isinstance(uri, str):
            path = uri_path(uri)
            asked["uri"] = uri if path is None else file_uri(self._paths.spell(path))
        try:
            spelled = self._methods[method]
            return await self._peer.request(spelled, asked, timeout=self._timeout, withdraw=True, recall=True)
        except ClientTimeout as error:
            raise ToolError(ToolErrorCategory.TIMEOUT, error.message) from None
        except ConnectionLost as error:
            raise ToolError.permanent(error.message) from None
        except RpcError as error:  # the editor's error text is not trusted, so the model is not sent it
            message = f"the editor answered {method} with error {error.code}"
            raise ToolError.permanent(message) from None

    # ---------------------------------------------------------------------------------- listening

    def concerns(self, uri: str) -> bool:
        """Return whether a file is in one of the session's folders."""
        path = uri_path(uri)
        if path is None:
            return False
        spelled = self._paths.spell(path)
        return any(f"{spelled}/".startswith(f"{folder.rstrip('/')}/") for folder in self._folders)

    def published(self, uri: str, found: Json) -> None:
        """See SharedLanguages. Files outside the session's folders are ignored."""
        if self.concerns(uri):
            self._published.put(uri, found)

    async def saved(self, uri: str) -> None:
        """Fetch the diagnostics of a saved file. If the editor does not answer, the old ones stay."""
        busy = uri in self._fetching or len(self._fetching) >= _MAX_FETCHES
        if busy or not (self._fetch_on_save and self.offers(DIAGNOSTICS) and self.concerns(uri)):
            return
        self._fetching.add(uri)
        try:
            with suppress(ToolError):
                self._published.put(uri, await self.ask(DIAGNOSTICS, {"uri": uri}))
        finally:
            self._fetching.discard(uri)
