"""Every setting there is: one frozen model a section, read from TOML, the environment and flags.

A field's description lands in `schemas/config.schema.json` and in what `acp-agent config init` writes. What a
project's own file may do to a field stands beside it; a field without such a mark is the user's alone.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from acp_agent.config.audit_settings import AuditSettings
from acp_agent.config.choice_settings import ChoiceSettings
from acp_agent.config.context_settings import ContextSettings
from acp_agent.config.loop_settings import HallucinationDetection
from acp_agent.config.lsp_settings import LspSettings
from acp_agent.config.mcp_settings import McpSettings
from acp_agent.config.memory_settings import InstructionSettings, MemorySettings
from acp_agent.config.offer_settings import ToolFilterSettings
from acp_agent.config.provider_settings import LlmSettings
from acp_agent.config.question_settings import QuestionSettings
from acp_agent.config.section import PathText, Seconds, Section
from acp_agent.config.tighter import OFF, SMALLER, SMALLER_OR_UNLIMITED, no_looser
from acp_agent.config.tool_settings import ToolSettings
from acp_agent.core.conduct import AutoApprove, Mode


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
