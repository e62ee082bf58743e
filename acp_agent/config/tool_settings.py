"""`[tools]`: what the model may use, and within which limits."""

from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field

from acp_agent.config.limits_settings import (
    AnomalySettings,
    MaxToolCalls,
    PhaseSettings,
    RateLimitSettings,
    RetrySettings,
    UtilitySettings,
    VerifierSettings,
)
from acp_agent.config.offer_settings import DependencySettings, TafcSettings
from acp_agent.config.rules import (
    PROJECT_RULES,
    AuthorizationSettings,
    ConfirmPatterns,
    PermissionRules,
    PolicySettings,
    ToolName,
)
from acp_agent.config.section import (
    ADDED,
    INSIDE,
    NARROWER,
    OFF,
    ON,
    SMALLER,
    SMALLER_OR_UNLIMITED,
    SOME,
    SUBSET,
    Paths,
    PathText,
    Seconds,
    Section,
    Words,
    no_looser,
)
from acp_agent.core.conduct import Autonomy


class DenyGroup(StrEnum):
    """The named groups of commands (`gates/deny_groups.toml` says what is in each)."""

    DESTRUCTIVE = "destructive"
    DISK = "disk"
    SYSTEM = "system"
    FORK_BOMB = "fork_bomb"
    REMOTE_EXEC = "remote_exec"
    REVERSE_SHELL = "reverse_shell"
    EVAL = "eval"
    DESTRUCTIVE_OPS = "destructive_ops"
    DATA_EXFILTRATION = "data_exfiltration"
    CODE_INJECTION = "code_injection"
    PRIVILEGE_ESCALATION = "privilege_escalation"
    DANGEROUS_PATHS = "dangerous_paths"
    ENV_INJECTION = "env_injection"
    CONTAINER_ESCAPE = "container_escape"
    CRYPTO_MINING = "crypto_mining"
    FILTER_BYPASS = "filter_bypass"
    NETWORK_RECON = "network_recon"
    PACKAGE_INSTALL = "package_install"
    PERSISTENCE = "persistence"
    PROCESS_CONTROL = "process_control"
    ENV_DUMP = "env_dump"


DEFAULT_GROUPS = (
    DenyGroup.DISK,
    DenyGroup.SYSTEM,
    DenyGroup.FORK_BOMB,
    DenyGroup.REMOTE_EXEC,
    DenyGroup.REVERSE_SHELL,
    DenyGroup.EVAL,
    DenyGroup.PRIVILEGE_ESCALATION,
    DenyGroup.CRYPTO_MINING,
)

BlockedGroups = Annotated[
    tuple[Annotated[DenyGroup, Field(strict=False)], ...],
    Field(
        strict=False,
        description="Named groups of commands that never run, besides the built-in list. destructive (any rm -rf), "
        "code_injection (python -c), env_dump, process_control and more are off, for everyday work needs them; "
        "package_install asks instead.",
        examples=[["remote_exec", "reverse_shell", "persistence"]],
    ),
    ADDED,
]
"""`tools.shell.blocked_groups`."""


class ProtectionSettings(Section):
    """`[tools.protection]`: files that somebody else runs or obeys later (security.md, threat 3)."""

    protected_paths: Annotated[
        Words,
        Field(
            description="Further files and folders that you are asked about before they change, at any approval level: "
            "absolute, ~/..., or names found anywhere. Git hooks, shell start-up files, editor tasks and the like are "
            "built in.",
            examples=[["deploy/*.sh", "Makefile"]],
        ),
        ADDED,
    ] = ()
    unprotected_paths: Annotated[
        Words,
        Field(
            description="Built-in ones you need not be asked about, written likewise. Git's hooks and configuration, "
            "shell start-up files, .ssh and the agent's own files stay protected.",
            examples=[[".vscode/settings.json", ".husky"]],
        ),
    ] = ()


class Profile(StrEnum):
    """A ready-made choice of tools."""

    FULL = "full"
    CODING = "coding"
    MINIMAL = "minimal"


