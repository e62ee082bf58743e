"""Every setting there is: one frozen model a section, read from TOML, the environment and flags.

A field's description lands in `schemas/config.schema.json` and in what `acp-agent config init` writes. What a
project's own file may do to a field stands beside it; a field without such a mark is the user's alone.
"""

import os
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Self, cast

from pydantic import AfterValidator, Field, model_validator

from acp_agent.config.files import data_path
from acp_agent.config.limits_settings import HallucinationDetection
from acp_agent.config.mcp_settings import McpSettings
from acp_agent.config.memory_settings import InstructionSettings, MemorySettings
from acp_agent.config.offer_settings import ToolFilterSettings
from acp_agent.config.provider_settings import LlmSettings, OptionalModel, model_name
from acp_agent.config.section import OFF, SMALLER, SMALLER_OR_UNLIMITED, PathText, Seconds, Section, no_looser
from acp_agent.config.tool_settings import ToolSettings
from acp_agent.core.conduct import AutoApprove, Mode
from acp_agent.core.types import Json, JsonObject


class ChoiceSettings(Section):
    """Keys that `[acp]` takes over."""

    available_models: Annotated[
        tuple[Annotated[str, AfterValidator(model_name)], ...],
        Field(
            strict=False,
            max_length=200,
            description='"PROVIDER:MODEL" of each model a session may use, besides llm.model; no list is fetched then. '
            "The first answers if llm.model is unset. Empty: all that are configured, and those the providers list.",
            examples=[["ollama:qwen3:8b"]],
        ),
    ] = ()


class QuestionSettings(Section):
    """The part of `[acp]` that is about them."""

    elicitation: Annotated[
        bool,
        Field(
            description="Whether the agent and your MCP servers may ask you by forms and pages, in editors that show "
            "them."
        ),
        OFF,
    ] = True
    elicitation_timeout_secs: Annotated[
        float,
        Field(
            ge=0,
            le=86400,
            allow_inf_nan=False,
            description="Seconds such a question stands; 0 = as long as the turn lives (an MCP server's: 120).",
        ),
    ] = 0.0


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


class ContextSettings(Section):
    """Keys that `[agent]` takes over. All are the user's alone, but that a project may switch the tool off."""

    compaction: Annotated[
        bool,
        Field(
            description="Whether long conversations are shortened by themselves; else a turn stops at 80 % of the "
            "context. /compact works all the same."
        ),
    ] = True
    compaction_soft: Annotated[
        float,
        Field(
            ge=0.1,
            le=0.9,
            allow_inf_nan=False,
            description="Part of the context beyond which old tool outputs are cleared.",
        ),
    ] = 0.6
    compaction_hard: Annotated[
        float,
        Field(
            ge=0.2,
            le=0.95,
            allow_inf_nan=False,
            description="Part of the context beyond which a model sums up what lies before the current turn.",
        ),
    ] = 0.9
    compress_provider: Annotated[
        OptionalModel,
        Field(
            description='Model that writes summaries, "PROVIDER:MODEL". Empty: the model of the conversation.',
            examples=["ollama:qwen3:8b"],
        ),
    ] = ""
    compress_context: Annotated[
        bool,
        Field(description="Whether the model has a tool, compress_context, to have the conversation summed up itself."),
        OFF,
    ] = False

    @model_validator(mode="after")
    def _soft_before_hard(self) -> Self:
        if self.compaction_soft >= self.compaction_hard:
            raise ValueError(f"compaction_soft below compaction_hard = {self.compaction_hard:g}")
        return self


class AuditSettings(Section):
    """`[audit]`: what was called, on whose word, and how it ended."""

    enabled: Annotated[bool, Field(description="Whether tool calls are recorded.")] = True
    file: Annotated[
        PathText | None,
        Field(
            description="The record, mode 0600; its head is kept beside it. Unset: audit.jsonl in the data folder.",
            examples=["~/acp-agent-audit/audit.jsonl"],
        ),
    ] = None
    max_bytes: Annotated[
        int,
        Field(
            ge=64 * 1024,
            le=1 << 40,
            description="A file larger than this gets another name when an agent starts; it is never deleted.",
        ),
    ] = 64 * 1024 * 1024


def audit_file(chosen: str | None, environ: Mapping[str, str]) -> str:
    """Where the audit is: `[audit] file`, else in the data folder. Touches nothing. Raises ConfigError."""
    return chosen or os.path.join(data_path(environ), "audit.jsonl")


class AgentSettings(ContextSettings):
    """`[agent]`: how far a turn may go (L2)."""

    max_tool_iterations: Annotated[
        int,
        Field(ge=1, le=100, description="Model calls a turn may make before it stops with max_turn_requests."),
        SMALLER,
    ] = 10
    max_tool_calls_per_answer: Annotated[
        int,
        Field(ge=1, le=1000, description="Tool calls of one answer of the model that run; the others are refused."),
        SMALLER,
    ] = 64
    context_budget_tokens: Annotated[
        int | None,
        Field(
            ge=1000,
            le=10_000_000,
            description="Tokens of context a turn may fill; it stops at 80 %. Unset: the model's own window.",
            examples=[100_000],
        ),
        SMALLER,
    ] = None
    instructions: InstructionSettings = InstructionSettings()
    tool_filter: ToolFilterSettings = ToolFilterSettings()
    hallucination_detection: HallucinationDetection = False


