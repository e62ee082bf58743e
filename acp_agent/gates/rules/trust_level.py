"""How far something is trusted (requirements S4; section 4 row 37)."""

from enum import StrEnum


class TrustLevel(StrEnum):
    """Least first.

    BLOCKED       nothing may be done with it or by it
    UNTRUSTED     it does not count until somebody vouches for it
    PROVISIONAL   nobody had reason to ask, or the user said yes for now
    TRUSTED       ours, the user's own, or what the user said yes to for good
    """

    BLOCKED = "blocked"
    UNTRUSTED = "untrusted"
    PROVISIONAL = "provisional"
    TRUSTED = "trusted"

    @property
    def rank(self) -> int:
        """Higher is more."""
        return [*TrustLevel].index(self)

    @property
    def counts(self) -> bool:
        """Whether what is so trusted is used at all."""
        return self in (TrustLevel.PROVISIONAL, TrustLevel.TRUSTED)


def lowest(*levels: TrustLevel) -> TrustLevel:
    """The least of some levels."""
    return min(levels, key=lambda level: level.rank)
