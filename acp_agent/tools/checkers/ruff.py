"""ruff check: JSON lines on stdout (`ruff check --output-format=json-lines`, seen with 0.17)."""

from acp_agent.core.backends import CommandOutcome
from acp_agent.core.types import Json
from acp_agent.tools.checkers.diagnostic import (
    VIRTUAL_ENVIRONMENT,
    Checker,
    Diagnostic,
    Severity,
    json_lines,
    position,
    worded,
)

# What stops a program, as ruff's language server has it. The severity it prints is "error" for everything.
_ERRORS = ("F821", "E9", "invalid-syntax")


def _parse(outcome: CommandOutcome) -> tuple[Diagnostic, ...]:
    found = (_diagnostic(value) for value in json_lines(outcome.stdout))
    return tuple(diagnostic for diagnostic in found if diagnostic is not None)


def _diagnostic(value: Json) -> Diagnostic | None:
    match value:
        case {"code": code, "filename": str(file), "message": str(message), "location": {"row": line, "column": col}}:
            # Before 0.13 a syntax error has no code.
            known = code if isinstance(code, str) else None
            severity = Severity.ERROR if known is None or known.startswith(_ERRORS) else Severity.WARNING
            return Diagnostic(severity, worded(message, known), file, position(line), position(col))
        case _:
            return None


# A project may have set `fix = true` or `fix-only = true`: without the two denials its files would be changed.
RUFF = Checker(
    "ruff check",
    "ruff",
    "check --no-fix --no-fix-only --exit-zero --output-format=json-lines",
    _parse,
    folders=VIRTUAL_ENVIRONMENT,
)
