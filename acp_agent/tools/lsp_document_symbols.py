"""lsp_document_symbols: what a file defines (requirements A27.1)."""

from acp_agent.core.types import Json, JsonObject, ToolResult
from acp_agent.tools.lsp_answer import Symbol, symbols
from acp_agent.tools.lsp_tool import FileParams, FileTool, Names, listed

_MOST = 500


class LspDocumentSymbolsParams(FileParams):
    """Outline a file: its classes, functions and other names with their lines, by the editor's language server."""


class LspDocumentSymbols(FileTool[LspDocumentSymbolsParams]):
    """Asks `lsp/documentSymbols`. What is in another stands below it, further in."""

    name = "lsp_document_symbols"
    method = "lsp/documentSymbols"
    params = LspDocumentSymbolsParams

    def params_to_wire(self, params: LspDocumentSymbolsParams) -> JsonObject:
        del params
        return {}

    def read(self, answer: Json, names: Names, uri: str) -> ToolResult:
        lines = [_line(symbol) for symbol in symbols(answer)]
        return ToolResult(listed(lines, f"The language server knows no name in {names.name(uri)}.", _MOST))


def _line(symbol: Symbol) -> str:
    where = f"  {symbol.span}" if symbol.span else ""
    return f"{'  ' * symbol.depth}{symbol.kind} {symbol.name}{where}"
