"""`[tools]`: which tools the model gets (requirements G6, G7; section 4 rows 1, 75 and 76)."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from acp_agent.config.section import Section, Words
from acp_agent.config.tighter import ADDED, NARROWER, SUBSET, no_looser


class Profile(StrEnum):
    """A ready-made choice of tools."""

    FULL = "full"
    CODING = "coding"
    MINIMAL = "minimal"


class ModelTools(Section):
    """`[tools.by_model."GLOB"]`: another choice for some models."""

    profile: Annotated[
        Profile | None, Field(strict=False, description="Profile instead of the general one. Unset: the general one.")
    ] = None
    allow: Annotated[
        Words | None, Field(description="The only tools, instead of the general list. Unset: the general list.")
    ] = None
    deny: Annotated[Words, Field(description="Further tools this model does not get.")] = ()
    also_allow: Annotated[Words, Field(description="Further tools beside the profile.")] = ()


class SelectionSettings(Section):
    """The part of `[tools]` that chooses among the tools there are."""

    profile: Annotated[
        Profile,
        Field(
            strict=False,
            description="Which tools the model gets: full (all), coding (files, commands, web, diagnostics, memory) or "
            "minimal (read, list_directory, find_path, grep).",
        ),
        no_looser(Profile.FULL, Profile.CODING, Profile.MINIMAL),
    ] = Profile.FULL
    allow: Annotated[
        Words,
        Field(
            description="The only tools of the profile the model gets. Empty: all of it. Tools by name, or group:fs, "
            "group:runtime, group:web, group:memory, mcp, mcp:SERVER.",
            examples=[["group:fs", "bash"]],
        ),
        NARROWER,
    ] = ()
    deny: Annotated[
        Words,
        Field(
            description="Tools the model does not get, written likewise. Nothing brings them back.",
            examples=[["delete_path", "group:web"]],
        ),
        ADDED,
    ] = ()
    also_allow: Annotated[
        Words,
        Field(
            description="Tools beside those of profile and allow, written likewise; deny still takes them away.",
            examples=[["mcp:github"]],
        ),
        SUBSET,
    ] = ()
    by_model: Annotated[
        dict[Annotated[str, Field(min_length=1, max_length=200)], ModelTools],
        Field(
            description="Another choice for models whose provider:model matches a glob; the first that matches counts. "
            "Its profile and allow stand in for the general ones, its deny and also_allow add to them.",
            examples=[{"ollama:*": {"profile": "minimal"}}],
        ),
    ] = Field(default_factory=dict[str, ModelTools])
