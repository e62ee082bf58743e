"""Which tools the model is shown, and how: `[tools.tafc]`, `[agent.tool_filter]`, `[tools.dependencies]` (L3, L4, L5).

None of it forbids anything. A project's file may switch off what the user has on; what waits for what is the user's
alone.
"""

import math
from typing import Annotated

from pydantic import AfterValidator, Field

from acp_agent.config.section import OFF, Section, Words

DEFAULT_THRESHOLD = 0.6


def _clamped(value: float) -> float:
    return min(max(value, 0.0), 1.0) if math.isfinite(value) else DEFAULT_THRESHOLD


class TafcSettings(Section):
    """`[tools.tafc]`: a place to think before the arguments of demanding tools (L3)."""

    enabled: Annotated[
        bool, Field(description="Whether tools with a demanding schema get a field for the model to think in."), OFF
    ] = False
    complexity_threshold: Annotated[
        float,
        AfterValidator(_clamped),
        Field(
            json_schema_extra={"minimum": 0, "maximum": 1},
            description="How demanding, from 0 (every tool) to 1; counts required arguments, nesting and choices. What "
            "lies outside is brought inside; nan and inf mean 0.6.",
        ),
    ] = DEFAULT_THRESHOLD


class ToolFilterSettings(Section):
    """`[agent.tool_filter]`: fewer tools in a request (L4)."""

    enabled: Annotated[
        bool, Field(description="Whether a turn shows the model only the tools that fit your prompt."), OFF
    ] = False
    top_k: Annotated[
        int, Field(ge=1, le=1000, description="Tools that are shown because they fit the prompt best.")
    ] = 10
    min_description_words: Annotated[
        int,
        Field(ge=0, le=100, description="MCP tools whose description has fewer words are always shown."),
    ] = 3
    always_on: Annotated[
        Words,
        Field(description="Tools that are always shown, by name. No dependency holds them back."),
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
    """`[tools.dependencies.rules.TOOL]`: what a tool depends on."""

    requires: Annotated[
        Words, Field(description="Tools that must have succeeded in the session before this one is shown.")
    ] = ()
    prefers: Annotated[
        Words, Field(description="Tools that lift this one's rank in agent.tool_filter once they have succeeded.")
    ] = ()


_Boost = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class DependencySettings(Section):
    """`[tools.dependencies]`: tools that wait for others (L5). Made for order, not for safety: permissions forbid."""

    enabled: Annotated[bool, Field(description="Whether tools wait for others.")] = False
    boost_per_dep: Annotated[
        _Boost, Field(description="Added to a tool's score for each tool it prefers that has succeeded.")
    ] = 0.15
    max_total_boost: Annotated[_Boost, Field(description="Most that is added to a tool's score.")] = 0.20
    rules: Annotated[
        dict[Annotated[str, Field(min_length=1, max_length=200)], ToolNeeds],
        Field(
            description="What each tool requires and prefers, by name. A tool that is always on, or that you name in "
            "your prompt, waits for nothing.",
            examples=[{"edit": {"requires": ["read"], "prefers": ["grep"]}}],
        ),
    ] = Field(default_factory=dict[str, ToolNeeds])
