"""A project's own file applied to the user's settings: only what makes them tighter."""

from acp_agent.config.keys import key_of
from acp_agent.config.layers import Layer, Reader
from acp_agent.config.section import Section
from acp_agent.config.tighter import Tightened
from acp_agent.core.errors import ConfigError


class ProjectLoosens(ConfigError):
    """A project's file asked for more than the user allows; it was ignored. Nothing for the user to mend."""


def tighten(reader: Reader, user: Layer, project: Layer) -> None:
    """Change the user's layer in place as far as the project may; report the rest as ProjectLoosens."""
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
