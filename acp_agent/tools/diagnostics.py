"""diagnostics: the errors and warnings of a project, from its own checkers."""

import posixpath
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from anyio import to_thread

from acp_agent.core.backends import CommandOutcome, CommandRequest, FileSystem
from acp_agent.core.data import frozen
from acp_agent.core.errors import BackendUnavailable, Refused, ToolError, ToolErrorCategory, ToolFailure
from acp_agent.core.ports import Invocation, ToolContext
from acp_agent.core.types import (
    Access,
    CommandSubject,
    Json,
    JsonObject,
    Location,
    PathSubject,
    Subject,
    ToolCall,
    ToolKind,
    ToolResult,
)
from acp_agent.shape import Field
from acp_agent.text import title, visible
from acp_agent.tools.tool import WHOLE, Name, Params, Tool, cut, fail, relative

if TYPE_CHECKING:
    from acp_agent.tools.checkers import CheckerChoice, Problem, ProjectCheck

_OUTPUT_LIMIT = 10 * 1024 * 1024  # bytes
_NOT_CHECKED = "The project's problems are not known. Run another check, or tell the user what is missing."
_PATH_LIMIT = 1000  # characters
_LOCATIONS = 20
_EXCERPT_LINES = 5
_EXCERPT_CHARS = 200


class DiagnosticsParams(Params):
    """Find errors and warnings with a project's own checkers: cargo, ruff, pyright or mypy, tsc, go vet."""

    path: Name = Field(default=".", description="Folder of the project")
    kind: Literal["check", "clippy"] = Field(default="check", description="For Rust: cargo check or cargo clippy")
    max_diagnostics: Annotated[int, Field(ge=1, le=1000), WHOLE] | None = None


class Diagnostics(Tool[DiagnosticsParams]):
    """The tool that runs the checkers one after another and returns one list of their findings.

    A check may run code of the project (build scripts, plugins, a checker in .venv or node_modules), so the gates judge
    it as the command it is.

    max_diagnostics   the number of diagnostics that are shown if the model names none
    seconds           the time limit of one checker. Its output until then is kept
    """

    name = "diagnostics"
    verb = "check"
    kind = ToolKind.READ
    mutates = False
    cacheable = True

    def __init__(self, *, max_diagnostics: int = 50, seconds: float = 300) -> None:
        self._max_diagnostics = max_diagnostics
        self._seconds = seconds

    def subjects(self, params: DiagnosticsParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.LIST),)

    async def understand(self, call: ToolCall, arguments: JsonObject, files: FileSystem) -> Invocation:
        """Return the invocation. The commands are chosen here, so that the gates judge exactly what runs."""
        invocation = await super().understand(call, arguments, files)
        params = self.parse(arguments)
        try:
            choice = await self._choose(params, files)
        except (ToolError, Refused) as error:
            # If `run` chose again, it might run a command that no gate has judged.
            return replace(invocation, run=partial(fail, error), predicted_failure=self.failed(error))
        except BackendUnavailable as error:
            return replace(invocation, run=partial(fail, error))
        return replace(
            invocation,
            title=title("\n".join(choice.commands)) or invocation.title,
            subjects=(*map(CommandSubject, choice.commands), *invocation.subjects),
            run=partial(self._check, choice, params),
        )

    async def run(self, params: DiagnosticsParams, context: ToolContext) -> ToolResult:
        """Choose and check at once, without gates. An invocation runs what `understand` bound instead."""
        return await self._check(await self._choose(params, context.files), params, context)

    async def _choose(self, params: DiagnosticsParams, files: FileSystem) -> "CheckerChoice":
        from acp_agent.tools.checkers import choose  # noqa: PLC0415 - 15 ms that few sessions need

        return await choose(files, params.path, clippy=params.kind == "clippy")

    async def _check(self, choice: "CheckerChoice", params: DiagnosticsParams, context: ToolContext) -> ToolResult:
        findings: list[CheckerResult] = []
        for check in choice.checks:
            limit = _OUTPUT_LIMIT  # a report that is cut has no findings, or not all
            request = CommandRequest(check.line, choice.folder, self._seconds, limit, stream_limit=limit)
            command = await context.backends.programs.start(request)
            context.defer(command.release)
            findings.append(await to_thread.run_sync(finding, check, await command.wait(_unseen)))
        reported = await to_thread.run_sync(report, choice, findings, params.max_diagnostics or self._max_diagnostics)
        return replace(reported, place="local" if findings else "")


async def _unseen(output: str) -> None:
    """Do nothing: the output of a checker is not streamed."""
    del output


# ---------------------------------------------------------------------------------------- the result


@frozen
class CheckerResult:
    """The result of one check. `warning` says why the list may not be complete."""

    check: "ProjectCheck"
    diagnostics: "tuple[Problem, ...]"
    warning: str = ""


def finding(check: "ProjectCheck", outcome: CommandOutcome) -> CheckerResult:
    """Return the findings of a finished check. It is slow for megabytes of output, so call it in a thread."""
    found = check.checker.parse(outcome)
    return CheckerResult(check, found or (), _warning(check, outcome, found))


