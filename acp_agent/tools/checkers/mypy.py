"""mypy: lines of text on stdout. Its JSON is no older than 1.11, and knows no more."""

import re

from acp_agent.core.backends import CommandOutcome
from acp_agent.tools.checkers.diagnostic import VIRTUAL_ENVIRONMENT, Checker, Diagnostic, Severity, position, worded

# `file:line:col: error: message  [code]`; a project may add where it ends, and an error may be about a whole file.
# Notes explain the error before them and are left out.
_LINE = re.compile(r"([^\s:][^:]*):(?:(\d{1,9}):)?(?:(\d{1,9}):)?(?:\d{1,9}:\d{1,9}:)? (error|warning): (.+)")


def _parse(outcome: CommandOutcome) -> tuple[Diagnostic, ...]:
    matches = (_LINE.fullmatch(line) for line in outcome.stdout.split("\n"))
    return tuple(_diagnostic(match) for match in matches if match)


def _diagnostic(match: re.Match[str]) -> Diagnostic:
    file, line, col, severity, message = match.groups()
    return Diagnostic(Severity(severity), worded(message), file, position(int(line or 0)), position(int(col or 0)))


_ARGUMENTS = "--show-column-numbers --no-pretty --no-color-output --no-error-summary"

MYPY = Checker("mypy", "mypy", _ARGUMENTS, _parse, folders=VIRTUAL_ENVIRONMENT)
"""For a project that says itself what to check."""

MYPY_HERE = Checker("mypy", "mypy", f"{_ARGUMENTS} .", _parse, folders=VIRTUAL_ENVIRONMENT)
