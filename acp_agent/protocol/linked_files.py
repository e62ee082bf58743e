"""Files the user linked in a prompt (A24.8, A24.11): read as tools read them, rules and unsaved changes included."""

from dataclasses import dataclass

import anyio

from acp_agent.core.backends import EntryKind, FileSystem
from acp_agent.core.errors import AgentError
from acp_agent.core.types import Access

FILE_LIMIT = 1024 * 1024
"""Bytes of one file."""
TIMEOUT = 10.0
"""Seconds for one file."""
_KEY_FOLDERS = {".ssh", ".gnupg", ".aws"}
_KERNEL_FOLDERS = {"proc", "sys", "dev"}


@dataclass(frozen=True, slots=True)
class LinkedFile:
    """A file's text, or that it is a folder, or why there is neither."""

    text: str = ""
    is_folder: bool = False
    failure: str = ""


async def read_file(path: str, files: FileSystem, timeout: float = TIMEOUT) -> LinkedFile:
    """What is at an absolute path. Nothing of it raises."""
    try:
        with anyio.fail_after(timeout):
            return await _read(path, files)
    except TimeoutError:
        return LinkedFile(failure=f"not read within {timeout:g} s")
    except AgentError as error:
        return LinkedFile(failure=str(error).removeprefix(f"{path}: "))  # it is told with the link


async def _read(path: str, files: FileSystem) -> LinkedFile:
    if _is_private(files.resolve(path, Access.LIST)):
        return LinkedFile(failure="in a private folder")
    kind = await files.kind(path)
    if kind is EntryKind.DIRECTORY:
        return LinkedFile(is_folder=True)
    if kind is not None:  # an editor would send a huge file in one message, and it is the disk that knows its size
        await files.read_bytes(path, FILE_LIMIT)
    text = await files.read_text(path)
    if len(text.encode("utf-8", "replace")) > FILE_LIMIT:
        return LinkedFile(failure=f"over {FILE_LIMIT} bytes")
    return LinkedFile(text)


def _is_private(path: str) -> bool:
    names = path.strip("/").split("/")
    return not _KEY_FOLDERS.isdisjoint(name.lower() for name in names) or names[0] in _KERNEL_FOLDERS
