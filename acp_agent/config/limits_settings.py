"""The limits of a session: calls, rates, retries, failing tools, checks before a call, and the agent's own calls."""

from typing import Annotated

from pydantic import Field

from acp_agent.config.provider_settings import OptionalModel
from acp_agent.config.section import (
    OFF,
    ON,
    SMALLER,
    SMALLER_OR_UNLIMITED,
    SUBSET,
    ProjectMay,
    Section,
    Tightened,
    Words,
)

MaxToolCalls = Annotated[
    int | None,
    Field(
        ge=1,
        le=1_000_000,
        description="Batches of tool calls a session may make. The calls of one model message are one batch; commands "
        "that you type do not count. Unset: no limit.",
        examples=[100],
    ),
    SMALLER,
]
"""The type of `tools.max_tool_calls_per_session`."""


class RateLimitSettings(Section):
    """`[tools.rate_limit]`: how many calls the model may make in an hour."""

    calls_per_hour: Annotated[
        int,
        Field(ge=0, le=100_000, description="Tool calls a session may make in any hour; 0 = no limit."),
        SMALLER_OR_UNLIMITED,
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


def _larger(user: object, project: object) -> Tightened:
    assert isinstance(user, int | float)  # pydantic validated it, and only numbers carry this mark
    assert isinstance(project, int | float)
    return Tightened(project) if project >= user else Tightened(user, (project,))


_LARGER = ProjectMay(_larger, "a larger number")


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
        _LARGER,
    ] = 0.0
    exempt_tools: Annotated[
        Words,
        Field(description="Tools that are never skipped.", examples=[["memory_search"]]),
        SUBSET,
    ] = ()


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


HallucinationDetection = Annotated[
    bool,
    Field(
        description="Whether you and the model are told when a call names a file, address or id that does not exist "
        "and that nobody has mentioned. It blocks nothing."
    ),
    ON,
]
"""The type of `agent.hallucination_detection`, which is false by default."""
