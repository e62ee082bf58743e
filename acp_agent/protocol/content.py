"""The content of a prompt: turn ACP content blocks into the parts that are stored and the message for the model.

A block that cannot be used is left out and the user is told; only a prompt that is too large is refused. Text that the
user sent has precedence: linked files and pages are read only up to the size limit, and a link that does not fit stays
a name. Files are read as tools read them, by the rules and with the editor's unsaved changes. Pages are read with the
checks of the web tools.
"""

import base64
import binascii
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, assert_never, cast
from urllib.parse import SplitResult, unquote, urlsplit
from uuid import uuid4

import anyio
from anyio import to_thread

from acp_agent.core.backends import EntryKind, FileSystem
from acp_agent.core.data import frozen
from acp_agent.core.errors import AgentError
from acp_agent.core.messages import ImagePart, LinkPart, Message, PromptPart, ResourcePart, Role, TextPart
from acp_agent.core.secrets import Redact, verbatim
from acp_agent.core.services import Web, WebCaller
from acp_agent.core.types import Access, Json, JsonObject
from acp_agent.output.sanitize import fence
from acp_agent.protocol import wire
from acp_agent.protocol.jsonrpc import invalid_request
from acp_agent.text import abbreviated, xml_escaped
from acp_agent.tools.web import readable

_WINDOWS = re.compile(r"/?[A-Za-z]:(?:[\\/]|\Z)|\\\\")
_LONGEST_SHOWN = 2000
"""The most characters of a URI in a line of text."""


class LinkTarget(NamedTuple):
    """The target of a URI. At most one field is set; none for a URI that is only a name.

    path      absolute, of a file or folder on this machine
    page      the URL of a page that may be read
    refused   why the target is not read
    """

    path: str = ""
    page: str = ""
    refused: str = ""


_ON_WINDOWS = LinkTarget(refused="a Windows path, which does not exist on this machine")


def link_target(uri: str) -> LinkTarget:
    """Return the target of a URI, or of the absolute path that some clients send instead. Does no I/O."""
    if _WINDOWS.match(uri):
        return _ON_WINDOWS
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
    return abbreviated(" ".join(uri.split()), _LONGEST_SHOWN)


def _file(parts: SplitResult) -> LinkTarget:
    path = unquote(parts.path)
    if _WINDOWS.match(path) or parts.netloc.endswith(":"):  # file://C:/
        return _ON_WINDOWS
    if parts.netloc not in ("", "localhost"):
        return LinkTarget(refused=f"a file of another machine ({parts.netloc})")
    return LinkTarget(path=path) if path.startswith("/") else LinkTarget(refused="not an absolute path")


FILE_LIMIT = 1024 * 1024
"""Bytes of one file."""
TIMEOUT = 10.0
"""Seconds for one file or page."""
_KEY_FOLDERS = {".ssh", ".gnupg", ".aws"}
_KERNEL_FOLDERS = {"proc", "sys", "dev"}


class LinkedFile(NamedTuple):
    """The text of a file, or why it was not read (`failure`). `is_folder` is True for a folder, which has no text."""

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
    names = files.resolve(path, Access.LIST).strip("/").split("/")
    of_kernel = names[0] in _KERNEL_FOLDERS and names[:2] != ["dev", "shm"]  # /dev/shm holds ordinary files
    if of_kernel or not _KEY_FOLDERS.isdisjoint(name.lower() for name in names):
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


MAX_PAGES = 5
"""The most pages read for one prompt."""


class LinkedPage(NamedTuple):
    """A page as text, cut at the limit of web pages, or why it was not read. `url` is its address."""

    url: str
    text: str = ""
    failure: str = ""


async def read_pages(urls: Sequence[str], web: Web, timeout: float = TIMEOUT) -> list[LinkedPage]:
    """Read pages at the same time, without redirects, and return them in order. Failures are in the result."""
    if not urls:  # a task group takes a turn of the event loop
        return []
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


