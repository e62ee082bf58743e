"""The checkers that `diagnostics` can run, and the choice among them for a project.

The marker files of a project decide which checkers run, and for Python its settings. The output of each checker is read
as its documentation describes it: cargo ("External tools"), pyright ("Command line"), ruff (json-lines), mypy, tsc and
go vet as lines of text. mypy's JSON output is newer than many installations.
"""

import posixpath
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import TypeAlias, cast

from anyio import to_thread

from acp_agent.core.backends import CommandOutcome, EntryKind, FileSystem
from acp_agent.core.data import frozen
from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.types import Access, Json, JsonObject
from acp_agent.core.untrusted import json_value_at, toml_table
from acp_agent.text import visible
from acp_agent.tools.tool import cut, relative

_MESSAGE_LIMIT = 500
_NUMBER_LIMIT = 2**31
_FOLD = re.compile(r"\r?\n[ \t]+")


class ProblemSeverity(StrEnum):
    """The severity of a problem, worst first. Anything below a warning is left out."""

    ERROR = "error"
    WARNING = "warning"


@frozen
class Problem:
    """One problem.

    message     one line of visible characters with the checker's code at the end: "unused variable [x]"
    file        absolute, or relative to the folder where the checker ran; None if it is about no file
    line, col   counted from 1; None if not known
    """

    severity: ProblemSeverity
    message: str
    file: str | None = None
    line: int | None = None
    col: int | None = None

    @property
    def is_error(self) -> bool:
        """Whether it is more than a warning."""
        return self.severity is ProblemSeverity.ERROR


Parse = Callable[[CommandOutcome], tuple[Problem, ...] | None]
"""Returns the problems in a checker's output; None if it cannot be read. It takes any text and never raises."""

VIRTUAL_ENVIRONMENT = (".venv/bin", "venv/bin")
"""Folders in which a Python project keeps programs."""


@frozen
class Checker:
    """A program that finds problems.

    name            its name for the user: "cargo check"
    program         its name on PATH
    arguments       the rest of the command line. It must not make the program change files of the project
    folders         folders such as ".venv/bin" with a copy of the project's own. The first that has one counts
    warnings_fail   whether a warning explains an exit code other than 0; an error always does
    """

    name: str
    program: str
    arguments: str
    parse: Parse
    folders: tuple[str, ...] = ()
    warnings_fail: bool = False


def worded(message: str, code: str | None = None) -> str:
    """Return a checker's message on one line with its code. A very long message is cut."""
    line = cut(visible(" ".join(message[: 2 * _MESSAGE_LIMIT].split())), _MESSAGE_LIMIT)
    return f"{line} [{visible(code[:_MESSAGE_LIMIT])}]" if code else line


def position(value: Json, first: int = 1) -> int | None:
    """Return a line or column counted from 1, given one counted from `first`. None for anything else."""
    match value:
        case bool():
            return None
        case int() if first <= value < _NUMBER_LIMIT:
            return value - first + 1
        case _:
            return None


def json_lines(text: str) -> Iterator[Json]:
    """Yield the JSON value of each line that is a JSON object. Other lines are not findings."""
    for line in text.split("\n"):
        if line.startswith("{"):
            yield json_document(line)


def json_document(text: str) -> Json:
    """Return the first JSON object in a text, None if there is none."""
    start = text.find("{")
    try:
        return json_value_at(text, start) if start >= 0 else None
    except ValueError:
        return None


def unfolded(text: str) -> list[str]:
    """Return the lines of a text. Indented lines are joined to the line above."""
    return _FOLD.sub(" ", text).replace("\r\n", "\n").split("\n")


def _of_lines(pattern: re.Pattern[str], lines: Iterable[str]) -> tuple[Problem, ...]:
    """Return the problems in the lines that match a pattern with named groups."""
    return tuple(
        Problem(
            ProblemSeverity(found["severity"]),
            worded(found["message"], found["code"]),
            found["file"],
            position(int(found["line"] or 0)),
            position(int(found["col"] or 0)),
        )
        for found in map(pattern.fullmatch, lines)
        if found
    )


