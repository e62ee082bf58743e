"""Whole outputs, kept outside the context window (requirements O5)."""

from typing import Protocol

UNKNOWN = "overflow entry not found or expired"
"""The one answer for an id that never was, is gone, or belongs to another conversation (O5.6)."""

PREFIX = "overflow:"


class Overflow(Protocol):
    """What one conversation keeps. `text` is redacted already (O5.14)."""

    async def put(self, text: str) -> str:
        """Keep a text; returns its reference, `overflow:<uuid>`.

        Returns only once it would survive a kill. Raises StoreUnavailable, naming the cause; a text over the limit
        is such a cause.
        """
        ...

    async def get(self, reference: str) -> str | None:
        """The text, or None for any id this conversation has nothing under; `reference` is a UUID, prefix or not.

        Raises ValueError for what is no UUID, StoreUnavailable when nothing can be looked up now.
        """
        ...
