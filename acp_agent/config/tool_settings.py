"""`[tools]`: which tools the model gets, what they may do, and what happens to their results.

The tables of limits are in `call_settings`, those of rules in `rules`.
"""

from enum import StrEnum
from typing import Annotated

from acp_agent.config.call_settings import (
    AdversarialSettings,
    AnomalySettings,
    DependencySettings,
    PhaseSettings,
    RateLimitSettings,
    RetrySettings,
    SandboxSettings,
    TafcSettings,
    UtilitySettings,
    VerifierSettings,
)
from acp_agent.config.rules import (
    PROJECT_RULES,
    AuthorizationSettings,
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
    SMALLER_ZERO_UNLIMITED,
    SOME,
    SUBSET,
    Paths,
    PathText,
    Seconds,
    Section,
    Words,
    no_looser,
)
from acp_agent.core.session_options import Autonomy
from acp_agent.shape import BeforeValidator, Field


class DenyGroup(StrEnum):
    """The named groups of commands. `gates/rules/deny_groups.toml` lists the commands of each."""

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


class ProtectionSettings(Section):
    """`[tools.protection]`: files that other programs run or read as instructions later."""

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
            description="Built-in paths that you are not asked about, in the same form. Git's hooks and configuration, "
            "shell start-up files, .ssh and the agent's own files stay protected.",
            examples=[[".vscode/settings.json", ".husky"]],
        ),
    ] = ()


class Profile(StrEnum):
    """A predefined selection of tools."""

    FULL = "full"
    CODING = "coding"
    MINIMAL = "minimal"


class ModelTools(Section):
    """`[tools.by_model."GLOB"]`: another selection for some models."""

    profile: Annotated[
        Profile | None, Field(strict=False, description="Profile instead of the general one. Unset: the general one.")
    ] = None
    allow: Annotated[
        Words | None, Field(description="The only tools, instead of the general list. Unset: the general list.")
    ] = None
    deny: Annotated[Words, Field(description="Further tools this model does not get.")] = ()
    also_allow: Annotated[Words, Field(description="Further tools besides those of the profile.")] = ()


class OverflowSettings(Section):
    """`[tools.overflow]`: output that is too long for the model.

    The stored outputs of all conversations share one limit, so a project's file cannot change how much is stored.
    """

    threshold: Annotated[
        int,
        Field(
            ge=1000,
            le=10_000_000,
            description="Characters of the longest output the model gets whole. Longer output is cut to its head and "
            "tail, and stored whole for read_overflow.",
        ),
        SMALLER,
    ] = 50_000
    retention_days: Annotated[int, Field(ge=1, le=3650, description="Days after which stored outputs are deleted.")] = 7
    max_overflow_bytes: Annotated[
        int, Field(ge=0, le=1_000_000_000, description="Bytes of the longest output that is stored; 0 = no limit.")
    ] = 10 * 1024 * 1024
    max_conversation_bytes: Annotated[
        int, Field(ge=0, le=1 << 40, description="The most bytes that are stored for one conversation; 0 = no limit.")
    ] = 200 * 1024 * 1024
    summarize_output: Annotated[
        bool,
        Field(description="Whether a model call summarises the part that is cut out. The output is sent to the model."),
        OFF,
    ] = False


class UndoSettings(Section):
    """`[tools.undo]`: what `/undo` needs. The old contents of files are kept in the data folder."""

    enabled: Annotated[
        bool, Field(description="Whether the contents of files are kept before calls change them, for /undo.")
    ] = True
    max_file_bytes: Annotated[
        int, Field(ge=0, le=1_000_000_000, description="Bytes of the largest file that is kept. Larger ones stay out.")
    ] = 10_000_000
    max_bytes: Annotated[
        int,
        Field(
            ge=1_000_000,
            le=1 << 40,
            description="The most bytes that are kept for one folder. Where its files have more, only the changes of "
            "the file tools can be taken back.",
        ),
    ] = 1_000_000_000
    max_age_days: Annotated[
        float,
        Field(gt=0, le=3650, allow_inf_nan=False, description="Days after which a session's changes are dropped."),
    ] = 7.0


