"""The LSP extension: the editor's language servers, asked and listened to (requirements A27, A24.12).

The seeds call the methods `lsp/...`; ACP wants a `_` in front of what is not its own. The client is asked by the name
it has offered, and heard by any (lsp_notifications.py). Loaded for clients that offer it only.
"""

from collections import OrderedDict
from collections.abc import Sequence
from uuid import uuid4

from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.services import LanguageServers
from acp_agent.core.types import Json, JsonObject
from acp_agent.output.spotlight import fence
from acp_agent.protocol.client import Client
from acp_agent.protocol.jsonrpc import ClientTimeout, ConnectionLost, RpcError
from acp_agent.protocol.paths import EditorPaths
from acp_agent.protocol.peer import Peer
from acp_agent.tools.lsp import Names, file_uri, uri_path
from acp_agent.tools.lsp_answer import LspDiagnostic, diagnostics

GET_DIAGNOSTICS = "get_diagnostics"
"""What the editor is asked for the problems of all files; where it does not serve that, the kept ones are them."""

_MOST = 100
"""Problems in one prompt."""


class KeptDiagnostics:
    """The problems of the files that were heard of last.

    max_files      files; the one not heard of for the longest goes first
    max_per_file   of each, the worst first
    """

    def __init__(self, max_files: int = 5, max_per_file: int = 20) -> None:
        self._max_files = max_files
        self._max_per_file = max_per_file
        self._files: OrderedDict[str, tuple[LspDiagnostic, ...]] = OrderedDict()

    def keep(self, uri: str, answer: Json) -> None:
        """Take what is said of a file now in place of what was said before. Raises ToolError for no list."""
        found = diagnostics(answer, uri)[: self._max_per_file]
        key = uri_path(uri) or uri
        self._files.pop(key, None)
        if found:
            self._files[key] = tuple(found)
        if len(self._files) > self._max_files:
            self._files.popitem(last=False)

    def clear(self) -> None:
        """Forget all of them."""
        self._files.clear()

    def to_wire(self) -> list[Json]:
        """All of them, the file heard of last first, as an editor would say it."""
        return [found.to_wire() for file in reversed(self._files.values()) for found in file]


async def diagnostics_block(languages: LanguageServers, files: FileSystem) -> str:
    """`[LSP Diagnostics]` and a line for each problem in a file that may be read; empty when there is none.

    The lines are other people's words: fenced, without what a terminal or a reader could mistake. Not redacted. Never
    raises but for cancellation.
    """
    try:
        found = diagnostics(await languages.ask(GET_DIAGNOSTICS, {}))
    except ToolError:
        return ""
    names = Names(files)
    lines = [each.line(names.name(each.uri)) for each in found if each.uri and names.path(each.uri) is not None]
    if not lines:
        return ""
    fenced = fence("\n".join(lines[:_MOST]), str(uuid4()), external="language servers")
    return f"[LSP Diagnostics]\n{fenced}"


DIAGNOSTICS = "lsp/diagnostics"

_MOST_FETCHED = 5
"""Files whose problems are fetched at the same time."""


class EditorLanguages:
    """`LanguageServers` of one session, where the client shares them.

    folders         the session's, as the editor spells them: of files elsewhere nothing is kept
    timeout         seconds the editor may take over a question
    fetch_on_save   whether the problems of a saved file are fetched (A27.4)
    """

    def __init__(
        self,
        peer: Peer,
        session_id: str,
        client: Client,
        paths: EditorPaths,
        folders: Sequence[str],
        *,
        kept: KeptDiagnostics | None = None,
        timeout: float = 10.0,
        fetch_on_save: bool = True,
    ) -> None:
        self._peer = peer
        self._session_id = session_id
        self._methods = {_plain(method): method for method in sorted(client.lsp_methods)}
        self._paths = paths
        self._folders = tuple(folders)
        self._kept = kept or KeptDiagnostics()
        self._timeout = timeout
        self._fetch_on_save = fetch_on_save
        self._fetching: set[str] = set()

    def move(self, paths: EditorPaths, folders: Sequence[str]) -> None:
        """The session works elsewhere now."""
        self._paths, self._folders = paths, tuple(folders)
        self._kept.clear()

    # ------------------------------------------------------------------------------------- asking

    def offers(self, method: str) -> bool:
        return method in self._methods

    async def ask(self, method: str, params: JsonObject) -> Json:
        """As LanguageServers says. A `uri` in params is put as the editor spells it.

        `get_diagnostics` is answered from what is kept where the editor does not serve it.
        """
        if not self.offers(method):
            if method == GET_DIAGNOSTICS:
                return self._kept.to_wire()
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"the editor does not offer {method}")
        uri = params.get("uri")
        asked: JsonObject = {"sessionId": self._session_id, **params}
        if isinstance(uri, str):
            asked["uri"] = self._spelled(uri)
        try:
            return await self._peer.request(
                self._methods[method], asked, timeout=self._timeout, withdraw=True, recall=True
            )
        except ClientTimeout as error:
            raise ToolError(ToolErrorCategory.TIMEOUT, error.message) from None
        except ConnectionLost as error:
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, error.message) from None
        except RpcError as error:  # its words could be anybody's, and would stand here as ours
            told = f"the editor answered {method} with error {error.code}"
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, told) from None

    # ---------------------------------------------------------------------------------- listening

    def concerns(self, uri: str) -> bool:
        """Whether a file is in a folder of the session's."""
        path = uri_path(uri)
        if path is None:
            return False
        spelled = self._paths.spell(path)
        return any(f"{spelled}/".startswith(f"{folder.rstrip('/')}/") for folder in self._folders)

    def published(self, uri: str, found: Json) -> None:
        """The editor says what is wrong with a file now (A27.3). Raises ToolError for no list."""
        if self.concerns(uri):
            self._kept.keep(uri, found)

    async def saved(self, uri: str) -> None:
        """The user saved a file: fetch what is wrong with it now (A27.4). Trouble costs the news."""
        busy = uri in self._fetching or len(self._fetching) >= _MOST_FETCHED
        if busy or not (self._fetch_on_save and self.offers(DIAGNOSTICS) and self.concerns(uri)):
            return
        self._fetching.add(uri)
        try:
            self._kept.keep(uri, await self.ask(DIAGNOSTICS, {"uri": uri}))
        except ToolError:
            pass
        finally:
            self._fetching.discard(uri)

    def _spelled(self, uri: str) -> str:
        path = uri_path(uri)
        return uri if path is None else file_uri(self._paths.spell(path))


def _plain(method: str) -> str:
    """The name without what some put in front of it."""
    return method.removeprefix("_acp_agent/").removeprefix("_")