DIAGNOSTICS_TYPE = "application/vnd.zed.diagnostics+json"
TEXT_LIMIT = 1024 * 1024
"""The most bytes of text in one prompt, before and after links are read."""
IMAGE_LIMIT = 20 * 1024 * 1024
"""The most base64 characters of one image."""
IMAGES_LIMIT = 24 * 1024 * 1024
"""The most base64 characters of all images of one prompt: Anthropic's API takes requests of 32 MB."""
MAX_IMAGES = 20
MAX_FILES = 50
"""The most linked files read for one prompt."""
PAGE_LIMIT = 1024 * 1024
"""The most characters of one linked page."""
_PAGE_OVERHEAD = 16 * 1024
"""Bytes reserved for the markup around a linked page and for escapes in it."""
_IMAGE_TYPES = {"image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp"}
_LARGE_IMAGE = 256 * 1024
"""An image of more base64 characters is checked in a thread."""


@frozen
class _Linked:
    """A link to be read.

    where   the path or URL of its target
    index   the position of its name among the texts of the prompt
    """

    link: wire.Link
    where: str
    index: int


class Prompt:
    """A prompt as it was sent, which `read` turns into the message for the model.

    The message has one text, with each resource at the place of its block, and then the images.

    skipped   what was left out and why, one line each
    """

    def __init__(self, redact: Redact = verbatim) -> None:
        self._redact = redact
        self._size = 0
        self._image_size = 0
        self._typed: list[int] = []  # the positions of the texts that the user typed
        self._files: list[_Linked] = []
        self._pages: list[_Linked] = []
        self._texts: list[str] = []
        self._images: list[ImagePart] = []
        self._parts: list[PromptPart] = []
        self.skipped: list[str] = []

    @classmethod
    async def sent(cls, blocks: Sequence[wire.Block], redact: Redact = verbatim) -> "Prompt":
        """Read the blocks of a prompt. No link is followed yet. Raises RpcError -32600 for too much text.

        Attached resources go through `redact`; text that the user typed does not.
        """
        prompt = cls(redact)
        for block in blocks:
            await prompt._add(block)
        return prompt

    @property
    def texts(self) -> Sequence[str]:
        """The texts that the user typed, one per block."""
        return [self._texts[index] for index in self._typed]

    @property
    def parts(self) -> tuple[PromptPart, ...]:
        """All parts of the prompt, including secrets."""
        return tuple(self._parts)

    async def stored_parts(self) -> tuple[PromptPart, ...]:
        """Return the parts to store, without secrets."""
        return await redacted(self.parts, self._redact)

    async def read(
        self, files: FileSystem, web: Web, diagnostics: Callable[[], Awaitable[str]] | None = None
    ) -> Message:
        """Read the links, and return the message for the model. Diagnostics come first in it.

        diagnostics   returns the diagnostics of the editor's language servers as text for the model, or ""
        """
        await self._add_files(files)
        await self._add_pages(web)
        await self._add_diagnostics(diagnostics)
        return self._message(self._texts)

    def message_with(self, text: str, instead_of: int) -> Message:
        """See SentPrompt."""
        first, *others = self._typed[:instead_of]
        texts = [text if at == first else each for at, each in enumerate(self._texts) if at not in others]
        return self._message(texts)

    def _message(self, texts: Sequence[str]) -> Message:
        return Message(Role.USER, (TextPart("\n".join(texts)), *self._images))

    # ------------------------------------------------------------------------------- blocks

    async def _add(self, block: wire.Block) -> None:
        match block:
            case wire.Text(text=text):
                self._typed.append(len(self._texts))
                self._add_text(text)
                self._parts.append(TextPart(text))
            case wire.Image():
                await self._add_image(block.data, block.mime_type)
            case wire.Audio():
                self.skipped.append("audio is not supported")
            case wire.Link():
                self._add_link(block)
            case wire.Embedded():
                await self._add_embedded(block.resource)
            case wire.Unknown():
                self.skipped.append(f"a block of type {one_line(block.type)[:40]}: not supported")
            case _:
                assert_never(block)

    def _add_text(self, text: str) -> None:
        self._size += _bytes(text)
        if self._size > TEXT_LIMIT:
            raise invalid_request(f"prompt too large: over {TEXT_LIMIT} bytes of text")
        self._texts.append(text)

    async def _add_image(self, data: str, mime_type: str) -> None:
        kind = _essence(mime_type)
        if kind not in _IMAGE_TYPES:
            self.skipped.append(f"image of type {one_line(mime_type)}: expected {', '.join(sorted(_IMAGE_TYPES))}")
        elif len(data) > IMAGE_LIMIT:
            self.skipped.append(f"image of {len(data)} base64 characters: at most {IMAGE_LIMIT}")
        elif len(self._images) >= MAX_IMAGES:
            self.skipped.append(f"image: at most {MAX_IMAGES} are taken")
        elif self._image_size + len(data) > IMAGES_LIMIT:
            self.skipped.append(f"image: all together have over {IMAGES_LIMIT} base64 characters")
        elif not (await to_thread.run_sync(_is_base64, data) if len(data) > _LARGE_IMAGE else _is_base64(data)):
            self.skipped.append("image: its data is not base64")
        else:
            image = ImagePart(data, kind.replace("image/jpg", "image/jpeg"))
            self._image_size += len(data)
            self._images.append(image)
            self._parts.append(image)

    async def _add_embedded(self, resource: wire.EmbeddedText | wire.EmbeddedBlob) -> None:
        kind = _essence(resource.mime_type or "")
        if isinstance(resource, wire.EmbeddedText):
            listed = kind == DIAGNOSTICS_TYPE
            text = await redacted_text(diagnostics(resource.text) if listed else resource.text, self._redact)
            self._add_text(text if listed else _resource(resource.uri, text))
            self._parts.append(ResourcePart(resource.uri, resource.text, resource.mime_type or ""))
        elif kind in _IMAGE_TYPES:
            await self._add_image(resource.blob, kind)
        else:
            self.skipped.append(f"{one_line(resource.uri)} (a binary resource)")
            self._parts.append(LinkPart(resource.uri, resource.uri))

    def _add_link(self, link: wire.Link) -> None:
        self._add_text(_named(link))
        self._parts.append(LinkPart(link.uri, link.name))
        where = link_target(link.uri)
        index = len(self._texts) - 1
        if where.path:
            self._files.append(_Linked(link, where.path, index))
        elif where.page:
            self._pages.append(_Linked(link, where.page, index))
        elif where.refused:
            self._skip(link, where.refused)

    # ------------------------------------------------------------------------------- links

    async def _add_files(self, files: FileSystem) -> None:
        """Replace the names of linked files by their texts, as long as the prompt is not too large."""
        for linked in self._files[:MAX_FILES]:
            found = await read_file(linked.where, files)
            if found.is_folder:
                self._put(linked, _named(linked.link, ' type="folder"'))
            elif found.failure:
                self._skip(linked.link, found.failure)
            else:
                text = await redacted_text(found.text, self._redact)
                self._put(linked, _resource(linked.link.uri, text))
        for linked in self._files[MAX_FILES:]:
            self._skip(linked.link, f"at most {MAX_FILES} linked files are read")

    async def _add_pages(self, web: Web) -> None:
        """Replace the names of linked pages by their texts, as long as the prompt is not too large."""
        pages = await read_pages([linked.where for linked in self._pages], web)
        for linked, page in zip(self._pages, pages, strict=True):
            if page.failure:
                self._skip(linked.link, page.failure)
                continue
            whole = await redacted_text(page.text, self._redact)
            room = max(self._room(linked.index) - _PAGE_OVERHEAD, 0)
            text = whole[:PAGE_LIMIT].encode("utf-8", "replace")[:room].decode(errors="ignore")
            if text:
                text = text if len(text) == len(whole) else f"{text}\n[The page goes on.]"
                self._put(linked, _resource(linked.link.uri, fence(text, str(uuid4()), external=page.url)))
            else:
                self._skip(linked.link, "no room for it in the prompt" if page.text else "nothing to read")

    async def _add_diagnostics(self, ask: Callable[[], Awaitable[str]] | None) -> None:
        """Put the diagnostics first if a text has `@diagnostics`. Remove that word if there are none."""
        mentioning = [index for index in self._typed if _MENTION.search(self._texts[index])]
        if not mentioning:
            return
        try:
            found = await redacted_text(await ask(), self._redact) if ask is not None else ""
        except AgentError:
            found = ""
        if found and _bytes(found) <= TEXT_LIMIT - self._size:
            self._size += _bytes(found)
            self._texts.insert(0, found)
            self._typed = [index + 1 for index in self._typed]
            return
        for index in mentioning:
            self._texts[index] = _MENTION.sub("", self._texts[index])

    def _put(self, linked: _Linked, text: str) -> None:
        if _bytes(text) > self._room(linked.index):
            self._skip(linked.link, "no room for it in the prompt")
            return
        self._size += _bytes(text) - _bytes(self._texts[linked.index])
        self._texts[linked.index] = text

    def _room(self, index: int) -> int:
        return TEXT_LIMIT - self._size + _bytes(self._texts[index])

    def _skip(self, link: wire.Link, why: str) -> None:
        # In parentheses: after a colon, as in ".../token: ...", the redactor would take the reason for a secret.
        self.skipped.append(f"{one_line(link.uri)} ({why.removeprefix(f'{link.uri}: ')})")


