"""ProxyFileSystem: read and write through the editor, unsaved buffers included (A22, A23; ACP "File System")."""

from typing import Never

from acp_agent.core.backends import Entry, FileSystem, FoundPaths, GrepMatches, GrepQuery
from acp_agent.core.errors import BackendUnavailable
from acp_agent.core.types import Access, Json, JsonObject
from acp_agent.protocol import frames, wire
from acp_agent.protocol.client import Client
from acp_agent.protocol.errors import RpcError
from acp_agent.protocol.paths import EditorPaths
from acp_agent.protocol.peer import Peer

_BACKEND = "editor files"


class ProxyFileSystem:
    """The two operations ACP has, each only when the client offers it; everything else is another backend's.

    `local` decides what a path means and whether it may be touched; the editor is only told paths that passed.
    `timeout` in seconds bounds every request, so that an editor that never answers costs one wait.
    """

    def __init__(
        self, peer: Peer, session_id: str, client: Client, local: FileSystem, paths: EditorPaths, timeout: float
    ) -> None:
        self._peer = peer
        self._session_id = session_id
        self._client = client
        self._local = local
        self._paths = paths
        self._timeout = timeout

    def resolve(self, path: str, access: Access) -> str:
        return self._local.resolve(path, access)

    async def read_text(self, path: str) -> str:
        if not self._client.read_text_file:
            _not_offered("fs/read_text_file")
        resolved = self._local.resolve(path, Access.READ)
        answer = await self._ask("fs/read_text_file", {"path": self._paths.spell(resolved)})
        try:
            return wire.file_text(answer).removeprefix("\ufeff")
        except RpcError as error:
            raise BackendUnavailable(_BACKEND, f"fs/read_text_file: {error.message}") from None

    async def write_text(self, path: str, text: str) -> None:
        if not self._client.write_text_file:
            _not_offered("fs/write_text_file")
        resolved = self._local.resolve(path, Access.WRITE)
        # The editor must create the file, but no page says it makes folders; and some answer null (acp.md 4.6).
        await self._ask("fs/write_text_file", {"path": self._paths.spell(resolved), "content": text})

    async def list_directory(self, path: str) -> tuple[Entry, ...]:
        _not_offered(path)

    async def find(self, path: str, pattern: str, limit: int) -> FoundPaths:
        del pattern, limit
        _not_offered(path)

    async def grep(self, query: GrepQuery) -> GrepMatches:
        _not_offered(query.path)

    async def _ask(self, method: str, params: JsonObject) -> Json:
        try:
            return await self._peer.request(method, {"sessionId": self._session_id, **params}, timeout=self._timeout)
        except RpcError as error:
            # Not found is an ordinary answer, also for files outside the editor's project; the local backend
            # knows better, and there is nothing to tell the user.
            quiet = error.code == frames.RESOURCE_NOT_FOUND
            permanent = error.code == frames.METHOD_NOT_FOUND
            raise BackendUnavailable(_BACKEND, f"{method}: {error.message}", permanent=permanent, quiet=quiet) from None


def _not_offered(operation: str) -> Never:
    raise BackendUnavailable(_BACKEND, f"{operation}: not offered by the client", permanent=True, quiet=True)
