"""The answers of language servers as our own types (LSP 3.17, "Language Features").

An editor may send any shape. What cannot be read is left out. Every text except hovers and new texts is cut to one line
without hidden characters. On the wire positions count from 0, here from 1; columns count as in the editor.
"""

from collections.abc import Iterator
from itertools import islice

from acp_agent.core.data import frozen
from acp_agent.core.errors import ToolError
from acp_agent.core.types import Json, JsonObject
from acp_agent.text import abbreviated, visible

MOST = 10_000
"""How many entries of an answer are read."""

_LONGEST_NAME = 200
_LONGEST_MESSAGE = 500
_LONGEST_HOVER = 20_000
_DEEPEST = 16
_LAST = 2**31 - 1
_SEVERITIES = ("error", "warning", "info", "hint")
_KINDS = (
    *("file", "module", "namespace", "package", "class", "method", "property", "field", "constructor", "enum"),
    *("interface", "function", "variable", "constant", "string", "number", "boolean", "array", "object", "key"),
    *("null", "enum member", "struct", "event", "operator", "type parameter"),
)


@frozen
class TextRange:
    """A range in a file. The end is not part of it."""

    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"

    @property
    def whole(self) -> str:
        """Both ends as `line:column-line:column`."""
        return f"{self}-{self.end_line}:{self.end_column}"


@frozen
class FilePlace:
    """A place in a file. `span` is None if only the file is known."""

    uri: str
    span: TextRange | None


@frozen
class LspDiagnostic:
    """A problem. `uri` is empty if the question named the file. `severity` is error, warning, info or hint."""

    uri: str
    span: TextRange | None
    severity: str
    message: str
    code: str = ""

    @property
    def rank(self) -> int:
        """0 for the worst severity."""
        return _SEVERITIES.index(self.severity)

    def line(self, name: str) -> str:
        """Return `file:line:col  sev  msg  [code]`."""
        where = f"{name}:{self.span}" if self.span else name
        return f"{where}  {self.severity}  {self.message}" + (f"  [{self.code}]" if self.code else "")

    def to_wire(self) -> JsonObject:
        """Return the diagnostic in LSP's form, with the file beside it."""
        wire: JsonObject = {"uri": self.uri, "severity": self.rank + 1, "message": self.message, "code": self.code}
        return wire if self.span is None else {**wire, "range": to_wire(self.span)}


@frozen
class Symbol:
    """A symbol. `depth` counts the symbols around it. `uri` is empty in the list of one file."""

    name: str
    kind: str
    span: TextRange | None
    uri: str = ""
    depth: int = 0


# ------------------------------------------------------------------------------------------ positions


def to_wire(span: TextRange) -> JsonObject:
    """Return an LSP range."""
    return {"start": position(span.line, span.column), "end": position(span.end_line, span.end_column)}


def position(line: int, column: int) -> JsonObject:
    """Return an LSP position."""
    return {"line": line - 1, "character": column - 1}


def read_span(value: Json) -> TextRange | None:
    """Return the span of an LSP range, None for anything else."""
    match value:
        case {
            "start": {"line": int(line), "character": int(column)},
            "end": {"line": int(end_line), "character": int(end_column)},
        } if all(0 <= each <= _LAST for each in (line, column, end_line, end_column)):
            return TextRange(*(each + 1 for each in (line, column, end_line, end_column)))
        case _:
            return None


# ------------------------------------------------------------------------------------------ answers


def places(answer: Json) -> list[FilePlace]:
    """Read Location, Location[], LocationLink[] or null."""
    found = map(_place, [answer] if isinstance(answer, dict) else entries(answer))
    return [place for place in found if place is not None]


def hover(answer: Json) -> str:
    """Return the text of a hover, "" if there is none."""
    contents = answer.get("contents") if isinstance(answer, dict) else answer
    pieces = contents if isinstance(contents, list) else [contents]
    return "\n\n".join(filter(None, (_said(piece).strip() for piece in pieces[:MOST])))[:_LONGEST_HOVER]


def diagnostics(answer: Json, uri: str = "") -> list[LspDiagnostic]:
    """Read Diagnostic[] or a report, the worst first. `uri` is used for entries without a file."""
    if isinstance(answer, dict):
        answer = answer.get("diagnostics", answer.get("items"))
    found = (_diagnostic(entry, uri) for entry in entries(answer))
    return sorted((each for each in found if each is not None), key=lambda each: each.rank)


def symbols(answer: Json) -> list[Symbol]:
    """Read DocumentSymbol[], SymbolInformation[] or WorkspaceSymbol[]. Nested symbols follow the outer one."""
    return list(islice(_symbols(entries(answer), 0), MOST))


def entries(answer: Json) -> list[Json]:
    """Return the first entries of a list, none for null. Raises ToolError for anything else."""
    if answer is None:
        return []
    if not isinstance(answer, list):
        raise ToolError.permanent("the editor's answer is not a list, as LSP demands")
    return answer[:MOST]


def _place(entry: Json) -> FilePlace | None:
    match entry:
        case {"targetUri": str(uri)}:
            return FilePlace(uri, read_span(entry.get("targetSelectionRange")) or read_span(entry.get("targetRange")))
        case {"uri": str(uri)}:
            return FilePlace(uri, read_span(entry.get("range")))
        case _:
            return None


def _said(piece: Json) -> str:
    match piece:
        case str():
            return piece
        case {"language": str(language), "value": str(value)}:
            return f"```{word(language)}\n{value}\n```"
        case {"value": str(value)}:
            return value
        case _:
            return ""


def _diagnostic(entry: Json, uri: str) -> LspDiagnostic | None:
    if not isinstance(entry, dict):
        return None
    message = " ".join(_said(entry.get("message")).split())
    if not message:
        return None
    named = next((each for key in ("uri", "path", "file") if isinstance(each := entry.get(key), str)), uri)
    code = entry.get("code")
    if isinstance(code, dict):
        code = code.get("value")
    span = read_span(entry.get("range")) or read_span({"start": entry, "end": entry})
    message = visible(abbreviated(message, _LONGEST_MESSAGE))
    return LspDiagnostic(named, span, _severity(entry.get("severity")), message, word(code))


def _severity(value: Json) -> str:
    match value:
        case bool() | float():
            return _SEVERITIES[0]
        case int() if 1 <= value <= len(_SEVERITIES):
            return _SEVERITIES[value - 1]
        case str() if value.lower() in _SEVERITIES:
            return value.lower()
        case str() if value.lower() == "information":
            return "info"
        case _:  # LSP leaves it to the client
            return _SEVERITIES[0]


def _symbols(listed: list[Json], depth: int) -> Iterator[Symbol]:
    for entry in listed:
        match entry:
            case {"name": str(name)}:
                yield _symbol(entry, name, depth)
                children = entry.get("children")
                if isinstance(children, list) and depth < _DEEPEST:
                    yield from _symbols(children, depth + 1)
            case _:
                pass


def _symbol(entry: JsonObject, name: str, depth: int) -> Symbol:
    kind = entry.get("kind")
    kind = _KINDS[kind - 1] if isinstance(kind, int) and 1 <= kind <= len(_KINDS) else "symbol"
    place = _place(entry.get("location"))
    selected = entry.get("selectionRange", entry.get("selection_range"))
    span = place.span if place else read_span(selected) or read_span(entry.get("range"))
    return Symbol(word(name), kind, span, place.uri if place else "", depth)


def word(value: Json) -> str:
    """Return a short text on one line, "" for anything that is neither text nor an integer."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    return visible(abbreviated(" ".join(str(value).split()), _LONGEST_NAME))