def _of_values(read: Callable[[Json], Problem | None], values: Iterable[Json]) -> tuple[Problem, ...]:
    return tuple(problem for problem in map(read, values) if problem is not None)


_SETTINGS_LIMIT = 1024 * 1024  # bytes of a settings file
_FILES = (EntryKind.FILE, EntryKind.SYMLINK)


class Project:
    """A project in a folder of the session.

    names      the names of the files in the folder
    warnings   about settings that could not be read
    """

    def __init__(self, files: FileSystem, path: str, names: frozenset[str]) -> None:
        self._files = files
        self._path = path
        self.names = names
        self.warnings: list[str] = []

    @classmethod
    async def at(cls, files: FileSystem, path: str) -> "Project":
        """Return the project in the folder `path`. Raises what `FileSystem.list_directory` raises."""
        entries = await files.list_directory(path)
        return cls(files, path, frozenset(entry.name for entry in entries if entry.kind in _FILES))

    def has_any(self, *names: str) -> bool:
        """Return whether one of these files is in the folder."""
        return not self.names.isdisjoint(names)

    async def holds(self, name: str) -> bool:
        """Return whether there is a file at this relative path that the session may see."""
        try:
            return await self._files.kind(posixpath.join(self._path, name)) is EntryKind.FILE
        except (ToolError, Refused):
            return False

    async def leads_out(self, name: str) -> bool:
        """Return whether this is a link in the folder that leads outside the session's folders, or nowhere."""
        try:
            if name in self.names:
                await self._files.kind(posixpath.join(self._path, name))
        except Refused:
            return True
        return False

    async def text(self, name: str) -> str:
        """Return a settings file as it is on disk, where checkers read it, too. Empty if it does not exist.

        It is also empty, with a warning, if it cannot be read.
        """
        if name not in self.names:
            return ""
        try:
            return (await self._files.read_bytes(posixpath.join(self._path, name), _SETTINGS_LIMIT)).decode()
        except (ToolError, Refused, UnicodeDecodeError) as error:
            self.warnings.append(f"{name} was not read: {visible(str(error))}")
            return ""

    async def tool_tables(self) -> JsonObject:
        """Return the [tool] tables of pyproject.toml. If it is not valid, return none and add a warning."""
        try:
            document = await to_thread.run_sync(toml_table, await self.text("pyproject.toml"))
        except ValueError as error:
            self.warnings.append(f"pyproject.toml is not valid TOML: {visible(str(error))}")
            return {}
        tools = cast("Json", document.get("tool"))
        return tools if isinstance(tools, dict) else {}

    async def mypy_keys(self, name: str) -> frozenset[str] | None:
        """Return the keys in the section of mypy in an INI file, None if it has no such section."""
        keys: set[str] | None = None
        inside = False
        for line in (await self.text(name)).split("\n"):
            if line.startswith("["):
                inside = line.rstrip() == "[mypy]"
                keys = set() if inside and keys is None else keys
            elif inside and keys is not None:
                keys.add(line.replace(":", "=").partition("=")[0].strip())
        return None if keys is None else frozenset(keys)


_GO_VET_LINE = re.compile(r"(vet: )?([^\s:#][^:]*):(\d{1,9})(?::(\d{1,9}))?: (.+)")


def _go_vet_parse(outcome: CommandOutcome) -> tuple[Problem, ...]:
    """Return the problems of vet's output. Only lines below "# [package]" are vet's own; others are the compiler's.

    Old versions of Go print no such line, so all their problems count as errors, as `go test` treats vet's findings.
    """
    found: list[Problem] = []
    below_vet = False
    for line in unfolded(outcome.stderr):
        if line.startswith("# "):
            below_vet = line.startswith("# [")
        match = _GO_VET_LINE.fullmatch(line)
        if match:
            prefix, file, row, col, message = match.groups()
            severity = ProblemSeverity.WARNING if below_vet and not prefix else ProblemSeverity.ERROR
            found.append(Problem(severity, worded(message), file, position(int(row)), position(int(col or 0))))
    return tuple(found)


GO_VET = Checker("go vet", "go", "vet ./...", _go_vet_parse, warnings_fail=True)


