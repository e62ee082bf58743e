"""`[tools]`: what becomes of what a tool says: kept whole, kept for the next call, filtered, redacted (O1, O4-O6)."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from acp_agent.config.limits_settings import ON
from acp_agent.config.section import PathText, Section, Words
from acp_agent.config.tighter import OFF, SMALLER, SMALLER_OR_UNLIMITED


class OverflowSettings(Section):
    """`[tools.overflow]`: output that is too long for the model (O5).

    What is kept belongs to all conversations, so a project's file has no say in how long and how much.
    """

    threshold: Annotated[
        int,
        Field(
            ge=1000,
            le=10_000_000,
            description="Characters; longer output is cut to its head and tail, and kept whole for read_overflow.",
        ),
        SMALLER,
    ] = 50_000
    retention_days: Annotated[int, Field(ge=1, le=3650, description="Days after which kept outputs are deleted.")] = 7
    max_overflow_bytes: Annotated[
        int, Field(ge=0, le=1_000_000_000, description="Bytes of the longest output that is kept; 0 = no limit.")
    ] = 10 * 1024 * 1024
    max_conversation_bytes: Annotated[
        int, Field(ge=0, le=1 << 40, description="Bytes kept for one conversation at most; 0 = no limit.")
    ] = 200 * 1024 * 1024
    summarize_output: Annotated[
        bool,
        Field(description="Whether the model sums up what is cut out; costs a model call, and the output goes to it."),
        OFF,
    ] = False


class ResultCacheSettings(Section):
    """`[tools.result_cache]`: answers to reading calls, kept in memory until something changes (O6)."""

    enabled: Annotated[bool, Field(description="Whether the same reading call is answered from memory."), OFF] = True
    ttl_secs: Annotated[
        float,
        Field(
            ge=0,
            le=86400,
            allow_inf_nan=False,
            description="Seconds an answer may be used again; 0 = until something changes.",
        ),
        SMALLER_OR_UNLIMITED,
    ] = 300.0


class SecurityFilterSettings(Section):
    """`[tools.filters.security]`: secrets in what tools say (S9, O4).

    The patterns are the user's alone: one of a project's could hide what he is asked to allow, or the project's tracks.
    """

    enabled: Annotated[bool, Field(description="Whether secrets are taken out of what tools say."), ON] = True
    extra_patterns: Annotated[
        Words,
        Field(
            description="Further secrets, as regular expressions (RE2) of at most 512 characters.",
            examples=[["corp-[0-9a-f]{32}"]],
        ),
    ] = ()


def _unset(value: object) -> object:
    return None if value == "" else value


class FilterSettings(Section):
    """`[tools.filters]`: what the model need not read of a command's output (O1)."""

    enabled: Annotated[
        bool, Field(description="Whether commands' output is filtered before the model reads it."), OFF
    ] = True
    filters_path: Annotated[
        PathText | None,
        BeforeValidator(_unset),
        Field(
            description="File of filter rules, or a folder with a filters.toml; replaces the built-in rules. Unset or "
            "empty: filters.toml beside this file, if there is one.",
            examples=["~/acp-filters.toml"],
        ),
    ] = None
    security: SecurityFilterSettings = SecurityFilterSettings()