class ModelTools(Section):
    """`[tools.by_model."GLOB"]`: another choice for some models."""

    profile: Annotated[
        Profile | None, Field(strict=False, description="Profile instead of the general one. Unset: the general one.")
    ] = None
    allow: Annotated[
        Words | None, Field(description="The only tools, instead of the general list. Unset: the general list.")
    ] = None
    deny: Annotated[Words, Field(description="Further tools this model does not get.")] = ()
    also_allow: Annotated[Words, Field(description="Further tools beside the profile.")] = ()


class SelectionSettings(Section):
    """The part of `[tools]` that chooses among the tools there are."""

    profile: Annotated[
        Profile,
        Field(
            strict=False,
            description="Which tools the model gets: full (all), coding (files, commands, web, diagnostics, memory) or "
            "minimal (read, list_directory, find_path, grep).",
        ),
        no_looser(Profile.FULL, Profile.CODING, Profile.MINIMAL),
    ] = Profile.FULL
    allow: Annotated[
        Words,
        Field(
            description="The only tools of the profile the model gets. Empty: all of it. Tools by name, or group:fs, "
            "group:runtime, group:web, group:memory, mcp, mcp:SERVER.",
            examples=[["group:fs", "bash"]],
        ),
        NARROWER,
    ] = ()
    deny: Annotated[
        Words,
        Field(
            description="Tools the model does not get, written likewise. Nothing brings them back.",
            examples=[["delete_path", "group:web"]],
        ),
        ADDED,
    ] = ()
    also_allow: Annotated[
        Words,
        Field(
            description="Tools beside those of profile and allow, written likewise; deny still takes them away.",
            examples=[["mcp:github"]],
        ),
        SUBSET,
    ] = ()
    by_model: Annotated[
        dict[Annotated[str, Field(min_length=1, max_length=200)], ModelTools],
        Field(
            description="Another choice for models whose provider:model matches a glob; the first that matches counts. "
            "Its profile and allow stand in for the general ones, its deny and also_allow add to them.",
            examples=[{"ollama:*": {"profile": "minimal"}}],
        ),
    ] = Field(default_factory=dict[str, ModelTools])


class OverflowSettings(Section):
    """`[tools.overflow]`: output that is too long for the model (O5).

    What is kept belongs to all conversations, so a project's file has no say in how long and how much.
    """

    threshold: Annotated[
        int,
        Field(
            ge=1000,
            le=10_000_000,
            description="Characters; longer output is cut to its head and tail, and kept whole for read_overflow.",
        ),
        SMALLER,
    ] = 50_000
    retention_days: Annotated[int, Field(ge=1, le=3650, description="Days after which kept outputs are deleted.")] = 7
    max_overflow_bytes: Annotated[
        int, Field(ge=0, le=1_000_000_000, description="Bytes of the longest output that is kept; 0 = no limit.")
    ] = 10 * 1024 * 1024
    max_conversation_bytes: Annotated[
        int, Field(ge=0, le=1 << 40, description="Bytes kept for one conversation at most; 0 = no limit.")
    ] = 200 * 1024 * 1024
    summarize_output: Annotated[
        bool,
        Field(description="Whether the model sums up what is cut out; costs a model call, and the output goes to it."),
        OFF,
    ] = False


class ResultCacheSettings(Section):
    """`[tools.result_cache]`: answers to reading calls, kept in memory until something changes (O6)."""

    enabled: Annotated[bool, Field(description="Whether the same reading call is answered from memory."), OFF] = True
    ttl_secs: Annotated[
        float,
        Field(
            ge=0,
            le=86400,
            allow_inf_nan=False,
            description="Seconds an answer may be used again; 0 = until something changes.",
        ),
        SMALLER_OR_UNLIMITED,
    ] = 300.0


class SecurityFilterSettings(Section):
    """`[tools.filters.security]`: secrets in what tools say (S9, O4).

    The patterns are the user's alone: one of a project's could hide what he is asked to allow, or the project's tracks.
    """

    enabled: Annotated[bool, Field(description="Whether secrets are taken out of what tools say."), ON] = True
    extra_patterns: Annotated[
        Words,
        Field(
            description="Further secrets, as regular expressions (RE2) of at most 512 characters.",
            examples=[["corp-[0-9a-f]{32}"]],
        ),
    ] = ()


