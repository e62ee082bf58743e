"""lsp_references: where something is used (requirements A27.1, A27.5)."""

from acp_agent.core.types import Json, JsonObject, ToolResult
from acp_agent.tools.lsp_answer import places
from acp_agent.tools.lsp_tool import FileTool, Names, PositionParams, listed_places, position


class LspReferencesParams(PositionParams):
    """Find all uses of the name at a place in a file, by the editor's language server."""

    include_declaration: bool = True


class LspReferences(FileTool[LspReferencesParams]):
    """Asks `lsp/references`. `most` is how many are shown."""

    name = "lsp_references"
    method = "lsp/references"
    params = LspReferencesParams

    def __init__(self, most: int = 100) -> None:
        self._most = most

    def params_to_wire(self, params: LspReferencesParams) -> JsonObject:
        # Zeph's name for it stands beside the one of LSP's ReferenceContext.
        included = params.include_declaration
        return {**position(params), "includeDeclaration": included, "include_declaration": included}

    def read(self, answer: Json, names: Names, uri: str) -> ToolResult:
        del uri
        return listed_places(places(answer), names, "The language server knows no use of it.", self._most)
