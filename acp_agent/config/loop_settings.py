"""`[tools.retry]`, `[tools.utility]`, `[tools.phases]`, `agent.hallucination_detection` (L6, L10, S7, S8)."""

from typing import Annotated

from pydantic import AfterValidator, Field

from acp_agent.config.limits_settings import ON
from acp_agent.config.provider_settings import model_name
from acp_agent.config.section import Section, Words
from acp_agent.config.tighter import OFF, SMALLER, SUBSET, ProjectMay, Tightened


def _larger(user: object, project: object) -> Tightened:
    assert isinstance(user, int | float)  # the field marked so holds nothing else, and was validated
    assert isinstance(project, int | float)
    return Tightened(project) if project >= user else Tightened(user, (project,))


_LARGER = ProjectMay(_larger, "a larger number")


def _reformatter(value: str) -> str:
    return model_name(value) if value else value


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
        Annotated[str, AfterValidator(_reformatter)],
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
