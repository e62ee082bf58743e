"""ProxyFileSystem: read and write through the editor, unsaved buffers included (A22, A23; ACP "File System")."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Never

import anyio

from acp_agent.core.backends import Lines
from acp_agent.core.errors import BackendUnavailable, ToolError, ToolErrorCategory
from acp_agent.core.types import Access, Json, JsonObject
from acp_agent.protocol import jsonrpc, wire
from acp_agent.protocol.client import Client
from acp_agent.protocol.jsonrpc import ClientTimeout, ConnectionLost, RpcError
from acp_agent.protocol.paths import EditorPaths
from acp_agent.protocol.peer import Peer
from acp_agent.workspace.local_files import Head, LocalFileSystem
from acp_agent.workspace.text_files import BOM, UTF_16_BOMS, binary_error, changed_error, is_binary, stretch

_BACKEND = "editor files"
_BOM = "\ufeff"
_REPLACEMENT = "\ufffd"
"""What an editor that reads like node gives for bytes that are no UTF-8."""
_LARGEST = 8 * 1024 * 1024
"""Bytes on disk of the largest file that comes through the editor for a few of its lines."""
_HEAD = 1024
"""Bytes at the start of a file that show what it is."""
_LOOKS: Final = (0.0, 0.05, 0.2, 0.75)


class ProxyFileSystem:
    """The texts ACP can read and write, each way only when the client offers it.

    Only an editor that says it cannot (no capability, method not found, on a read also a file it does not know) is
    passed over. Any other error answer is a refusal: it ends the call with the editor's words.

    `local` decides what a path means, whether it may be touched, and whether a file on disk is text at all; the
    editor is only told paths that passed. `timeout` in seconds bounds every request, so that an editor that
    never answers costs one wait for each of the two operations.

    `looks` are the seconds before each look for a new file on disk: an editor may answer a moment before it has saved.
    """

    def __init__(
        self,
        peer: Peer,
        session_id: str,
        client: Client,
        local: LocalFileSystem,
        paths: EditorPaths,
        timeout: float,
        looks: Sequence[float] = _LOOKS,
    ) -> None:
        self._looks = looks
        self._peer = peer
        self._session_id = session_id
        self._client = client
        self._local = local
        self._paths = paths
        self._timeout = timeout
        self._marked = dict[str, bool]()
        self._mute = False
        self._silent = False

    def resolve(self, path: str, access: Access) -> str:
        return self._local.resolve(path, access)

    async def read_text(self, path: str) -> str:
        if not self._client.read_text_file:
            _not_offered("fs/read_text_file")
        if self._mute:
            raise BackendUnavailable(_BACKEND, "fs/read_text_file was not answered before", permanent=True)
        resolved = self._local.resolve(path, Access.READ)
        try:
            answer = await self._request("fs/read_text_file", {"path": self._paths.spell(resolved)})
        except ClientTimeout as error:
            self._mute = True
            raise BackendUnavailable(_BACKEND, error.message, permanent=True) from None
        except RpcError as error:
            if error.code == jsonrpc.RESOURCE_NOT_FOUND:  # outside the editor's project, say: the disk knows better
                raise BackendUnavailable(_BACKEND, f"fs/read_text_file: {error.message}", quiet=True) from None
            raise wire.backend_error(_BACKEND, "fs/read_text_file", error) from None
        text = _file_text(answer)
        if not text:
            await self._must_be_empty(path, resolved)
        if "\0" in text:
            raise binary_error(path)
        if _REPLACEMENT in text:
            await self._judge(path, resolved)
        self._marked[resolved] = text.startswith(_BOM)
        return text.removeprefix(_BOM)

    async def read_lines(self, path: str, offset: int, limit: int) -> Lines:
        """As TextFiles says; BackendUnavailable also for what is better read from disk.

        An editor sends whole texts as one JSON string: of a huge file that costs both sides seconds and gigabytes,
        and of a picture it is rubbish. Changes to a huge file that are not saved yet are the price.
        """
        if not self._client.read_text_file:
            _not_offered("fs/read_text_file")
        head = await self._local.head(path, _HEAD)
        if head is not None and _is_for_disk(head):
            raise BackendUnavailable(_BACKEND, f"{path} is better read from disk", quiet=True)
        return stretch(await self.read_text(path), offset, limit)

    async def write_text(self, path: str, text: str, *, expected: str | None) -> None:
        """As TextFiles says; ToolError where nobody can tell whether the editor wrote, never a second write.

        ACP cannot compare and write at once: what changes between the two requests is lost.
        """
        if not self._client.write_text_file:
            _not_offered("fs/write_text_file")
        if self._silent:
            raise BackendUnavailable(_BACKEND, "fs/write_text_file was not answered before", permanent=True)
        resolved = self._local.resolve(path, Access.WRITE)
        if await self._now(path, resolved, expected) != expected:
            raise changed_error(path)
        if await self._has_mark(resolved):
            text = _BOM + text.removeprefix(_BOM)
        try:
            # The editor must create the file, but no page says it makes folders; and some answer null (acp.md 4.6).
            answer = await self._request("fs/write_text_file", {"path": self._paths.spell(resolved), "content": text})
        except (ClientTimeout, ConnectionLost) as error:
            self._silent = True
            raise _unknown(path, error, self._timeout) from None
        except RpcError as error:
            raise wire.backend_error(_BACKEND, "fs/write_text_file", error) from None
        await self._must_be_written(path, resolved, text.removeprefix(_BOM), expected, answer)

    async def _must_be_empty(self, path: str, resolved: str) -> None:
        """Raise ToolError where the editor gave no text for a file that has some on disk."""
        head = await self._local.head(resolved, _HEAD)
        if head is not None and (head.size > _HEAD or head.data.removeprefix(BOM).strip()):
            raise ToolError(
                ToolErrorCategory.PERMANENT_FAILURE,
                f"the editor gave an empty text for {path}, but the file on disk has {head.size} bytes",
                "Ask the user to save or reload the file in the editor. Do not read it another way.",
            )

    async def _must_be_written(self, path: str, resolved: str, text: str, was: str | None, answer: Json) -> None:
        """Raise ToolError where the editor said that it wrote and did not, or said nothing anybody understands."""
        is_written = await self._is_written(path, resolved, text, was)
        if is_written or (is_written is None and _is_clear(answer)):
            return
        if not _is_clear(answer):
            told = f"the editor gave no usable answer to fs/write_text_file; it is unknown whether {path} was written"
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, told, "Read the file before writing it again.")
        found = "there is no such file" if was is None else "the file is as it was before"
        told = f"the editor answered that it wrote {path}, but {found}"
        raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, told, wire.TELL_THE_USER)

    async def _is_written(self, path: str, resolved: str, text: str, was: str | None) -> bool | None:
        """Return whether the file is another than before, on disk or as the editor shows it. None: nobody knows.

        It need not be the same text: editors format what they save. And an editor may hold a change unsaved.
        """
        there = await self._appeared(resolved) if was is None else await self._on_disk(resolved)
        if there == text or there != was:
            return True
        shown = await self._shown(path)
        if shown is None:
            return None if was is not None else False
        return shown == text or shown not in ("", was)

    async def _appeared(self, resolved: str) -> str | None:
        """The text of a new file on disk; None when it does not come."""
        for pause in self._looks:
            await anyio.sleep(pause)
            if (there := await self._on_disk(resolved)) is not None:
                return there
        return None

    async def _on_disk(self, resolved: str) -> str | None:
        """The text on disk; empty where it is no text any more, None where there is no file."""
        with suppress(ToolError):
            return None if await self._local.kind(resolved) is None else await self._local.read_text(resolved)
        return ""

    async def _shown(self, path: str) -> str | None:
        """The text as the editor shows it; None where it does not."""
        with suppress(ToolError, BackendUnavailable):
            return await self.read_text(path)
        return None

    async def _now(self, path: str, resolved: str, expected: str | None) -> str | None:
        """The text there is: as the editor shows it where it can and a text is expected, else as it is on disk.

        Raises what the local backend says of a file on disk that is no text.
        """
        on_disk = await self._judge(path, resolved)
        if expected is None:
            return on_disk
        try:
            return await self.read_text(path)
        except BackendUnavailable:
            return on_disk

    async def _judge(self, path: str, resolved: str) -> str | None:
        """Raise what the local backend says of a file on disk that is no text. No file: nothing to destroy."""
        return None if await self._local.kind(resolved) is None else await self._local.read_text(path)

    async def _has_mark(self, resolved: str) -> bool:
        """Whether the editor's text needs a BOM for the file to keep its own.

        An editor that showed the text without a BOM sees to it itself; one that never showed it may know of none.
        """
        if resolved in self._marked:
            return self._marked[resolved]
        head = await self._local.head(resolved, len(BOM))
        return head is not None and head.data == BOM

    async def _request(self, method: str, params: JsonObject) -> Json:
        return await self._peer.request(method, {"sessionId": self._session_id, **params}, timeout=self._timeout)


def _is_for_disk(head: Head) -> bool:
    """Too large, or surely no text; what may be UTF-16 is a matter for the editor."""
    return head.size > _LARGEST or (is_binary(head.data) and not head.data.startswith(UTF_16_BOMS))


def _file_text(answer: Json) -> str:
    try:
        return wire.file_text(answer)
    except RpcError as error:
        raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, error.message, wire.TELL_THE_USER) from None


def _is_clear(answer: Json) -> bool:
    """Whether this is how editors answer a write that they made."""
    return answer is None or isinstance(answer, dict)


def _unknown(path: str, error: ClientTimeout | ConnectionLost, timeout: float) -> ToolError:
    """A write nobody answered: a second one could undo what the user does in the editor once it wakes up."""
    suggestion = "Read the file before writing it again."
    if isinstance(error, ClientTimeout):
        why = f"the editor did not answer fs/write_text_file within {timeout:g} s"
        category = ToolErrorCategory.TIMEOUT
    else:
        why, category = error.message, ToolErrorCategory.PERMANENT_FAILURE
    return ToolError(category, f"{why}; it is unknown whether {path} was written", suggestion)


def _not_offered(operation: str) -> Never:
    raise BackendUnavailable(_BACKEND, f"{operation}: not offered by the client", permanent=True, quiet=True)
