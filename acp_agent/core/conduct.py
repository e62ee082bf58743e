"""How much an agent may do by itself in a session: the mode and the approval level (A14, A15.8)."""

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


@dataclass(slots=True)
class Conduct:
    """The two settings in force for the running turn. The session changes them between turns only."""

    mode: Mode = Mode.CODE
    auto_approve: AutoApprove = AutoApprove.SUGGEST