def _unset(value: object) -> object:
    return None if value == "" else value


class FilterSettings(Section):
    """`[tools.filters]`: what the model need not read of a command's output (O1)."""

    enabled: Annotated[
        bool, Field(description="Whether commands' output is filtered before the model reads it."), OFF
    ] = True
    filters_path: Annotated[
        PathText | None,
        BeforeValidator(_unset),
        Field(
            description="File of filter rules, or a folder with a filters.toml; replaces the built-in rules. Unset or "
            "empty: filters.toml beside this file, if there is one.",
            examples=["~/acp-filters.toml"],
        ),
    ] = None
    security: SecurityFilterSettings = SecurityFilterSettings()


class Substitution(StrEnum):
    """What happens to a command with `$(...)`, backticks, `<(...)`, `>(...)` or `<<<` (requirements 4 row 50)."""

    BLOCK = "block"
    INSPECT = "inspect"
    ASK = "ask"


class ShellSettings(Section):
    """`[tools.shell]`: the bash tool (T2)."""

    timeout: Annotated[
        Seconds,
        Field(
            description="Seconds a command may run locally when it asks for no other time; then its whole process "
            "tree is killed."
        ),
        SMALLER,
    ] = 30.0
    max_timeout: Annotated[
        Seconds, Field(description="Most seconds a command may ask for, here or in the editor."), SMALLER
    ] = 600.0
    allowed_paths: Annotated[
        Paths,
        Field(
            description="Folders besides the session's own that commands may name. Empty: none.",
            examples=[["~/shared"]],
        ),
        INSIDE,
    ] = ()
    blocked_commands: Annotated[
        Words,
        Field(
            description="Commands that never run, besides the built-in list. Nothing lifts this, no approval either.",
            examples=[["terraform destroy"]],
        ),
        ADDED,
    ] = ()
    allowed_commands: Annotated[
        Words, Field(description="Commands taken off the built-in blocklist.", examples=[["curl"]]), SUBSET
    ] = ()
    confirm_patterns: ConfirmPatterns = ()
    env_allow: Annotated[
        Words,
        Field(
            description="Further environment variables that commands may see, by name.",
            examples=[["NPM_CONFIG_REGISTRY"]],
        ),
        SUBSET,
    ] = ()
    blocked_groups: BlockedGroups = DEFAULT_GROUPS
    substitution: Annotated[
        Substitution,
        Field(
            strict=False,
            description="Commands with $(...), backticks, <(...), >(...) or <<<: block them, inspect (judge what is "
            "inside like any command) or ask.",
        ),
        no_looser(Substitution.INSPECT, Substitution.ASK, Substitution.BLOCK),
    ] = Substitution.BLOCK


class ReadRule(StrEnum):
    """What `allow_read` means beside `deny_read` (requirements section 4 row 21)."""

    STRICT = "strict"
    CARVE_OUT = "carve_out"


class FileSettings(Section):
    """`[tools.file]`: the file tools (T4)."""

    allowed_paths: Annotated[
        Paths,
        Field(
            description="Folders besides the session's own that file tools may touch. Empty: none.",
            examples=[["~/shared"]],
        ),
        INSIDE,
    ] = ()
    deny_read: Annotated[
        Words,
        Field(
            description="Globs of files that no file tool shows: absolute, ~/..., **/..., below the session's folders "
            "(secrets/*), or a bare name (.env) at any depth. A folder that matches is denied whole.",
            examples=[["**/.env", "~/.ssh"]],
        ),
        ADDED,
    ] = ()
    allow_read: Annotated[
        Words,
        Field(
            description="Globs of the only files that may be shown. Empty: all. What deny_read denies stays denied, "
            "unless read_policy is carve_out.",
            examples=[["src/**"]],
        ),
        SOME,
    ] = ()
    read_policy: Annotated[
        ReadRule,
        Field(
            strict=False,
            description="strict: deny_read always wins and a non-empty allow_read is a whitelist. carve_out: "
            "allow_read makes exceptions to deny_read and does nothing else.",
        ),
        no_looser(ReadRule.CARVE_OUT, ReadRule.STRICT),
    ] = ReadRule.STRICT


