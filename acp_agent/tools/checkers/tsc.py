"""tsc, the TypeScript compiler: lines of text on stdout, further lines of a message indented."""

import re

from acp_agent.core.backends import CommandOutcome
from acp_agent.tools.checkers.diagnostic import Checker, Diagnostic, Severity, position, unfolded, worded

_LINE = re.compile(r"(?:(\S.*?)\((\d{1,9}),(\d{1,9})\): )?(error|warning) (TS\d{1,9}): (.+)")


def _parse(outcome: CommandOutcome) -> tuple[Diagnostic, ...]:
    matches = (_LINE.fullmatch(line) for line in unfolded(outcome.stdout))
    return tuple(_diagnostic(match) for match in matches if match)


def _diagnostic(match: re.Match[str]) -> Diagnostic:
    file, line, col, severity, code, message = match.groups()
    return Diagnostic(
        Severity(severity), worded(message, code), file, position(int(line or 0)), position(int(col or 0))
    )


TSC = Checker("tsc", "tsc", "--noEmit --pretty false", _parse, folders=("node_modules/.bin",))

TSC_BUILD = Checker("tsc", "tsc", "--build --noEmit --pretty false", _parse, folders=("node_modules/.bin",))
"""For a project that refers to others: only a build looks at those. TypeScript before 5.6 refuses (TS5094)."""
