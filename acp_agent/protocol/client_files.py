"""Read and write files through the editor, including its unsaved changes: `fs/read_text_file`, `fs/write_text_file`.

See https://agentclientprotocol.com/protocol/file-system.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import anyio

from acp_agent.core.backends import FileHead, Lines
from acp_agent.core.editor import DiskFiles
from acp_agent.core.errors import BackendUnavailable, Refused, ToolError
from acp_agent.core.types import Access, Json, JsonObject
from acp_agent.protocol import jsonrpc, wire
from acp_agent.protocol.client import Client, EditorPaths
from acp_agent.protocol.jsonrpc import ClientTimeout, ConnectionLost, RpcError
from acp_agent.protocol.peer import Peer
from acp_agent.workspace.text_files import (
    BOM,
    MOST_COMPARED,
    UTF_16_BOMS,
    binary_error,
    changed_error,
    decode_text,
    encoding_of,
    is_binary,
    stretch,
)

_BACKEND = "editor files"
_BOM = "\ufeff"
_REPLACEMENT = "\ufffd"
"""The character that editors on Node.js send in place of bytes that are not UTF-8."""
_LARGEST = 8 * 1024 * 1024
"""Bytes on disk. If a file has more, its lines are not read through the editor."""
_HEAD = 1024
"""Bytes at the start of a file that are read to find out whether it is text."""
_LOOKS: Final = (0.0, 0.05, 0.2, 0.75)
_UNKNOWN = "it is unknown whether {} was written"
_READ_AGAIN = "Read the file before writing it again."
_LOOK_THERE = "Tell the user to look where the path leads now. Do not write it again."


class ProxyFileSystem:
    """A file system that reads and writes texts through the editor, if the editor offers the method.

    BackendUnavailable is raised if the local backend has to do it: the editor lacks the capability or the method, has
    not answered it in time before, or, on a read, does not know the file; or the file is too large, or not UTF-8. Any
    other error counts as a refusal and ends the call with the editor's message.

    An editor opens a file by its path, so it follows a link that a running command puts there in the meantime. Paths
    are therefore checked again before a write, and after each answer. A link that is there only in between is not seen.

    local     resolves and checks every path before the editor gets it, and says whether a file on disk is text
    timeout   seconds of every request. A method that was not answered once is not used again
    looks     seconds before each check for a new file on disk: an editor may answer before it has saved
    """

    def __init__(
        self,
        peer: Peer,
        session_id: str,
        client: Client,
        local: DiskFiles,
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
        self._has_bom = dict[str, bool]()  # by path, for the texts that the editor has returned
        self._unanswered: set[str] = set()  # methods

    def resolve(self, path: str, access: Access) -> str:
        return self._local.resolve(path, access)

    async def read_text(self, path: str) -> str:
        self._refuse_unusable("fs/read_text_file", offered=self._client.read_text_file)
        resolved = self._local.resolve(path, Access.READ)
        named = self._named(path, resolved)
        try:
            answer = await self._request("fs/read_text_file", {"path": named})
        except ClientTimeout as error:
            self._unanswered.add("fs/read_text_file")
            raise BackendUnavailable(_BACKEND, error.message, permanent=True) from None
        except RpcError as error:
            if error.code == jsonrpc.RESOURCE_NOT_FOUND:  # a file outside the editor's project, for example
                raise BackendUnavailable(_BACKEND, f"fs/read_text_file: {error.message}", quiet=True) from None
            raise wire.backend_error(_BACKEND, "fs/read_text_file", error) from None
        try:
            text = wire.file_text(answer)
        except RpcError as error:
            raise ToolError.permanent(error.message, wire.TELL_THE_USER) from None
        self._refuse_moved(path, resolved, Access.READ)
        if not text:
            await self._must_be_empty(path, resolved)
        if "\0" in text:
            head = await self._local.head(resolved, _HEAD)
            if head is not None and head.data.startswith(UTF_16_BOMS):  # the editor took it for UTF-8
                raise BackendUnavailable(_BACKEND, f"{path} is not UTF-8", quiet=True)
            raise binary_error(path)
        if _REPLACEMENT in text and _REPLACEMENT not in (await self._checked_on_disk(path, resolved) or _REPLACEMENT):
            raise BackendUnavailable(_BACKEND, f"{path} is not UTF-8", quiet=True)
        self._has_bom[resolved] = text.startswith(_BOM)
        return text.removeprefix(_BOM)

    async def read_lines(self, path: str, offset: int, limit: int) -> Lines:
        """See TextFiles. Raises BackendUnavailable also for large files and files that are not text.

        An editor sends a whole file as one JSON string, which takes seconds and gigabytes for a huge file. So huge
        files are read from disk, without their unsaved changes.
        """
        self._refuse_unusable("fs/read_text_file", offered=self._client.read_text_file)
        head = await self._local.head(path, _HEAD)
        is_text = head is None or not is_binary(head.data) or head.data.startswith(UTF_16_BOMS)  # an editor may read it
        if head is not None and (head.size > _LARGEST or not is_text):
            raise BackendUnavailable(_BACKEND, f"{path} is better read from disk", quiet=True)
        return stretch(await self.read_text(path), offset, limit)

    async def write_text(self, path: str, text: str, *, expected: str | None) -> str:
        """See TextFiles. Raises ToolError if it is unknown whether the editor wrote, so that no other backend writes.

        ACP cannot compare and write in one step, so a change between the two requests is lost.
        """
        self._refuse_unusable("fs/write_text_file", offered=self._client.write_text_file)
        resolved = self._local.resolve(path, Access.WRITE)
        named = self._named(path, resolved)
        head = await self._local.head(resolved, MOST_COMPARED)
        if head is not None and encoding_of(head.data):  # an editor might write another encoding
            raise BackendUnavailable(_BACKEND, f"{path} is not UTF-8", quiet=True)
        if await self._present(path, head, expected) != expected:
            raise changed_error(path)
        # An editor that returned the text without its byte order mark adds the mark itself. If the editor has not
        # returned the text, the file on disk shows whether it has a mark.
        if self._has_bom.get(resolved, head is not None and head.data.startswith(BOM)):
            is_in_text = expected is not None and expected.startswith(_BOM)  # a second byte order mark
            text = _BOM + (text if is_in_text else text.removeprefix(_BOM))
        self._refuse_moved(path, resolved, Access.WRITE)
        try:
            answer = await self._request("fs/write_text_file", {"path": named, "content": text})
        except (ClientTimeout, ConnectionLost) as error:
            self._unanswered.add("fs/write_text_file")
            unknown = _UNKNOWN.format(path)
            raise wire.unanswered("fs/write_text_file", error, self._timeout, unknown, _READ_AGAIN) from None
        except RpcError as error:
            raise wire.backend_error(_BACKEND, "fs/write_text_file", error) from None
        try:
            self._refuse_moved(path, resolved, Access.WRITE)
        except (Refused, ToolError):
            message = f"{path} was replaced while the editor wrote it, so the text may be in another file"
            raise ToolError.permanent(message, _LOOK_THERE) from None
        return await self._written(path, resolved, text.removeprefix(_BOM), expected, answer)

    def _named(self, path: str, resolved: str) -> str:
        """Return the editor's name of a file. Raises BackendUnavailable for one that no message can hold."""
        named = self._paths.spell(resolved)
        if named.encode(errors="replace").decode() != named:
            raise BackendUnavailable(_BACKEND, f"{path} leads to a name that is not UTF-8", quiet=True)
        return named

    def _refuse_moved(self, path: str, resolved: str, access: Access) -> None:
        """Raise Refused or ToolError if a path no longer leads to the file to which it led before."""
        if self._local.resolve(path, access) != resolved:
            raise ToolError.permanent(f"{path} was replaced by another file meanwhile")

    async def _must_be_empty(self, path: str, resolved: str) -> None:
        """Raise ToolError if the editor returned an empty text for a file that has text on disk."""
        head = await self._local.head(resolved, _HEAD)
        if head is not None and (head.size > _HEAD or head.data.removeprefix(BOM).strip()):
            raise ToolError.permanent(
                f"the editor gave an empty text for {path}, but the file on disk has {head.size} bytes",
                "Ask the user to save or reload the file in the editor. Do not read it another way.",
            )

    async def _written(self, path: str, resolved: str, text: str, was: str | None, answer: Json) -> str:
        """Return the text that the file has now.

        Raises ToolError if the editor answered that it wrote but did not, or if its answer cannot be understood.
        """
        is_written, now = await self._is_written(path, resolved, text, was)
        if is_written or (is_written is None and _is_clear(answer)):
            return now
        if not _is_clear(answer):
            message = f"the editor gave no usable answer to fs/write_text_file; {_UNKNOWN.format(path)}"
            raise ToolError.permanent(message, _READ_AGAIN)
        found = "there is no such file" if was is None else "the file is as it was before"
        message = f"the editor answered that it wrote {path}, but {found}"
        raise ToolError.permanent(message, wire.TELL_THE_USER)

    async def _is_written(self, path: str, resolved: str, text: str, was: str | None) -> tuple[bool | None, str]:
        """Return whether the file has changed, on disk or in the editor (None if unknown), and its text now.

        The file need not have the new text, because editors format files on saving and may leave the change unsaved.
        """
        there = None
        for pause in self._looks if was is None else (0.0,):
            await anyio.sleep(pause)
            if (there := await self._on_disk(resolved)) is not None:
                break
        if there == text or there != was:
            return True, there or text
        shown = await self._shown(path)
        if shown is None:
            return None if was is not None else False, text
        return shown == text or shown not in ("", was), shown or text

    async def _on_disk(self, resolved: str) -> str | None:
        """Return the text on disk; "" if the file is no longer text, None if there is no file."""
        with suppress(ToolError):
            return await self._checked_on_disk(resolved, resolved)
        return ""

    async def _shown(self, path: str) -> str | None:
        """Return the text in the editor; None if it does not return one."""
        with suppress(ToolError, BackendUnavailable):
            return await self.read_text(path)
        return None

    async def _present(self, path: str, head: FileHead | None, expected: str | None) -> str | None:
        """Return the present text: the editor's if a text is expected and the editor has one, else the one on disk.

        Raises ToolError for a file on disk that is not text.
        """
        on_disk = await self._text(path, head)
        if expected is None:
            return on_disk
        try:
            return await self.read_text(path)
        except BackendUnavailable:
            return on_disk

    async def _checked_on_disk(self, path: str, resolved: str) -> str | None:
        """Return the text on disk, None without a file. Raises ToolError for a file that is not text."""
        return await self._text(path, await self._local.head(resolved, MOST_COMPARED))

    async def _text(self, path: str, head: FileHead | None) -> str | None:
        """Return the text of a file whose first `MOST_COMPARED` bytes are known, None without a file.

        Raises ToolError for a file that is not text.
        """
        if head is None:
            return None
        return decode_text(head.data, path) if head.size == len(head.data) else await self._local.read_text(path)

    def _refuse_unusable(self, method: str, *, offered: bool) -> None:
        if not offered:
            raise BackendUnavailable(_BACKEND, f"{method}: not offered by the client", permanent=True, quiet=True)
        if method in self._unanswered:
            raise BackendUnavailable(_BACKEND, f"{method} was not answered before", permanent=True)

    async def _request(self, method: str, params: JsonObject) -> Json:
        return await self._peer.request(method, {"sessionId": self._session_id, **params}, timeout=self._timeout)


def _is_clear(answer: Json) -> bool:
    """Return whether a result of `fs/write_text_file` is one that editors send; some send null."""
    return answer is None or isinstance(answer, dict)
