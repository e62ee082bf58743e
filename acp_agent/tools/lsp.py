"""The tools over the editor's language servers, those of them the client serves (requirements A27.6)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from acp_agent.tools.lsp_code_actions import LspCodeActions
from acp_agent.tools.lsp_definition import LspDefinition
from acp_agent.tools.lsp_diagnostics import LspDiagnostics
from acp_agent.tools.lsp_document_symbols import LspDocumentSymbols
from acp_agent.tools.lsp_hover import LspHover
from acp_agent.tools.lsp_references import LspReferences
from acp_agent.tools.lsp_tool import LanguageServerTool
from acp_agent.tools.lsp_workspace_symbol import LspWorkspaceSymbol


@dataclass(frozen=True, slots=True)
class LspLimits:
    """How much of an answer is shown."""

    references: int = 100
    workspace_symbols: int = 50
    diagnostics: int = 20


_DEFAULTS = LspLimits()


def lsp_tools(offers: Callable[[str], bool], limits: LspLimits = _DEFAULTS) -> tuple[LanguageServerTool[Any], ...]:
    """The tools whose method `offers` says yes to, in the order the model sees them."""
    every: tuple[LanguageServerTool[Any], ...] = (
        LspHover(),
        LspDefinition(),
        LspReferences(limits.references),
        LspDiagnostics(limits.diagnostics),
        LspDocumentSymbols(),
        LspWorkspaceSymbol(limits.workspace_symbols),
        LspCodeActions(),
    )
    return tuple(tool for tool in every if offers(tool.method))