# `file:line:col: error: message  [code]`. A project may add the end position. An error may be about a whole file.
# Notes explain the error before them and are left out.
_MYPY_LINE = re.compile(
    r"(?P<file>[^\s:][^:]*):(?:(?P<line>\d{1,9}):)?(?:(?P<col>\d{1,9}):)?(?:\d{1,9}:\d{1,9}:)?"
    r" (?P<severity>error|warning): (?P<code>)(?P<message>.+)"
)


def _mypy_parse(outcome: CommandOutcome) -> tuple[Problem, ...]:
    return _of_lines(_MYPY_LINE, outcome.stdout.split("\n"))


_MYPY_ARGUMENTS = "--show-column-numbers --no-pretty --no-color-output --no-error-summary"

MYPY = Checker("mypy", "mypy", _MYPY_ARGUMENTS, _mypy_parse, folders=VIRTUAL_ENVIRONMENT)
"""For a project whose settings say what to check."""

MYPY_HERE = Checker("mypy", "mypy", f"{_MYPY_ARGUMENTS} .", _mypy_parse, folders=VIRTUAL_ENVIRONMENT)


_PYRIGHT_SEVERITIES = {"error": ProblemSeverity.ERROR, "warning": ProblemSeverity.WARNING}


def _pyright_parse(outcome: CommandOutcome) -> tuple[Problem, ...] | None:
    match json_document(outcome.stdout):
        case {"generalDiagnostics": list(values)}:
            return _of_values(_pyright_problem, values)
        case _:
            return None


def _pyright_problem(value: Json) -> Problem | None:
    match value:
        case {"severity": str(level), "message": str(message), **rest} if level in _PYRIGHT_SEVERITIES:
            rule, file = rest.get("rule"), rest.get("file")
        case _:
            return None
    match rest.get("range"):
        case {"start": {"line": line, "character": col}}:
            pass
        case _:
            line = col = None
    return Problem(
        _PYRIGHT_SEVERITIES[level],
        worded(message, rule if isinstance(rule, str) else None),
        file if isinstance(file, str) else None,
        position(line, 0),
        position(col, 0),
    )


# A project may count warnings as failures (`failOnWarnings`).
PYRIGHT = Checker("pyright", "pyright", "--outputjson", _pyright_parse, folders=VIRTUAL_ENVIRONMENT, warnings_fail=True)
BASEDPYRIGHT = Checker(
    "basedpyright", "basedpyright", "--outputjson", _pyright_parse, folders=VIRTUAL_ENVIRONMENT, warnings_fail=True
)


# Errors that stop a program, as in ruff's language server. The severity that ruff prints is always "error".
_RUFF_ERRORS = ("F821", "E9", "invalid-syntax")


def _ruff_parse(outcome: CommandOutcome) -> tuple[Problem, ...]:
    return _of_values(_ruff_problem, json_lines(outcome.stdout))


def _ruff_problem(value: Json) -> Problem | None:
    match value:
        case {"code": code, "filename": str(file), "message": str(message), "location": {"row": line, "column": col}}:
            # Before 0.13 a syntax error has no code.
            known = code if isinstance(code, str) else None
            severity = (
                ProblemSeverity.ERROR if known is None or known.startswith(_RUFF_ERRORS) else ProblemSeverity.WARNING
            )
            return Problem(severity, worded(message, known), file, position(line), position(col))
        case _:
            return None


# A project may set `fix = true` or `fix-only = true`. Without the two options its files would be changed.
RUFF = Checker(
    "ruff check",
    "ruff",
    "check --no-fix --no-fix-only --exit-zero --output-format=json-lines",
    _ruff_parse,
    folders=VIRTUAL_ENVIRONMENT,
)


_TSC_LINE = re.compile(
    r"(?:(?P<file>\S.*?)\((?P<line>\d{1,9}),(?P<col>\d{1,9})\): )?(?P<severity>error|warning)"
    r" (?P<code>TS\d{1,9}): (?P<message>.+)"
)


def _tsc_parse(outcome: CommandOutcome) -> tuple[Problem, ...]:
    return _of_lines(_TSC_LINE, unfolded(outcome.stdout))


