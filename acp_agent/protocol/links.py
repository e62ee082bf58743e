"""What the URI of a linked resource leads to (A24.8-A24.10). Editors spell files in many ways."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

import anyio

from acp_agent.core.backends import EntryKind, FileSystem
from acp_agent.core.errors import AgentError
from acp_agent.core.services import Web, WebCaller
from acp_agent.core.types import Access
from acp_agent.tools.html import readable

_WINDOWS = re.compile(r"/?[A-Za-z]:(?:[\\/]|\Z)|\\\\")
_SHOWN = 2000  # characters of a URI


@dataclass(frozen=True, slots=True)
class Target:
    """Where a URI leads. At most one is set; none where it only names something.

    path      absolute, of a file or folder on this machine
    page      the URL of a page that may be read
    refused   why it is not read
    """

    path: str = ""
    page: str = ""
    refused: str = ""


def target(uri: str) -> Target:
    """Where a URI leads, or the bare absolute path some clients send. Touches nothing."""
    if _WINDOWS.match(uri):
        return _windows()
    if uri.startswith("/"):
        return Target(path=uri)
    try:
        parts = urlsplit(uri)
    except ValueError:  # http://[
        return Target()
    match parts.scheme:
        case "file":
            return _file(parts)
        case "https" if parts.netloc:
            return Target(page=uri)
        case "http" if parts.netloc:
            return Target(refused="only https links are read")
        case "data":
            return Target(refused="its content is in the link itself: attach it instead")
        case _:
            return Target()


def shown(uri: str) -> str:
    """A URI fit for a line of text."""
    line = " ".join(uri.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"


def _file(parts: SplitResult) -> Target:
    path = unquote(parts.path)
    if _WINDOWS.match(path) or parts.netloc.endswith(":"):  # file://C:/
        return _windows()
    if parts.netloc not in ("", "localhost"):
        return Target(refused=f"a file of another machine ({parts.netloc})")
    return Target(path=path) if path.startswith("/") else Target(refused="not an absolute path")


def _windows() -> Target:
    return Target(refused="a Windows path, which leads nowhere on this machine")


FILE_LIMIT = 1024 * 1024
"""Bytes of one file."""
TIMEOUT = 10.0
"""Seconds for one file or page."""
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
            return await _read_file(path, files)
    except TimeoutError:
        return LinkedFile(failure=f"not read within {timeout:g} s")
    except AgentError as error:
        return LinkedFile(failure=str(error).removeprefix(f"{path}: "))  # it is told with the link


async def _read_file(path: str, files: FileSystem) -> LinkedFile:
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


MAX_PAGES = 5
"""Pages read for one prompt."""


@dataclass(frozen=True, slots=True)
class LinkedPage:
    """A page as text, one too large up to the limit, or why there is none. `url` is where it came from."""

    url: str
    text: str = ""
    failure: str = ""


async def read_pages(urls: Sequence[str], web: Web, timeout: float = TIMEOUT) -> list[LinkedPage]:
    """The pages behind the URLs, in their order, all read at once and no redirect followed. Nothing of it raises."""
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
