"""The configured rules and blocklist as the gates hold them: one source for sessions and for `acp-agent check`."""

from collections.abc import Callable, Collection

from acp_agent.config import Loaded, PermissionRule, ShellSettings
from acp_agent.config.keys import RULES
from acp_agent.config.rules import guarded
from acp_agent.core.errors import ConfigError
from acp_agent.gates.blocklist import BlocklistPolicy, Substitution
from acp_agent.gates.rules.rules import Action, Rule

Warn = Callable[[str], None]
"""Told in one line what the user should mend."""


def blocklist_policy(shell: ShellSettings) -> BlocklistPolicy:
    """What `[tools.shell]` adds to the blocklist and takes off it."""
    return BlocklistPolicy(
        shell.blocked_commands,
        shell.allowed_commands,
        Substitution(shell.substitution.value),
        tuple(group.value for group in shell.blocked_groups),
    )


def permission_rules(loaded: Loaded, warn: Warn, known: Collection[str] = ()) -> dict[str, tuple[Rule, ...]]:
    """Rules by tool id. A rule nobody can read, or for a tool nobody knows, is told and never loosens (S3).

    known   the ids of the tools there are; empty where it does not matter
    """
    compiled: dict[str, tuple[Rule, ...]] = {}
    for tool, rules in loaded.settings.tools.permissions.items():
        if known and tool not in known and not tool.startswith("mcp_"):  # those of servers come and go
            warn(f"[tools.permissions.{tool}]: there is no tool of that name ({', '.join(sorted(known))})")
        where = f"{loaded.origins.get(f'{RULES}.{tool}', '')} [[tools.permissions.{tool}]]".strip()
        compiled[tool] = _guarded(where, rules, warn)
    return compiled


def compiled_rules(where: str, rules: tuple[PermissionRule, ...]) -> tuple[Rule, ...]:
    """Rules with nothing wrong. Raises ConfigError naming `where`, the rule's number and what is wrong with it."""
    return tuple(_compiled(where, number, rule) for number, rule in enumerate(rules, start=1))


def _guarded(where: str, rules: tuple[PermissionRule, ...], warn: Warn) -> tuple[Rule, ...]:
    compiled: list[Rule] = []
    sound: list[PermissionRule] = []
    for number, rule in enumerate(rules, start=1):
        try:
            compiled.append(_compiled(where, number, rule))
            sound.append(rule)
        except ConfigError as error:
            warn(str(error))
    return tuple(compiled) if len(sound) == len(rules) else compiled_rules(where, guarded(tuple(sound)))


def _compiled(where: str, number: int, rule: PermissionRule) -> Rule:
    return Rule.parse(rule.pattern, Action(rule.action.value), f"{where} rule {number}")
