"""The choice of tools the configuration and the session make (requirements G6)."""

from collections.abc import Callable, Iterator
from functools import cache

from acp_agent.config import Loaded
from acp_agent.core.aliases import ALIASES
from acp_agent.gates.selection import ModelChoice, Selection, ToolChoice, for_model


def tool_choice(loaded: Loaded, session: tuple[str, ...] | None, model: str = "") -> ToolChoice:
    """Return the choice for a model as `PROVIDER:MODEL`, by default the configured one.

    session   the list of session/new, None when none was sent
    """
    return for_model(_general(loaded, session), _by_model(loaded), model or loaded.settings.llm.model or "")


def selection_in_force(
    loaded: Loaded, session: tuple[str, ...] | None, model: Callable[[], str]
) -> Callable[[], Selection]:
    """Return a function that gives the selection for the model that `model` names at that moment."""

    @cache
    def of(name: str) -> Selection:
        return Selection(tool_choice(loaded, session, name), ALIASES)

    return lambda: of(model())


def every_choice(loaded: Loaded, session: tuple[str, ...] | None) -> Iterator[ToolChoice]:
    """Yield the general choice and that of every entry of `by_model`."""
    general = _general(loaded, session)
    yield general
    yield from (for_model(general, (each._replace(pattern="*"),), "") for each in _by_model(loaded))


def _general(loaded: Loaded, session: tuple[str, ...] | None) -> ToolChoice:
    tools = loaded.settings.tools
    return ToolChoice(tools.profile.value, tools.allow, tools.deny, tools.also_allow, session)


def _by_model(loaded: Loaded) -> Iterator[ModelChoice]:
    for glob, each in loaded.settings.tools.by_model.items():
        yield ModelChoice(glob, each.profile and each.profile.value, each.allow, each.deny, each.also_allow)
