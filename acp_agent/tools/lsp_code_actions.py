"""lsp_code_actions: what the editor's language server would change (requirements A27.1, A27.2)."""

import json
from collections.abc import Iterator

from pydantic import Field

from acp_agent.core.types import Json, JsonObject, ToolResult
from acp_agent.tools.lsp_answer import Span, to_wire
from acp_agent.tools.lsp_edits import Action, Edit, actions
from acp_agent.tools.lsp_tool import Counted, FileTool, Names, PositionParams, listed
from acp_agent.tools.visible import visible

_MOST = 20
_MOST_EDITS = 20


class LspCodeActionsParams(PositionParams):
    """List fixes the editor's language server has for a place in a file, with their edits. Changes nothing."""

    end_line: Counted | None = Field(default=None, description="Unset: the place alone")
    end_column: Counted | None = None


class LspCodeActions(FileTool[LspCodeActionsParams]):
    """Asks `lsp/codeActions`. Only those that say what they would change are shown; the model makes the edits."""

    name = "lsp_code_actions"
    method = "lsp/codeActions"
    params = LspCodeActionsParams

    def params_to_wire(self, params: LspCodeActionsParams) -> JsonObject:
        end_line = params.end_line or params.line
        end_column = params.end_column or (params.column if end_line == params.line else 1)
        return {"range": to_wire(Span(params.line, params.column, end_line, end_column)), "diagnostics": []}

    def read(self, answer: Json, names: Names, uri: str) -> ToolResult:
        del uri
        found = actions(answer)
        lines = ["\n".join(_lines(action, names)) for action in found[:_MOST]] + ["" for _ in found[_MOST:]]
        return ToolResult(listed(lines, "The language server has nothing to change here.", _MOST))


def _lines(action: Action, names: Names) -> Iterator[str]:
    kind = f" ({action.kind})" if action.kind else ""
    yield f"- {action.title}{kind}{', preferred' if action.preferred else ''}"
    for edit in action.edits[:_MOST_EDITS]:
        yield f"    {_edit(edit, names)}"
    if len(action.edits) > _MOST_EDITS:
        yield f"    ... and {len(action.edits) - _MOST_EDITS} more edits"


def _edit(edit: Edit, names: Names) -> str:
    name = names.name(edit.uri)
    if names.path(edit.uri) is None:
        return f"{name} (not to be read here)"
    if edit.span is None:
        return f"{name}: {edit.operation}"
    return f"{name}:{edit.span.whole} -> {visible(json.dumps(edit.new_text, ensure_ascii=False))}"
