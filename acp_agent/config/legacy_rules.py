"""The older way to say what runs: two lists of words in `[tools.shell]` (requirements S3.3, S3.4, S1.11).

Nobody gets into it by accident, since it ends with "allow the rest". Only who sets `confirm_patterns`, in his own
configuration, and has no rules for bash, gets these, in this order:

    deny   *x*   for each x of `blocked_commands`, which the blocklist refuses as well
    ask    *x*   for each x of `confirm_patterns`, then for each of the twelve usual ones (`USUAL`)
    allow  *

Rules for bash switch both lists off; the blocklist holds all the same. What a project adds joins the converted rules
as it joins any others.
"""

import re
from typing import cast

from acp_agent.config.layers import Layer, Reader
from acp_agent.config.rules import PermissionRule, RuleAction

USUAL = (
    "rm ",
    "git push -f",
    "git push --force",
    "drop table",
    "drop database",
    "truncate ",
    "$(",
    "`",
    "<(",
    ">(",
    "<<<",
    "eval ",
)
"""What asks in any case (S1.11)."""

CONFIRM, BLOCKED, BASH_RULES = "tools.shell.confirm_patterns", "tools.shell.blocked_commands", "tools.permissions.bash"
_LONGEST = 400  # characters of a text; a shorter one matches more, so a cut one is stricter
_WILD = re.compile(r"[*?\[\\]")


def legacy_rules(blocked: tuple[str, ...], confirm: tuple[str, ...]) -> tuple[PermissionRule, ...]:
    """The rules for bash that the two lists stand for. Texts are taken as they are: `*` in one is a star."""
    denied = [PermissionRule(pattern=_anywhere(text), action=RuleAction.DENY) for text in blocked if text.strip()]
    asked = dict.fromkeys((*confirm, *USUAL))
    asking = [PermissionRule(pattern=_anywhere(text), action=RuleAction.ASK) for text in asked if text.strip()]
    return (*denied, *asking, PermissionRule(pattern="*", action=RuleAction.ALLOW))


def add_legacy_rules(reader: Reader, user: Layer, environment: Layer) -> None:
    """Give the user's layer rules for bash when he uses the lists and has none. Before a project's file is applied.

    Where any of `[tools.shell]` could not be understood there is no conversion: what was meant to be denied may be
    missing, and without rules everything asks.
    """
    said = {**user.values, **environment.values}
    confirm = cast("tuple[str, ...]", said.get(CONFIRM, ()))
    has_rules = BASH_RULES in said or BASH_RULES in reader.doubtful
    unclear = any(problem.key.startswith("tools.shell") for problem in reader.problems)
    if not confirm or has_rules or unclear:
        return
    origin = (environment if CONFIRM in environment.values else user).origins[CONFIRM]
    blocked = cast("tuple[str, ...]", said.get(BLOCKED, ()))
    user.put(BASH_RULES, legacy_rules(blocked, confirm), f"{CONFIRM} in {origin}")


def _anywhere(text: str) -> str:
    return f"*{_WILD.sub(lambda found: chr(92) + found[0], text[:_LONGEST])}*"
