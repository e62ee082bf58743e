"""Permission rules (requirements S3) and how a project's rules join the user's."""

from enum import StrEnum
from typing import Annotated, cast

from pydantic import AfterValidator, Field

from acp_agent.config.section import OFF, ProjectMay, Section, Tightened, Words
from acp_agent.core.phase import Phase


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


PermissionRules = Annotated[tuple[PermissionRule, ...], Field(strict=False)]
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


def _deny_and_ask(user: object, project: object) -> Tightened:
    """A project's deny rules go in front, its ask rules behind the last deny of the user's. Allow rules are refused.

    An ask in front of a deny that matches the same call would turn it into a question, and whether two globs can
    meet on one call is more than their text tells (a path has several spellings). So an ask of a project's acts on
    everything but what the user allowed in front of a deny.
    """
    wanted, users = _permission_rules(project), _permission_rules(user)
    after = max((at + 1 for at, rule in enumerate(users) if rule.action is RuleAction.DENY), default=0)
    denies = tuple(rule for rule in wanted if rule.action is RuleAction.DENY)
    asks = tuple(rule for rule in wanted if rule.action is RuleAction.ASK)
    refused = tuple(rule for rule in wanted if rule.action is RuleAction.ALLOW)
    return Tightened((*denies, *users[:after], *asks, *users[after:]), refused)


def _permission_rules(value: object) -> tuple[PermissionRule, ...]:
    return cast("tuple[PermissionRule, ...]", value)  # the field marked so holds nothing else, and was validated


PROJECT_RULES = ProjectMay(_deny_and_ask, "deny and ask rules")


def guarded(rules: tuple[PermissionRule, ...]) -> tuple[PermissionRule, ...]:
    """A tool's rules when one of them could not be understood: it might have been a deny, so nothing is allowed."""
    kept = tuple(rule for rule in rules if rule.action is not RuleAction.ALLOW)
    return (*kept, PermissionRule(pattern="*", action=RuleAction.ASK))


MAX_RULES = 256
"""Rules in force together, of all lists (S5.4)."""

MAX_REGEX_BYTES = 1024
"""Bytes of an `args_match` (S5.4)."""


class Effect(StrEnum):
    """What a rule does with a call it matches."""

    ALLOW = "allow"
    DENY = "deny"


class TrustThreshold(StrEnum):
    """How far a call is trusted, least first (S4; requirements section 4 row 37)."""

    UNTRUSTED = "untrusted"
    PROVISIONAL = "provisional"
    TRUSTED = "trusted"


def _short(pattern: str) -> str:
    if len(pattern.encode(errors="replace")) > MAX_REGEX_BYTES:
        raise ValueError(f"a regular expression of at most {MAX_REGEX_BYTES} bytes")
    return pattern


_Globs = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=1024)], ...], Field(strict=False, max_length=64)]
_Variables = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], ...], Field(strict=False, max_length=64)
]
_Phases = Annotated[tuple[Annotated[Phase, Field(strict=False)], ...], Field(strict=False, max_length=len(Phase))]
_Names = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(strict=False, max_length=64)]


class PolicyRule(Section):
    """One rule (S5.2). It matches when all it names do; a deny by any part of the call, an allow by all of them."""

    effect: Annotated[Effect, Field(strict=False, description="allow or deny.")]
    tool: Annotated[str, Field(min_length=1, max_length=256, pattern=r"\S", description="Glob on the tool's name.")]
    paths: Annotated[_Globs, Field(description="Globs on the paths and URLs of the call.")] = ()
    env: Annotated[_Variables, Field(description="Variables that must be set for the rule to apply.")] = ()
    trust_level: Annotated[
        TrustThreshold | None,
        Field(strict=False, description="An allow needs at least this trust, a deny at most this."),
    ] = None
    args_match: Annotated[
        Annotated[str, AfterValidator(_short)] | None,
        Field(min_length=1, description="RE2 expression searched in every text among the arguments."),
    ] = None
    phases: Annotated[
        _Phases,
        Field(description="Only calls of these: planner, executor (what the model asks for), verifier, autonomous."),
    ] = ()
    capabilities: Annotated[_Names, Field(description="Reserved; an allow rule that names one never applies.")] = ()


def _deny_in_front(user: object, project: object) -> Tightened:
    """A project's deny rules go in front, as many as there is room for. Its allow rules are refused."""
    users, wanted = _policy_rules(user), _policy_rules(project)
    denies = tuple(rule for rule in wanted if rule.effect is Effect.DENY)
    taken = denies[: max(0, MAX_RULES - len(users))]
    refused = tuple(rule for rule in wanted if rule.effect is Effect.ALLOW)
    return Tightened((*taken, *users), (*refused, *denies[len(taken) :]))


def _policy_rules(value: object) -> tuple[PolicyRule, ...]:
    return cast("tuple[PolicyRule, ...]", value)  # the fields marked so hold nothing else, and were validated


DENIES = ProjectMay(_deny_in_front, "deny rules")

PolicyRules = Annotated[tuple[PolicyRule, ...], Field(strict=False, max_length=MAX_RULES)]
_POLICY_EXAMPLE = [
    {"effect": "deny", "tool": "bash", "args_match": "sudo"},
    {"effect": "allow", "tool": "read", "paths": ["/home/*"]},
]


class PolicySettings(Section):
    """`[tools.policy]`: rules that forbid; what they allow still passes every other gate (S5.1)."""

    enabled: Annotated[bool, Field(description="Whether these rules and policy_file are in force.")] = False
    default_effect: Annotated[
        Effect,
        Field(strict=False, description="What holds for a call no rule matches, once this or authorization is on."),
    ] = Effect.DENY
    policy_file: Annotated[
        Annotated[str, Field(min_length=1, max_length=4096)] | None,
        Field(
            description="TOML file with further [[rules]], below the session's folder or this file's. Every project "
            "may bring what a relative path names, so such a file can only deny.",
            examples=["policy.toml"],
        ),
    ] = None
    rules: Annotated[
        PolicyRules,
        Field(
            description="Rules in order, first match wins; then come those of policy_file.",
            examples=[_POLICY_EXAMPLE],
        ),
        DENIES,
    ] = ()


class AuthorizationSettings(Section):
    """`[tools.authorization]`: the same kind of rules, after those of the policy (S5.3)."""

    enabled: Annotated[bool, Field(description="Whether these rules are in force.")] = False
    rules: Annotated[PolicyRules, Field(description="Rules in order, behind all rules of the policy."), DENIES] = ()


class TrustSettings(Section):
    """`[trust]`: what a folder brings along (S4)."""

    ask: Annotated[
        bool,
        Field(description="Ask whether what a folder brings to be run may be used; false: it never is."),
        OFF,
    ] = True
