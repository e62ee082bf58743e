"""What each of the nine filter strategies is: text in, text out, and how sure it is (requirements O2)."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from acp_agent.core.types import Confidence


@dataclass(frozen=True, slots=True)
class CommandRun:
    """A command that has ended, for the filters to judge its output by (O1.13).

    command    the text the model gave to the shell
    printing   the simple commands whose output is in the text, wrappers peeled, words joined by spaces, in order;
               () when that could not be told
    exit_code  128 + n for one that signal n ended; None when it is not known
    stderr     what the command wrote there, as far as it was captured apart
    """

    command: str
    printing: tuple[str, ...] = ()
    exit_code: int | None = None
    stderr: str = ""

    @property
    def failed(self) -> bool:
        """Whether the command is known to have ended with an error."""
        return self.exit_code not in (None, 0)


@dataclass(frozen=True, slots=True)
class Filtered:
    """A text the rules that matched have been applied to.

    rules       their names, in the order they were applied (O1.14)
    confidence  the worst of theirs (O1.9)
    removed     whether anything of the text was left out
    """

    text: str
    rules: tuple[str, ...]
    confidence: Confidence
    removed: bool


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


def lines_of(text: str) -> int:
    """Lines, the last one whether or not it ends with a line feed."""
    return text.count("\n") + (text != "" and not text.endswith("\n"))
