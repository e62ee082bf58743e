"""lsp_workspace_symbol: where names of the whole project are defined (requirements A27.1, A27.5)."""

from acp_agent.core.ports import ToolContext
from acp_agent.core.types import Access, PathSubject, Subject, ToolKind, ToolResult
from acp_agent.tools.lsp_answer import Place, Symbol, symbols
from acp_agent.tools.lsp_tool import LanguageServerTool, Names, listed
from acp_agent.tools.params import Name, Params
from acp_agent.tools.visible import title


class LspWorkspaceSymbolParams(Params):
    """Find classes, functions and other names in the whole project by a part of the name, by the language server."""

    query: Name


class LspWorkspaceSymbol(LanguageServerTool[LspWorkspaceSymbolParams]):
    """Asks `lsp/workspaceSymbol`. `most` is how many are shown."""

    name = "lsp_workspace_symbol"
    method = "lsp/workspaceSymbol"
    kind = ToolKind.SEARCH
    params = LspWorkspaceSymbolParams

    def __init__(self, most: int = 50) -> None:
        self._most = most

    def title(self, params: LspWorkspaceSymbolParams) -> str:
        return title(params.query)

    def subjects(self, params: LspWorkspaceSymbolParams) -> tuple[Subject, ...]:
        del params
        return (PathSubject(".", Access.LIST),)

    async def run(self, params: LspWorkspaceSymbolParams, context: ToolContext) -> ToolResult:
        found = symbols(await self.ask(context, {"query": params.query}))
        names = Names(context.files)
        lines = [_line(symbol, names) for symbol in found[: self._most]]
        lines += ["" for _ in found[self._most :]]
        places = (Place(symbol.uri, symbol.span) for symbol in found[: self._most])
        nothing = "The language server knows no such name."
        return ToolResult(listed(lines, nothing, self._most), locations=names.locations(places))


def _line(symbol: Symbol, names: Names) -> str:
    return f"{symbol.kind} {symbol.name}  {names.place(Place(symbol.uri, symbol.span))}"
