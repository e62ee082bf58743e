"""All checks in order."""

import argparse
import os
import shutil
import sqlite3
import stat
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing, closing
from dataclasses import dataclass
from enum import StrEnum
from typing import cast
from urllib.parse import quote

import anyio
import anyio.to_thread

from acp_agent.config.files import DATA_VARIABLE, data_dir, database_file
from acp_agent.config.load import Flags, Loaded, load
from acp_agent.config.masking import one_line
from acp_agent.config.project import ProjectLoosens
from acp_agent.config.provider_settings import ProviderType
from acp_agent.config.vendors import model_advice
from acp_agent.core.backends import CommandRequest
from acp_agent.core.errors import AgentError, ConfigError, ProviderError, ProviderErrorKind
from acp_agent.core.messages import ModelEvent
from acp_agent.core.ports import ModelRequest, Provider
from acp_agent.llm.catalog import Catalog, parse_model
from acp_agent.store.credentials import CredentialStore
from acp_agent.store.db_opening import cause
from acp_agent.store.schema import VERSION, version_of
from acp_agent.workspace.processes.terminal import LocalTerminal


class CheckLevel(StrEnum):
    """How bad it is. Only FAIL makes the doctor's exit code 1."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of the report. `advice` says what to do, for all that is not OK."""

    level: CheckLevel
    subject: str
    text: str
    advice: str = ""

    def line(self) -> str:
        """As it is printed: safe whatever a path or a server put into it."""
        advice = f" -> {self.advice}" if self.advice else ""
        return f"{self.level:<5} {self.subject:<9} {one_line(self.text + advice, longest=500)}"


_REMOTE = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs", "fuse.rclone", "fuse.s3")
_MOUNTS = "/proc/self/mounts"


def check_data_folder(environ: Mapping[str, str], mounts: str = _MOUNTS) -> list[CheckResult]:
    """Make it as the server would and try it. `mounts` is the kernel's table; where there is none, local is assumed."""
    elsewhere = f"choose another folder with {DATA_VARIABLE}"
    try:
        path = data_dir(environ)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"x")
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except ConfigError as error:
        return [CheckResult(CheckLevel.FAIL, "data", str(error), elsewhere)]
    except OSError as error:
        return [CheckResult(CheckLevel.FAIL, "data", f"cannot write in the folder: {error.strerror}", elsewhere)]
    if mode != 0o700:
        return [CheckResult(CheckLevel.FAIL, "data", f"{path} has mode {mode:04o}, not 0700", elsewhere)]
    if trouble := _database_trouble(database_file(environ)):
        return [CheckResult(CheckLevel.FAIL, "data", f"no conversation is kept or listed: {trouble}", elsewhere)]
    kind = file_system(path, mounts)
    if kind.startswith(_REMOTE):
        return [CheckResult(CheckLevel.WARN, "data", f"{path} is on a network file system ({kind})", elsewhere)]
    return [CheckResult(CheckLevel.OK, "data", f"{path} (mode 0700)")]


def _database_trouble(path: str) -> str:
    """Why the database there cannot be used; empty where it can, or none is there yet. Changes nothing in it."""
    if not os.path.lexists(path):
        return ""
    how = "mode=ro" if os.path.lexists(f"{path}-wal") else "mode=ro&immutable=1"  # or SQLite would make a log
    try:
        with closing(sqlite3.connect(f"file:{quote(os.fsencode(path))}?{how}", uri=True)) as connection:
            version = version_of(connection)
    except sqlite3.Error as error:
        return f"the database {path} cannot be used: {cause(error)}"
    if version <= VERSION:
        return ""
    return f"the database {path} has format {version}, of a newer acp-agent; this one knows formats up to {VERSION}"


def file_system(path: str, mounts: str) -> str:
    """The type of the file system a path is on, empty when this machine does not tell."""
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
            table = [line.split(" ")[:3] for line in file]
    except OSError:
        return ""
    real = os.path.realpath(path)
    places = [(point.replace("\\040", " "), kind) for _, point, kind in table]
    holding = [(len(point), kind) for point, kind in places if os.path.commonpath((point, real)) == point]
    return holding[[length for length, _ in holding].index(max(holding)[0])][1] if holding else ""


_MODEL_PATIENCE = 20.0  # seconds for the server to say something
_LATER = (ProviderErrorKind.RATE_LIMITED, ProviderErrorKind.OVERLOADED)


async def check_model(loaded: Loaded, environ: Mapping[str, str]) -> list[CheckResult]:
    """Whether a prompt would be answered."""
    llm = loaded.settings.llm
    if llm.model is None:
        return [CheckResult(CheckLevel.FAIL, "model", "none is chosen", model_advice(llm.providers, loaded.file))]
    reference = parse_model(llm.model)
    provider = next(provider for provider in llm.providers if provider.name == reference.provider)
    catalog = Catalog.of(llm, environ, CredentialStore(environ))
    try:
        model = await anyio.to_thread.run_sync(catalog.build, reference)
        if provider.type is ProviderType.SCRIPTED:
            return [CheckResult(CheckLevel.OK, "model", f"{llm.model} plays a script")]
        return [await _asked(model, llm.model)]
    except ConfigError as error:
        return [CheckResult(CheckLevel.FAIL, "model", str(error), f"set it, or choose another model in {loaded.file}")]
    finally:
        await catalog.aclose()


