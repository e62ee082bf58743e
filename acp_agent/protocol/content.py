"""ACP content blocks -> message parts (A24.1-A24.11).

Nothing in a block can end the prompt but its size: what cannot be used is left out and the user told.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import PurePosixPath
from typing import assert_never
from urllib.parse import unquote, urlsplit

import anyio

from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import AgentError
from acp_agent.core.messages import ImagePart, Message, Part, Role, TextPart
from acp_agent.core.types import Access
from acp_agent.protocol import wire
from acp_agent.protocol.diagnostics import DIAGNOSTICS_TYPE, diagnostics
from acp_agent.protocol.errors import invalid_request

TEXT_LIMIT = 1024 * 1024
"""Bytes of text in one prompt, before and after links are read (A12.5, A24.14)."""
IMAGE_LIMIT = 20 * 1024 * 1024
"""Base64 characters of one image (A24.2)."""
LINK_LIMIT = 1024 * 1024
"""Bytes of one linked file (A24.8)."""
_IMAGE_TYPES = {"image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp"}
_KEY_FOLDERS = {".ssh", ".gnupg", ".aws"}
_KERNEL_FOLDERS = {"proc", "sys", "dev"}


@dataclass(slots=True)
class Prompt:
    """A prompt understood. `skipped` says, one line each, what was left out and why."""

    message: Message
    command: str
    skipped: list[str] = field(default_factory=list[str])


async def read_prompt(blocks: Sequence[wire.Block], files: FileSystem) -> Prompt:
    """Raises RpcError -32600 "prompt too large". `command` is the first text, where a slash command stands."""
    reading = _Reading(files)
    for block in blocks:
        await reading.add(block)
    texts = [block.text for block in blocks if isinstance(block, wire.Text)]
    parts: tuple[Part, ...] = (TextPart("\n".join(reading.texts)), *reading.images)
    return Prompt(Message(Role.USER, parts), texts[0] if texts else "", reading.skipped)


class _Reading:
    """Gathers the parts of one prompt: texts joined, resources after them in place, images attached."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._size = 0
        self.texts: list[str] = []
        self.images: list[Part] = []
        self.skipped: list[str] = []

    async def add(self, block: wire.Block) -> None:
        match block:
            case wire.Text(text=text):
                self._add_text(text)
            case wire.Image():
                self._add_image(block)
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

    def _add_image(self, block: wire.Image) -> None:
        if block.mime_type not in _IMAGE_TYPES:
            self.skipped.append(f"image of type {block.mime_type}: expected {', '.join(sorted(_IMAGE_TYPES))}")
        elif len(block.data) > IMAGE_LIMIT:
            self.skipped.append(f"image of {len(block.data)} base64 characters: at most {IMAGE_LIMIT}")
        elif not _is_base64(block.data):
            self.skipped.append("image: its data is not base64")
        else:
            self.images.append(ImagePart(block.data, block.mime_type.replace("image/jpg", "image/jpeg")))

    def _add_embedded(self, block: wire.Embedded) -> None:
        resource = block.resource
        if isinstance(resource, wire.EmbeddedText):
            listed = resource.mime_type == DIAGNOSTICS_TYPE
            self._add_text(diagnostics(resource.text) if listed else _resource(resource.uri, resource.text))
        elif resource.mime_type in _IMAGE_TYPES:
            self._add_image(wire.Image(type="image", data=resource.blob, mime_type=resource.mime_type or ""))
        else:
            self.skipped.append(f"{resource.uri}: a binary resource")

    async def _add_link(self, block: wire.Link) -> None:
        path = file_path(block.uri)
        if path is None:
            # A page may be fetched by a tool, under the guards of the web tools; a link alone fetches nothing.
            self._add_text(f'<resource_link uri="{escape(block.uri)}" name="{escape(block.name)}"/>')
            return
        try:
            resolved = self._files.resolve(path, Access.READ)
            _refuse_private(resolved)
            if await anyio.Path(resolved).is_dir():
                self._add_text(f'<resource_link uri="{escape(block.uri)}" name="{escape(block.name)}" type="folder"/>')
                return
            text = await self._files.read_text(path)
        except AgentError as error:
            self.skipped.append(f"{block.uri}: {error}")
            return
        if len(text.encode("utf-8", "replace")) > LINK_LIMIT:
            self.skipped.append(f"{block.uri}: over {LINK_LIMIT} bytes")
            return
        self._add_text(_resource(block.uri, text))


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
    parts = PurePosixPath(path).parts[1:]
    if _KEY_FOLDERS & set(parts) or (parts and parts[0] in _KERNEL_FOLDERS):
        raise _Private("in a private folder")


def _resource(uri: str, text: str) -> str:
    # The body could otherwise close the element and speak as the user (A24.13).
    body = re.sub("</(?=resource)", "&lt;/", text, flags=re.IGNORECASE)
    return f'<resource uri="{escape(uri)}">\n{body}\n</resource>'


def _is_base64(data: str) -> bool:
    try:
        return bool(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return False
