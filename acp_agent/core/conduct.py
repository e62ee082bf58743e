"""What a user chooses for a session: what the agent may do by itself, and which model answers (A14, A15)."""

from dataclasses import dataclass
from enum import StrEnum


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
    """

    mode: Mode = Mode.CODE
    auto_approve: AutoApprove = AutoApprove.SUGGEST
    readonly: bool = False
    model: str = ""
    thought_level: str = ""
    temperature: str = ""

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