async def _asked(model: Provider, name: str) -> CheckResult:
    """Send a conversation without a word, to the very address a prompt would go to.

    A server looks at the key and mostly at the model's name, and then refuses it before anything is computed. One
    that takes it is held to one token.
    """
    try:
        with anyio.fail_after(_MODEL_PATIENCE):
            events = cast("AsyncGenerator[ModelEvent]", model.stream(ModelRequest("", (), max_tokens=1)))
            async with aclosing(events):
                await anext(events, None)
    except TimeoutError:
        return CheckResult(
            CheckLevel.FAIL, "model", f"{name}: no answer in {_MODEL_PATIENCE:g} s", "check base_url and the network"
        )
    except ProviderError as error:
        if error.status in (400, 422) and "credit" not in str(error):
            return CheckResult(
                CheckLevel.OK, "model", f"{name}: the server answers (to a conversation without a word: {error})"
            )
        if error.kind in _LATER:
            return CheckResult(CheckLevel.WARN, "model", str(error), "try again later")
        return CheckResult(
            CheckLevel.FAIL, "model", str(error), "see above; `acp-agent config show` prints what is in force"
        )
    return CheckResult(CheckLevel.OK, "model", f"{name}: answers")


_PROGRAM_PATIENCE = 10.0  # seconds a program may take to say its version
_PROGRAMS = (
    ("rg", CheckLevel.WARN, "install ripgrep; until then searches are slower"),
    ("git", CheckLevel.WARN, "install git; most projects need it"),
    ("bash", CheckLevel.FAIL, "install bash; the agent runs every command in it"),
)


async def check_programs(path: str | None = None) -> list[CheckResult]:
    """rg, git and bash: on PATH (or `path`), and able to start."""
    findings: list[CheckResult] = []
    for name, level, advice in _PROGRAMS:
        found = shutil.which(name, path=path)
        version = await _version(found) if found else ""
        if version:
            findings.append(CheckResult(CheckLevel.OK, name, f"{found}: {version}"))
        else:
            findings.append(CheckResult(level, name, f"{found} does not start" if found else "not found", advice))
    return findings


async def _version(program: str) -> str:
    """The first line of `PROGRAM --version`; empty when it cannot be had."""
    try:
        with anyio.fail_after(_PROGRAM_PATIENCE):
            done = await anyio.run_process([program, "--version"], check=False, stderr=subprocess.DEVNULL)
    except (OSError, TimeoutError):
        return ""
    return done.stdout.decode(errors="replace").partition("\n")[0].strip() if done.returncode == 0 else ""


async def check_terminal(env_allow: Iterable[str]) -> list[CheckResult]:
    """Run a real command the way the bash tool does when the editor has no terminal of its own."""
    advice = "commands work only in editors with a terminal of their own; check that this machine can start processes"
    try:
        running = await LocalTerminal(env_allow, default_timeout=_PROGRAM_PATIENCE).start(
            CommandRequest("printf '%s' $((6 * 7)); exit 3", os.getcwd())
        )
        try:
            outcome = await running.wait(_ignore)
        finally:
            await running.release()
    except AgentError as error:
        return [CheckResult(CheckLevel.FAIL, "terminal", str(error), advice)]
    if (outcome.output, outcome.exit_code) != ("42", 3):
        said = f"a command gave {outcome.output!r} and exit code {outcome.exit_code}, not '42' and 3"
        return [CheckResult(CheckLevel.FAIL, "terminal", said, advice)]
    return [CheckResult(CheckLevel.OK, "terminal", "commands run, with their output and exit code")]


async def _ignore(_output: str) -> None:
    """The output counts as a whole."""


def doctor(args: argparse.Namespace) -> int:
    """Print one line a check; 0 when nothing failed, else 1."""
    loaded = load(Flags(config=args.config), os.environ, os.getcwd())
    return anyio.run(_examine, loaded)


async def _examine(loaded: Loaded) -> int:
    failed = False
    for findings in (
        check_config(loaded),
        await check_model(loaded, os.environ),
        check_data_folder(os.environ),
        await check_programs(),
        await check_terminal(loaded.settings.tools.shell.env_allow),
    ):
        for finding in findings:
            print(finding.line(), flush=True)
            failed = failed or finding.level is CheckLevel.FAIL
    return 1 if failed else 0


def check_config(loaded: Loaded) -> list[CheckResult]:
    """The configuration file, and everything in any source that could not be used."""
    problems = [
        CheckResult(CheckLevel.WARN, "config", str(problem), "nothing to do, unless you meant it: then set it yourself")
        if isinstance(problem, ProjectLoosens)
        else CheckResult(CheckLevel.FAIL, "config", str(problem), "mend it; until then the default holds")
        for problem in loaded.problems
    ]
    if problems:
        return problems
    try:
        others_may_write = bool(os.stat(loaded.file).st_mode & 0o022)
    except OSError:
        return [CheckResult(CheckLevel.OK, "config", f"defaults; {loaded.file} does not exist")]
    if others_may_write:
        return [CheckResult(CheckLevel.WARN, "config", f"others may write {loaded.file}", f"chmod 600 {loaded.file}")]
    return [CheckResult(CheckLevel.OK, "config", loaded.file)]
