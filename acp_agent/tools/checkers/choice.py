"""Which checkers a project wants: by its marker files, and for Python by its settings (requirements T6)."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from acp_agent.core.backends import FileSystem
from acp_agent.core.types import Access, JsonObject
from acp_agent.tools.checkers import cargo
from acp_agent.tools.checkers.diagnostic import Checker
from acp_agent.tools.checkers.go_vet import GO_VET
from acp_agent.tools.checkers.mypy import MYPY, MYPY_HERE
from acp_agent.tools.checkers.project import Project
from acp_agent.tools.checkers.pyright import BASEDPYRIGHT, PYRIGHT
from acp_agent.tools.checkers.ruff import RUFF
from acp_agent.tools.checkers.tsc import TSC, TSC_BUILD
from acp_agent.tools.lines import relative
from acp_agent.tools.visible import visible

_PYTHON = (
    *("pyproject.toml", "setup.py", "setup.cfg", "ruff.toml", ".ruff.toml"),
    *("mypy.ini", ".mypy.ini", "pyrightconfig.json"),
)

MARKERS = ("Cargo.toml", *_PYTHON, "tsconfig.json", "go.mod")
"""Files that say what a folder is a project of."""


@dataclass(frozen=True, slots=True)
class Check:
    """A checker, to be run in the project's folder.

    line      the command line there
    command   the same as it would be in the session's folder: what gates judge and the user is asked about
    unused    a place of the project's own programs that may not be used: ".venv", or empty
    """

    checker: Checker
    line: str
    command: str
    unused: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """What to run for the project in `folder` (absolute): nothing when it has no marker. Warnings are in words."""

    folder: str
    checks: tuple[Check, ...]
    warnings: tuple[str, ...]

    @property
    def commands(self) -> tuple[str, ...]:
        """The command lines, as seen from the session's folder."""
        return tuple(check.command for check in self.checks)


async def choose(files: FileSystem, path: str, *, clippy: bool) -> Choice:
    """The checks for the project in the folder `path`. Raises what `FileSystem.list_directory` raises.

    clippy   cargo's linter in place of its check, which it includes; other languages have no such choice
    """
    folder, here = files.resolve(path, Access.LIST), files.resolve(".", Access.LIST)
    project = await Project.at(files, path)
    checks: list[Check] = []
    for checker in await _checkers(project, clippy=clippy):
        line = f"{await _program(project, checker)} {checker.arguments}"
        checks.append(Check(checker, line, _seen_from(here, folder, line), await _unused(project, checker)))
    if not checks:
        missing = f"no project in '{visible(path)}': none of {', '.join(MARKERS)} is there"
        project.warnings.append(f"{missing}; path takes the folder of a project")
    return Choice(folder, tuple(checks), tuple(project.warnings))


async def _checkers(project: Project, *, clippy: bool) -> list[Checker]:
    checkers: list[Checker] = []
    if project.has_any("Cargo.toml"):
        checkers.append(cargo.CLIPPY if clippy else cargo.CHECK)
    if project.has_any(*_PYTHON):
        checkers += await _python(project)
    if project.has_any("tsconfig.json"):
        checkers.append(TSC_BUILD if '"references"' in await project.text("tsconfig.json") else TSC)
    if project.has_any("go.mod"):
        checkers.append(GO_VET)
    return checkers


def _seen_from(here: str, folder: str, line: str) -> str:
    """The command that does, in the session's folder, what `line` does in the project's.

    An approval of `.venv/bin/ruff check` must not cover the program of that name in another folder.
    """
    if folder == here:
        return line
    where = relative(folder, here)
    return f"cd {shlex.quote(f'./{where}' if where.startswith('-') else where)} && {line}"


async def _program(project: Project, checker: Checker) -> str:
    """The project's own copy, else the name on PATH."""
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
    """Ruff and the type checker that the project is set up for; ruff for one that is set up for nothing."""
    tools = await project.tool_tables()
    types = await _pyright(project, tools) or await _mypy(project, tools)
    if types is None:
        return [RUFF]
    return [RUFF, types] if "ruff" in tools or project.has_any("ruff.toml", ".ruff.toml") else [types]


async def _pyright(project: Project, tools: JsonObject) -> Checker | None:
    """Basedpyright reads pyright's settings as well: it is taken where the project has it and not the other."""
    if "basedpyright" in tools:
        return BASEDPYRIGHT
    if "pyright" not in tools and not project.has_any("pyrightconfig.json"):
        return None
    own = [await _program(project, checker) != checker.program for checker in (PYRIGHT, BASEDPYRIGHT)]
    return BASEDPYRIGHT if own == [False, True] else PYRIGHT


async def _mypy(project: Project, tools: JsonObject) -> Checker | None:
    """The first of mypy's own places for settings counts ("The mypy configuration file", mypy's manual)."""
    for name in ("mypy.ini", ".mypy.ini"):
        if project.has_any(name):
            return _mypy_with(await project.ini_keys(name, "mypy") or ())
    table = tools.get("mypy")
    if isinstance(table, dict):
        return _mypy_with(table)
    keys = await project.ini_keys("setup.cfg", "mypy")
    return None if keys is None else _mypy_with(keys)


def _mypy_with(keys: Iterable[str]) -> Checker:
    """Settings may name what to check; else it is the folder."""
    return MYPY_HERE if {"files", "modules", "packages"}.isdisjoint(keys) else MYPY