TSC = Checker("tsc", "tsc", "--noEmit --pretty false", _tsc_parse, folders=("node_modules/.bin",))

TSC_BUILD = Checker("tsc", "tsc", "--build --noEmit --pretty false", _tsc_parse, folders=("node_modules/.bin",))
"""For a project with references: only a build checks those. TypeScript before 5.6 refuses it (TS5094)."""


_PYTHON_MARKERS = (
    *("pyproject.toml", "setup.py", "setup.cfg", "ruff.toml", ".ruff.toml"),
    *("mypy.ini", ".mypy.ini", "pyrightconfig.json"),
)

MARKERS = ("Cargo.toml", *_PYTHON_MARKERS, "tsconfig.json", "go.mod")
"""Files that mark a folder as a project."""


@frozen
class ProjectCheck:
    """A checker to run in the project's folder.

    line      the command line there
    command   the same command for the session's folder, which the gates judge and the user sees
    unused    a folder of the project's own programs that may not be used, such as ".venv", or ""
    """

    checker: Checker
    line: str
    command: str
    unused: str = ""


@frozen
class CheckerChoice:
    """The checks to run for the project in `folder` (absolute). Without a marker file there are none."""

    folder: str
    checks: tuple[ProjectCheck, ...]
    warnings: tuple[str, ...]

    @property
    def commands(self) -> tuple[str, ...]:
        """The command lines as seen from the session's folder."""
        return tuple(check.command for check in self.checks)


async def choose(files: FileSystem, path: str, *, clippy: bool) -> CheckerChoice:
    """Return the checks for the project in the folder `path`. Raises what `FileSystem.list_directory` raises.

    clippy   run cargo's linter instead of cargo check, which it includes. Other languages have no such choice
    """
    folder, here = files.resolve(path, Access.LIST), files.resolve(".", Access.LIST)
    project = await Project.at(files, path)
    checks: list[ProjectCheck] = []
    for checker in await _checkers(project, clippy=clippy):
        line = f"{await _program(project, checker)} {checker.arguments}"
        checks.append(ProjectCheck(checker, line, _seen_from(here, folder, line), await _unused(project, checker)))
    if not checks:
        missing = f"no project in '{visible(path)}': none of {', '.join(MARKERS)} is there"
        project.warnings.append(f"{missing}; path takes the folder of a project")
    return CheckerChoice(folder, tuple(checks), tuple(project.warnings))


async def _checkers(project: Project, *, clippy: bool) -> list[Checker]:
    checkers: list[Checker] = []
    if project.has_any("Cargo.toml"):
        checkers.append(CARGO_CLIPPY if clippy else CARGO_CHECK)
    if project.has_any(*_PYTHON_MARKERS):
        checkers += await _python(project)
    if project.has_any("tsconfig.json"):
        checkers.append(TSC_BUILD if '"references"' in await project.text("tsconfig.json") else TSC)
    if project.has_any("go.mod"):
        checkers.append(GO_VET)
    return checkers


def _seen_from(here: str, folder: str, line: str) -> str:
    """Return the command that does in the session's folder what `line` does in the project's.

    An approval of `.venv/bin/ruff check` must not cover the program of that name in another folder.
    """
    if folder == here:
        return line
    where = relative(folder, here)
    return f"cd {shlex.quote(f'./{where}' if where.startswith('-') else where)} && {line}"


async def _program(project: Project, checker: Checker) -> str:
    """Return the path of the project's own copy, else the name on PATH."""
    for folder in checker.folders:
        if await project.holds(own := f"{folder}/{checker.program}"):
            return own
    return checker.program


async def _unused(project: Project, checker: Checker) -> str:
    for folder in checker.folders:
        if await project.leads_out(place := folder.partition("/")[0]):
            return place
    return ""


async def _python(project: Project) -> list[Checker]:
    """Return ruff and the type checker that the settings name. Without any settings return ruff."""
    tools = await project.tool_tables()
    types = await _pyright(project, tools) or await _mypy(project, tools)
    if types is None:
        return [RUFF]
    return [RUFF, types] if "ruff" in tools or project.has_any("ruff.toml", ".ruff.toml") else [types]