async def read_prompt(params: JsonObject, redact: Redact) -> Prompt:
    """Read the prompt of `session/prompt`. Raises RpcError if it is malformed or too large."""
    return await Prompt.sent(wire.prompt_blocks(params), redact)


def _named(link: wire.Link, more: str = "") -> str:
    return f'<resource_link uri="{xml_escaped(one_line(link.uri))}" name="{xml_escaped(one_line(link.name))}"{more}/>'


def _resource(uri: str, text: str) -> str:
    # Otherwise the text could close the element, and the rest of it would look like the user's words.
    body = re.sub("</(?=resource)", "&lt;/", text, flags=re.IGNORECASE)
    return f'<resource uri="{xml_escaped(one_line(uri))}">\n{body}\n</resource>'


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _essence(mime_type: str) -> str:
    """Return a MIME type in lower case without its parameters."""
    return mime_type.partition(";")[0].strip().lower()


def _is_base64(data: str) -> bool:
    try:
        return bool(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return False


# --------------------------------------------------------------------------------- secrets


_SHORT = 16 * 1024
"""A text of up to this many characters is redacted in the event loop, a longer one in a thread."""


async def redacted(parts: tuple[PromptPart, ...], redact: Redact) -> tuple[PromptPart, ...]:
    """Return the parts without secrets, for the store: the user may have typed one.

    Short texts are redacted without suspending the task, so that it cannot be cancelled meanwhile.
    """
    return tuple([await _redacted(part, redact) for part in parts])


async def redacted_text(text: str, redact: Redact) -> str:
    """Return a text of any size without secrets."""
    return redact(text) if len(text) <= _SHORT else await to_thread.run_sync(redact, text, abandon_on_cancel=True)


async def _redacted(part: PromptPart, redact: Redact) -> PromptPart:
    match part:
        case TextPart(text):
            return TextPart(await redacted_text(text, redact))
        case ImagePart():
            return part
        case LinkPart(uri, name):
            return LinkPart(redact(uri), redact(name))
        case ResourcePart(uri, text, mime_type):
            return ResourcePart(redact(uri), await redacted_text(text, redact), mime_type)
        case _:
            assert_never(part)


# --------------------------------------------------------------------------------- diagnostics


_MENTION = re.compile(r"[ \t]?(?<![\w@./:-])@diagnostics(?![\w/-]|\.\w)")
_SEVERITIES = {"1": "ERROR", "2": "WARNING", "3": "INFO", "4": "HINT"}
"""The names of the numbers of DiagnosticSeverity in the Language Server Protocol."""


def diagnostics(text: str) -> str:
    """Return the diagnostics in a JSON text: `<diagnostics>` with a line `path:row: [SEVERITY] message` for each entry.

    Without entries, or for a text that is not JSON, the element has no lines.
    """
    try:
        found = cast("Json", json.loads(text))
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        found = found.get("diagnostics")
    entries = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    return "\n".join(("<diagnostics>", *map(_line, entries), "</diagnostics>"))


def _line(entry: JsonObject) -> str:
    path, row = _first(entry, "path", "file", "uri"), _first(entry, "row", "line")
    severity, message = _first(entry, "severity"), _first(entry, "message")
    said = _SEVERITIES.get(severity, severity.upper())
    return xml_escaped(f"{path}:{row}: [{said}] {' '.join(message.split())}", quotes=False)


def _first(entry: JsonObject, *keys: str) -> str:
    value = next((entry[key] for key in keys if entry.get(key) is not None), "")
    return str(value) if isinstance(value, str | int) else ""
