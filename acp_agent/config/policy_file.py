"""Merge the rules of `[tools.policy]`, of its `policy_file` and of `[tools.authorization]` for the gates."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from acp_agent.config.files import read_toml
from acp_agent.config.layers import Layer, Reader, SettingKey
from acp_agent.config.load import ProjectLoosens
from acp_agent.config.rules import (
    MAX_RULES,
    AuthorizationSettings,
    PolicyEffect,
    PolicyRules,
    PolicyRuleSettings,
    PolicySettings,
)
from acp_agent.config.section import Section
from acp_agent.core.errors import ConfigError

MAX_BYTES = 256 * 1024
"""The longest policy file that is read, in bytes."""

_POLICY, _AUTHORIZATION = "tools.policy", "tools.authorization"


class _PolicyFile(Section):
    """The content of a policy file."""

    rules: PolicyRules = ()


class PlacedRule(NamedTuple):
    """A rule and its place for messages, such as "tools.policy.rules[0]" or "policy.toml rules[2]"."""

    place: str
    rule: PolicyRuleSettings


class MergedRules(NamedTuple):
    """The rules in force in their order, and the refused allow rules of a file that can only deny."""

    rules: tuple[PlacedRule, ...]
    refused: tuple[ProjectLoosens, ...] = ()


def merged_rules(
    policy: PolicySettings,
    authorization: AuthorizationSettings,
    problems: Sequence[ConfigError],
    *,
    cwd: str,
    config_file: str,
) -> MergedRules:
    """Return the rules of the policy, of its file and of the authorization, in this order. Disabled parts are skipped.

    problems      the problems of the configuration (`Loaded.problems`)
    cwd           the session's folder
    config_file   the user's configuration file; the policy file may also be in its folder

    Raises:
        ConfigError: A part is unreadable or faulty, or there are too many rules. No rule may be lost: it may deny.

    """
    on = policy.enabled or authorization.enabled
    for problem in problems:
        whole = problem.key in (_POLICY, _AUTHORIZATION)
        ours = whole or problem.key.startswith((f"{_POLICY}.", f"{_AUTHORIZATION}."))
        in_force = on or whole or problem.key.endswith(".enabled")
        if ours and in_force and not isinstance(problem, ProjectLoosens):
            raise problem  # the dropped value may have been part of a policy in force
    merged: list[PlacedRule] = []
    refused: tuple[ProjectLoosens, ...] = ()
    if policy.enabled:
        merged += _placed(f"{_POLICY}.rules", policy.rules)
        if policy.policy_file is not None:
            rules, refused = _read(policy.policy_file, cwd, os.path.dirname(config_file))
            merged += rules
    if authorization.enabled:
        merged += _placed(f"{_AUTHORIZATION}.rules", authorization.rules)
    if len(merged) > MAX_RULES:
        raise ConfigError("configuration", _POLICY, f"{len(merged)} rules", f"at most {MAX_RULES} in all lists")
    return MergedRules(tuple(merged), refused)


def _placed(where: str, rules: Sequence[PolicyRuleSettings]) -> tuple[PlacedRule, ...]:
    return tuple(PlacedRule(f"{where}[{index}]", rule) for index, rule in enumerate(rules))


def _read(name: str, cwd: str, config_folder: str) -> MergedRules:
    """Return the rules of a policy file. Raises ConfigError.

    An absolute path names a file of the user. A relative path may name a file of the project, so that file may only
    deny.
    """
    given = os.path.expanduser(name)
    users_own = os.path.isabs(given)
    path = os.path.normpath(os.path.join(cwd, given))
    real = os.path.realpath(path)
    roots = [os.path.realpath(root) for root in ((cwd, config_folder) if users_own else (cwd,))]
    if not any(os.path.commonpath((real, root)) == root for root in roots):
        raise ConfigError(path, "", "", f"expected a policy file inside {' or '.join(roots)}, not a link out of it")
    rules = _rules(path, real, required=users_own)
    placed = _placed(f"{os.path.basename(path)} rules", rules)
    if users_own:
        return MergedRules(placed)
    allows = tuple(each for each in placed if each.rule.effect is PolicyEffect.ALLOW)
    told = "deny rules only, since policy_file names it by a relative path (ignored)"
    refused = (ProjectLoosens(path, each.place.rpartition(" ")[2], "allow", told) for each in allows)
    return MergedRules(tuple(each for each in placed if each not in allows), tuple(refused))


def _rules(path: str, real: str, *, required: bool) -> tuple[PolicyRuleSettings, ...]:
    """Return the rules in a file, or none if it is missing and not required. Raises ConfigError."""
    try:
        size = os.lstat(real).st_size
    except OSError:
        size = 0  # reading it reports the reason
    if size > MAX_BYTES:
        raise ConfigError(path, "", "", f"expected a policy file of at most {MAX_BYTES // 1024} KiB")
    table = read_toml(real)
    if table is None:
        if required:
            raise ConfigError(path, "", "", "expected the policy file to exist")
        return ()
    unknown = next((key for key in table if key != "rules"), None)
    reader, layer = Reader(), Layer()
    if unknown is not None:
        reader.report(path, unknown, table[unknown], "[[rules]] and nothing else")
    reader.take(layer, SettingKey("rules", _PolicyFile, "rules"), table.get("rules", []), path)
    if reader.problems:
        raise reader.problems[0]
    return _PolicyFile.model_validate(layer.values).rules
