"""What the tools share that ask the editor's language servers (requirements A27).

Paths go out only when they may be read. Of what comes back, files that may not be read are named and no more. Nothing
of it is to be trusted: `external`.
"""

import os
import re
from abc import abstractmethod
from collections.abc import Iterable
from typing import Annotated, ClassVar
from urllib.parse import quote, unquote_to_bytes, urlsplit

from pydantic import Field

from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import Access, Json, JsonObject, Location, PathSubject, Subject, ToolKind, ToolResult
from acp_agent.tools.lines import cut, relative
from acp_agent.tools.lsp_answer import FIRST, Place
from acp_agent.tools.params import WHOLE, Name, P, Params
from acp_agent.tools.tool import Tool
from acp_agent.tools.visible import visible

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_LONGEST_NAME = 500
_LAST = 2**31 - 2
_LOCATIONS = 20
"""Places an editor is told of."""

Counted = Annotated[int, Field(ge=1, le=_LAST), WHOLE]


class FileParams(Params):
    """A file."""

    path: Name


class PositionParams(FileParams):
    """A place in a file. Lines and columns count from 1."""

    line: Counted
    column: Counted


def file_uri(path: str) -> str:
    """The URI of an absolute path."""
    return f"file://{quote(os.fsencode(path))}"


def uri_path(uri: str) -> str | None:
    """The path of a file:// URI, or the path itself where it is one; None for anything else."""
    if _SCHEME.match(uri) is None:
        return uri if uri and "\0" not in uri else None
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    path = os.fsdecode(unquote_to_bytes(parts.path))
    return path if path.startswith("/") and "\0" not in path else None


class Names:
    """Names for what language servers call by URI: relative to the session's folder, where it may be read."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._base = files.resolve(".", Access.LIST)
        self._paths: dict[str, str | None] = {}

    def path(self, uri: str) -> str | None:
        """The absolute path, links resolved; None for what may not be read or is no file."""
        if uri not in self._paths:
            self._paths[uri] = self._resolved(uri_path(uri))
        return self._paths[uri]

    def _resolved(self, path: str | None) -> str | None:
        try:
            return None if path is None else self._files.resolve(path, Access.READ)
        except (Refused, ToolError):
            return None

    def name(self, uri: str) -> str:
        """On one line, whatever it is."""
        path = self.path(uri)
        shown = relative(path, self._base) if path is not None else uri_path(uri) or uri
        return visible(cut(shown, _LONGEST_NAME))

    def place(self, place: Place) -> str:
        """`file:line:col`, and whether it is elsewhere."""
        where = f"{self.name(place.uri)}:{place.span}" if place.span else self.name(place.uri)
        return where if self.path(place.uri) is not None else f"{where} (not to be read here)"

    def locations(self, places: Iterable[Place]) -> tuple[Location, ...]:
        """The first of those an editor may be told to open."""
        found = ((self.path(place.uri), place.span) for place in places)
        return tuple(Location(path, span and span.line) for path, span in found if path is not None)[:_LOCATIONS]


class LanguageServerTool(Tool[P]):
    """A question to a language server. Offered only where the client serves `method` (A27.6)."""

    method: ClassVar[str]
    kind = ToolKind.READ
    mutates = False
    external = True

    async def ask(self, context: ToolContext, params: JsonObject) -> Json:
        """What the editor answers. Raises ToolError."""
        languages = context.backends.languages
        if languages is None or not languages.offers(self.method):
            raise ToolError(
                ToolErrorCategory.PERMANENT_FAILURE, f"{self.name}: the editor does not offer {self.method}"
            )
        return await languages.ask(self.method, params)


class FileTool(LanguageServerTool[P]):
    """A question about a file."""

    @abstractmethod
    def params_to_wire(self, params: P) -> JsonObject:
        """What is asked besides the file."""

    @abstractmethod
    def read(self, answer: Json, names: Names, uri: str) -> ToolResult:
        """The answer in words. `uri` is the file's. Raises ToolError."""

    def subjects(self, params: P) -> tuple[Subject, ...]:
        return (PathSubject(_path(params), Access.READ),)

    def locations(self, params: P, files: FileSystem) -> tuple[Location, ...]:
        line = params.line if isinstance(params, PositionParams) else None
        return (Location(files.resolve(_path(params), Access.READ), line),)

    async def run(self, params: P, context: ToolContext) -> ToolResult:
        uri = file_uri(context.files.resolve(_path(params), Access.READ))
        answer = await self.ask(context, {"uri": uri, **self.params_to_wire(params)})
        return self.read(answer, Names(context.files), uri)


def _path(params: Params) -> str:
    assert isinstance(params, FileParams)
    return params.path


def position(params: PositionParams) -> JsonObject:
    """A place as it goes over the wire."""
    return {"line": params.line - 1 + FIRST, "character": params.column - 1 + FIRST}


def listed(lines: list[str], nothing: str, most: int) -> str:
    """The first `most` lines, and how many are missing."""
    if len(lines) > most:
        return "\n".join((*lines[:most], f"... and {len(lines) - most} more (showing first {most})"))
    return "\n".join(lines) or nothing


def listed_places(places: list[Place], names: Names, nothing: str, most: int) -> ToolResult:
    """A list of places, no place twice, in the order they came."""
    unique = list(dict.fromkeys(places))
    shown = [*map(names.place, unique[:most]), *("" for _ in unique[most:])]
    return ToolResult(listed(shown, nothing, most), locations=names.locations(unique[:most]))
