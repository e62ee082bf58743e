"""The policy of a session, from its settings (requirements S5)."""

import os
from collections.abc import Callable

from acp_agent.config import Loaded
from acp_agent.config.policy_file import PlacedRule, merged_rules
from acp_agent.core.errors import ConfigError
from acp_agent.gates.policy import Policy
from acp_agent.gates.rules.policy_rules import Effect, PolicyRule
from acp_agent.gates.rules.trust_level import TrustLevel


def session_policy(loaded: Loaded, cwd: str, warn: Callable[[str], None]) -> Policy:
    """The rules in force. When they cannot be read, `warn` is told and nothing runs (S5.9)."""
    tools = loaded.settings.tools
    try:
        merged = merged_rules(tools.policy, tools.authorization, loaded.problems, cwd=cwd, config_file=loaded.file)
        rules = tuple(map(_compiled, merged.rules))
    except ConfigError as error:
        if error not in loaded.problems:  # those are told anyway
            warn(str(error))
        return Policy(fault=str(error))
    for refused in merged.refused:
        warn(str(refused))
    on = tools.policy.enabled or tools.authorization.enabled
    return Policy(rules, Effect(tools.policy.default_effect.value) if on else Effect.ALLOW)


def _compiled(placed: PlacedRule) -> PolicyRule:
    rule = placed.rule
    return PolicyRule.parse(
        placed.place,
        Effect(rule.effect.value),
        rule.tool,
        compile_regex=_regex,
        paths=rule.paths,
        env=rule.env,
        variables=os.environ,
        trust=None if rule.trust_level is None else TrustLevel(rule.trust_level.value),
        args_match=rule.args_match,
        capabilities=rule.capabilities,
        phases=rule.phases,
    )


def _regex(pattern: str) -> Callable[[str], bool]:
    from acp_agent.linear_regex import LinearRegex  # noqa: PLC0415 - few sessions need the engine

    return LinearRegex(pattern).found_in
