"""lsp_diagnostics: the problems the editor's language server sees in a file (requirements A27.1)."""

from acp_agent.core.types import Json, JsonObject, ToolResult
from acp_agent.tools.lsp_answer import diagnostics
from acp_agent.tools.lsp_tool import FileParams, FileTool, Names, listed


class LspDiagnosticsParams(FileParams):
    """List errors and warnings the editor's language server sees in a file, unsaved changes included."""


class LspDiagnostics(FileTool[LspDiagnosticsParams]):
    """Asks `lsp/diagnostics`. `most` is how many are shown, the worst first."""

    name = "lsp_diagnostics"
    method = "lsp/diagnostics"
    params = LspDiagnosticsParams

    def __init__(self, most: int = 20) -> None:
        self._most = most

    def params_to_wire(self, params: LspDiagnosticsParams) -> JsonObject:
        del params
        return {}

    def read(self, answer: Json, names: Names, uri: str) -> ToolResult:
        name = names.name(uri)
        lines = [found.line(name) for found in diagnostics(answer)]
        return ToolResult(listed(lines, f"The language server sees no problem in {name}.", self._most))