def _warning(check: "ProjectCheck", outcome: CommandOutcome, found: "Sequence[Problem] | None") -> str:
    name, program = check.checker.name, check.checker.program
    if outcome.timed_out:
        after = "" if outcome.timeout is None else f" after {outcome.timeout:g}s"
        return f"{name} was stopped{after}: its list is not complete"
    if outcome.truncated:
        return f"{name} wrote too much to be read: its list is not complete"
    if outcome.exit_code == 127 and check.line.startswith(f"{program} "):
        unused = f" (a {check.unused} that links outside the project is not used)" if check.unused else ""
        return f"{program} is not installed{unused}"
    explained = any(check.checker.warnings_fail or each.is_error for each in found or ())
    if found is not None and (outcome.exit_code == 0 or (explained and outcome.signal is None)):
        return ""
    code = "unknown" if outcome.exit_code is None else outcome.exit_code
    how = f"was killed by {outcome.signal}" if outcome.signal else f"failed (exit {code})"
    return f"{name} {how}: {_excerpt(outcome)}"


def _excerpt(outcome: CommandOutcome) -> str:
    """Return some lines of the output that explain a failure, from the first one with the word "error" on."""
    lines = [line for line in (outcome.stderr.strip() or outcome.stdout.strip()).split("\n", 1000)[:1000] if line]
    start = next((number for number, line in enumerate(lines) if "error" in line.lower()), 0)
    shown = lines[start : start + _EXCERPT_LINES]
    return "; ".join(cut(visible(line[:2000].strip()), _EXCERPT_CHARS) for line in shown) or "it printed nothing"


def report(choice: "CheckerChoice", findings: Sequence[CheckerResult], limit: int) -> ToolResult:
    """Return one result for all checks of a project, with at most `limit` diagnostics.

    The text has a header, one line `file:line:col: severity: message` for each diagnostic, errors first, and the
    warnings. If there are more than `limit`, different messages come before the same message at other places. The
    envelope is {"diagnostics": [{severity, message, file, line, col}], "total", "warnings", "commands"}; unknown values
    are null. Paths are relative to the project's folder, or absolute outside of it.

    If no checker could do its work and none found anything, the call has failed: silence does not mean a clean project.
    """
    folder = choice.folder
    found = sorted(dict.fromkeys(_placed(each, folder) for one in findings for each in one.diagnostics), key=_order)
    shown = _selected(found, limit)
    warnings = [*choice.warnings, *(each.warning for each in findings if each.warning)]
    envelope: JsonObject = {
        "diagnostics": [_entry(each) for each in shown],
        "total": len(found),
        "warnings": list[Json](warnings),
        "commands": list[Json](choice.commands),
    }
    lines = (_header(findings, found, len(shown)), *map(_line, shown), *(f"[warning] {each}" for each in warnings))
    if not found and not _complete(findings):
        failed = ToolFailure(
            ToolErrorCategory.PERMANENT_FAILURE, f"could not check: {'; '.join(warnings)}", _NOT_CHECKED
        )
        return replace(ToolResult.failed(failed, display="\n".join(lines)), envelope=envelope)
    return ToolResult("\n".join(lines), envelope=envelope, locations=_locations(shown, folder))


def _selected(found: "Sequence[Problem]", limit: int) -> "list[Problem]":
    """Choose at most `limit` problems: errors first, and in each severity one of each message first. Keep the order."""
    own = set({(each.is_error, each.message): each for each in reversed(found)}.values())
    chosen = set(sorted(found, key=lambda each: (not each.is_error, each not in own))[:limit])
    return [each for each in found if each in chosen]


def _complete(findings: Sequence[CheckerResult]) -> list[str]:
    """Return the checkers whose lists are complete."""
    return [each.check.checker.name for each in findings if not each.warning]


def _placed(diagnostic: "Problem", folder: str) -> "Problem":
    """Return the diagnostic with its file as it is shown."""
    if diagnostic.file is None:
        return diagnostic
    path = posixpath.normpath(posixpath.join(folder, visible(diagnostic.file[:_PATH_LIMIT])))
    return replace(diagnostic, file=relative(path, folder))


def _order(diagnostic: "Problem") -> tuple[bool, str, int, int, str]:
    place = (diagnostic.line or 0, diagnostic.col or 0)
    return (not diagnostic.is_error, diagnostic.file or "", *place, diagnostic.message)


def _header(findings: Sequence[CheckerResult], found: "Sequence[Problem]", shown: int) -> str:
    if not found:
        unsure = [each.check.checker.name for each in findings if each.warning]
        not_checked = f"; could not check with {', '.join(unsure)}" if unsure else ""
        complete = _complete(findings)
        return f"No problems found ({', '.join(complete)}){not_checked}." if complete else "Could not check."
    errors = sum(each.is_error for each in found)
    counts = ((errors, "error"), (len(found) - errors, "warning"))
    header = ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts if count)
    return header if shown == len(found) else f"{header} (showing {shown} of {len(found)})"


def _line(diagnostic: "Problem") -> str:
    place = (diagnostic.file, diagnostic.line, diagnostic.col)
    known = [f"{part}" for part in place if part is not None]
    return ": ".join((*([":".join(known)] if known else []), diagnostic.severity, diagnostic.message))


def _entry(diagnostic: "Problem") -> JsonObject:
    return {
        "severity": diagnostic.severity.value,
        "message": diagnostic.message,
        "file": diagnostic.file,
        "line": diagnostic.line,
        "col": diagnostic.col,
    }


def _locations(shown: "Sequence[Problem]", folder: str) -> tuple[Location, ...]:
    """Return the first places in the project that an editor can open."""
    places = ((each.file, each.line) for each in shown if each.file is not None)
    inside = (
        Location(posixpath.join(folder, file), line)
        for file, line in places
        if not posixpath.isabs(file) and "\\" not in file
    )
    return tuple(dict.fromkeys(inside))[:_LOCATIONS]
