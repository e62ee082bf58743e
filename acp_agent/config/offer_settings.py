"""Which tools the model is shown, and how: `[tools.tafc]`, `[agent.tool_filter]`, `[tools.dependencies]`.

These settings forbid nothing. A project's file may switch them off. The dependencies are the user's alone.
"""

import math
from typing import Annotated

from pydantic import AfterValidator, Field

from acp_agent.config.section import OFF, Section, Words

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
    """`[tools.dependencies]`: tools that are hidden until others succeeded. It sets an order and is no protection."""

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
