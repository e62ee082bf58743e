"""read: a text file or a part of it with line numbers, or a picture."""

import base64
import shlex
import struct
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Final, NamedTuple

from anyio import to_thread

from acp_agent.core.backends import FileSystem, Lines
from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import Access, ImagePart, Location, PathSubject, Subject, ToolKind, ToolResult
from acp_agent.core.untrusted import json_value
from acp_agent.shape import Field
from acp_agent.text import counted, escaped
from acp_agent.tools.tool import WHOLE, Name, Params, Tool, cut, numbered, skipped
from acp_agent.workspace.seen_files import SeenFiles
from acp_agent.workspace.text_files import noted

MAX_PICTURE: Final = 3_932_160
"""The largest picture in bytes: 5 MiB of base64, the smallest limit of the large model APIs."""
MAX_SIDE: Final = 8000
"""The longest side in pixels, the smallest limit of the large model APIs."""
_MOST_CHUNKS: Final = 20_000
_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_NUMBER = 8  # characters of a line's number, tab and end
_MAX_NOTEBOOK = 32 * 1024 * 1024  # bytes
_MAX_OFFSET = 1_000_000_000  # a line number in ACP has 32 bits


class ReadParams(Params):
    """Read a text file or a picture. Each line has its number, a tab and its text. Long files are read in parts."""

    path: Name
    offset: Annotated[int, Field(ge=-_MAX_OFFSET, le=_MAX_OFFSET), WHOLE] = Field(
        default=1, description="First line; -50: the last 50"
    )
    limit: Annotated[int, Field(ge=1), WHOLE] | None = Field(default=None, description="Lines to read")

    @property
    def skipped(self) -> int:
        """The number of lines to skip. -50 means all but the last 50."""
        return skipped(self.offset)


class Read(Tool[ReadParams]):
    """The tool that reads a file. Unsaved changes are read if the editor offers them."""

    name = "read"
    kind = ToolKind.READ
    mutates = False
    cacheable = True

    def __init__(self, *, max_lines: int, max_line_chars: int, seen: SeenFiles, max_chars: int = 40_000) -> None:
        self._seen = seen
        self._max_chars = max_chars
        self._max_lines = max_lines
        self._max_line_chars = max_line_chars

    def title(self, params: ReadParams) -> str:
        first, limit = params.skipped + 1, params.limit
        if params.offset < 0:
            lines = f" (last {-params.offset} lines)"
        elif limit is not None:
            lines = f" (lines {first}-{params.skipped + limit})"
        else:
            lines = f" (from line {first})" if params.skipped else ""
        return f"{super().title(params)}{lines}"

    def subjects(self, params: ReadParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.READ),)

    def locations(self, params: ReadParams, files: FileSystem) -> tuple[Location, ...]:
        return _location(params.path, max(params.skipped, 0), files)

    async def run(self, params: ReadParams, context: ToolContext) -> ToolResult:
        files = context.files
        if params.path.lower().endswith(".ipynb") and params.limit is None:
            await _refuse_notebook(params.path, files)
        limit = min(params.limit or self._max_lines, self._max_lines)
        try:
            lines = await files.read_lines(params.path, params.skipped, limit)
        except ToolError as error:
            return await _picture(params.path, files, error)
        if lines.first == 0 and lines.lines and lines.lines[0].startswith("%PDF-"):
            raise _pdf(params.path)
        if lines.digest:
            resolved = files.resolve(params.path, Access.READ)
            who = context.agent.id if context.agent else ""
            note = partial(self._seen.note_digest, resolved, lines.digest, lines.whole, who)
            await noted(note, len(lines.whole or ""))
        return ToolResult(self._page(lines, params), locations=_location(params.path, lines.first, files))

    def _page(self, lines: Lines, params: ReadParams) -> str:
        """Return the lines, and a notice if there are none, or if more of the requested lines did not fit."""
        if lines.total is None:
            return self._last_page(lines, params)
        if lines.total == 0:
            return f"Empty file: {params.path}"
        if params.skipped >= lines.total:
            return f"Nothing at offset {params.offset}: {params.path} has {lines.total} lines"
        fitting = self._fitting(lines.lines)
        page = [numbered(fitting, lines.first + 1, self._max_line_chars)]
        if lines.encoding:
            page.insert(0, f"[the file is {lines.encoding}: edit and write keep that]")
        if params.offset < 0 and lines.first > 0:
            page.insert(0, f"[{counted(lines.first, 'line')} before]")
        end = lines.first + len(fitting)
        if end < lines.total and len(fitting) != params.limit:
            page.append(f"[{counted(lines.total - end, 'more line')}: go on with offset={end + 1}]")
        return "\n".join(page)

    def _last_page(self, lines: Lines, params: ReadParams) -> str:
        """Return lines of a file whose lines were not counted."""
        fitting = self._fitting(lines.lines)
        page = [
            "[a large file, read from its end: -1 is its last line]",
            numbered(fitting, lines.first, self._max_line_chars),
        ]
        end = lines.first + len(fitting)
        if end < 0 and len(fitting) != params.limit:
            page.append(f"[{counted(-end, 'more line')}: go on with offset={end}]")
        return "\n".join(page)

    def _fitting(self, lines: Sequence[str]) -> Sequence[str]:
        """Return the first lines that fit in a page, one at least: a longer page would lose its middle later."""
        room = self._max_chars
        for number, line in enumerate(lines):
            room -= len(escaped(cut(line, self._max_line_chars))) + _NUMBER
            if room < 0 and number:
                return lines[:number]
        return lines


