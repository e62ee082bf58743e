"""lsp_definition: where something is defined (requirements A27.1)."""

from acp_agent.core.types import Json, JsonObject, ToolResult
from acp_agent.tools.lsp_answer import places
from acp_agent.tools.lsp_tool import FileTool, Names, PositionParams, listed_places, position

_MOST = 50


class LspDefinitionParams(PositionParams):
    """Find where the name at a place in a file is defined, by the editor's language server."""


class LspDefinition(FileTool[LspDefinitionParams]):
    """Asks `lsp/definition`."""

    name = "lsp_definition"
    method = "lsp/definition"
    params = LspDefinitionParams

    def params_to_wire(self, params: LspDefinitionParams) -> JsonObject:
        return position(params)

    def read(self, answer: Json, names: Names, uri: str) -> ToolResult:
        del uri
        return listed_places(places(answer), names, "The language server knows no definition.", _MOST)
