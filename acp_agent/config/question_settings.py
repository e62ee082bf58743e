"""`[acp]`: questions that want more than a yes or no (requirements A28)."""

from typing import Annotated

from pydantic import Field

from acp_agent.config.section import Section
from acp_agent.config.tighter import OFF


class QuestionSettings(Section):
    """The part of `[acp]` that is about them."""

    elicitation: Annotated[
        bool,
        Field(
            description="Whether the agent and your MCP servers may ask you by forms and pages, in editors that show "
            "them."
        ),
        OFF,
    ] = True
    elicitation_timeout_secs: Annotated[
        float,
        Field(
            ge=0,
            le=86400,
            allow_inf_nan=False,
            description="Seconds such a question stands; 0 = as long as the turn lives (an MCP server's: 120).",
        ),
    ] = 0.0