def _location(path: str, first: int, files: FileSystem) -> tuple[Location, ...]:
    """Return the file at the line behind the first `first` lines; without a line if that is the beginning."""
    return (Location(files.resolve(path, Access.READ), first + 1 if first > 0 else None),)


# ---------------------------------------------------------------------------- files that are not text


async def _picture(path: str, files: FileSystem, error: ToolError) -> ToolResult:
    """Return the picture in a file that is not text. Raises `error` if it is not a picture."""
    try:
        data = await files.read_bytes(path, MAX_PICTURE)
    except (ToolError, Refused):
        raise error from None  # missing or too large: the first error says it better
    if data.startswith(b"%PDF-"):
        raise _pdf(path)
    picture = await to_thread.run_sync(picture_of, data)
    if picture is None:
        raise error
    mime_type, width, height = picture.mime_type, picture.width, picture.height
    if not (width and height):
        raise ToolError.permanent(f"{path}: a damaged picture ({mime_type})")
    facts = f"{mime_type}, {width}x{height}, {-(-len(data) // 1024)} KB"
    if picture.trouble:
        msg = f"{path}: too large a picture ({facts}); at most {MAX_SIDE} pixels a side"
        raise ToolError.permanent(msg, "Make a smaller copy with a command and read that.")
    image = ImagePart(base64.b64encode(data).decode(), mime_type)
    text = f"Image: {path} ({facts})"
    return ToolResult(text, images=(image,), locations=_location(path, 0, files))


def _pdf(path: str) -> ToolError:
    hint = "Take its text out with a command such as `pdftotext -layout FILE -`."
    return ToolError.permanent(f"{path} is a PDF, not a text file", hint)


async def _refuse_notebook(path: str, files: FileSystem) -> None:
    """Raise ToolError for a Jupyter notebook that is read as a whole: its outputs and pictures would hide the code."""
    try:
        data = await files.read_bytes(path, _MAX_NOTEBOOK)
    except ToolError:
        return  # read_lines reports what is wrong; a larger notebook is read as text
    if await to_thread.run_sync(_is_notebook, data):
        show = f"Show its cells with a command such as `jq -r '.cells[].source | add' {shlex.quote(path)}`."
        hint = f"{show} To change one, find its lines with grep, read them with a limit and edit them: they are JSON."
        raise ToolError.permanent(f"{path} is a notebook, not a text file", hint)


