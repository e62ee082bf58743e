"""go vet: lines of text on stderr, further lines of a message indented."""

import re

from acp_agent.core.backends import CommandOutcome
from acp_agent.tools.checkers.diagnostic import Checker, Diagnostic, Severity, position, unfolded, worded

_LINE = re.compile(r"(vet: )?([^\s:#][^:]*):(\d{1,9})(?::(\d{1,9}))?: (.+)")


def _parse(outcome: CommandOutcome) -> tuple[Diagnostic, ...]:
    """What stands below "# [package]" is vet's own; all else is the compiler's or the module loader's.

    Old versions of Go have no such line: everything is an error there, as vet's findings are for `go test`.
    """
    found: list[Diagnostic] = []
    below_vet = False
    for line in unfolded(outcome.stderr):
        if line.startswith("# "):
            below_vet = line.startswith("# [")
        match = _LINE.fullmatch(line)
        if match:
            found.append(_diagnostic(match, below_vet=below_vet))
    return tuple(found)


def _diagnostic(match: re.Match[str], *, below_vet: bool) -> Diagnostic:
    prefix, file, line, col, message = match.groups()
    severity = Severity.WARNING if below_vet and not prefix else Severity.ERROR
    return Diagnostic(severity, worded(message), file, position(int(line)), position(int(col or 0)))


GO_VET = Checker("go vet", "go", "vet ./...", _parse, warnings_fail=True)
