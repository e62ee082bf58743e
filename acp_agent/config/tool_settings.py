"""`[tools]`: what the model may use, and within which limits."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from acp_agent.config.autonomy import AutonomyLevel
from acp_agent.config.limits_settings import AnomalySettings, MaxToolCalls, RateLimitSettings, VerifierSettings
from acp_agent.config.loop_settings import PhaseSettings, RetrySettings, UtilitySettings
from acp_agent.config.offer_settings import DependencySettings, TafcSettings
from acp_agent.config.output_settings import FilterSettings, OverflowSettings, ResultCacheSettings
from acp_agent.config.policy_settings import AuthorizationSettings, PolicySettings
from acp_agent.config.protection_settings import DEFAULT_GROUPS, BlockedGroups, ProtectionSettings
from acp_agent.config.rules import PROJECT_RULES, ConfirmPatterns, Rules, ToolName
from acp_agent.config.section import Paths, Seconds, Section, Words
from acp_agent.config.selection_settings import SelectionSettings
from acp_agent.config.tighter import ADDED, INSIDE, NARROWER, OFF, SMALLER, SOME, SUBSET, no_looser
from acp_agent.core.conduct import Autonomy


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
    permissions: Annotated[dict[ToolName, Rules], PROJECT_RULES] = Field(
        default_factory=dict[ToolName, Rules],
        description="Rules a tool, in order, by tool name (bash, read, write, edit, ...); the first match decides. "
        "No match: ask.",
        examples=[
            {"bash": [{"pattern": "git push*", "action": "deny"}, {"pattern": "git status*", "action": "allow"}]}
        ],
    )
