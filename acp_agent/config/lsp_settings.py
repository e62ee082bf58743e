"""`[acp.lsp]`: what the editor's language servers know, where it shares that (requirements A27, A2)."""

from typing import Annotated

from pydantic import Field

from acp_agent.config.section import Section
from acp_agent.config.tighter import OFF, SMALLER


class LspSettings(Section):
    """`[acp.lsp]`: counts only where the client offers the LSP extension (A3.12)."""

    enabled: Annotated[
        bool, Field(description="Whether the model may ask the editor's language servers, if the editor lets it."), OFF
    ] = True
    auto_diagnostics_on_save: Annotated[
        bool, Field(description="Whether problems of a file are fetched when it is saved."), OFF
    ] = True
    max_diagnostics_per_file: Annotated[int, Field(ge=1, le=1000, description="Problems kept of a file."), SMALLER] = 20
    max_diagnostic_files: Annotated[
        int, Field(ge=1, le=1000, description="Files whose problems are kept, the newest."), SMALLER
    ] = 5
    max_references: Annotated[int, Field(ge=1, le=10_000, description="References shown."), SMALLER] = 100
    max_workspace_symbols: Annotated[int, Field(ge=1, le=10_000, description="Symbols of a search shown."), SMALLER] = (
        50
    )
    request_timeout_secs: Annotated[
        float,
        Field(gt=0, le=600, allow_inf_nan=False, description="Seconds a language server may take to answer."),
        SMALLER,
    ] = 10.0