class TerminalForm(StrEnum):
    """How a command line is handed to an editor's terminal (acp.md 4.6 item 1)."""

    SCRIPT = "script"
    EXEC = "exec"
    LINE = "line"


class AcpSettings(ChoiceSettings, QuestionSettings):
    """`[acp]`: the side that faces the editor (A2)."""

    terminal_timeout_secs: Annotated[
        float,
        Field(
            ge=0,
            le=86400,
            allow_inf_nan=False,
            description="Seconds a command may run in the editor's terminal; 0 = no limit.",
        ),
        SMALLER_OR_UNLIMITED,
    ] = 120.0
    terminal_form: Annotated[
        TerminalForm,
        Field(
            strict=False,
            description="How commands reach the editor's terminal: script (a private script file, right in every "
            "editor), exec (bash with its arguments apart) or line (the bare command line).",
        ),
    ] = TerminalForm.SCRIPT
    request_timeout_secs: Annotated[
        Seconds,
        Field(
            description="Seconds the editor may take over a file or terminal request. Questions to you have no limit."
        ),
    ] = 30.0
    question_timeout_secs: Annotated[
        float,
        Field(
            ge=0,
            le=86400,
            allow_inf_nan=False,
            description="Seconds a question to you stands; then the call is refused. 0 = as long as the turn lives.",
        ),
    ] = 0.0
    mode: Annotated[
        Mode,
        Field(
            strict=False, description="Mode of new sessions: code (all tools), architect (plans) or ask (reads only)."
        ),
        no_looser(Mode.CODE, Mode.ARCHITECT, Mode.ASK),
    ] = Mode.CODE
    auto_approve: Annotated[
        AutoApprove,
        Field(
            strict=False,
            description="What new sessions do without asking: suggest (nothing that changes anything), auto-edit "
            "(edits) or full-auto (all that no rule forbids).",
        ),
        no_looser(AutoApprove.FULL_AUTO, AutoApprove.AUTO_EDIT, AutoApprove.SUGGEST),
    ] = AutoApprove.SUGGEST
    max_sessions: Annotated[
        int,
        Field(
            ge=1,
            le=1000,
            description="Sessions of one process that are kept ready; beyond it the one unused for the longest time "
            "rests, and wakes up at its next prompt.",
        ),
    ] = 16
    session_idle_timeout_secs: Annotated[
        float,
        Field(
            ge=0,
            le=604800,
            allow_inf_nan=False,
            description="Seconds without a prompt after which a session rests; 0 = never.",
        ),
    ] = 1800.0
    lsp: LspSettings = LspSettings()
    rich_kinds: Annotated[
        bool,
        Field(
            description="Whether editors draw list_directory, find_path, delete_path, move_path and the like as what "
            "they are, where the default says other."
        ),
        OFF,
    ] = False
    permission_file: Annotated[
        PathText | None,
        Field(
            description='File that keeps your "always" answers. Unset: acp-permissions.toml in the data folder.',
            examples=["~/acp-permissions.toml"],
        ),
    ] = None


class LogLevel(StrEnum):
    """What is worth a line in the log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LoggingSettings(Section):
    """`[logging]`: the agent's own log; never on stdout, which is the protocol's (A1.1)."""

    level: Annotated[LogLevel, Field(strict=False, description="debug, info, warning or error.")] = LogLevel.INFO
    file: Annotated[
        PathText | None, Field(description="Log file, mode 0600. Unset: stderr.", examples=["~/acp-agent.log"])
    ] = None


class Settings(Section):
    """The whole configuration."""

    agent: AgentSettings = AgentSettings()
    llm: LlmSettings = LlmSettings()
    memory: MemorySettings = MemorySettings()
    tools: ToolSettings = ToolSettings()
    mcp: McpSettings = McpSettings()
    acp: AcpSettings = AcpSettings()
    audit: AuditSettings = AuditSettings()
    logging: LoggingSettings = LoggingSettings()


def config_schema() -> JsonObject:
    """What `acp-agent schema config` prints and `schemas/config.schema.json` keeps: JSON Schema 2020-12."""
    schema = cast("JsonObject", _without_echoes(Settings.model_json_schema()))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "acp-agent configuration",
        **schema,
    }


def _without_echoes(value: Json) -> Json:
    """A section's default says again what each of its fields says, and a title the name it was made from."""
    match value:
        case dict():
            return {key: _without_echoes(item) for key, item in value.items() if not _echoes(key, item, value)}
        case list():
            return [_without_echoes(item) for item in value]
        case _:
            return value


def _echoes(key: str, item: Json, holder: JsonObject) -> bool:
    return (key == "title" and isinstance(item, str)) or (key == "default" and "$ref" in holder)
