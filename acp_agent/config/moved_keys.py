"""Settings that had another name once: still understood, and told (requirements L6.4)."""

from collections.abc import Callable, Mapping
from typing import cast

from acp_agent.core.errors import ConfigError

_MOVED = {
    "max_tool_retries": ("retry", "max_attempts"),
    "max_retry_duration_secs": ("retry", "budget_secs"),
}
"""Key of `[agent]` to table of `[tools]` and key in it."""


def moved(
    where: str, table: Mapping[str, object], report: Callable[[str, str, object, str], ConfigError]
) -> Mapping[str, object]:
    """A file's table with old keys under their new names; `report` is told of each. What has the new name counts.

    where   the file, for the report
    """
    agent = _table(table.get("agent"))
    old = {name: value for name, value in agent.items() if name in _MOVED}
    if not old:
        return table
    tools = _table(table.get("tools"))
    if tools != table.get("tools", {}):
        return table  # no table: said elsewhere
    for name, value in old.items():
        section, key = _MOVED[name]
        new, there = f"tools.{section}.{key}", tools.get(section, {})
        known = _table(there)
        if known != there:
            continue
        taken = key in known
        tools = {**tools, section: {**known, key: known.get(key, value)}}
        told = f"the new name, {new}" + (", whose value counts" if taken else "; it counts as that")
        report(where, f"agent.{name}", value, told)
        agent.pop(name)
    return {**table, "agent": agent, "tools": tools}


def _table(value: object) -> dict[str, object]:
    return dict(cast("dict[str, object]", value)) if isinstance(value, dict) else {}
