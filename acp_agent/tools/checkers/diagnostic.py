"""A problem in a project, and what the checkers that find them have in common (requirements T6)."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from acp_agent.core.backends import CommandOutcome
from acp_agent.core.types import Json
from acp_agent.core.untrusted import json_value_at
from acp_agent.tools.lines import cut
from acp_agent.tools.visible import visible

_MESSAGE_LIMIT = 500
_NUMBER_LIMIT = 2**31
_FOLD = re.compile(r"\r?\n[ \t]+")


class Severity(StrEnum):
    """How bad a problem is, worst first. Whatever a checker calls less than a warning is left out."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem.

    message     one line of visible characters, the checker's own code for it at the end: "unused variable [x]"
    file        absolute, or relative to where the checker ran; None when it is about no file
    line, col   1-based; None when not known
    """

    severity: Severity
    message: str
    file: str | None = None
    line: int | None = None
    col: int | None = None


Parse = Callable[[CommandOutcome], tuple[Diagnostic, ...] | None]
"""What a checker's output says; None when it makes no sense. Takes any text, cut ones too, and raises nothing."""

VIRTUAL_ENVIRONMENT = (".venv/bin", "venv/bin")
"""Where a Python project keeps programs."""


@dataclass(frozen=True, slots=True)
class Checker:
    """A program that finds problems.

    name            what the user is told: "cargo check"
    program         its name on PATH
    arguments       the rest of the command line. Nothing in it may make it change the project's own files
    folders         where a project may keep a copy of its own, such as ".venv/bin", the first that has it counting
    warnings_fail   whether a warning explains an exit code other than 0; an error always does
    """

    name: str
    program: str
    arguments: str
    parse: Parse
    folders: tuple[str, ...] = ()
    warnings_fail: bool = False


def worded(message: str, code: str | None = None) -> str:
    """A checker's message as one line, cut when very long, with its code."""
    line = cut(visible(" ".join(message[: 2 * _MESSAGE_LIMIT].split())), _MESSAGE_LIMIT)
    return f"{line} [{visible(code[:_MESSAGE_LIMIT])}]" if code else line


def position(value: Json, first: int = 1) -> int | None:
    """A line or column that a checker counts from `first`, counted from 1; None for anything that cannot be one."""
    match value:
        case bool():
            return None
        case int() if first <= value < _NUMBER_LIMIT:
            return value - first + 1
        case _:
            return None


def json_lines(text: str) -> Iterator[Json]:
    """The JSON value of each line that is one; other lines are no checker's finding."""
    for line in text.split("\n"):
        if line.startswith("{"):
            yield json_document(line)


def json_document(text: str) -> Json:
    """The first JSON object in a text, whatever stands around it; None when there is none."""
    start = text.find("{")
    try:
        return json_value_at(text, start) if start >= 0 else None
    except ValueError:
        return None


def unfolded(text: str) -> list[str]:
    """The lines of a text, each with the indented ones below it in it."""
    return _FOLD.sub(" ", text).replace("\r\n", "\n").split("\n")
