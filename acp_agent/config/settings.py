"""The whole configuration, and its sections `[agent]`, `[memory]`, `[skills]`, `[acp]`, `[audit]` and `[logging]`.

The descriptions of the fields appear in `schemas/config.schema.json` and in the file that `acp-agent config init`
writes. A project's own file may change only fields with a `ProjectMay` mark (see `section`).
"""

import os
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, cast

from acp_agent.config.agents_settings import AgentsSettings
from acp_agent.config.call_settings import SchedulerSettings, ToolFilterSettings
from acp_agent.config.files import data_path
from acp_agent.config.llm_settings import LlmSettings, OptionalModel, model_name
from acp_agent.config.mcp_settings import McpSettings
from acp_agent.config.section import (
    OFF,
    ON,
    SMALLER,
    SMALLER_ZERO_UNLIMITED,
    SUBSET,
    PathText,
    Seconds,
    Section,
    no_looser,
)
from acp_agent.config.tool_settings import ToolSettings
from acp_agent.core.session_options import AutoApprove, Mode
from acp_agent.core.types import Json, JsonObject
from acp_agent.shape import AfterValidator, Field

NOTE_FILES = ("AGENTS.md", "CLAUDE.md", "GEMINI.md", ".github/copilot-instructions.md", ".cursorrules")
"""The usual names of instruction files, in order of preference. Only the first that a folder has is read."""


class TitleSource(StrEnum):
    """The source of a session's title."""

    MODEL = "model"
    PROMPT = "prompt"


class SessionsSettings(Section):
    """`[memory.sessions]`: stored conversations."""

    titles: Annotated[
        TitleSource,
        Field(
            strict=False,
            description="Source of a session's title: model (one small request after the first prompt) or prompt (its "
            "first words).",
        ),
    ] = TitleSource.MODEL
    title_max_chars: Annotated[int, Field(ge=10, le=500, description="Characters a title may have.")] = 60
    title_provider: Annotated[
        OptionalModel,
        Field(
            description='Model that writes titles, "PROVIDER:MODEL". Empty: the model of the conversation.',
            examples=["ollama:qwen3:8b"],
        ),
    ] = ""


class MemorySettings(Section):
    """`[memory]`: notes that the model saves for later sessions.

    They are shared by all projects, so a project's file may only switch them off.
    """

    enabled: Annotated[
        bool, Field(description="Whether the model may save notes for later sessions and search them."), OFF
    ] = True
    max_notes: Annotated[
        int,
        Field(
            ge=1,
            le=5000,
            description="Notes that are kept. The one that was saved longest ago is deleted first.",
        ),
    ] = 1000
    sessions: SessionsSettings = SessionsSettings.model_construct()
    max_note_bytes: Annotated[int, Field(ge=100, le=64 * 1024, description="Bytes one note may have.")] = 8 * 1024


def _below(value: str) -> str:
    parts = value.split("/")
    if os.path.isabs(value) or not value.isprintable() or any(part in ("", ".", "..", "~") for part in parts):
        raise ValueError("a path below a folder, such as AGENTS.md or .github/copilot-instructions.md")
    return value


class InstructionSettings(Section):
    """`[agent.instructions]`: files in which a project or the user tells agents how to work."""

    enabled: Annotated[
        bool,
        Field(
            description="Whether the model reads instruction files: those in the session's folder and in the folders "
            "above it, up to the repository's, and AGENTS.md in this file's folder."
        ),
        OFF,
    ] = True
    files: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_below)], ...],
        Field(
            strict=False,
            max_length=20,
            description="Names of instruction files, below a folder. The first that a folder has is read.",
        ),
        SUBSET,
    ] = NOTE_FILES
    max_chars: Annotated[
        int,
        Field(
            ge=0,
            le=200_000,
            description="The most characters of all instruction files together; of one file, half as many.",
        ),
        SMALLER,
    ] = 16_384


class SkillSettings(Section):
    """`[skills]`: folders with a SKILL.md, beside this file and in the session's folder. See docs/skills.md."""

    enabled: Annotated[bool, Field(description="Whether the model may use skills."), OFF] = True
    max_chars: Annotated[
        int,
        Field(
            ge=0,
            le=100_000,
            description="Characters of the names and descriptions that the model is shown; 0 = none. Long descriptions "
            "are cut first.",
        ),
        SMALLER,
    ] = 8_000
    home: Annotated[
        bool,
        Field(description="Whether the definitions in ~/.claude and ~/.agents are used too: skills, commands, agents."),
        OFF,
    ] = False


