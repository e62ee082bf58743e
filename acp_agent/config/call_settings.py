"""Settings of tool calls: which tools the model is shown, and the limits, checks and retries of its calls."""

import math
from enum import StrEnum
from typing import Annotated

from acp_agent.config.llm_settings import OptionalModel
from acp_agent.config.section import (
    ADDED,
    INSIDE,
    LARGER,
    OFF,
    ON,
    SMALLER,
    SMALLER_ZERO_UNLIMITED,
    SUBSET,
    Paths,
    Section,
    Words,
    no_looser,
)
from acp_agent.shape import AfterValidator, Field


def _time_zone(name: str) -> str:
    if not name or name.upper() == "UTC":
        return name
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # noqa: PLC0415 - few users name a zone

    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError, ValueError) as error:
        raise ValueError("the name of a time zone that this machine knows, such as Europe/Berlin") from error
    return name


class RateLimitSettings(Section):
    """`[tools.rate_limit]`: how many calls the model may make in an hour."""

    calls_per_hour: Annotated[
        int,
        Field(ge=0, le=100_000, description="Tool calls a session may make in any hour; 0 = no limit."),
        SMALLER_ZERO_UNLIMITED,
    ] = 0


class AnomalySettings(Section):
    """`[tools.anomaly]`: what happens to tools that keep failing."""

    enabled: Annotated[bool, Field(description="Whether the agent watches for tools that keep failing."), ON] = True
    window_size: Annotated[
        int,
        Field(ge=1, le=1000, description="Latest calls of a tool that count. A tool is judged from its fifth call on."),
    ] = 20
    failure_threshold: Annotated[
        float,
        Field(
            gt=0,
            le=0.99,
            allow_inf_nan=False,
            description="Share of failed calls that is too high. Refusals and wrong arguments do not count.",
        ),
        SMALLER,
    ] = 0.7
    auto_block: Annotated[
        bool, Field(description="Whether such a tool is blocked for the session. false: you are only told."), ON
    ] = True


class VerifierSettings(Section):
    """`[tools.verifiers]`: additional checks before a call runs."""

    destructive: Annotated[
        bool, Field(description="Ask about commands that erase files for good or open them to all users."), ON
    ] = True
    injection: Annotated[bool, Field(description="Ask about URLs and SQL that look like an injection."), ON] = True
    url_grounding: Annotated[bool, Field(description="Fetch only URLs that you have typed in the session."), ON] = False
    firewall: Annotated[
        bool, Field(description="Ask about files that hold secrets (.env, *.pem); refuse ~/.ssh and /etc/shadow."), ON
    ] = True


class RetrySettings(Section):
    """`[tools.retry]`: repeating calls that failed at the network or a server, unless they change something."""

    max_attempts: Annotated[
        int, Field(ge=0, le=10, description="Further attempts after a failed one; 0 = none."), SMALLER
    ] = 2
    base_ms: Annotated[
        int, Field(ge=0, le=60_000, description="Longest first wait, in milliseconds. It doubles with each attempt.")
    ] = 500
    max_ms: Annotated[int, Field(ge=0, le=600_000, description="Longest wait of any attempt, in milliseconds.")] = 5000
    budget_secs: Annotated[
        float,
        Field(
            ge=0,
            le=3600,
            allow_inf_nan=False,
            description="Seconds after which a failed call is not repeated, counted from its first attempt.",
        ),
        SMALLER,
    ] = 30.0
    parameter_reformat_provider: Annotated[
        OptionalModel,
        Field(
            description='Model that repairs arguments which do not fit a tool, once per call: "PROVIDER:MODEL". The '
            "arguments are sent to it. Empty: arguments are not repaired.",
            examples=["ollama:qwen3:8b"],
        ),
    ] = ""


class UtilitySettings(Section):
    """`[tools.utility]`: skipping calls whose expected use is too small for their cost."""

    enabled: Annotated[
        bool, Field(description="Whether the expected use of a call is estimated before it runs."), ON
    ] = False
    threshold: Annotated[
        float,
        Field(
            ge=-1,
            le=1,
            allow_inf_nan=False,
            description="Calls below this are skipped: gain - 0.5 cost - 0.3 repetition + 0.2 novelty, from -0.3 to 1.",
        ),
        LARGER,
    ] = 0.0
    exempt_tools: Annotated[
        Words,
        Field(description="Tools that are never skipped.", examples=[["memory_search"]]),
        SUBSET,
    ] = ()


