"""What each of the nine filter strategies is: text in, text out, and how sure it is (requirements O2)."""

from typing import NamedTuple, Protocol

from acp_agent.core.types import Confidence
from acp_agent.output.filters.run import CommandRun


class Applied(NamedTuple):
    """What a strategy made of a text.

    Full: everything that matters is kept. Partial: something that matters may be gone. Fallback: nothing was
    recognised, and `text` is the text that was given.
    """

    text: str
    confidence: Confidence


class Strategy(Protocol):
    """One way to shorten what a command printed. Compiled once, used by several threads at a time (O1.19)."""

    def apply(self, text: str, run: CommandRun) -> Applied:
        """The shorter text. Never raises: what it does not recognise it gives back whole, as Fallback.

        `text` is sanitized (no escape sequences, LF line endings) and redacted, of any length up to 10 MiB.
        """
        ...
