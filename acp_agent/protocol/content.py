"""ACP content blocks -> message parts (A24.1-A24.11).

Nothing in a block can end the prompt but its size: what cannot be used is left out and the user told.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import assert_never
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from acp_agent.core.backends import EntryKind, FileSystem
from acp_agent.core.errors import AgentError
from acp_agent.core.messages import ImagePart, Message, Part, Role, TextPart
from acp_agent.core.redaction import Redact, verbatim
from acp_agent.core.types import Access
from acp_agent.core.web import Web
from acp_agent.output.spotlight import fence
from acp_agent.protocol import wire
from acp_agent.protocol.diagnostics import DIAGNOSTICS_TYPE, diagnostics
from acp_agent.protocol.errors import invalid_request
from acp_agent.protocol.linked_pages import read_pages

TEXT_LIMIT = 1024 * 1024
"""Bytes of text in one prompt, before and after links are read (A12.5, A24.14)."""
IMAGE_LIMIT = 20 * 1024 * 1024
"""Base64 characters of one image (A24.2)."""
LINK_LIMIT = 1024 * 1024
"""Bytes of one linked file (A24.8), characters of one linked page."""
_FRAME = 16 * 1024  # bytes around the text of a linked page, and for escapes in it
_IMAGE_TYPES = {"image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp"}
_KEY_FOLDERS = {".ssh", ".gnupg", ".aws"}
_KERNEL_FOLDERS = {"proc", "sys", "dev"}


@dataclass(slots=True)
class Prompt:
    """A prompt understood.

    command   the first text, where a slash command stands
    typed     what the user wrote or attached himself: texts and the addresses of links
    skipped   what was left out and why, one line each
    """

    message: Message
    command: str
    typed: str
    skipped: list[str] = field(default_factory=list[str])


async def read_prompt(blocks: Sequence[wire.Block], files: FileSystem, web: Web, redact: Redact = verbatim) -> Prompt:
    """Raises RpcError -32600 "prompt too large". What is attached goes through `redact`; what is typed stays."""
    reading = _Reading(files, redact)
    for block in blocks:
        await reading.add(block)
    await reading.add_pages(web)
    texts = [block.text for block in blocks if isinstance(block, wire.Text)]
    parts: tuple[Part, ...] = (TextPart("\n".join(reading.texts)), *reading.images)
    links = [block.uri for block in blocks if isinstance(block, wire.Link)]
    typed = "\n".join((*texts, *links))
    return Prompt(Message(Role.USER, parts), texts[0] if texts else "", typed, reading.skipped)


class _Reading:
    """Gathers the parts of one prompt: texts joined, resources after them in place, images attached."""

    def __init__(self, files: FileSystem, redact: Redact) -> None:
        self._files = files
        self._redact = redact
        self._size = 0
        self._pages: list[tuple[str, int]] = []  # URLs of linked pages, and which text names each
        self.texts: list[str] = []
        self.images: list[Part] = []
        self.skipped: list[str] = []

    async def add(self, block: wire.Block) -> None:
        match block:
            case wire.Text(text=text):
                self._add_text(text)
            case wire.Image():
                self._add_image(block.data, block.mime_type)
            case wire.Audio():
                self.skipped.append("audio is not supported")
            case wire.Link():
                await self._add_link(block)
            case wire.Embedded():
                self._add_embedded(block)
            case _:
                assert_never(block)

    def _add_text(self, text: str) -> None:
        self._size += len(text.encode("utf-8", "replace"))
        if self._size > TEXT_LIMIT:
            raise invalid_request(f"prompt too large: over {TEXT_LIMIT} bytes of text")
        self.texts.append(text)

    def _add_image(self, data: str, mime_type: str) -> None:
        if mime_type not in _IMAGE_TYPES:
            self.skipped.append(f"image of type {mime_type}: expected {', '.join(sorted(_IMAGE_TYPES))}")
        elif len(data) > IMAGE_LIMIT:
            self.skipped.append(f"image of {len(data)} base64 characters: at most {IMAGE_LIMIT}")
        elif not _is_base64(data):
            self.skipped.append("image: its data is not base64")
        else:
            self.images.append(ImagePart(data, mime_type.replace("image/jpg", "image/jpeg")))

    def _add_embedded(self, block: wire.Embedded) -> None:
        resource = block.resource
        if isinstance(resource, wire.EmbeddedText):
            listed = resource.mime_type == DIAGNOSTICS_TYPE
            self._add_text(diagnostics(resource.text) if listed else self._resource(resource.uri, resource.text))
        elif resource.mime_type in _IMAGE_TYPES:
            self._add_image(resource.blob, resource.mime_type or "")
        else:
            self.skipped.append(f"{resource.uri}: a binary resource")

    async def _add_link(self, block: wire.Link) -> None:
        path = file_path(block.uri)
        if path is None:
            self._add_text(f'<resource_link uri="{escape(block.uri)}" name="{escape(block.name)}"/>')
            scheme = block.uri.partition("://")[0].lower() if "://" in block.uri else ""
            if scheme == "https":
                self._pages.append((block.uri, len(self.texts) - 1))
            elif scheme == "http":
                self.skipped.append(f"{block.uri}: only https links are read")
            return
        try:
            _refuse_private(self._files.resolve(path, Access.LIST))
            if await self._files.kind(path) is EntryKind.DIRECTORY:
                self._add_text(f'<resource_link uri="{escape(block.uri)}" name="{escape(block.name)}" type="folder"/>')
                return
            text = await self._files.read_text(path)
        except AgentError as error:
            self.skipped.append(f"{block.uri}: {error}")
            return
        if len(text.encode("utf-8", "replace")) > LINK_LIMIT:
            self.skipped.append(f"{block.uri}: over {LINK_LIMIT} bytes")
            return
        self._add_text(self._resource(block.uri, text))

    def _resource(self, uri: str, text: str) -> str:
        return _resource(uri, self._redact(text))

    async def add_pages(self, web: Web) -> None:
        """Put linked pages in the place of their names, into the room the rest of the prompt has left (A24.14)."""
        pages = await read_pages([url for url, _ in self._pages], web)
        for (url, index), page in zip(self._pages, pages, strict=True):
            if page.failure:
                self.skipped.append(f"{url}: {page.failure}")
                continue
            named = len(self.texts[index].encode("utf-8", "replace"))
            room = TEXT_LIMIT - self._size + named
            text = _cut(self._redact(page.text), room - _FRAME)
            resource = _resource(url, fence(text, str(uuid4()), external=page.url))
            size = len(resource.encode("utf-8", "replace"))
            if not text or size > room:
                self.skipped.append(f"{url}: no room for it in the prompt" if page.text else f"{url}: nothing to read")
                continue
            self.texts[index] = resource
            self._size += size - named


def file_path(uri: str) -> str | None:
    """The path of a file:// URI, or of the bare absolute path some clients send; None for anything else."""
    if uri.startswith("/"):
        return uri
    try:
        parts = urlsplit(uri)
    except ValueError:  # http://[
        return None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    return unquote(parts.path)


class _Private(AgentError):
    """A link into a folder that holds keys or devices."""


def _refuse_private(path: str) -> None:
    names = path.strip("/").split("/")
    if _KEY_FOLDERS & set(names) or names[0] in _KERNEL_FOLDERS:
        raise _Private("in a private folder")


def _resource(uri: str, text: str) -> str:
    # The body could otherwise close the element and speak as the user (A24.13).
    body = re.sub("</(?=resource)", "&lt;/", text, flags=re.IGNORECASE)
    return f'<resource uri="{escape(uri)}">\n{body}\n</resource>'


def _cut(text: str, limit: int) -> str:
    """At most LINK_LIMIT characters and about `limit` bytes of a page, with a word where it was cut."""
    kept = text[:LINK_LIMIT].encode("utf-8", "replace")[: max(limit, 0)].decode(errors="ignore")
    return f"{kept}\n[The page goes on.]" if kept and len(kept) < len(text) else kept


def _is_base64(data: str) -> bool:
    try:
        return bool(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return False
