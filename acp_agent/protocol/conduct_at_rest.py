"""What the user chooses for a session that rests, while another process may have it open (A7.5, A11)."""

from dataclasses import fields, replace

from acp_agent.core.choices import Choices, settle
from acp_agent.core.conduct import LEAVE, Conduct


class ConductAtRest:
    """Remembers what was in force and what was stored when both were last known to agree, as far as they do.

    They need not be the same: the configuration may allow less than what is stored (A7.5).
    """

    def __init__(self, conduct: Conduct, stored: Conduct) -> None:
        self._here, self._stored = replace(conduct), replace(stored)

    def kept(self, conduct: Conduct) -> Conduct:
        """Take note that this is being stored; a copy for that, which changes no more."""
        self._here = self._stored = replace(conduct)
        return replace(conduct)

    def has_changed(self, conduct: Conduct) -> bool:
        """Whether it is another than then: the user has chosen since."""
        return conduct != self._here

    def take_over(self, conduct: Conduct, stored: Conduct, choices: Choices) -> str:
        """Take into `conduct` what others have stored since, but for what was changed here, too.

        Gives a line for the user where that is a model which is gone; else "".
        """
        model, chosen = conduct.model, {*conduct.chosen, *stored.chosen}
        for name in (each.name for each in fields(Conduct)):
            theirs = getattr(stored, name)
            if theirs != getattr(self._stored, name) and getattr(conduct, name) == getattr(self._here, name):
                setattr(conduct, name, theirs)
        conduct.chosen = tuple(name for name in LEAVE if name in chosen)
        gone = settle(conduct, choices)
        self._here, self._stored = replace(conduct), replace(stored)
        return gone if conduct.model != model else ""
