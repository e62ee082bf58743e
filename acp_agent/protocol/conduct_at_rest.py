"""What the user chooses for a session that rests, while another process may have it open (A7.5, A11)."""

from dataclasses import fields, replace

from acp_agent.core.choices import Choices, settle
from acp_agent.core.conduct import LEAVE, Conduct


class ConductAtRest:
    """Remembers what was in force and what was stored when both were last known to agree, as far as they do.

    They need not be the same: the configuration may allow less than what is stored (A7.5).
    """

    def __init__(self, conduct: Conduct, stored: Conduct | None) -> None:
        """`stored`: what the store holds; None for a session that begins with what is kept of `conduct`."""
        self._here = replace(conduct)
        self._stored = conduct.to_keep(Conduct()) if stored is None else replace(stored)

    def kept(self, conduct: Conduct) -> Conduct:
        """Take note that this is being stored. Return what is to be stored of it."""
        self._here = replace(conduct)
        self._stored = conduct.to_keep(self._stored)
        return self._stored

    def has_changed(self, conduct: Conduct) -> bool:
        """Whether it is another than then: the user has chosen since."""
        return conduct != self._here

    def take_over(self, conduct: Conduct, stored: Conduct, choices: Choices) -> str:
        """Take into `conduct` what others have stored since, but for what was changed here, too.

        Gives a line for the user where that is a model which is gone; else "".
        """
        model, chosen = conduct.model, {*conduct.chosen}
        for name in (each.name for each in fields(Conduct) if each.name != "chosen"):
            if self._was_changed(name, stored) and getattr(conduct, name) == getattr(self._here, name):
                setattr(conduct, name, getattr(stored, name))
                chosen.add(name)
        conduct.chosen = tuple(name for name in LEAVE if name in chosen)
        gone = settle(conduct, choices)
        self._here, self._stored = replace(conduct), replace(stored)
        return gone if conduct.model != model else ""

    def _was_changed(self, name: str, stored: Conduct) -> bool:
        """Return whether others have changed a field since; of the leave only what the user chose counts (A7.5)."""
        if name in LEAVE and name not in stored.chosen:
            return False
        first = name in LEAVE and name not in self._stored.chosen
        return first or getattr(stored, name) != getattr(self._stored, name)
