"""What a user chooses for a session: what the agent may do by itself, and which model answers (A14, A15)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Protocol, TypeVar


class Mode(StrEnum):
    """What kinds of work a session is for. Enforced by `gates/mode.py`, mirrored as a config option."""

    CODE = "code"
    ARCHITECT = "architect"
    ASK = "ask"


class AutoApprove(StrEnum):
    """What runs without asking. Hard gates (blocklist, sandbox, deny rules) hold at every level."""

    SUGGEST = "suggest"  # edits and commands ask
    AUTO_EDIT = "auto-edit"  # edits inside the roots are silent, commands ask
    FULL_AUTO = "full-auto"  # nothing asks


class Autonomy(StrEnum):
    """How much an agent may do by itself, in one word.

    READONLY     reads, searches and fetches; no other tool is offered or runs, whoever calls it
    SUPERVISED   rules and questions decide
    FULL         nothing asks; what is denied and what is blocked stays so
    """

    READONLY = "readonly"
    SUPERVISED = "supervised"
    FULL = "full"


@dataclass(slots=True)
class Conduct:
    """The settings in force for the running turn. The session changes them between turns only.

    model          `PROVIDER:MODEL`; empty as long as it is the configuration's
    thought_level  `off`, `on`, or how hard the model thinks; empty: as configured
    temperature    the name of a preset; empty: as configured
    chosen         which of `LEAVE` the user has chosen himself; the rest is the configuration's, also later (A7.5)
    """

    mode: Mode = Mode.CODE
    auto_approve: AutoApprove = AutoApprove.SUGGEST
    readonly: bool = False
    model: str = ""
    thought_level: str = ""
    temperature: str = ""
    chosen: tuple[str, ...] = ()

    @property
    def autonomy(self) -> Autonomy:
        """The same in one word."""
        if self.readonly:
            return Autonomy.READONLY
        return Autonomy.FULL if self.auto_approve is AutoApprove.FULL_AUTO else Autonomy.SUPERVISED

    def take(self, autonomy: Autonomy) -> None:
        """Set the level in one word: full is full-auto, supervised takes that back."""
        self.readonly = autonomy is Autonomy.READONLY
        if autonomy is Autonomy.FULL:
            self.auto_approve = AutoApprove.FULL_AUTO
        elif self.auto_approve is AutoApprove.FULL_AUTO:
            self.auto_approve = AutoApprove.SUGGEST

    def become(self, other: "Conduct") -> None:
        """Take over all that another says, for whoever holds this very object."""
        for each in fields(self):
            setattr(self, each.name, getattr(other, each.name))

    def note_chosen(self, before: "Conduct") -> None:
        """Remember that what is another leave than before is the user's choice."""
        changed = {name for name in LEAVE if getattr(self, name) != getattr(before, name)}
        self.chosen = tuple(name for name in LEAVE if name in changed or name in self.chosen)

    def to_keep(self, stored: "Conduct") -> "Conduct":
        """Return what is kept with the session, where `stored` is what was kept before.

        Of the leave only what the user chose in the session is kept. A level of the command line or the configuration
        holds for as long as it is given there.
        """
        lent = {name: getattr(stored, name) for name in LEAVE if name not in self.chosen}
        chosen = tuple(name for name in LEAVE if name in self.chosen or name in stored.chosen)
        return replace(self, **lent, chosen=chosen)

    def taken_up(self, start: "Conduct", most: "Conduct") -> "Conduct":
        """What a session conducts itself by that goes on under a configuration, which may be another one by now.

        start   a new session's conduct
        most    the loosest leave a session may be taken up with

        Of the leave what the user chose holds, unless it is looser than `most`; the rest is as in a new session.
        """
        mode, level = (self if "mode" in self.chosen else start), (self if "auto_approve" in self.chosen else start)
        only = self if "readonly" in self.chosen else start
        return replace(
            self,
            mode=tighter(mode.mode, most.mode),
            auto_approve=tighter(level.auto_approve, most.auto_approve),
            readonly=only.readonly or most.readonly,
        )


LEAVE = ("mode", "auto_approve", "readonly")
"""The fields of a Conduct that say what the agent may do. The others are empty until the user chooses."""
_Leave = TypeVar("_Leave", Mode, AutoApprove)


def tighter(one: _Leave, other: _Leave) -> _Leave:
    """That of two modes or approval levels which allows less."""
    return max(one, other, key=_LOOSEST_FIRST.index)


_LOOSEST_FIRST: tuple[StrEnum, ...] = (
    *(Mode.CODE, Mode.ARCHITECT, Mode.ASK),
    *(AutoApprove.FULL_AUTO, AutoApprove.AUTO_EDIT, AutoApprove.SUGGEST),
)


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