class LspSettings(Section):
    """`[acp.lsp]`: the editor's language servers. It has effect only in editors that offer the LSP extension."""

    enabled: Annotated[
        bool,
        Field(description="Whether the model may query the editor's language servers, if the editor offers them."),
        OFF,
    ] = True
    auto_diagnostics_on_save: Annotated[
        bool, Field(description="Whether the problems of a file are fetched when it is saved."), OFF
    ] = True
    max_diagnostics_per_file: Annotated[
        int, Field(ge=1, le=1000, description="The most problems that are kept of a file."), SMALLER
    ] = 20
    max_diagnostic_files: Annotated[
        int,
        Field(ge=1, le=1000, description="The most files whose problems are kept; the oldest are dropped."),
        SMALLER,
    ] = 5
    max_references: Annotated[
        int, Field(ge=1, le=10_000, description="The most references that are shown."), SMALLER
    ] = 100
    max_workspace_symbols: Annotated[
        int, Field(ge=1, le=10_000, description="The most symbols of a search that are shown."), SMALLER
    ] = 50
    request_timeout_secs: Annotated[
        float,
        Field(gt=0, le=600, allow_inf_nan=False, description="Seconds a language server may take to answer."),
        SMALLER,
    ] = 10.0


class AuditSettings(Section):
    """`[audit]`: the record of every tool call, who allowed it and how it ended. A project's file cannot change it."""

    enabled: Annotated[bool, Field(description="Whether tool calls are recorded.")] = True
    file: Annotated[
        PathText | None,
        Field(
            description="Audit file, mode 0600; a file with its latest hash is beside it. Unset: audit.jsonl in the "
            "data folder.",
            examples=["~/acp-agent-audit/audit.jsonl"],
        ),
    ] = None
    max_bytes: Annotated[
        int,
        Field(
            ge=64 * 1024,
            le=1 << 40,
            description="Bytes from which an agent that starts renames the file and begins a new one. None is deleted.",
        ),
    ] = 64 * 1024 * 1024


def audit_file(chosen: str | None, environ: Mapping[str, str]) -> str:
    """Return the path of the audit file: `[audit] file`, else the one in the data folder. Raises ConfigError."""
    return chosen or os.path.join(data_path(environ), "audit.jsonl")


