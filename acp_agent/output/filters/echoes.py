"""Sets apart the lines `echo` printed around another command's output.

Models write `echo "== tests =="; pytest; echo "exit: $?"` all day. What such an `echo` prints is known from its words,
so its lines can stay, and the rest be treated as the output of the one command it is.
"""

import re
from dataclasses import replace
from typing import NamedTuple

from acp_agent.output.filters.run import CommandRun

_NOT_LITERAL = re.compile(r"[$\\*?\[\n]|^-|`")


class Apart(NamedTuple):
    """A text in three parts; `run` names the commands that printed `body`."""

    before: str
    body: str
    after: str
    run: CommandRun


def set_apart(text: str, run: CommandRun) -> Apart:
    """The lines of leading and trailing `echo` commands apart from what is between them.

    An `echo` whose line is not at its place did not run (`make && echo done`): it printed nothing, so it is left out.
    """
    printing = list(run.printing)
    before = after = ""
    while len(printing) > 1 and (line := _line(printing[0])):
        del printing[0]
        first, newline, rest = text.partition("\n")
        if line.fullmatch(first.rstrip()):
            before, text = before + first + newline, rest
    while len(printing) > 1 and (line := _line(printing[-1])):
        del printing[-1]
        start = text.rfind("\n", 0, len(text.removesuffix("\n"))) + 1
        if line.fullmatch(text[start:].rstrip()):
            text, after = text[:start], text[start:] + after
    return Apart(before, text, after, replace(run, printing=tuple(printing)))


def _line(command: str) -> re.Pattern[str] | None:
    """The line a command prints, as far as its words tell: `$?` is a number. None if they do not tell."""
    name, _, words = command.partition(" ")
    literals = words.split("$?")
    if name != "echo" or any(_NOT_LITERAL.search(literal) for literal in literals):
        return None
    return re.compile(r"\d{1,3}".join(re.escape(literal) for literal in (*literals[:-1], literals[-1].rstrip())))
