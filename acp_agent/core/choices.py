"""What a session can choose from: its models, how hard they think, how freely they choose words (A15, A16)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from acp_agent.core.conduct import Conduct

DEFAULT: Final = "default"
"""The value that leaves something to the server, where nobody knows what it does then."""
OFF: Final = "off"
ON: Final = "on"
TEMPERATURES: Final[Mapping[str, float]] = MappingProxyType({"precise": 0.2, "balanced": 0.7, "creative": 1.0})


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model that can be chosen: `PROVIDER:MODEL`, a name for people, and what there is to say of it."""

    value: str
    title: str
    description: str = ""

    @property
    def provider(self) -> str:
        """What stands before the colon."""
        return self.value.partition(":")[0]


@dataclass(frozen=True, slots=True)
class Levels:
    """Values of which one is in force, least first. `usual` is one of them: in force while nobody has chosen."""

    values: tuple[str, ...]
    usual: str

    def in_force(self, chosen: str) -> str:
        """What was chosen, where that is one of the values: another model may have taken others."""
        return chosen if chosen in self.values else self.usual

    @property
    def is_switch(self) -> bool:
        """Whether there is only on and off."""
        return self.values == (OFF, ON)


class Choices(Protocol):
    """What one configuration lets its sessions choose. Answers at once, from memory."""

    @property
    def initial(self) -> str:
        """The model of sessions that have chosen none, as `PROVIDER:MODEL`; empty where there is none."""
        ...

    def models(self, current: str) -> Sequence[ModelChoice]:
        """Those that are shown, `current` among them; models of one provider stand together."""
        ...

    def has(self, model: str) -> bool:
        """Whether a model can be chosen. Also one that is not shown: lists may be long, late or missing."""
        ...

    def thinking(self, model: str) -> Levels | None:
        """How a model may think; None for one that cannot, or of which nobody knows."""
        ...

    def temperature(self, model: str) -> Levels | None:
        """The presets, for a model that takes a temperature; None for others."""
        ...


def model_in_force(conduct: Conduct, choices: Choices) -> str:
    """The model the next prompt goes to, as `PROVIDER:MODEL`; empty where there is none."""
    return conduct.model or choices.initial


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a session has chosen over its configuration, as far as its model takes it. Empty: as configured."""

    model: str = ""
    thought_level: str = ""
    temperature: str = ""


def chosen(conduct: Conduct, choices: Choices, model: str = "") -> Chosen:
    """What counts of a conduct for a model, by default the one in force. What it does not take is kept for others."""
    model = model or model_in_force(conduct, choices)
    return Chosen(
        conduct.model,
        _taken(conduct.thought_level, choices.thinking(model)),
        _taken(conduct.temperature, choices.temperature(model)),
    )


def _taken(value: str, levels: Levels | None) -> str:
    return value if levels is not None and value in levels.values else ""


def settle(conduct: Conduct, choices: Choices) -> str:
    """Go back to the initial model where the one that was chosen is not to be had any more (A7.3).

    Gives a line for the user, or "".
    """
    gone = conduct.model
    if not gone or choices.has(gone):
        return ""
    conduct.model = ""
    instead = f"{choices.initial} answers instead" if choices.initial else "choose another one with /model"
    return f"The model of this session, {gone}, is no longer available; {instead}."