class AgentSettings(Section):
    """`[agent]`: the limits of a turn, and what the agent adds to it."""

    compaction: Annotated[
        bool,
        Field(
            description="Whether long conversations are compacted automatically. false: a turn stops at 80 % of the "
            "context. /compact works in both cases."
        ),
    ] = True
    facts: Annotated[
        bool,
        Field(
            description="Whether prompts tell the model the date, the branch, uncommitted files, the likely test "
            "command and files that changed, each when it is new."
        ),
        OFF,
    ] = True
    compaction_soft: Annotated[
        float,
        Field(
            ge=0.1,
            le=0.9,
            allow_inf_nan=False,
            description="Share of the context from which old tool outputs are cleared.",
        ),
    ] = 0.6
    compaction_hard: Annotated[
        float,
        Field(
            ge=0.2,
            le=0.95,
            allow_inf_nan=False,
            description="Share of the context from which a model summarises the conversation before the current turn. "
            "If that is not enough, it also summarises the turn, without its prompt and its last steps.",
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
        Field(
            description="Whether the model has the tool compress_context, with which it can compact the conversation."
        ),
        OFF,
    ] = False
    max_tool_iterations: Annotated[
        int,
        Field(
            ge=0,
            le=10_000,
            description="Model calls a turn may make before it stops with max_turn_requests; 0 = no limit. "
            "The model is told five calls before the end.",
        ),
        SMALLER_ZERO_UNLIMITED,
    ] = 200
    max_tool_calls_per_answer: Annotated[
        int,
        Field(ge=1, le=1000, description="Tool calls of one model answer that run. The others are refused."),
        SMALLER,
    ] = 64
    max_parallel_tools: Annotated[
        int,
        Field(
            ge=1,
            le=64,
            description="Tool calls of one model answer that run together, if none touches what another changes.",
        ),
        SMALLER,
    ] = 8
    context_budget_tokens: Annotated[
        int | None,
        Field(
            ge=1000,
            le=10_000_000,
            description="Tokens of context a turn may use; it stops at 80 %. Unset: the model's own window.",
            examples=[100_000],
        ),
        SMALLER,
    ] = None
    instructions: InstructionSettings = InstructionSettings.model_construct()
    tool_filter: ToolFilterSettings = ToolFilterSettings.model_construct()
    hallucination_detection: Annotated[
        bool,
        Field(
            description="Whether you and the model are told when a call names a file, address or id that does not "
            "exist and that nobody has mentioned. It blocks nothing."
        ),
        ON,
    ] = False


class TerminalForm(StrEnum):
    """The form in which a command line is sent to the editor's terminal."""

    SCRIPT = "script"
    EXEC = "exec"
    LINE = "line"


class AcpSettings(Section):
    """`[acp]`: the connection to the editor, and the sessions."""

    elicitation: Annotated[
        bool,
        Field(
            description="Whether the agent and your MCP servers may ask you with forms and web pages, in editors that "
            "support them."
        ),
        OFF,
    ] = True
    elicitation_timeout_secs: Annotated[
        float,
        Field(
            ge=0,
            le=86400,
            allow_inf_nan=False,
            description="Seconds such a question waits for you; 0 = until the turn ends (for an MCP server's "
            "question: 120).",
        ),
    ] = 0.0
    available_models: Annotated[
        tuple[Annotated[str, AfterValidator(model_name)], ...],
        Field(
            strict=False,
            max_length=200,
            description='"PROVIDER:MODEL" of each model a session may use, besides llm.model; providers are then not '
            "asked for their lists. The first is used if llm.model is unset. Empty: all configured and listed models.",
            examples=[["ollama:qwen3:8b"]],
        ),
    ] = ()
    terminal_timeout_secs: Annotated[
        float,
        Field(
            ge=0,
            le=86400,
            allow_inf_nan=False,
            description="Seconds a command may run in the editor's terminal; 0 = no limit.",
        ),
        SMALLER_ZERO_UNLIMITED,
    ] = 120.0
    terminal_form: Annotated[
        TerminalForm,
        Field(
            strict=False,
            description="How commands are sent to the editor's terminal: script (a private script file, which works in "
            "every editor), exec (bash with separate arguments) or line (the bare command line).",
        ),
    ] = TerminalForm.SCRIPT
    request_timeout_secs: Annotated[
        Seconds,
        Field(
            description="Seconds the editor may take for a file or terminal request. Questions to you have no such "
            "limit."
        ),
    ] = 30.0
    question_timeout_secs: Annotated[
        float,
        Field(
            ge=0,
            le=86400,
            allow_inf_nan=False,
            description="Seconds a question waits for you; then the call is refused. 0 = until the turn ends.",
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
            description="What new sessions do without asking: suggest (no change at all), auto-edit (edits of files) "
            "or full-auto (all that no rule forbids).",
        ),
        no_looser(AutoApprove.FULL_AUTO, AutoApprove.AUTO_EDIT, AutoApprove.SUGGEST),
    ] = AutoApprove.SUGGEST
    max_sessions: Annotated[
        int,
        Field(
            ge=1,
            le=1000,
            description="Sessions that one process keeps in memory. Beyond this the one that was unused for the "
            "longest time is unloaded, and loaded again at its next prompt.",
        ),
    ] = 64
    session_idle_timeout_secs: Annotated[
        float,
        Field(
            ge=0,
            le=604800,
            allow_inf_nan=False,
            description="Seconds without a prompt after which a session is unloaded; 0 = never.",
        ),
    ] = 1800.0
    lsp: LspSettings = LspSettings.model_construct()
    rich_kinds: Annotated[
        bool,
        Field(
            description="Whether list_directory, find_path, delete_path, move_path and similar tools have their own "
            "kind in the editor. false: their kind is other."
        ),
        OFF,
    ] = True
    permission_file: Annotated[
        PathText | None,
        Field(
            description='File that keeps your "always" answers. Unset: acp-permissions.toml in the data folder.',
            examples=["~/acp-permissions.toml"],
        ),
    ] = None


class LogLevel(StrEnum):
    """The lowest level of events that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LoggingSettings(Section):
    """`[logging]`: the agent's own log. It never goes to stdout, which belongs to the protocol."""

    level: Annotated[LogLevel, Field(strict=False, description="debug, info, warning or error.")] = LogLevel.INFO
    file: Annotated[
        PathText | None, Field(description="Log file, mode 0600. Unset: stderr.", examples=["~/acp-agent.log"])
    ] = None


class Settings(Section):
    """The whole configuration."""

    agent: AgentSettings = AgentSettings.model_construct()
    agents: AgentsSettings = AgentsSettings.model_construct()
    llm: LlmSettings = LlmSettings.model_construct()
    memory: MemorySettings = MemorySettings.model_construct()
    skills: SkillSettings = SkillSettings.model_construct()
    tools: ToolSettings = ToolSettings.model_construct()
    mcp: McpSettings = McpSettings.model_construct()
    acp: AcpSettings = AcpSettings.model_construct()
    scheduler: SchedulerSettings = SchedulerSettings.model_construct()
    audit: AuditSettings = AuditSettings.model_construct()
    logging: LoggingSettings = LoggingSettings.model_construct()


def config_schema() -> JsonObject:
    """Return the JSON Schema (2020-12) of the configuration file, which `schemas/config.schema.json` also holds."""
    schema = cast("JsonObject", _without_repetitions(Settings.model_json_schema()))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "acp-agent configuration",
        **schema,
    }


def _without_repetitions(value: Json) -> Json:
    """Remove the titles, which repeat the names, and the defaults of sections, which repeat those of their fields."""
    match value:
        case dict():
            repeated = {"default"} if "$ref" in value else set[str]()
            if isinstance(value.get("title"), str):
                repeated.add("title")
            return {key: _without_repetitions(item) for key, item in value.items() if key not in repeated}
        case list():
            return [_without_repetitions(item) for item in value]
        case _:
            return value
