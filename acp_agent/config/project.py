"""How a project's own file is applied to the user's settings: only stricter values are taken."""

from collections.abc import Mapping
from typing import cast

from acp_agent.config.keys import key_of
from acp_agent.config.layers import Layer, Reader
from acp_agent.config.section import Section, Tightened
from acp_agent.core.errors import ConfigError


class ProjectLoosens(ConfigError):
    """A value in a project's file is looser than the user's. It is ignored, and the user need not change anything."""


MOST_ENTRIES = 256
"""The entries that are read of one list in a project's file. Every tool call is compared with each of them."""


def bounded(reader: Reader, where: str, table: Mapping[str, object], prefix: str = "") -> Mapping[str, object]:
    """Return a project's table with every list cut to its first 256 entries. Report each cut as a ProjectLoosens."""
    kept = dict(table)
    for name, value in table.items():
        dotted = f"{prefix}.{name}" if prefix else name
        if isinstance(value, dict):
            kept[name] = bounded(reader, where, cast("dict[str, object]", value), dotted)
        elif isinstance(value, list) and len(entries := cast("list[object]", value)) > MOST_ENTRIES:
            kept[name] = entries[:MOST_ENTRIES]
            ignored = f"the other {len(entries) - MOST_ENTRIES} are ignored"
            expected = f"at most {MOST_ENTRIES} entries in a project's file; {ignored}"
            reader.report(where, dotted, entries[:3], expected, ProjectLoosens)
    return kept


def tighten(reader: Reader, user: Layer, project: Layer) -> Mapping[str, object]:
    """Apply the project's layer to the user's, in place. Report each refused value as a ProjectLoosens.

    Return the user's value of each setting that was changed.
    """
    changed: dict[str, object] = {}
    for name, wish in project.values.items():
        key, where = key_of(name), project.origins[name]
        assert key is not None
        may = key.project_may
        before = user.values.get(name, key.default)
        outcome = may.tighten(before, wish) if may else Tightened(before, (wish,))
        words = f"{may.words}, since a project may only tighten" if may else "it only in the user's own configuration"
        for refused in outcome.refused:
            said = refused.model_dump(mode="json") if isinstance(refused, Section) else refused
            reader.report(where, name, said, f"{words} (ignored)", ProjectLoosens)
        if outcome.value != before or (name not in user.values and not outcome.refused):
            user.put(name, outcome.value, f"{where} over {user.origins.get(name, 'default')}")
            changed[name] = before
    return changed
