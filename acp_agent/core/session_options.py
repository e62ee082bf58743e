"""What a user chooses for a session: what the agent may do by itself, and which model answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

from acp_agent.core.data import frozen


class Mode(StrEnum):
    """The kind of work that a session is for. `gates/mode.py` enforces it."""

    CODE = "code"
    ARCHITECT = "architect"
    ASK = "ask"


class AutoApprove(StrEnum):
    """The calls that run without a question. The blocklist, the sandbox and deny rules hold at every level."""

    SUGGEST = "suggest"  # edits and commands ask
    AUTO_EDIT = "auto-edit"  # edits inside the roots are silent, commands ask
    FULL_AUTO = "full-auto"  # nothing asks


class Autonomy(StrEnum):
    """The freedom of an agent to act by itself, in one word.

    READONLY     it reads, searches and fetches; no other tool is offered or runs
    SUPERVISED   rules and questions decide
    FULL         no call asks; denied and blocked calls stay refused
    """

    READONLY = "readonly"
    SUPERVISED = "supervised"
    FULL = "full"


class Freedom(StrEnum):
    """How freely the agent acts: the one selector that stands for mode, approval level and autonomy.

    Its values are those of the mode and the level that they set, so that stored names and older clients keep working.
    """

    SUGGEST = "suggest"
    AUTO_EDIT = "auto-edit"
    FULL_AUTO = "full-auto"
    PLAN = "architect"
    READ_ONLY = "ask"


FREEDOMS: Final[Mapping[Freedom, tuple[str, str]]] = MappingProxyType(
    {
        Freedom.SUGGEST: ("Ask first", "Asks before it edits files and runs commands"),
        Freedom.AUTO_EDIT: ("Edit freely", "Edits files without asking; asks before commands"),
        Freedom.FULL_AUTO: ("Full", "Asks nothing; blocked commands stay blocked"),
        Freedom.PLAN: ("Plan", "Reads and plans; changes nothing"),
        Freedom.READ_ONLY: ("Read only", "Answers questions from what it can read"),
    }
)
"""The name of each value and what it means, for the user."""


@dataclass(slots=True)
class SessionOptions:
    """The settings of a session. It has two of these: the user's choices, and a copy that a turn makes when it begins.

    The running turn and its gates read the copy, so a choice of the user takes effect with the next turn. Only a
    stricter mode or approval level takes effect at once.

    model          `PROVIDER:MODEL`; empty for the configured one
    thought_level  `off`, `on`, or how hard the model thinks; empty for the configured one
    temperature    the name of a preset; empty for the configured one
    agent          the agent under whose definition the session goes on; empty for its own
    chosen         the `PERMISSION_FIELDS` that the user has set; the others follow the configuration when it changes
    """

    mode: Mode = Mode.CODE
    auto_approve: AutoApprove = AutoApprove.SUGGEST
    readonly: bool = False
    model: str = ""
    thought_level: str = ""
    temperature: str = ""
    agent: str = ""
    chosen: tuple[str, ...] = ()

    @property
    def autonomy(self) -> Autonomy:
        """The approval level in one word."""
        if self.readonly:
            return Autonomy.READONLY
        return Autonomy.FULL if self.auto_approve is AutoApprove.FULL_AUTO else Autonomy.SUPERVISED

    @property
    def freedom(self) -> Freedom:
        """The mode, the approval level and the autonomy as one value: the strictest of them decides."""
        if self.mode is not Mode.CODE:
            return Freedom(self.mode.value)
        return Freedom.READ_ONLY if self.readonly else Freedom(self.auto_approve.value)

    def choose_freedom(self, word: str) -> bool:
        """Apply the user's choice: a value of `Freedom`, or the mode `code`. Return False for other words.

        Plan and read only do not change the approval level, so that it is in force again after `code`.
        """
        if word in set(Mode):
            self.choose(mode=Mode(word))
        elif word in set(AutoApprove):
            self.choose(mode=Mode.CODE, readonly=False, auto_approve=AutoApprove(word))
        else:
            return False
        return True

    def copy_from(self, other: "SessionOptions") -> None:
        """Copy all settings of another object into this one, to which other objects hold references."""
        for each in fields(self):
            setattr(self, each.name, getattr(other, each.name))

    def choose(self, **chosen: object) -> None:
        """Set fields as the user chooses. Those of `PERMISSION_FIELDS` that change count as chosen from now on."""
        before = replace(self)
        for name, value in chosen.items():
            setattr(self, name, value)
        changed = {name for name in PERMISSION_FIELDS if getattr(self, name) != getattr(before, name)}
        self.chosen = tuple(name for name in PERMISSION_FIELDS if name in changed or name in self.chosen)

    def choose_autonomy(self, autonomy: Autonomy) -> None:
        """Apply the user's choice of the level in one word. Any word but FULL makes suggest of full-auto."""
        level = AutoApprove.SUGGEST if self.auto_approve is AutoApprove.FULL_AUTO else self.auto_approve
        level = AutoApprove.FULL_AUTO if autonomy is Autonomy.FULL else level
        self.choose(readonly=autonomy is Autonomy.READONLY, auto_approve=level)

    def tightened(self, other: "SessionOptions") -> "SessionOptions":
        """Return these settings with each of the `PERMISSION_FIELDS` of `other` that allows less."""
        return replace(
            self,
            mode=tighter(self.mode, other.mode),
            auto_approve=tighter(self.auto_approve, other.auto_approve),
            readonly=self.readonly or other.readonly,
        )

    def to_keep(self, stored: "SessionOptions") -> "SessionOptions":
        """Return the settings to store with the session. `stored` is what was stored before.

        Of the `PERMISSION_FIELDS`, only the user's choices in this session are stored. A level of the command line or
        the configuration holds only as long as it is set there.
        """
        lent = {name: getattr(stored, name) for name in PERMISSION_FIELDS if name not in self.chosen}
        chosen = tuple(name for name in PERMISSION_FIELDS if name in self.chosen or name in stored.chosen)
        return replace(self, **lent, chosen=chosen)

    def resumed(self, start: "SessionOptions", most: "SessionOptions") -> "SessionOptions":
        """Return the settings with which a stored session goes on under the current configuration.

        The user's choices for the `PERMISSION_FIELDS` hold unless they are looser than `most`. The `PERMISSION_FIELDS`
        that the user has not set have the values of a new session.

        start   the settings of a new session
        most    the loosest settings that a session may be resumed with
        """
        mode, level = (self if "mode" in self.chosen else start), (self if "auto_approve" in self.chosen else start)
        only = self if "readonly" in self.chosen else start
        wanted = replace(self, mode=mode.mode, auto_approve=level.auto_approve, readonly=only.readonly)
        return wanted.tightened(most)