def _is_notebook(data: bytes) -> bool:
    try:
        notebook = json_value(data)
    except ValueError:
        return False
    return isinstance(notebook, dict) and "cells" in notebook


# ---------------------------------------------------------------------------- pictures
# They are recognized by their bytes, not by a name. Nothing is decompressed; only completeness is checked.


class Picture(NamedTuple):
    """The facts of a picture. Width and height are 0 if the header is invalid or the end is missing.

    An API refuses such a picture, and with it every later request of the conversation.
    """

    mime_type: str
    width: int
    height: int

    @property
    def trouble(self) -> str:
        """The reason why it cannot be sent to a model; "" if it can."""
        if not (self.width and self.height):
            return "damaged"
        return "too large" if max(self.width, self.height) > MAX_SIDE else ""


def picture_of(data: bytes) -> Picture | None:
    """Return the picture, or None if the bytes are not a picture that models accept."""
    mime_type = "image/webp" if data.startswith(b"RIFF") and data[8:12] == b"WEBP" else ""
    mime_type = mime_type or next((known for magic, known in _MAGIC if data.startswith(magic)), "")
    if not mime_type:
        return None
    try:
        width, height = _size(data, mime_type) if _is_whole(data, mime_type) else (0, 0)
    except struct.error:
        width, height = 0, 0
    return Picture(mime_type, width, height)


def _size(data: bytes, mime_type: str) -> tuple[int, int]:
    match mime_type:
        case "image/png":
            return struct.unpack_from(">II", data, 16)
        case "image/gif":
            return struct.unpack_from("<HH", data, 6)
        case "image/webp":
            return _webp_size(data)
        case _:
            return _jpeg_size(data)


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
    """Return the width and height in the first frame header: 0xC0 to 0xCF without DHT, JPG and DAC."""
    for kind, at in _jpeg_segments(data):
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
    return 0, 0


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield kind and place of each segment up to the first scan (SOS). Raises struct.error if the data ends before."""
    at = 2
    while True:
        mark, kind, length = struct.unpack_from(">BBH", data, at)
        if mark != 0xFF:
            return
        if kind == 0xFF:  # padding
            at += 1
            continue
        yield kind, at
        if kind == 0xDA:
            return
        at += 2 + length


def _is_whole(data: bytes, mime_type: str) -> bool:
    """Return whether a picture has an end and data before it. Raises struct.error if the data ends too soon."""
    match mime_type:
        case "image/png":
            return _png_is_whole(data)
        case "image/gif":
            return b"," in data[13:] and data.rstrip(b"\0").endswith(b";")
        case "image/webp":
            return _webp_is_whole(data)
        case _:
            scan = next((at for kind, at in _jpeg_segments(data) if kind == 0xDA), len(data))
            return data.find(b"\xff\xd9", scan) >= 0


def _png_is_whole(data: bytes) -> bool:
    """Return whether all chunks have the right checksums, with the header first and the end last."""
    at, kinds = 8, set[bytes]()
    for number in range(_MOST_CHUNKS):
        length, kind = struct.unpack_from(">I4s", data, at)
        (checksum,) = struct.unpack_from(">I", data, at + 8 + length)
        if (number == 0) != (kind == b"IHDR") or checksum != zlib.crc32(memoryview(data)[at + 4 : at + 8 + length]):
            return False
        if kind == b"IEND":
            return b"IDAT" in kinds
        kinds.add(kind)
        at += 12 + length
    return False


def _webp_is_whole(data: bytes) -> bool:
    """Return whether the file is as long as it says and contains an image or frames."""
    (size,) = struct.unpack_from("<I", data, 4)
    end, at, kinds = size + 8, 12, set[bytes]()
    for _ in range(_MOST_CHUNKS):
        if at >= end:
            break
        kind, length = struct.unpack_from("<4sI", data, at)
        kinds.add(kind)
        at += 8 + length + length % 2
    return end <= len(data) and end <= at <= end + 1 and bool(kinds & {b"VP8 ", b"VP8L", b"ANMF"})