class ResultCacheSettings(Section):
    """`[tools.result_cache]`: results of reading calls, kept in memory until something changes."""

    enabled: Annotated[bool, Field(description="Whether a repeated reading call gets its result from memory."), OFF] = (
        True
    )
    ttl_secs: Annotated[
        float,
        Field(
            ge=0,
            le=86400,
            allow_inf_nan=False,
            description="Seconds a result may be used again; 0 = until something changes.",
        ),
        SMALLER_ZERO_UNLIMITED,
    ] = 300.0


class SecurityFilterSettings(Section):
    """`[tools.filters.security]`: secrets in the output of tools.

    A project cannot add patterns, because one could hide what the user is asked to allow, or what the project did.
    """

    enabled: Annotated[bool, Field(description="Whether secrets are removed from the output of tools."), ON] = True
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
    """`[tools.filters]`: the parts of a command's output that the model need not read."""

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
    security: SecurityFilterSettings = SecurityFilterSettings.model_construct()


class SubstitutionMode(StrEnum):
    """The treatment of a command with `$(...)`, backticks, `<(...)`, `>(...)` or `<<<`."""

    BLOCK = "block"
    INSPECT = "inspect"
    ASK = "ask"


class ShellSettings(Section):
    """`[tools.shell]`: the bash tool."""

    timeout: Annotated[
        Seconds,
        Field(
            description="Seconds a local command may run if the call sets no other time. Then its whole process tree "
            "is killed."
        ),
        SMALLER,
    ] = 120.0
    max_timeout: Annotated[
        Seconds,
        Field(description="The most seconds a call may set, for local commands and in the editor's terminal."),
        SMALLER,
    ] = 600.0
    show_changes: Annotated[
        bool,
        Field(
            description="Whether the card of a command or MCP tool shows the files it changed, and the model is told "
            "their names. Folders with over 100,000 entries are not looked at."
        ),
        OFF,
    ] = True
    transactional: Annotated[
        bool, Field(description="Whether each command that may change files is a transaction; the next keys say how.")
    ] = False
    transaction_scope: Annotated[
        Words, Field(description="The paths in the session's folder that a rollback restores, as globs.")
    ] = ("**",)
    auto_rollback: Annotated[bool, Field(description="Whether what a failed command changed is taken back.")] = False
    auto_rollback_exit_codes: Annotated[
        tuple[Annotated[int, Field(ge=1, le=255, strict=False)], ...],
        Field(strict=False, description="The exit codes of commands that count as failed."),
    ] = (1, 2)
    snapshot_required: Annotated[
        bool, Field(description="Whether a command is refused if its changes could not be taken back.")
    ] = False
    max_snapshot_bytes: Annotated[
        int, Field(ge=0, le=1 << 40, description="Like tools.undo.max_bytes, for transactions; 0 = the same.")
    ] = 0
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
            description="Commands that never run, besides the built-in list. No rule and no approval lifts this.",
            examples=[["terraform destroy"]],
        ),
        ADDED,
    ] = ()
    allowed_commands: Annotated[
        Words, Field(description="Commands that are removed from the built-in blocklist.", examples=[["curl"]]), SUBSET
    ] = ()
    confirm_patterns: Annotated[  # a project cannot set it, because it would allow all other commands
        Words,
        Field(
            description="Older form of rules: commands that contain one of these texts ask, as do the usual dangerous "
            "ones (rm, git push --force, drop table, ...). All others then run unless they are blocked. The list is "
            "not used if it is empty or if tools.permissions.bash has rules.",
            examples=[["terraform "]],
        ),
    ] = ()
    env_allow: Annotated[
        Words,
        Field(
            description="Names of further environment variables that commands get.",
            examples=[["NPM_CONFIG_REGISTRY"]],
        ),
        SUBSET,
    ] = ()
    blocked_groups: Annotated[
        tuple[Annotated[DenyGroup, Field(strict=False)], ...],
        Field(
            strict=False,
            description="Named groups of commands that never run, besides the built-in list. destructive (any rm -rf), "
            "code_injection (python -c), env_dump, process_control and more are not in the default, because everyday "
            "work needs them; package_install asks instead.",
            examples=[["remote_exec", "reverse_shell", "persistence"]],
        ),
        ADDED,
    ] = DEFAULT_GROUPS
    substitution: Annotated[
        SubstitutionMode,
        Field(
            strict=False,
            description="What happens to commands with $(...), backticks, <(...), >(...) or <<<: block, inspect (judge "
            "the inner command like any other) or ask.",
        ),
        no_looser(SubstitutionMode.INSPECT, SubstitutionMode.ASK, SubstitutionMode.BLOCK),
    ] = SubstitutionMode.INSPECT


