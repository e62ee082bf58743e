"""The port of the nine filter strategies: a text goes in, a shorter text and a confidence come out."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from acp_agent.core.types import Confidence


@dataclass(frozen=True, slots=True)
class CommandRun:
    """A command that has ended, as the filters see it.

    command    the text that the model gave to the shell
    printing   the simple commands that print into the text, without wrappers, words joined by spaces, in order. Empty
               if they are not known
    exit_code  128 + n if signal n ended the command; None if it is not known
    stderr     the separately captured part of stderr
    """

    command: str
    printing: tuple[str, ...] = ()
    exit_code: int | None = None
    stderr: str = ""

    @property
    def failed(self) -> bool:
        """Whether the command is known to have failed."""
        return self.exit_code not in (None, 0)


@dataclass(frozen=True, slots=True)
class Filtered:
    """A text after all matching rules.

    rules       their names, in the order of application
    confidence  the worst of their confidences
    removed     whether anything was left out
    """

    text: str
    rules: tuple[str, ...]
    confidence: Confidence
    removed: bool


class Applied(NamedTuple):
    """The result of a strategy.

    Full: everything that matters is kept. Partial: something that matters may be missing. Fallback: nothing was
    recognised, and `text` is the unchanged text.
    """

    text: str
    confidence: Confidence


class Strategy(Protocol):
    """A way to shorten the output of a command. It is compiled once and used by several threads."""

    def apply(self, text: str, run: CommandRun) -> Applied:
        """Return the shorter text. Never raises. A text that is not recognised is returned unchanged, as Fallback.

        `text` is sanitized (no escape sequences, LF line ends), redacted, and at most 10 MiB long.
        """
        ...