class AdversarialSettings(Section):
    """`[tools.adversarial_policy]`: policies in plain words, which a second model checks before each call."""

    enabled: Annotated[
        bool,
        Field(description="Whether a second model is asked about each call of the model. It is sent a description."),
        ON,
    ] = False
    policies: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=1000)], ...],
        Field(
            strict=False,
            max_length=50,
            description="What no call may do, in plain words. Without any, nothing is checked.",
            examples=[["Do not change files below migrations/.", "Send nothing of this project to other hosts."]],
        ),
    ] = ()
    fail_open: Annotated[
        bool,
        Field(description="Whether a call goes on if the second model gives no answer. An unclear answer denies."),
        OFF,
    ] = False
    exempt_tools: Annotated[
        Words, Field(description="Tools that are not checked.", examples=[["memory_search", "read"]]), SUBSET
    ] = ("memory_save", "memory_search", "read_overflow")
    policy_provider: Annotated[
        OptionalModel,
        Field(
            description='The second model: "PROVIDER:MODEL". Empty: the model of the session.',
            examples=["ollama:qwen3:8b"],
        ),
    ] = ""
    timeout_ms: Annotated[int, Field(ge=1, le=60_000, description="Milliseconds that one answer may take.")] = 3000


class PhaseSettings(Section):
    """`[tools.phases]`: calls that the agent makes by itself before and after those of the model."""

    enabled: Annotated[
        bool,
        Field(
            description="Search the memory before a turn, run diagnostics after edits, and store summaries of "
            "compactions in the memory. Storing a summary asks no question; the other calls ask as usual."
        ),
        OFF,
    ] = False


DEFAULT_THRESHOLD = 0.6


def _clamped(value: float) -> float:
    return min(max(value, 0.0), 1.0) if math.isfinite(value) else DEFAULT_THRESHOLD


class TafcSettings(Section):
    """`[tools.tafc]`: a field in which the model can think before the arguments of complex tools."""

    enabled: Annotated[
        bool, Field(description="Whether tools with a complex schema get a field in which the model can think."), OFF
    ] = False
    complexity_threshold: Annotated[
        float,
        AfterValidator(_clamped),
        Field(
            json_schema_extra={"minimum": 0, "maximum": 1},
            description="Complexity from which a tool gets the field, from 0 (every tool) to 1. Required arguments, "
            "nesting and choices count. Values outside are moved to the nearest limit; nan and inf mean 0.6.",
        ),
    ] = DEFAULT_THRESHOLD


class ToolFilterSettings(Section):
    """`[agent.tool_filter]`: fewer tools in a request."""

    enabled: Annotated[
        bool, Field(description="Whether the model is shown only the tools that fit your prompt."), OFF
    ] = False
    top_k: Annotated[
        int, Field(ge=1, le=1000, description="Number of tools that are shown because they fit the prompt best.")
    ] = 10
    min_description_words: Annotated[
        int,
        Field(ge=0, le=100, description="MCP tools whose description has fewer words are always shown."),
    ] = 3
    always_on: Annotated[
        Words,
        Field(description="Tools that are always shown, by name. tools.dependencies does not hide them."),
    ] = (
        "memory_search",
        "memory_save",
        "bash",
        "read",
        "write",
        "edit",
        "list_directory",
        "find_path",
        "grep",
        "read_overflow",
    )


class ToolNeeds(Section):
    """`[tools.dependencies.rules.TOOL]`: the tools that one tool depends on."""

    requires: Annotated[
        Words, Field(description="Tools that must have succeeded in the session before this one is shown.")
    ] = ()
    prefers: Annotated[
        Words, Field(description="Tools that raise this one's score in agent.tool_filter once they have succeeded.")
    ] = ()