PERMISSION_FIELDS = ("mode", "auto_approve", "readonly")
"""The fields that say what the agent may do. They always have a value, so `chosen` notes which the user has set."""
_Level = TypeVar("_Level", Mode, AutoApprove)


def tighter(one: _Level, other: _Level) -> _Level:
    """Return the one of two modes or approval levels that allows less."""
    return max(one, other, key=_LOOSEST_FIRST.index)


_LOOSEST_FIRST: tuple[StrEnum, ...] = (
    *(Mode.CODE, Mode.ARCHITECT, Mode.ASK),
    *(AutoApprove.FULL_AUTO, AutoApprove.AUTO_EDIT, AutoApprove.SUGGEST),
)


DEFAULT: Final = "default"
"""The value that leaves a setting to the server."""
OFF: Final = "off"
ON: Final = "on"
TEMPERATURES: Final[Mapping[str, float]] = MappingProxyType({"precise": 0.2, "balanced": 0.7, "creative": 1.0})


@frozen
class ModelChoice:
    """A model that can be chosen. `value` is `PROVIDER:MODEL`; title and description are for the user."""

    value: str
    title: str
    description: str = ""

    @property
    def provider(self) -> str:
        """The part before the colon."""
        return self.value.partition(":")[0]


@frozen
class Levels:
    """The values of a setting, least first. `usual` is the one in force until the user chooses."""

    values: tuple[str, ...]
    usual: str

    def in_force(self, chosen: str) -> str:
        """Return the chosen value, or the usual one if it was chosen for a model with other values."""
        return chosen if chosen in self.values else self.usual

    @property
    def is_switch(self) -> bool:
        """Whether the values are only on and off."""
        return self.values == (OFF, ON)


class Choices(Protocol):
    """The choices that a configuration offers to its sessions. All answers come from memory."""

    @property
    def initial(self) -> str:
        """The model of sessions that have chosen none, as `PROVIDER:MODEL`. Empty if none is configured."""
        ...

    def models(self, current: str) -> Sequence[ModelChoice]:
        """Return the models to show, `current` among them. Models of one provider stand together."""
        ...

    def has(self, model: str) -> bool:
        """Return whether a model can be chosen. It need not be shown: lists may be long, late or missing."""
        ...

    def thinking(self, model: str) -> Levels | None:
        """Return the thought levels of a model; None if it has none or they are unknown."""
        ...

    def temperature(self, model: str) -> Levels | None:
        """Return the presets of a model that takes a temperature; None for others."""
        ...


def model_in_force(options: SessionOptions, choices: Choices) -> str:
    """Return the model of the next prompt as `PROVIDER:MODEL`; empty if there is none."""
    return options.model or choices.initial


@frozen
class Chosen:
    """The choices of a session that its model supports. An empty value stands for the configured one."""

    model: str = ""
    thought_level: str = ""
    temperature: str = ""


def chosen(options: SessionOptions, choices: Choices, model: str = "") -> Chosen:
    """Return the choices that a model supports, by default the model in force. The others remain for other models."""
    model = model or model_in_force(options, choices)
    thought_level, temperature = options.thought_level, options.temperature
    levels = choices.thinking(model) if thought_level else None
    presets = choices.temperature(model) if temperature else None
    return Chosen(
        options.model,
        thought_level if levels is not None and thought_level in levels.values else "",
        temperature if presets is not None and temperature in presets.values else "",
    )


def settle(options: SessionOptions, choices: Choices) -> str:
    """Go back to the initial model if the chosen one no longer exists. Return a line for the user, or ""."""
    gone = options.model
    if not gone or choices.has(gone):
        return ""
    options.model = ""
    instead = f"{choices.initial} answers instead" if choices.initial else "choose another one with /model"
    return f"The model of this session, {gone}, is no longer available; {instead}."
