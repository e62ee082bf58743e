"""`[tools]`: how much the model may do, and what is looked at once more before it does (L7, L8, G2, S2)."""

from typing import Annotated

from pydantic import Field

from acp_agent.config.section import Section
from acp_agent.config.tighter import SMALLER, SMALLER_OR_UNLIMITED, ProjectMay, Tightened


def _on(user: object, project: object) -> Tightened:
    return Tightened(user, (project,)) if user and not project else Tightened(project)


ON = ProjectMay(_on, "true")

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
