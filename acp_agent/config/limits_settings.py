"""`[tools]`: how much the model may do, and what is looked at once more before it does (L7, L8, G2, S2)."""

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
        description="Batches of tool calls a session may make; the calls of one model message are one batch, what you "
        "type yourself is free. Unset: no limit.",
        examples=[100],
    ),
    SMALLER,
]
"""`tools.max_tool_calls_per_session` (L7; requirements section 4 rows 18 and 19)."""


class RateLimitSettings(Section):
    """`[tools.rate_limit]`: how fast the model may go (G2)."""

    calls_per_hour: Annotated[
        int,
        Field(ge=0, le=100_000, description="Tool calls a session may make in any hour; 0 = no limit."),
        SMALLER_OR_UNLIMITED,
    ] = 0


class AnomalySettings(Section):
    """`[tools.anomaly]`: tools that keep failing (L8; requirements section 4 rows 38 and 39)."""

    enabled: Annotated[bool, Field(description="Whether failing tools are watched for."), ON] = True
    window_size: Annotated[
        int, Field(ge=1, le=1000, description="Calls of a tool that are remembered; it is judged from 5 on.")
    ] = 20
    failure_threshold: Annotated[
        float,
        Field(
            gt=0,
            le=0.99,
            allow_inf_nan=False,
            description="Rate of failures that is too much. Refusals and wrong arguments do not count.",
        ),
        SMALLER,
    ] = 0.7
    auto_block: Annotated[
        bool, Field(description="Whether such a tool is blocked for the session; else you are only told."), ON
    ] = True


class VerifierSettings(Section):
    """`[tools.verifiers]`: what is looked at once more before a call runs (S2)."""

    destructive: Annotated[
        bool, Field(description="Ask about commands that erase for good or open files to everybody."), ON
    ] = True
    injection: Annotated[
        bool, Field(description="Ask about URLs and SQL that look like an attempt to smuggle something in."), ON
    ] = True
    url_grounding: Annotated[bool, Field(description="Fetch only URLs that you have typed in the session."), ON] = False
    firewall: Annotated[
        bool, Field(description="Ask about files that hold secrets (.env, *.pem); refuse ~/.ssh and /etc/shadow."), ON
    ] = True


def _larger(user: object, project: object) -> Tightened:
    assert isinstance(user, int | float)  # the field marked so holds nothing else, and was validated
    assert isinstance(project, int | float)
    return Tightened(project) if project >= user else Tightened(user, (project,))


_LARGER = ProjectMay(_larger, "a larger number")


class RetrySettings(Section):
    """`[tools.retry]`: calls that failed for want of a network or a server (L6.4). Never such as change anything."""

    max_attempts: Annotated[
        int, Field(ge=0, le=10, description="Further attempts after the first one that failed; 0 = none."), SMALLER
    ] = 2
    base_ms: Annotated[
        int, Field(ge=0, le=60_000, description="Most milliseconds of the first wait; it doubles from wait to wait.")
    ] = 500
    max_ms: Annotated[int, Field(ge=0, le=600_000, description="Most milliseconds of any wait.")] = 5000
    budget_secs: Annotated[
        float,
        Field(
            ge=0,
            le=3600,
            allow_inf_nan=False,
            description="Seconds after which a call that failed is not tried again, all its attempts counted.",
        ),
        SMALLER,
    ] = 30.0
    parameter_reformat_provider: Annotated[
        OptionalModel,
        Field(
            description='Model that mends arguments which do not fit a tool, once a call: "PROVIDER:MODEL". It is sent '
            "the arguments. Empty: nobody does.",
            examples=["ollama:qwen3:8b"],
        ),
    ] = ""


class UtilitySettings(Section):
    """`[tools.utility]`: calls that promise too little for what they cost are skipped (L10)."""

    enabled: Annotated[bool, Field(description="Whether calls are weighed before they run."), ON] = False
    threshold: Annotated[
        float,
        Field(
            ge=-1,
            le=1,
            allow_inf_nan=False,
            description="Calls worth less are skipped: gain - 0.5 cost - 0.3 repetition + 0.2 novelty, from -0.3 to 1.",
        ),
        _LARGER,
    ] = 0.0
    exempt_tools: Annotated[
        Words,
        Field(description="Tools that are never skipped.", examples=[["memory_search"]]),
        SUBSET,
    ] = ()


class PhaseSettings(Section):
    """`[tools.phases]`: calls the agent makes by itself around what the model asks for (S7)."""

    enabled: Annotated[
        bool,
        Field(
            description="Search the memory before a turn, run diagnostics after edits, keep summaries of compactions "
            "in the memory. The last asks nobody; all else asks as ever."
        ),
        OFF,
    ] = False


HallucinationDetection = Annotated[
    bool,
    Field(
        description="Tell you and the model when a call names a file, address or id that is not there and that nobody "
        "has mentioned. Blocks nothing."
    ),
    ON,
]
"""The type of the field `hallucination_detection` of `[agent]`, false unless set (S8)."""
