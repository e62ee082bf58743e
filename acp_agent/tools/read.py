"""read: a text file, or a part of it, with line numbers; or a picture (requirements T4.11, 2.8)."""

import base64
import json
import struct
from typing import Annotated

from anyio import to_thread
from pydantic import Field

from acp_agent.core.backends import FileSystem, Lines
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import Access, ImagePart, Location, PathSubject, Subject, ToolKind, ToolResult
from acp_agent.tools.lines import numbered
from acp_agent.tools.params import WHOLE, Name, Params
from acp_agent.tools.tool import Tool

MAX_PICTURE = 3_932_160
"""Bytes of a picture: 5 MiB of base64, the smallest limit of the big model APIs."""
MAX_SIDE = 8000
"""Pixels of a picture's longer side, likewise."""
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_MAX_NOTEBOOK = 32 * 1024 * 1024
_MAX_OFFSET = 1_000_000_000  # a place's line is 32 bits wide in ACP


class ReadParams(Params):
    """Read a text file or a picture. Each line comes as its number, a tab and its text; long files come in parts.

    Paths, here and in the other tools, are absolute or relative to the session's folder.
    """

    path: Name
    offset: Annotated[int, Field(ge=-_MAX_OFFSET, le=_MAX_OFFSET), WHOLE] = Field(
        default=0, description="Lines to skip; -50: the last 50"
    )
    limit: Annotated[int, Field(ge=1), WHOLE] | None = Field(default=None, description="Lines to read")


class Read(Tool[ReadParams]):
    """Reads through the FileSystem port, so unsaved editor buffers are seen where the editor offers them."""

    name = "read"
    kind = ToolKind.READ
    mutates = False
    cacheable = True
    params = ReadParams

    def __init__(self, *, max_lines: int, max_line_chars: int) -> None:
        self._max_lines = max_lines
        self._max_line_chars = max_line_chars

    def subjects(self, params: ReadParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.READ),)

    def locations(self, params: ReadParams, files: FileSystem) -> tuple[Location, ...]:
        return _location(params.path, max(params.offset, 0), files)

    async def run(self, params: ReadParams, context: ToolContext) -> ToolResult:
        files = context.files
        if params.path.lower().endswith(".ipynb"):
            await _refuse_notebook(params.path, files)
        limit = min(params.limit or self._max_lines, self._max_lines)
        try:
            lines = await files.read_lines(params.path, params.offset, limit)
        except ToolError as error:
            return await _picture(params.path, files, error)
        if lines.first == 0 and lines.lines and lines.lines[0].startswith("%PDF-"):
            raise _pdf(params.path)
        return ToolResult(self._page(lines, params), locations=_location(params.path, lines.first, files))

    def _page(self, lines: Lines, params: ReadParams) -> str:
        """The lines, and a notice where there is more or nothing to show."""
        if lines.total == 0:
            return f"Empty file: {params.path}"
        if params.offset >= lines.total:
            return f"Nothing at offset {params.offset}: {params.path} has {lines.total} lines"
        page = [numbered(lines.lines, lines.first + 1, self._max_line_chars)]
        if params.offset < 0 and lines.first > 0:
            page.insert(0, f"... {lines.first} lines before")
        end = lines.first + len(lines.lines)
        if end < lines.total:
            page.append(f"... {lines.total - end} more lines (go on with offset={end})")
        return "\n".join(page)


def _location(path: str, first: int, files: FileSystem) -> tuple[Location, ...]:
    """The file, at the line after the first `first`; at no line when these are none."""
    return (Location(files.resolve(path, Access.READ), first + 1 if first else None),)


# ---------------------------------------------------------------------------- what is no text


async def _picture(path: str, files: FileSystem, error: ToolError) -> ToolResult:
    """What a file is that could not be read as text, by its first bytes. Raises `error` where it is no picture."""
    try:
        data = await files.read_bytes(path, MAX_PICTURE)
    except (ToolError, Refused):
        raise error from None  # missing or too large: it says so better
    if data.startswith(b"%PDF-"):
        raise _pdf(path)
    mime_type = _picture_type(data)
    if mime_type is None:
        raise error
    width, height = _size(data, mime_type)
    if not (width and height):
        raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"{path}: a damaged picture ({mime_type})")
    facts = f"{mime_type}, {width}x{height}, {-(-len(data) // 1024)} KB"
    if max(width, height) > MAX_SIDE:
        msg = f"{path}: too large a picture ({facts}); at most {MAX_SIDE} pixels a side"
        raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, msg, "Make a smaller copy with a command and read that.")
    image = ImagePart(base64.b64encode(data).decode(), mime_type)
    text = f"Image: {path} ({facts})"
    return ToolResult(text, images=(image,), locations=_location(path, 0, files))


def _picture_type(data: bytes) -> str | None:
    """The MIME type of a picture that models take, by its first bytes."""
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return next((mime_type for magic, mime_type in _MAGIC if data.startswith(magic)), None)


def _size(data: bytes, mime_type: str) -> tuple[int, int]:
    """Width and height in pixels, as the header has them; 0, 0 where it is cut short or makes no sense.

    An API refuses such a picture, and with it every later request of the conversation.
    """
    try:
        match mime_type:
            case "image/png":
                return struct.unpack_from(">II", data, 16)
            case "image/gif":
                return struct.unpack_from("<HH", data, 6)
            case "image/webp":
                return _webp_size(data)
            case _:
                return _jpeg_size(data)
    except struct.error:
        return 0, 0


def _webp_size(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", data, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            low_width, high_width, low_height, high_height = struct.unpack_from("<HBHB", data, 24)
            return (high_width << 16 | low_width) + 1, (high_height << 16 | low_height) + 1
        case _:
            return 0, 0


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """From the first frame header (SOF0 to SOF15, but for the three numbers among them that mean tables)."""
    at = 2
    while True:
        mark, kind, length = struct.unpack_from(">BBH", data, at)
        if mark != 0xFF:
            return 0, 0
        if kind == 0xFF:  # padding
            at += 1
        elif 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        else:
            at += 2 + length


def _pdf(path: str) -> ToolError:
    hint = "Take its text out with a command such as `pdftotext -layout FILE -`."
    return ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"{path} is a PDF, not a text file", hint)


async def _refuse_notebook(path: str, files: FileSystem) -> None:
    """Raise for a Jupyter notebook: its outputs, pictures among them, would bury the code."""
    try:
        data = await files.read_bytes(path, _MAX_NOTEBOOK)
    except ToolError:
        return  # not on disk, or no file: reading it will tell
    if await to_thread.run_sync(_is_notebook, data):
        hint = "Take the cells out with a command such as `jq -r '.cells[].source | add' FILE` or `jupyter nbconvert`."
        raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"{path} is a notebook, not a text file", hint)


def _is_notebook(data: bytes) -> bool:
    try:
        notebook = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(notebook, dict) and "cells" in notebook