class ReadRule(StrEnum):
    """The meaning of `allow_read` in combination with `deny_read`."""

    STRICT = "strict"
    CARVE_OUT = "carve_out"


class FileSettings(Section):
    """`[tools.file]`: the file tools."""

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
            "(secrets/*), or a bare name (.env) at any depth. A matching folder is denied with all its content.",
            examples=[["**/.env", "~/.ssh"]],
        ),
        ADDED,
    ] = ()
    allow_read: Annotated[
        Words,
        Field(
            description="Globs of the only files that may be shown. Empty: all. deny_read takes precedence unless "
            "read_policy is carve_out.",
            examples=[["src/**"]],
        ),
        SOME,
    ] = ()
    read_policy: Annotated[
        ReadRule,
        Field(
            strict=False,
            description="strict: deny_read takes precedence, and a non-empty allow_read lists the only files that may "
            "be shown. carve_out: allow_read lists the exceptions to deny_read, and all other files may be shown.",
        ),
        no_looser(ReadRule.CARVE_OUT, ReadRule.STRICT),
    ] = ReadRule.STRICT


class ScrapeSettings(Section):
    """`[tools.scrape]`: the web tools."""

    timeout: Annotated[Seconds, Field(description="Seconds a page may take, including redirects."), SMALLER] = 15.0
    max_body_bytes: Annotated[
        int, Field(ge=1024, le=64 * 1024 * 1024, description="Bytes a page may have after decompression."), SMALLER
    ] = 1024 * 1024
    allowed_domains: Annotated[
        Words,
        Field(
            description="Hosts that may be reached. *.example.com stands for one further label. Empty: all public "
            "hosts.",
            examples=[["docs.python.org", "*.readthedocs.io"]],
        ),
        NARROWER,
    ] = ()
    denied_domains: Annotated[
        Words, Field(description="Hosts that are never reached, in the same form.", examples=[["*.example.net"]]), ADDED
    ] = ()
    ports: Annotated[
        tuple[Annotated[int, Field(ge=1, le=65535)], ...],
        Field(strict=False, min_length=1, description="Ports that may be reached."),
        SOME,
    ] = (443,)


class DiagnosticsSettings(Section):
    """`[tools.diagnostics]`: the problems that compilers and checkers report."""

    max_diagnostics: Annotated[
        int, Field(ge=1, le=1000, description="The most problems that the model is shown."), SMALLER
    ] = 50
    timeout: Annotated[Seconds, Field(description="Seconds a checker may run."), SMALLER] = 120.0


