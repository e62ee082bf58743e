"""outline: the classes, functions and types of a file, or of the files below a folder, with their lines.

A tree-sitter grammar reads each file. A line of the outline is what stands in the file before the body of the symbol:
`class Greeter(Base)`, `def greet(self, name: str) -> str`. Where no grammar knows the language of a file, the editor's
language server is asked, if the editor lends it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from anyio import to_thread

from acp_agent.core.backends import EntryKind, FileSystem
from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import Access, Location, PathSubject, Subject, ToolKind, ToolResult
from acp_agent.text import counted, visible
from acp_agent.tools.tool import Name, Params, Tool, cut, relative

if TYPE_CHECKING:
    from tree_sitter import Language, Node

_MOST_FILES = 300
_MOST_LINES = 500
_MOST_DEPTH = 30
_LONGEST_LINE = 160
_DOCUMENT_SYMBOLS = "lsp/documentSymbols"


_SCRIPT = frozenset(
    ("class_declaration", "function_declaration", "generator_function_declaration", "method_definition")
)
_TYPED = _SCRIPT | {
    *("abstract_class_declaration", "interface_declaration", "type_alias_declaration", "enum_declaration"),
    *("internal_module", "module", "function_signature", "method_signature", "abstract_method_signature"),
}
_C = frozenset(
    ("function_definition", "struct_specifier", "union_specifier", "enum_specifier", "type_definition", "declaration")
)
_SYMBOLS: dict[str, AbstractSet[str]] = {
    "python": {"class_definition", "function_definition"},
    "javascript": _SCRIPT,
    "typescript": _TYPED,
    "tsx": _TYPED,
    "go": {"function_declaration", "method_declaration", "type_spec", "type_alias"},
    "rust": {
        *("function_item", "function_signature_item", "struct_item", "enum_item", "union_item", "trait_item"),
        *("impl_item", "mod_item", "type_item", "macro_definition"),
    },
    "java": {
        *("class_declaration", "interface_declaration", "enum_declaration", "record_declaration"),
        *("annotation_type_declaration", "method_declaration", "constructor_declaration"),
    },
    "c": _C,
    "cpp": _C | {"class_specifier", "namespace_definition", "field_declaration", "alias_declaration"},
}
"""The types of the nodes that are symbols, for each language."""

_LANGUAGES = {
    **dict.fromkeys(("py", "pyi"), "python"),
    **dict.fromkeys(("js", "mjs", "cjs", "jsx"), "javascript"),
    **dict.fromkeys(("ts", "mts", "cts"), "typescript"),
    "tsx": "tsx",
    "go": "go",
    "rs": "rust",
    "java": "java",
    **dict.fromkeys(("c", "h"), "c"),
    **dict.fromkeys(("cc", "cpp", "cxx", "hh", "hpp", "hxx"), "cpp"),
}
"""The language of each suffix. A header that cannot be read as C is read as C++."""

_CLOSED = {
    *("function_definition", "function_declaration", "function_item", "method_definition", "method_declaration"),
    *("type_definition", "type_spec"),
}
"""The types of the nodes whose inner symbols are not shown."""
_ASSIGNED = {"variable_declarator", "assignment_expression", "pair", "public_field_definition", "field_definition"}
_CALLABLE = {"arrow_function", "function_expression", "function", "generator_function", "class"}


class OutlineSymbol(NamedTuple):
    """A symbol of a file: its first line, counted from 1, how deep it is nested, and its text before the body."""

    line: int
    depth: int
    text: str


class OutlineParams(Params):
    """Show the classes, functions and types of a file, or of all files below a folder, with their line numbers.

    For Python, JavaScript, TypeScript, Go, Rust, Java, C and C++.
    """

    path: Name = "."


class Outline(Tool[OutlineParams]):
    """The tool that lists the symbols of files. It shows the unsaved text of an editor."""

    name = "outline"
    kind = ToolKind.READ
    mutates = False
    cacheable = True

    def subjects(self, params: OutlineParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.READ),)

    def locations(self, params: OutlineParams, files: FileSystem) -> tuple[Location, ...]:
        return (Location(files.resolve(params.path, Access.READ)),)

    async def run(self, params: OutlineParams, context: ToolContext) -> ToolResult:
        if await context.files.kind(params.path) is EntryKind.DIRECTORY:
            return ToolResult(await self._folder(params.path, context))
        lines = await _file(params.path, context)
        return ToolResult("\n".join(_shown(lines, _MOST_LINES)) or f"No symbols in {params.path}")

    async def _folder(self, path: str, context: ToolContext) -> str:
        """Return the outlines of the files below a folder, each under its path, until the lines are used up.

        If they would be too many lines, inner symbols are left out, so that more files are shown. Symbols in a
        namespace are not inner ones.
        """
        found = await context.files.find(path, f"**/*.{{{','.join(_LANGUAGES)}}}", _MOST_FILES)
        base = context.files.resolve(".", Access.LIST)
        files, at_level, left_out = list[tuple[str, Sequence[tuple[int, OutlineSymbol]]]](), Counter[int](), 0
        for name in found.paths:
            if len(files) + at_level[0] >= _MOST_LINES:
                left_out += 1
                continue
            try:
                inside = await _file(name, context)
            except (ToolError, Refused):  # not text, too large, gone or protected
                left_out += 1
                continue
            if inside:
                files.append((visible(relative(name, base)), levels := [*_levels(inside)]))
                at_level.update(level for level, _ in levels)
        deepest, needed = 0, len(files) + at_level[0]
        while deepest < _MOST_DEPTH and (needed := needed + at_level[deepest + 1]) <= _MOST_LINES:
            deepest += 1
        lines = list[str]()
        for name, levels in files:
            fitting = [symbol for level, symbol in levels if level <= deepest]
            lines += [name, *_shown(fitting, max(_MOST_LINES - len(lines), 1))]
        if not lines:
            lines.append(f"No symbols below {path} in files of a known language")
        if max(at_level, default=0) > deepest:
            lines.append("[inner symbols are not shown: give the path of a file]")
        if left_out or found.more:
            word = "file" if left_out == 1 and not found.more else "files"
            lines.append(f"[{left_out}{' or more' if found.more else ''} {word} not shown: give a smaller path]")
        return "\n".join(lines)


def _levels(symbols: Sequence[OutlineSymbol]) -> Iterator[tuple[int, OutlineSymbol]]:
    """Yield each symbol with its level: how many symbols it is in, namespaces not counted."""
    namespaces: list[int] = []  # the depths of the namespaces around the next symbol
    for symbol in symbols:
        while namespaces and namespaces[-1] >= symbol.depth:
            namespaces.pop()
        yield symbol.depth - len(namespaces), symbol
        if f"{symbol.text} ".startswith(("namespace ", "inline namespace ")):
            namespaces.append(symbol.depth)


async def _file(path: str, context: ToolContext) -> Sequence[OutlineSymbol]:
    """Return the symbols of a file. Raises ToolError if no grammar knows its language and no server answers."""
    suffix = path.rpartition(".")[2].lower()
    if suffix in _LANGUAGES:
        text = await context.files.read_text(path)
        return await to_thread.run_sync(outline, text, suffix)
    languages, absolute = context.backends.languages, context.files.resolve(path, Access.READ)
    if languages is None or not languages.offers(_DOCUMENT_SYMBOLS):
        await context.files.read_lines(path, 0, 1)  # a missing file has an error of its own
        known = "Python, JavaScript, TypeScript, Go, Rust, Java, C and C++"
        raise ToolError.permanent(f"{path}: no outline for this kind of file (known: {known})", "Use grep or read.")
    # Few editors share language servers.
    from acp_agent.tools.lsp import file_uri
    from acp_agent.tools.lsp_answer import symbols

    answer = await languages.ask(_DOCUMENT_SYMBOLS, {"uri": file_uri(absolute)})
    return [
        OutlineSymbol(symbol.span.line if symbol.span else 1, symbol.depth, f"{symbol.kind} {symbol.name}")
        for symbol in symbols(answer)
    ]


def _shown(found: Sequence[OutlineSymbol], most: int) -> Iterator[str]:
    for symbol in found[:most]:
        yield f"{symbol.line:>5}  {'  ' * symbol.depth}{cut(symbol.text, _LONGEST_LINE)}"
    if len(found) > most:
        yield f"[{counted(len(found) - most, 'more symbol')}]"


def outline(text: str, suffix: str) -> list[OutlineSymbol]:
    """Return the symbols of a text in the order of its lines. `suffix` is that of a known language."""
    language, data = _LANGUAGES[suffix], text.encode("utf-8", "surrogatepass")
    root = _root(language, data)
    if suffix == "h" and root.has_error and b"class" in data:
        language, root = "cpp", _root("cpp", data)
    found: list[OutlineSymbol] = []
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        head = _head(node, _SYMBOLS[language])
        if head is not None and depth < _MOST_DEPTH:
            found.append(OutlineSymbol(node.start_point[0] + 1, depth, head))
            depth += 1
        if head is None or node.type not in _CLOSED:
            waiting += ((child, depth) for child in reversed(node.named_children))
    return found


def _root(language: str, data: bytes) -> "Node":
    from tree_sitter import Parser

    return Parser(_grammar(language)).parse(data).root_node


@cache
def _grammar(language: str) -> "Language":
    """Return a grammar. It is loaded when the first file of its language is read."""
    # ruff: noqa: PLC0415
    from tree_sitter import Language

    match language:
        case "python":
            import tree_sitter_python as module
        case "javascript":
            import tree_sitter_javascript as module
        case "go":
            import tree_sitter_go as module
        case "rust":
            import tree_sitter_rust as module
        case "java":
            import tree_sitter_java as module
        case "c":
            import tree_sitter_c as module
        case "cpp":
            import tree_sitter_cpp as module
        case _:
            import tree_sitter_typescript

            tsx = language == "tsx"
            return Language(
                tree_sitter_typescript.language_tsx() if tsx else tree_sitter_typescript.language_typescript()
            )
    return Language(module.language())


def _head(node: "Node", symbol_types: AbstractSet[str]) -> str | None:
    """Return the text of a symbol before its body on one line, None if the node is no symbol."""
    if node.type in _ASSIGNED:
        value = node.child_by_field_name("value") or node.child_by_field_name("right")
        body = None if value is None or value.type not in _CALLABLE else value.child_by_field_name("body")
        return None if body is None else _line(node, body.start_byte)
    if node.type not in symbol_types:
        return None
    body = node.child_by_field_name("body")
    match node.type:
        case "declaration" | "field_declaration" if not _declares_function(node):
            return None
        case "struct_specifier" | "union_specifier" | "enum_specifier" | "class_specifier" if body is None:
            return None
        case "type_definition":
            return _typedef(node)
        case "type_spec":
            kind = node.child_by_field_name("type")
            closed = kind is not None and kind.type in ("struct_type", "interface_type")
            return f"type {_line(node, kind.children[0].end_byte if kind and closed else node.end_byte)}"
        case "macro_definition":
            name = node.child_by_field_name("name")
            return _line(node, node.end_byte if name is None else name.end_byte)
        case _:
            return _line(node, node.end_byte if body is None else _end_of_head(node, body))


def _end_of_head(node: "Node", body: "Node") -> int:
    """Return where the text of a symbol before its body ends, without the comments that stand last in it."""
    end, before = body.start_byte, [child for child in node.children if child.end_byte <= body.start_byte]
    while before and "comment" in before[-1].type:
        end = before.pop().start_byte
    return end


def _typedef(node: "Node") -> str:
    """Return a typedef of C without the body of its type: `typedef struct cJSON`."""
    kind, declared = node.child_by_field_name("type"), node.child_by_field_name("declarator")
    body = None if kind is None else kind.child_by_field_name("body")
    if body is None or declared is None:
        return _line(node, node.end_byte)
    head, name = _line(node, body.start_byte), _line(declared, declared.end_byte)
    return head if head.endswith(f" {name}") else f"{head} {name}"


def _declares_function(node: "Node") -> bool:
    declared = node.child_by_field_name("declarator")
    while declared is not None and declared.type != "function_declarator":
        declared = declared.child_by_field_name("declarator")
    return declared is not None


def _line(node: "Node", end: int) -> str:
    """Return the text from the start of a node to an offset of the file, on one line."""
    text = (node.text or b"")[: end - node.start_byte].decode("utf-8", "replace")
    return " ".join(text.split()).removesuffix("=>").rstrip(" :{;=")
