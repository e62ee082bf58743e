"""pyright and basedpyright: one JSON document on stdout (pyright's "Command line" page; positions count from 0)."""

from acp_agent.core.backends import CommandOutcome
from acp_agent.core.types import Json
from acp_agent.tools.checkers.diagnostic import (
    VIRTUAL_ENVIRONMENT,
    Checker,
    Diagnostic,
    Severity,
    json_document,
    position,
    worded,
)

_SEVERITIES = {"error": Severity.ERROR, "warning": Severity.WARNING}


def _parse(outcome: CommandOutcome) -> tuple[Diagnostic, ...] | None:
    match json_document(outcome.stdout):
        case {"generalDiagnostics": list(values)}:
            found = (_diagnostic(value) for value in values)
            return tuple(diagnostic for diagnostic in found if diagnostic is not None)
        case _:
            return None


def _diagnostic(value: Json) -> Diagnostic | None:
    match value:
        case {"severity": str(level), "message": str(message), **rest} if level in _SEVERITIES:
            rule, file = rest.get("rule"), rest.get("file")
        case _:
            return None
    match rest.get("range"):
        case {"start": {"line": line, "character": col}}:
            pass
        case _:
            line = col = None
    return Diagnostic(
        _SEVERITIES[level],
        worded(message, rule if isinstance(rule, str) else None),
        file if isinstance(file, str) else None,
        position(line, 0),
        position(col, 0),
    )


# A project may count warnings as failures (`failOnWarnings`).
PYRIGHT = Checker("pyright", "pyright", "--outputjson", _parse, folders=VIRTUAL_ENVIRONMENT, warnings_fail=True)
BASEDPYRIGHT = Checker(
    "basedpyright", "basedpyright", "--outputjson", _parse, folders=VIRTUAL_ENVIRONMENT, warnings_fail=True
)
