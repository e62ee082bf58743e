"""The tools that ask the language servers of the editor (LSP 3.17). Only those that the client serves are offered.

Paths are sent only if they may be read. Files in an answer that may not be read are named and not opened. Answers come
from outside and are not trusted: `external` is True.
"""

import json
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Annotated, Any, ClassVar
from urllib.parse import quote, unquote_to_bytes, urlsplit

from acp_agent.core.backends import FileSystem
from acp_agent.core.data import frozen
from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import Access, Json, JsonObject, Location, PathSubject, Subject, ToolKind, ToolResult
from acp_agent.shape import Field
from acp_agent.text import abbreviated, counted, title, visible
from acp_agent.tools.lsp_answer import (
    MOST,
    FilePlace,
    Symbol,
    TextRange,
    diagnostics,
    entries,
    hover,
    places,
    position,
    read_span,
    symbols,
    to_wire,
    word,
)
from acp_agent.tools.tool import WHOLE, Name, P, Params, Tool, cut, relative

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_LONGEST_NAME = 500
_LAST = 2**31 - 2
_LOCATIONS = 20
"""The number of places that an editor gets."""

Counted = Annotated[int, Field(ge=1, le=_LAST), WHOLE]


class FileParams(Params):
    """A file."""

    path: Name


class PositionParams(FileParams):
    """A position in a file. Lines and columns count from 1."""

    line: Counted
    column: Counted


def file_uri(path: str) -> str:
    """Return the URI of an absolute path."""
    return f"file://{quote(os.fsencode(path))}"


def uri_path(uri: str) -> str | None:
    """Return the path of a file:// URI, or the value itself if it is a path. None for anything else."""
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
    """The names of URIs: relative to the session's folder if the file may be read."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._base = files.resolve(".", Access.LIST)
        self._paths: dict[str, str | None] = {}

    def path(self, uri: str) -> str | None:
        """Return the absolute path with links resolved. None if it may not be read or is not a file."""
        if uri not in self._paths:
            self._paths[uri] = self._resolved(uri_path(uri))
        return self._paths[uri]

    def _resolved(self, path: str | None) -> str | None:
        try:
            return None if path is None else self._files.resolve(path, Access.READ)
        except (Refused, ToolError):
            return None

    def name(self, uri: str) -> str:
        """Return the name on one line."""
        path = self.path(uri)
        shown = relative(path, self._base) if path is not None else uri_path(uri) or uri
        return visible(cut(shown, _LONGEST_NAME))

    def place(self, place: FilePlace) -> str:
        """Return `file:line:col`, marked if it is outside the session's folders."""
        where = f"{self.name(place.uri)}:{place.span}" if place.span else self.name(place.uri)
        return where if self.path(place.uri) is not None else f"{where} (may not be read here)"

    def locations(self, places: Iterable[FilePlace]) -> tuple[Location, ...]:
        """Return the first places that an editor may open."""
        found = ((self.path(place.uri), place.span) for place in places)
        return tuple(Location(path, span and span.line) for path, span in found if path is not None)[:_LOCATIONS]


class LanguageServerTool(Tool[P]):
    """A question to a language server. It is offered only if the client serves `method`.

    most   the number of entries that are shown
    """

    method: ClassVar[str]
    kind = ToolKind.READ
    mutates = False
    external = True

    def __init__(self, most: int = 50) -> None:
        self._most = most

    async def ask(self, context: ToolContext, params: JsonObject) -> Json:
        """Return the editor's answer. Raises ToolError."""
        languages = context.backends.languages
        if languages is None or not languages.offers(self.method):
            raise ToolError.permanent(f"{self.name}: the editor does not offer {self.method}")
        return await languages.ask(self.method, params)


class FileTool(LanguageServerTool[P]):
    """A question about a file."""

    def params_to_wire(self, params: P) -> JsonObject:
        """Return the parameters besides the file: the position, if the tool asks about one."""
        return position(params.line, params.column) if isinstance(params, PositionParams) else {}

    @abstractmethod
    def read(self, answer: Json, names: Names, uri: str) -> ToolResult:
        """Return the answer in words. `uri` is that of the file. Raises ToolError."""

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


def listed(lines: list[str], nothing: str, most: int) -> str:
    """Return the first `most` lines, and how many are missing."""
    if len(lines) > most:
        return "\n".join((*lines[:most], f"[{len(lines) - most} more: the first {most} are shown]"))
    return "\n".join(lines) or nothing


def listed_places(places: list[FilePlace], names: Names, nothing: str, most: int) -> ToolResult:
    """Return a list of different places in the order of the answer."""
    unique = list(dict.fromkeys(places))
    shown = [*map(names.place, unique[:most]), *("" for _ in unique[most:])]
    return ToolResult(listed(shown, nothing, most), locations=names.locations(unique[:most]))


