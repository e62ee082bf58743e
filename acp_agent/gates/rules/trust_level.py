"""Levels of trust in projects, servers and tools."""

from enum import StrEnum


class TrustLevel(StrEnum):
    """How far something is trusted, least first.

    BLOCKED       nothing may be done with it or by it
    UNTRUSTED     it is not used until the user trusts it
    PROVISIONAL   there was no reason to ask, or the user said yes for now
    TRUSTED       it is ours or the user's own, or the user said yes for good
    """

    BLOCKED = "blocked"
    UNTRUSTED = "untrusted"
    PROVISIONAL = "provisional"
    TRUSTED = "trusted"

    @property
    def rank(self) -> int:
        """The place in the order of levels, from 0 for the least."""
        return [*TrustLevel].index(self)

    @property
    def counts(self) -> bool:
        """Whether something with this level is used."""
        return self in (TrustLevel.PROVISIONAL, TrustLevel.TRUSTED)


def lowest(*levels: TrustLevel) -> TrustLevel:
    """Return the least of several levels."""
    return min(levels, key=lambda level: level.rank)
