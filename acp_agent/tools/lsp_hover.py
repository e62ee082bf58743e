"""lsp_hover: what the editor's language server says about a place (requirements A27.1)."""

from acp_agent.core.types import Json, JsonObject, ToolResult
from acp_agent.tools.lsp_answer import hover
from acp_agent.tools.lsp_tool import FileTool, Names, PositionParams, position


class LspHoverParams(PositionParams):
    """Show type and documentation of what stands at a place in a file, by the editor's language server."""


class LspHover(FileTool[LspHoverParams]):
    """Asks `lsp/hover`."""

    name = "lsp_hover"
    method = "lsp/hover"
    params = LspHoverParams

    def params_to_wire(self, params: LspHoverParams) -> JsonObject:
        return position(params)

    def read(self, answer: Json, names: Names, uri: str) -> ToolResult:
        del names, uri
        return ToolResult(hover(answer) or "The language server says nothing about this place.")