async def _pyright(project: Project, tools: JsonObject) -> Checker | None:
    """Return pyright, or basedpyright, which reads the same settings, if the project has only that one."""
    if "basedpyright" in tools:
        return BASEDPYRIGHT
    if "pyright" not in tools and not project.has_any("pyrightconfig.json"):
        return None
    own = [await _program(project, checker) != checker.program for checker in (PYRIGHT, BASEDPYRIGHT)]
    return BASEDPYRIGHT if own == [False, True] else PYRIGHT


async def _mypy(project: Project, tools: JsonObject) -> Checker | None:
    """Return mypy if one of its settings files has a section for it. The order is that of mypy's manual."""
    for name in ("mypy.ini", ".mypy.ini"):
        if project.has_any(name):
            return _mypy_with(await project.mypy_keys(name) or ())
    table = tools.get("mypy")
    if isinstance(table, dict):
        return _mypy_with(table)
    keys = await project.mypy_keys("setup.cfg")
    return None if keys is None else _mypy_with(keys)


def _mypy_with(keys: Iterable[str]) -> Checker:
    """Return mypy without a path if its settings name what to check, else mypy for the folder."""
    return MYPY_HERE if {"files", "modules", "packages"}.isdisjoint(keys) else MYPY


_PATH_LIMIT = 4096  # characters: longer paths are not real, and would be slow to walk
_Place: TypeAlias = tuple[str, Json, Json]  # file, line, column


def _cargo_parse(outcome: CommandOutcome) -> tuple[Problem, ...]:
    return _of_values(_cargo_problem, json_lines(outcome.stdout))


def _cargo_problem(value: Json) -> Problem | None:
    """Return the problem in a compiler message. Summaries ("aborting due to ...") and footnotes are not problems."""
    match value:
        case {"reason": "compiler-message", "message": {"level": str(level), "message": str(message), **rest}, **about}:
            severity, spans = _cargo_severity(level), rest.get("spans")
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
        return Problem(severity, worded(message, code))
    file, line, col = place
    return Problem(severity, worded(message, code), file, position(line), position(col))


def _cargo_severity(level: str) -> ProblemSeverity | None:
    """Return the severity. "error: internal compiler error" is an error, too."""
    if level.startswith("error"):
        return ProblemSeverity.ERROR
    return ProblemSeverity.WARNING if level == "warning" else None


def _primary(spans: Json) -> Json:
    for span in spans if isinstance(spans, list) else ():
        match span:
            case {"is_primary": True}:
                return span
            case _:
                continue
    return None


def _place(span: Json, crate: str) -> _Place | None:
    """Return the place of a message. Inside another crate's macro it is the place where this crate uses the macro."""
    uses = list(_uses(span))
    own = ((path, line, col) for file, line, col in uses if (path := _below(crate, file)))
    return next(own, uses[0] if uses else None)


def _uses(span: Json) -> Iterator[_Place]:
    """Yield the place of a span, then of the macro call that it comes from, and so on."""
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
    """Return the absolute folder of a target's main source, "" if it is not known."""
    match target:
        case {"src_path": str(source)} if posixpath.isabs(source) and len(source) <= _PATH_LIMIT:
            return posixpath.dirname(source)
        case _:
            return ""


def _below(crate: str, file: str) -> str:
    """Return the absolute path of a file of the crate, "" for a file of another crate.

    The compiler names files from the folder of the workspace, which is not known. It is the nearest folder above the
    crate from which the name leads into the crate.
    """
    folder = crate if len(file) <= _PATH_LIMIT else "/"
    while folder != posixpath.dirname(folder):
        folder = posixpath.dirname(folder)
        path = posixpath.join(folder, file)
        if path.startswith(f"{crate}/"):
            return path
    return ""


CARGO_CHECK = Checker("cargo check", "cargo", "check --message-format=json", _cargo_parse)
CARGO_CLIPPY = Checker("cargo clippy", "cargo", "clippy --message-format=json", _cargo_parse)