class ToolSettings(Section):
    """`[tools]`: the tools of the model."""

    profile: Annotated[
        Profile,
        Field(
            strict=False,
            description="Which tools the model gets: full (all), coding (files, commands, web, diagnostics, memory) or "
            "minimal (read, list_directory, find_path, grep, read_overflow).",
        ),
        no_looser(Profile.FULL, Profile.CODING, Profile.MINIMAL),
    ] = Profile.FULL
    allow: Annotated[
        Words,
        Field(
            description="The only tools of the profile the model gets. Empty: all of it. Tools by name, or group:fs, "
            "group:runtime, group:web, group:memory, group:skills, group:lsp, mcp, mcp:SERVER.",
            examples=[["group:fs", "bash"]],
        ),
        NARROWER,
    ] = ()
    deny: Annotated[
        Words,
        Field(
            description="Tools the model does not get, in the same form. No other key brings them back.",
            examples=[["delete_path", "group:web"]],
        ),
        ADDED,
    ] = ()
    also_allow: Annotated[
        Words,
        Field(
            description="Tools besides those of profile and allow, in the same form. deny takes precedence.",
            examples=[["mcp:github"]],
        ),
        SUBSET,
    ] = ()
    by_model: Annotated[
        dict[Annotated[str, Field(min_length=1, max_length=200)], ModelTools],
        Field(
            description="Another selection for models whose provider:model, or model, matches a glob; the first match "
            "counts. profile and allow replace the general ones, deny and also_allow are added to them.",
            examples=[{"ollama:*": {"profile": "minimal"}}],
        ),
    ] = Field(default_factory=dict[str, ModelTools])
    enabled: Annotated[bool, Field(description="Whether the model gets any tools at all."), OFF] = True
    autonomy_level: Annotated[
        Autonomy,
        Field(
            strict=False,
            description="readonly (only tools that read, search and fetch), supervised (rules and questions decide) or "
            "full (nothing asks; deny rules and the blocklist still hold). If acp.auto_approve is set too, the "
            "stricter one holds.",
        ),
        no_looser(Autonomy.FULL, Autonomy.SUPERVISED, Autonomy.READONLY),
    ] = Autonomy.SUPERVISED
    shell: ShellSettings = ShellSettings.model_construct()
    file: FileSettings = FileSettings.model_construct()
    scrape: ScrapeSettings = ScrapeSettings.model_construct()
    diagnostics: DiagnosticsSettings = DiagnosticsSettings.model_construct()
    max_tool_calls_per_session: Annotated[
        int | None,
        Field(
            ge=1,
            le=1_000_000,
            description="Batches of tool calls a session may make. The calls of one model message are one batch; "
            "commands that you type do not count. Unset: no limit.",
            examples=[100],
        ),
        SMALLER,
    ] = None
    rate_limit: RateLimitSettings = RateLimitSettings.model_construct()
    anomaly: AnomalySettings = AnomalySettings.model_construct()
    verifiers: VerifierSettings = VerifierSettings.model_construct()
    retry: RetrySettings = RetrySettings.model_construct()
    utility: UtilitySettings = UtilitySettings.model_construct()
    phases: PhaseSettings = PhaseSettings.model_construct()
    policy: PolicySettings = PolicySettings.model_construct()
    adversarial_policy: AdversarialSettings = AdversarialSettings.model_construct()
    authorization: AuthorizationSettings = AuthorizationSettings.model_construct()
    protection: ProtectionSettings = ProtectionSettings.model_construct()
    sandbox: SandboxSettings = SandboxSettings.model_construct()
    overflow: OverflowSettings = OverflowSettings.model_construct()
    undo: UndoSettings = UndoSettings.model_construct()
    result_cache: ResultCacheSettings = ResultCacheSettings.model_construct()
    filters: FilterSettings = FilterSettings.model_construct()
    tafc: TafcSettings = TafcSettings.model_construct()
    dependencies: DependencySettings = DependencySettings.model_construct()
    permissions: Annotated[dict[ToolName, PermissionRules], PROJECT_RULES] = Field(
        default_factory=dict[ToolName, PermissionRules],
        description="Rules by tool name (bash, read, write, edit, ...), in order. The first rule that matches a call "
        "decides; if none matches, you are asked.",
        examples=[
            {"bash": [{"pattern": "git push*", "action": "deny"}, {"pattern": "git status*", "action": "allow"}]}
        ],
    )
