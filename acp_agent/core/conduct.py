"""What a user chooses for a session: what the agent may do by itself, and which model answers (A14, A15)."""

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import TypeVar


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
