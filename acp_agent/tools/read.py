"""read: a text file or a part of it with line numbers, or a picture."""

import base64
from typing import Annotated

from anyio import to_thread
from pydantic import Field

from acp_agent.core.backends import FileSystem, Lines
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import Access, ImagePart, Location, PathSubject, Subject, ToolKind, ToolResult
from acp_agent.core.untrusted import json_value
from acp_agent.tools.picture import MAX_PICTURE, MAX_SIDE, picture_of
from acp_agent.tools.tool import WHOLE, Name, Params, Tool, numbered

_MAX_NOTEBOOK = 32 * 1024 * 1024
_MAX_OFFSET = 1_000_000_000  # a line number in ACP has 32 bits


class ReadParams(Params):
    """Read a text file or a picture. Each line has its number, a tab and its text. Long files are read in parts.

    Paths, here and in the other tools, are absolute or relative to the session's folder.
    """

    path: Name
    offset: Annotated[int, Field(ge=-_MAX_OFFSET, le=_MAX_OFFSET), WHOLE] = Field(
        default=0, description="Lines to skip; -50: the last 50"
    )
    limit: Annotated[int, Field(ge=1), WHOLE] | None = Field(default=None, description="Lines to read")


class Read(Tool[ReadParams]):
    """Reads through the FileSystem port, so unsaved changes are read if the editor offers them."""

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
        """Return the lines, and a notice if there are more or none."""
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
    """Return the file at the line after `first`, or without a line if there are none."""
    return (Location(files.resolve(path, Access.READ), first + 1 if first else None),)


# ---------------------------------------------------------------------------- what is no text


async def _picture(path: str, files: FileSystem, error: ToolError) -> ToolResult:
    """Return the picture in a file that is not text. Raises `error` if it is not a picture."""
    try:
        data = await files.read_bytes(path, MAX_PICTURE)
    except (ToolError, Refused):
        raise error from None  # missing or too large: the first error says it better
    if data.startswith(b"%PDF-"):
        raise _pdf(path)
    picture = picture_of(data)
    if picture is None:
        raise error
    mime_type, width, height = picture.mime_type, picture.width, picture.height
    if not (width and height):
        raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"{path}: a damaged picture ({mime_type})")
    facts = f"{mime_type}, {width}x{height}, {-(-len(data) // 1024)} KB"
    if picture.trouble:
        msg = f"{path}: too large a picture ({facts}); at most {MAX_SIDE} pixels a side"
        raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, msg, "Make a smaller copy with a command and read that.")
    image = ImagePart(base64.b64encode(data).decode(), mime_type)
    text = f"Image: {path} ({facts})"
    return ToolResult(text, images=(image,), locations=_location(path, 0, files))


def _pdf(path: str) -> ToolError:
    hint = "Take its text out with a command such as `pdftotext -layout FILE -`."
    return ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"{path} is a PDF, not a text file", hint)


async def _refuse_notebook(path: str, files: FileSystem) -> None:
    """Raise for a Jupyter notebook: its outputs and pictures would hide the code."""
    try:
        data = await files.read_bytes(path, _MAX_NOTEBOOK)
    except ToolError:
        return  # not on disk or not a file: reading reports it
    if await to_thread.run_sync(_is_notebook, data):
        hint = "Take the cells out with a command such as `jq -r '.cells[].source | add' FILE` or `jupyter nbconvert`."
        raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"{path} is a notebook, not a text file", hint)


def _is_notebook(data: bytes) -> bool:
    try:
        notebook = json_value(data)
    except ValueError:
        return False
    return isinstance(notebook, dict) and "cells" in notebook
