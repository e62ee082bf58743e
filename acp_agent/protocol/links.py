"""Links in a prompt: where a URI leads, and the files and pages behind the links.

Files are read as tools read them, so the rules and the editor's unsaved changes count. Pages are read under the guards
of the web tools.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

import anyio

from acp_agent.core.backends import EntryKind, FileSystem
from acp_agent.core.errors import AgentError
from acp_agent.core.services import Web, WebCaller
from acp_agent.core.types import Access
from acp_agent.tools.web import readable

_WINDOWS = re.compile(r"/?[A-Za-z]:(?:[\\/]|\Z)|\\\\")
_LONGEST_SHOWN = 2000
"""Characters of a URI in a line of text."""


@dataclass(frozen=True, slots=True)
class LinkTarget:
    """Where a URI leads. At most one field is set; none for a URI that is only a name.

    path      absolute, of a file or folder on this machine
    page      the URL of a page that may be read
    refused   why it is not read
    """

    path: str = ""
    page: str = ""
    refused: str = ""


def link_target(uri: str) -> LinkTarget:
    """Return where a URI leads, or the absolute path that some clients send instead. No I/O."""
    if _WINDOWS.match(uri):
        return _windows()
    if uri.startswith("/"):
        return LinkTarget(path=uri)
    try:
        parts = urlsplit(uri)
    except ValueError:  # http://[
        return LinkTarget()
    match parts.scheme:
        case "file":
            return _file(parts)
        case "https" if parts.netloc:
            return LinkTarget(page=uri)
        case "http" if parts.netloc:
            return LinkTarget(refused="only https links are read")
        case "data":
            return LinkTarget(refused="its content is in the link itself: attach it instead")
        case _:
            return LinkTarget()


def one_line(uri: str) -> str:
    """Return a URI, a name or a type as one line of limited length."""
    line = " ".join(uri.split())
    return line if len(line) <= _LONGEST_SHOWN else f"{line[:_LONGEST_SHOWN]}…"


def _file(parts: SplitResult) -> LinkTarget:
    path = unquote(parts.path)
    if _WINDOWS.match(path) or parts.netloc.endswith(":"):  # file://C:/
        return _windows()
    if parts.netloc not in ("", "localhost"):
        return LinkTarget(refused=f"a file of another machine ({parts.netloc})")
    return LinkTarget(path=path) if path.startswith("/") else LinkTarget(refused="not an absolute path")


def _windows() -> LinkTarget:
    return LinkTarget(refused="a Windows path, which leads nowhere on this machine")


FILE_LIMIT = 1024 * 1024
"""Bytes of one file."""
TIMEOUT = 10.0
"""Seconds for one file or page."""
_KEY_FOLDERS = {".ssh", ".gnupg", ".aws"}
_KERNEL_FOLDERS = {"proc", "sys", "dev"}


@dataclass(frozen=True, slots=True)
class LinkedFile:
    """The text of a file; or `is_folder`; or why it was not read."""

    text: str = ""
    is_folder: bool = False
    failure: str = ""


async def read_file(path: str, files: FileSystem, timeout: float = TIMEOUT) -> LinkedFile:
    """Read the file at an absolute path. Failures are in the result."""
    try:
        with anyio.fail_after(timeout):
            return await _read_file(path, files)
    except TimeoutError:
        return LinkedFile(failure=f"not read within {timeout:g} s")
    except AgentError as error:
        return LinkedFile(failure=str(error).removeprefix(f"{path}: "))  # the caller names the link


async def _read_file(path: str, files: FileSystem) -> LinkedFile:
    if _is_private(files.resolve(path, Access.LIST)):
        return LinkedFile(failure="in a private folder")
    kind = await files.kind(path)
    if kind is EntryKind.DIRECTORY:
        return LinkedFile(is_folder=True)
    if kind is not None:  # an editor would send a huge file in one message; the disk knows its size
        await files.read_bytes(path, FILE_LIMIT)
    text = await files.read_text(path)
    if len(text.encode("utf-8", "replace")) > FILE_LIMIT:
        return LinkedFile(failure=f"over {FILE_LIMIT} bytes")
    return LinkedFile(text)


def _is_private(path: str) -> bool:
    names = path.strip("/").split("/")
    of_kernel = names[0] in _KERNEL_FOLDERS and names[:2] != ["dev", "shm"]  # /dev/shm holds ordinary files
    return of_kernel or not _KEY_FOLDERS.isdisjoint(name.lower() for name in names)


MAX_PAGES = 5
"""Pages read for one prompt."""


@dataclass(frozen=True, slots=True)
class LinkedPage:
    """A page as text, cut at the limit of web pages; or why it was not read. `url` is where it came from."""

    url: str
    text: str = ""
    failure: str = ""


async def read_pages(urls: Sequence[str], web: Web, timeout: float = TIMEOUT) -> list[LinkedPage]:
    """Read pages at the same time, without redirects, and return them in order. Failures are in the result."""
    pages = [LinkedPage(url, failure=f"at most {MAX_PAGES} linked pages are read") for url in urls]

    async def read(index: int) -> None:
        pages[index] = await _read_page(urls[index], web, timeout)

    async with anyio.create_task_group() as group:
        for index in range(min(len(urls), MAX_PAGES)):
            group.start_soon(read, index)
    return pages


async def _read_page(url: str, web: Web, timeout: float) -> LinkedPage:
    try:
        with anyio.fail_after(timeout):
            page = await web.get(url, WebCaller("resource_link", ""), redirects=0, truncate=True)
            return LinkedPage(page.url, await readable(page))
    except TimeoutError:
        return LinkedPage(url, failure=f"no answer within {timeout:g} s")
    except AgentError as error:
        return LinkedPage(url, failure=str(error))
