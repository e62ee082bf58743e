"""Rules on tool calls: permissions, policy and authorization, and how a project's rules join the user's.

`[tools.permissions]` says which calls run, ask or are refused. `[tools.policy]` and `[tools.authorization]` say what
may run at all.
"""

from enum import StrEnum
from typing import Annotated, cast

from acp_agent.config.section import ProjectMay, Section, Tightened, without_nul
from acp_agent.core.types import Phase
from acp_agent.shape import AfterValidator, Field


class RuleAction(StrEnum):
    """The action of a permission rule on a call that it matches."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class PermissionRule(Section):
    """One `[[tools.permissions.<tool>]]` entry. The first rule that matches a call decides."""

    pattern: Annotated[
        str,
        Field(
            min_length=1,
            max_length=1024,
            description="Glob on the command (bash) or the path (file tools). Case is ignored.",
        ),
    ]
    action: Annotated[RuleAction, Field(strict=False, description="allow, ask or deny.")]


PermissionRules = Annotated[tuple[PermissionRule, ...], Field(strict=False)]
TOOL_NAME = r"^([A-Za-z][A-Za-z0-9_-]*|mcp_[A-Za-z0-9_*-]*)$"
"""The id of a tool, or `mcp_SERVER_*`: a glob over tools of MCP servers."""
ToolName = Annotated[str, Field(pattern=TOOL_NAME)]


def _deny_and_ask(user: object, project: object) -> Tightened:
    """Put a project's deny rules first and its ask rules after the user's last deny. Refuse its allow rules.

    An ask rule before a deny rule for the same call would turn the refusal into a question. The text of two globs does
    not tell whether they can match the same call, since a path has several spellings. Therefore a project's ask rules
    come after all of the user's deny rules.
    """
    # The values were validated, and only lists of permission rules use this function.
    wanted, users = cast("tuple[PermissionRule, ...]", project), cast("tuple[PermissionRule, ...]", user)
    after = max((at + 1 for at, rule in enumerate(users) if rule.action is RuleAction.DENY), default=0)
    denies = tuple(rule for rule in wanted if rule.action is RuleAction.DENY)
    asks = tuple(rule for rule in wanted if rule.action is RuleAction.ASK)
    refused = tuple(rule for rule in wanted if rule.action is RuleAction.ALLOW)
    return Tightened((*denies, *users[:after], *asks, *users[after:]), refused)


PROJECT_RULES = ProjectMay(_deny_and_ask, "deny and ask rules")


def guarded(rules: tuple[PermissionRule, ...]) -> tuple[PermissionRule, ...]:
    """Return a tool's rules without allow rules and with a final ask, since a faulty rule may have been a deny."""
    kept = tuple(rule for rule in rules if rule.action is not RuleAction.ALLOW)
    return (*kept, PermissionRule(pattern="*", action=RuleAction.ASK))


MAX_RULES = 256
"""The most rules that all lists together may have."""

MAX_REGEX_BYTES = 1024
"""The longest `args_match`, in bytes."""


class PolicyEffect(StrEnum):
    """The action of a policy rule on a call that it matches."""

    ALLOW = "allow"
    DENY = "deny"


class TrustThreshold(StrEnum):
    """A level of trust in a call, from the least to the most."""

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


class PolicyRuleSettings(Section):
    """One rule of the policy. A deny rule applies if its conditions hold for any path or text of the call.

    An allow rule applies only if they hold for all of them.
    """

    effect: Annotated[PolicyEffect, Field(strict=False, description="allow or deny.")]
    tool: Annotated[str, Field(min_length=1, max_length=256, pattern=r"\S", description="Glob on the tool's name.")]
    paths: Annotated[_Globs, Field(description="Globs on the paths and URLs of the call.")] = ()
    env: Annotated[_Variables, Field(description="Environment variables that must be set for the rule to apply.")] = ()
    trust_level: Annotated[
        TrustThreshold | None,
        Field(strict=False, description="An allow rule needs at least this trust, a deny rule at most this."),
    ] = None
    args_match: Annotated[
        Annotated[str, AfterValidator(_short)] | None,
        Field(min_length=1, description="RE2 expression that is searched in every text argument."),
    ] = None
    phases: Annotated[
        _Phases,
        Field(
            description="Phases the rule is for: planner, executor (calls of the model), verifier, autonomous. "
            "Empty: all."
        ),
    ] = ()
    capabilities: Annotated[_Names, Field(description="Reserved; an allow rule that names one never applies.")] = ()


def _deny_in_front(user: object, project: object) -> Tightened:
    """Put a project's deny rules first, as many as fit. Refuse its allow rules."""
    users, wanted = cast("tuple[PolicyRuleSettings, ...]", user), cast("tuple[PolicyRuleSettings, ...]", project)
    denies = tuple(rule for rule in wanted if rule.effect is PolicyEffect.DENY)
    taken = denies[: max(0, MAX_RULES - len(users))]
    refused = tuple(rule for rule in wanted if rule.effect is PolicyEffect.ALLOW)
    return Tightened((*taken, *users), (*refused, *denies[len(taken) :]))


DENIES = ProjectMay(_deny_in_front, "deny rules")

PolicyRules = Annotated[tuple[PolicyRuleSettings, ...], Field(strict=False, max_length=MAX_RULES)]
_POLICY_EXAMPLE = [
    {"effect": "deny", "tool": "bash", "args_match": "sudo"},
    {"effect": "allow", "tool": "read", "paths": ["/home/*"]},
]


class PolicySettings(Section):
    """`[tools.policy]`: rules that forbid. A call that they allow still passes every other gate."""

    enabled: Annotated[bool, Field(description="Whether these rules and policy_file are in force.")] = False
    default_effect: Annotated[
        PolicyEffect,
        Field(
            strict=False,
            description="What happens to a call that no rule matches, if this or authorization is enabled.",
        ),
    ] = PolicyEffect.DENY
    policy_file: Annotated[
        Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(without_nul)] | None,
        Field(
            description="TOML file with further [[rules]], in the session's folder or in this file's folder. Any "
            "project can bring a file of a relative path, so such a file can only deny.",
            examples=["policy.toml"],
        ),
    ] = None
    rules: Annotated[
        PolicyRules,
        Field(
            description="Rules in order; the first that matches decides. Those of policy_file follow.",
            examples=[_POLICY_EXAMPLE],
        ),
        DENIES,
    ] = ()


class AuthorizationSettings(Section):
    """`[tools.authorization]`: rules of the same kind, which come after those of the policy."""

    enabled: Annotated[bool, Field(description="Whether these rules are in force.")] = False
    rules: Annotated[PolicyRules, Field(description="Rules in order, after all rules of the policy."), DENIES] = ()