class LspHoverParams(PositionParams):
    """Ask the editor's language server for the type and documentation of the name at a place in a file."""


class LspHover(FileTool[LspHoverParams]):
    """The tool for `lsp/hover`."""

    name = "lsp_hover"
    method = "lsp/hover"

    def read(self, answer: Json, names: Names, uri: str) -> ToolResult:
        del names, uri
        return ToolResult(hover(answer) or "The language server says nothing about this place.")


class LspDefinitionParams(PositionParams):
    """Ask the editor's language server where the name at a place in a file is defined."""


class LspDefinition(FileTool[LspDefinitionParams]):
    """The tool for `lsp/definition`."""

    name = "lsp_definition"
    method = "lsp/definition"

    def read(self, answer: Json, names: Names, uri: str) -> ToolResult:
        del uri
        return listed_places(places(answer), names, "The language server knows no definition.", self._most)


class LspReferencesParams(PositionParams):
    """Ask the editor's language server for all uses of the name at a place in a file."""

    include_declaration: bool = True


class LspReferences(FileTool[LspReferencesParams]):
    """The tool for `lsp/references`."""

    name = "lsp_references"
    method = "lsp/references"

    def params_to_wire(self, params: LspReferencesParams) -> JsonObject:
        # Some clients read this name, others that of LSP's ReferenceContext.
        included = params.include_declaration
        return {**super().params_to_wire(params), "includeDeclaration": included, "include_declaration": included}

    def read(self, answer: Json, names: Names, uri: str) -> ToolResult:
        del uri
        return listed_places(places(answer), names, "The language server knows no uses of it.", self._most)


class LspDiagnosticsParams(FileParams):
    """Ask the editor's language server for the errors and warnings in a file, unsaved changes included."""


class LspDiagnostics(FileTool[LspDiagnosticsParams]):
    """The tool for `lsp/diagnostics`. The worst are shown first."""

    name = "lsp_diagnostics"
    method = "lsp/diagnostics"

    def read(self, answer: Json, names: Names, uri: str) -> ToolResult:
        name = names.name(uri)
        lines = [found.line(name) for found in diagnostics(answer)]
        return ToolResult(listed(lines, f"The language server sees no problems in {name}.", self._most))


class LspDocumentSymbolsParams(FileParams):
    """Ask the editor's language server for an outline of a file: classes, functions and other names with lines."""


class LspDocumentSymbols(FileTool[LspDocumentSymbolsParams]):
    """The tool for `lsp/documentSymbols`. A symbol inside another one is indented below it."""

    name = "lsp_document_symbols"
    method = "lsp/documentSymbols"

    def read(self, answer: Json, names: Names, uri: str) -> ToolResult:
        lines = [_line(symbol) for symbol in symbols(answer)]
        return ToolResult(listed(lines, f"The language server knows no names in {names.name(uri)}.", self._most))


def _line(symbol: Symbol) -> str:
    where = f"  {symbol.span}" if symbol.span else ""
    return f"{'  ' * symbol.depth}{symbol.kind} {symbol.name}{where}"


class LspWorkspaceSymbolParams(Params):
    """Ask the editor's language server for classes, functions and other names in the project by a part of the name."""

    query: Name


class LspWorkspaceSymbol(LanguageServerTool[LspWorkspaceSymbolParams]):
    """The tool for `lsp/workspaceSymbol`."""

    name = "lsp_workspace_symbol"
    method = "lsp/workspaceSymbol"
    kind = ToolKind.SEARCH

    def title(self, params: LspWorkspaceSymbolParams) -> str:
        return f'symbols "{title(params.query)}"'

    def subjects(self, params: LspWorkspaceSymbolParams) -> tuple[Subject, ...]:
        del params
        return (PathSubject(".", Access.LIST),)

    async def run(self, params: LspWorkspaceSymbolParams, context: ToolContext) -> ToolResult:
        found = symbols(await self.ask(context, {"query": params.query}))
        names = Names(context.files)
        places = [FilePlace(symbol.uri, symbol.span) for symbol in found[: self._most]]
        shown = zip(found, places, strict=False)
        lines = [f"{symbol.kind} {symbol.name}  {names.place(place)}" for symbol, place in shown]
        lines += ["" for _ in found[self._most :]]
        nothing = "The language server knows no such name."
        return ToolResult(listed(lines, nothing, self._most), locations=names.locations(places))


_LONGEST_NEW_TEXT = 2_000


@frozen
class FileEdit:
    """A change to a file: a new text for a span, or an operation on the whole file."""

    uri: str
    span: TextRange | None
    new_text: str = ""
    operation: str = ""