_Boost = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class DependencySettings(Section):
    """`[tools.dependencies]`: tools that are hidden until others succeeded. It sets an order and protects nothing."""

    enabled: Annotated[
        bool, Field(description="Whether tools are hidden until the tools they require have succeeded.")
    ] = False
    boost_per_dep: Annotated[
        _Boost, Field(description="Added to a tool's score for each tool it prefers that has succeeded.")
    ] = 0.15
    max_total_boost: Annotated[_Boost, Field(description="The most that is added to a tool's score.")] = 0.20
    rules: Annotated[
        dict[Annotated[str, Field(min_length=1, max_length=200)], ToolNeeds],
        Field(
            description="The tools that each tool requires and prefers, by name. A tool that is always on, or that "
            "your prompt names, is never hidden.",
            examples=[{"edit": {"requires": ["read"], "prefers": ["grep"]}}],
        ),
    ] = Field(default_factory=dict[str, ToolNeeds])


class SandboxMode(StrEnum):
    """The program or part of the kernel that builds the walls around commands."""

    AUTO = "auto"
    BWRAP = "bwrap"
    LANDLOCK = "landlock"
    SEATBELT = "seatbelt"
    OFF = "off"


class SandboxProfile(StrEnum):
    """The rights of contained commands."""

    WORKSPACE = "workspace"
    READ_ONLY = "read-only"
    NETWORK_ALLOW_ALL = "network-allow-all"
    OFF = "off"


class SandboxSettings(Section):
    """`[tools.sandbox]`: the walls of the kernel around commands."""

    mode: Annotated[
        SandboxMode,
        Field(
            strict=False,
            description="auto (bubblewrap where it works), bwrap, landlock, seatbelt (macOS) or off.",
        ),
    ] = SandboxMode.AUTO
    profile: Annotated[
        SandboxProfile,
        Field(
            strict=False,
            description="workspace: commands change the session's folders only and reach no host but this one. "
            "read-only: they change nothing. network-allow-all: workspace, and they reach all hosts. off: no walls.",
        ),
        no_looser(
            SandboxProfile.OFF, SandboxProfile.NETWORK_ALLOW_ALL, SandboxProfile.WORKSPACE, SandboxProfile.READ_ONLY
        ),
    ] = SandboxProfile.WORKSPACE
    strict: Annotated[
        bool,
        Field(description="Whether commands are refused where the walls cannot be built. Otherwise they run without."),
        ON,
    ] = False
    allow_write: Annotated[
        Paths,
        Field(
            description="Files and folders besides the session's own that contained commands may change.",
            examples=[["~/.gradle"]],
        ),
        INSIDE,
    ] = ()
    allow_read: Annotated[
        Paths,
        Field(
            description="Files and folders that contained commands may read, besides the session's own, the system's "
            "and those of toolchains.",
            examples=[["~/datasets"]],
        ),
        INSIDE,
    ] = ()
    deny_read: Annotated[
        Paths,
        Field(
            description="Files and folders whose content contained commands do not see, besides the usual places of "
            "logins and keys.",
            examples=[["~/customers"]],
        ),
        ADDED,
    ] = ()
    network_allow: Annotated[
        Words,
        Field(
            description="Hosts that contained commands reach on the ports 443 and 80, through a proxy of the agent "
            "(bubblewrap only): a host, or *.example.com for the hosts with exactly one name in front.",
            examples=[["pypi.org", "files.pythonhosted.org"]],
        ),
        SUBSET,
    ] = ()


class SchedulerSettings(Section):
    """`[scheduler]`: prompts that a session runs by itself, later or again and again (docs/schedule.md)."""

    enabled: Annotated[bool, Field(description="Whether scheduled prompts run, and can be made."), OFF] = True
    tool: Annotated[
        bool,
        Field(description="Whether the model has the tool scheduler. You are asked about each prompt that it makes."),
        OFF,
    ] = False
    timezone: Annotated[
        str,
        AfterValidator(_time_zone),
        Field(
            max_length=100,
            description="The zone of the times of day, such as Europe/Berlin. Empty: that of this machine.",
            examples=["Europe/Berlin"],
        ),
    ] = ""
    max_entries: Annotated[
        int, Field(ge=1, le=1000, description="Scheduled prompts that a session may have."), SMALLER
    ] = 20
    max_prompt_chars: Annotated[
        int, Field(ge=1, le=100_000, description="Characters of a scheduled prompt."), SMALLER
    ] = 10_000
