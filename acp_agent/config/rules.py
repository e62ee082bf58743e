"""Permission rules (requirements S3) and how a project's rules join the user's."""

from enum import StrEnum
from typing import Annotated, cast

from pydantic import Field

from acp_agent.config.section import Section, Words
from acp_agent.config.tighter import ProjectMay, Tightened


class RuleAction(StrEnum):
    """What a permission rule does (S3.2)."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class PermissionRule(Section):
    """One `[[tools.permissions.<tool>]]` entry; the first that matches decides (S3.1)."""

    pattern: Annotated[
        str,
        Field(
            min_length=1,
            max_length=1024,
            description="Glob, upper and lower case alike, on the command (bash) or the path (file tools).",
        ),
    ]
    action: Annotated[RuleAction, Field(strict=False, description="allow, ask or deny.")]


Rules = Annotated[tuple[PermissionRule, ...], Field(strict=False)]
TOOL_NAME = r"^([A-Za-z][A-Za-z0-9_-]*|mcp_[A-Za-z0-9_*-]*)$"
"""The id of a tool, or `mcp_SERVER_*`: a glob over tools of MCP servers."""
ToolName = Annotated[str, Field(pattern=TOOL_NAME)]
ConfirmPatterns = Annotated[
    Words,
    Field(
        description="Older way to say what asks: commands with one of these texts in them ask, and so do the usual "
        "dangerous ones (rm, git push --force, drop table, ...); all others then run unless they are blocked. Empty, "
        "or with rules in tools.permissions.bash: not used.",
        examples=[["terraform "]],
    ),
]
"""The type of the field `confirm_patterns` of `[tools.shell]`. A project's file has no say: it would open the rest."""


def _tightened(user: object, project: object) -> Tightened:
    """A project's deny rules go in front, its ask rules behind the last deny of the user's. Allow rules are refused.

    An ask in front of a deny that matches the same call would turn it into a question, and whether two globs can
    meet on one call is more than their text tells (a path has several spellings). So an ask of a project's acts on
    everything but what the user allowed in front of a deny.
    """
    wanted, users = _rules(project), _rules(user)
    after = max((at + 1 for at, rule in enumerate(users) if rule.action is RuleAction.DENY), default=0)
    denies = tuple(rule for rule in wanted if rule.action is RuleAction.DENY)
    asks = tuple(rule for rule in wanted if rule.action is RuleAction.ASK)
    refused = tuple(rule for rule in wanted if rule.action is RuleAction.ALLOW)
    return Tightened((*denies, *users[:after], *asks, *users[after:]), refused)


def _rules(value: object) -> tuple[PermissionRule, ...]:
    return cast("tuple[PermissionRule, ...]", value)  # the field marked so holds nothing else, and was validated


PROJECT_RULES = ProjectMay(_tightened, "deny and ask rules")


def guarded(rules: tuple[PermissionRule, ...]) -> tuple[PermissionRule, ...]:
    """A tool's rules when one of them could not be understood: it might have been a deny, so nothing is allowed."""
    kept = tuple(rule for rule in rules if rule.action is not RuleAction.ALLOW)
    return (*kept, PermissionRule(pattern="*", action=RuleAction.ASK))