class ScrapeSettings(Section):
    """`[tools.scrape]`: the web tools (T5)."""

    timeout: Annotated[Seconds, Field(description="Seconds a page may take, redirects included."), SMALLER] = 15.0
    max_body_bytes: Annotated[
        int, Field(ge=1024, le=64 * 1024 * 1024, description="Bytes a page may have once it is unpacked."), SMALLER
    ] = 1024 * 1024
    allowed_domains: Annotated[
        Words,
        Field(
            description="Hosts that may be reached; *.example.com means one name in front. Empty: every public host.",
            examples=[["docs.python.org", "*.readthedocs.io"]],
        ),
        NARROWER,
    ] = ()
    denied_domains: Annotated[
        Words, Field(description="Hosts that are never reached; written likewise.", examples=[["*.example.net"]]), ADDED
    ] = ()
    ports: Annotated[
        tuple[Annotated[int, Field(ge=1, le=65535)], ...],
        Field(strict=False, min_length=1, description="Ports that may be reached."),
        SOME,
    ] = (443,)


class DiagnosticsSettings(Section):
    """`[tools.diagnostics]`: what compilers and checkers say (T6)."""

    max_diagnostics: Annotated[
        int, Field(ge=1, le=1000, description="Problems the model is told of at most."), SMALLER
    ] = 50
    timeout: Annotated[Seconds, Field(description="Seconds a checker may run."), SMALLER] = 120.0


AutonomyLevel = Annotated[
    Autonomy,
    Field(
        strict=False,
        description="readonly (only tools that read, search and fetch), supervised (rules and questions decide) or "
        "full (nothing asks; deny rules and the blocklist hold). With acp.auto_approve set too, the tighter one holds.",
    ),
    no_looser(Autonomy.FULL, Autonomy.SUPERVISED, Autonomy.READONLY),
]
"""The type of the field `autonomy_level` of `[tools]`."""


class ToolSettings(SelectionSettings):
    """`[tools]`: what the model may use (T1.9)."""

    enabled: Annotated[bool, Field(description="Whether the model gets any tools at all."), OFF] = True
    autonomy_level: AutonomyLevel = Autonomy.SUPERVISED
    shell: ShellSettings = ShellSettings()
    file: FileSettings = FileSettings()
    scrape: ScrapeSettings = ScrapeSettings()
    diagnostics: DiagnosticsSettings = DiagnosticsSettings()
    max_tool_calls_per_session: MaxToolCalls = None
    rate_limit: RateLimitSettings = RateLimitSettings()
    anomaly: AnomalySettings = AnomalySettings()
    verifiers: VerifierSettings = VerifierSettings()
    retry: RetrySettings = RetrySettings()
    utility: UtilitySettings = UtilitySettings()
    phases: PhaseSettings = PhaseSettings()
    policy: PolicySettings = PolicySettings()
    authorization: AuthorizationSettings = AuthorizationSettings()
    protection: ProtectionSettings = ProtectionSettings()
    overflow: OverflowSettings = OverflowSettings()
    result_cache: ResultCacheSettings = ResultCacheSettings()
    filters: FilterSettings = FilterSettings()
    tafc: TafcSettings = TafcSettings()
    dependencies: DependencySettings = DependencySettings()
    permissions: Annotated[dict[ToolName, PermissionRules], PROJECT_RULES] = Field(
        default_factory=dict[ToolName, PermissionRules],
        description="Rules a tool, in order, by tool name (bash, read, write, edit, ...); the first match decides. "
        "No match: ask.",
        examples=[
            {"bash": [{"pattern": "git push*", "action": "deny"}, {"pattern": "git status*", "action": "allow"}]}
        ],
    )
