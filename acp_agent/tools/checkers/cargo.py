"""cargo check and cargo clippy: JSON lines on stdout (cargo's "External tools" page; requirements T6)."""

import posixpath
from collections.abc import Iterator
from typing import TypeAlias

from acp_agent.core.backends import CommandOutcome
from acp_agent.core.types import Json
from acp_agent.tools.checkers.diagnostic import Checker, Diagnostic, Severity, json_lines, position, worded

_PATH_LIMIT = 4096  # longer ones are nobody's, and would be slow to walk
_Place: TypeAlias = tuple[str, Json, Json]  # file, line, column


def _parse(outcome: CommandOutcome) -> tuple[Diagnostic, ...]:
    found = (_diagnostic(value) for value in json_lines(outcome.stdout))
    return tuple(diagnostic for diagnostic in found if diagnostic is not None)


def _diagnostic(value: Json) -> Diagnostic | None:
    """The problem a compiler message tells of. Summaries ("aborting due to ...") and footnotes are none."""
    match value:
        case {"reason": "compiler-message", "message": {"level": str(level), "message": str(message), **rest}, **about}:
            severity, spans = _severity(level), rest.get("spans")
        case _:
            return None
    if severity is None or (not spans and (message.startswith("aborting due to") or message.endswith(" emitted"))):
        return None
    match rest.get("code"):
        case {"code": str(code)}:
            pass
        case _:
            code = None
    match _primary(spans):
        case {"label": str(label)} as span if label:
            message = f"{message}: {label}"
        case span:
            pass
    place = _place(span, _crate(about.get("target")))
    if place is None:
        return Diagnostic(severity, worded(message, code))
    file, line, col = place
    return Diagnostic(severity, worded(message, code), file, position(line), position(col))


def _severity(level: str) -> Severity | None:
    """An error may also be an "error: internal compiler error"."""
    if level.startswith("error"):
        return Severity.ERROR
    return Severity.WARNING if level == "warning" else None


def _primary(spans: Json) -> Json:
    for span in spans if isinstance(spans, list) else ():
        match span:
            case {"is_primary": True}:
                return span
            case _:
                continue
    return None


def _place(span: Json, crate: str) -> _Place | None:
    """Where a message belongs. For one inside another crate's macro that is where this crate uses the macro."""
    uses = list(_uses(span))
    own = ((path, line, col) for file, line, col in uses if (path := _below(crate, file)))
    return next(own, uses[0] if uses else None)


def _uses(span: Json) -> Iterator[_Place]:
    """The place of a span, then of the macro call it comes from, and of the one that comes from."""
    while True:
        match span:
            case {"file_name": str(file), "line_start": line, "column_start": col, **rest}:
                yield file, line, col
            case _:
                return
        match rest.get("expansion"):
            case {"span": span}:
                continue
            case _:
                return


def _crate(target: Json) -> str:
    """The folder of a target's main source, absolute; empty when it is not told."""
    match target:
        case {"src_path": str(source)} if posixpath.isabs(source) and len(source) <= _PATH_LIMIT:
            return posixpath.dirname(source)
        case _:
            return ""


def _below(crate: str, file: str) -> str:
    """The absolute path of a file of the crate; empty for another's.

    The compiler names files from the folder of the workspace. That may be above the project's and is not told: it
    is the nearest folder above the crate from which the name leads into the crate.
    """
    folder = crate if len(file) <= _PATH_LIMIT else "/"
    while folder != posixpath.dirname(folder):
        folder = posixpath.dirname(folder)
        path = posixpath.join(folder, file)
        if path.startswith(f"{crate}/"):
            return path
    return ""


CHECK = Checker("cargo check", "cargo", "check --message-format=json", _parse)
CLIPPY = Checker("cargo clippy", "cargo", "clippy --message-format=json", _parse)