@frozen
class OfferedAction:
    """An action that a language server offers."""

    title: str
    kind: str
    preferred: bool
    edits: tuple[FileEdit, ...]


def actions(answer: Json) -> list[OfferedAction]:
    """Return those of (Command | CodeAction)[] that contain an edit."""
    found: list[OfferedAction] = []
    for entry in entries(answer):
        match entry:
            case {"title": str(title), "edit": dict(edit)}:
                preferred = entry.get("isPreferred", entry.get("is_preferred")) is True
                edits = tuple(islice(_edits(edit), MOST))
                if edits:
                    found.append(OfferedAction(word(title), word(entry.get("kind")), preferred, edits))
            case _:
                pass
    return found


def _edits(edit: JsonObject) -> Iterator[FileEdit]:
    changes = edit.get("changes")
    if isinstance(changes, dict):
        for uri, texts in changes.items():
            yield from _text_edits(uri, texts)
    for change in _listed(edit.get("documentChanges")):
        match change:
            case {"textDocument": {"uri": str(uri)}, "edits": texts}:
                yield from _text_edits(uri, texts)
            case {"kind": "create" | "delete" as operation, "uri": str(uri)}:
                yield FileEdit(uri, None, operation=operation)
            case {"kind": "rename", "oldUri": str(uri), "newUri": str(other)}:
                yield FileEdit(uri, None, operation="rename away")
                yield FileEdit(other, None, operation="rename here")
            case _:
                pass


def _text_edits(uri: str, texts: Json) -> Iterator[FileEdit]:
    for text in _listed(texts):
        if not isinstance(text, dict):
            continue
        span, new_text = read_span(text.get("range")), text.get("newText", text.get("new_text"))
        if span is not None and isinstance(new_text, str):
            yield FileEdit(uri, span, abbreviated(new_text, _LONGEST_NEW_TEXT))


def _listed(value: Json) -> list[Json]:
    return value[:MOST] if isinstance(value, list) else []


_MOST_EDITS = 20


class LspCodeActionsParams(PositionParams):
    """Ask the editor's language server for fixes at a place in a file, with their edits. Nothing is changed."""

    end_line: Counted | None = Field(default=None, description="Without it, only the place itself")
    end_column: Counted | None = None


class LspCodeActions(FileTool[LspCodeActionsParams]):
    """The tool for `lsp/codeActions`. Only actions that contain their edits are shown; the model makes the edits."""

    name = "lsp_code_actions"
    method = "lsp/codeActions"

    def params_to_wire(self, params: LspCodeActionsParams) -> JsonObject:
        end_line = params.end_line or params.line
        end_column = params.end_column or (params.column if end_line == params.line else 1)
        return {"range": to_wire(TextRange(params.line, params.column, end_line, end_column)), "diagnostics": []}

    def read(self, answer: Json, names: Names, uri: str) -> ToolResult:
        del uri
        found = actions(answer)
        lines = ["\n".join(_lines(action, names)) for action in found[: self._most]]
        lines += ["" for _ in found[self._most :]]
        return ToolResult(listed(lines, "The language server has nothing to change here.", self._most))


def _lines(action: OfferedAction, names: Names) -> Iterator[str]:
    kind = f" ({action.kind})" if action.kind else ""
    yield f"- {action.title}{kind}{', preferred' if action.preferred else ''}"
    for edit in action.edits[:_MOST_EDITS]:
        yield f"    {_edit(edit, names)}"
    if len(action.edits) > _MOST_EDITS:
        yield f"    [{counted(len(action.edits) - _MOST_EDITS, 'more edit')}]"


def _edit(edit: FileEdit, names: Names) -> str:
    name = names.name(edit.uri)
    if names.path(edit.uri) is None:
        return f"{name} (may not be read here)"
    if edit.span is None:
        return f"{name}: {edit.operation}"
    return f"{name}:{edit.span.whole} -> {visible(json.dumps(edit.new_text, ensure_ascii=False))}"


@frozen
class LspLimits:
    """The most entries of an answer that are shown."""

    references: int = 100
    workspace_symbols: int = 50
    diagnostics: int = 20


_DEFAULTS = LspLimits()


def lsp_tools(offers: Callable[[str], bool], limits: LspLimits = _DEFAULTS) -> tuple[LanguageServerTool[Any], ...]:
    """Return the tools whose method `offers` accepts, in the order in which the model sees them."""
    every: tuple[LanguageServerTool[Any], ...] = (
        LspHover(),
        LspDefinition(),
        LspReferences(limits.references),
        LspDiagnostics(limits.diagnostics),
        LspDocumentSymbols(500),
        LspWorkspaceSymbol(limits.workspace_symbols),
        LspCodeActions(20),
    )
    return tuple(tool for tool in every if offers(tool.method))
