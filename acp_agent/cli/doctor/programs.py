"""The programs the agent starts."""

import os
import shutil
import subprocess
from collections.abc import Iterable

import anyio

from acp_agent.cli.doctor.finding import Finding, Level
from acp_agent.core.backends import CommandRequest
from acp_agent.core.errors import AgentError
from acp_agent.execution.local_terminal import LocalTerminal

_PATIENCE = 10.0  # seconds a program may take to say its version
_PROGRAMS = (
    ("rg", Level.WARN, "install ripgrep; until then searches are slower"),
    ("git", Level.WARN, "install git; most projects need it"),
    ("bash", Level.FAIL, "install bash; the agent runs every command in it"),
)


async def check_programs(path: str | None = None) -> list[Finding]:
    """rg, git and bash: on PATH (or `path`), and able to start."""
    findings: list[Finding] = []
    for name, level, advice in _PROGRAMS:
        found = shutil.which(name, path=path)
        version = await _version(found) if found else ""
        if version:
            findings.append(Finding(Level.OK, name, f"{found}: {version}"))
        else:
            findings.append(Finding(level, name, f"{found} does not start" if found else "not found", advice))
    return findings


async def _version(program: str) -> str:
    """The first line of `PROGRAM --version`; empty when it cannot be had."""
    try:
        with anyio.fail_after(_PATIENCE):
            done = await anyio.run_process([program, "--version"], check=False, stderr=subprocess.DEVNULL)
    except (OSError, TimeoutError):
        return ""
    return done.stdout.decode(errors="replace").partition("\n")[0].strip() if done.returncode == 0 else ""


async def check_terminal(env_allow: Iterable[str]) -> list[Finding]:
    """Run a real command the way the bash tool does when the editor has no terminal of its own."""
    advice = "commands work only in editors with a terminal of their own; check that this machine can start processes"
    try:
        running = await LocalTerminal(env_allow, default_timeout=_PATIENCE).start(
            CommandRequest("printf '%s' $((6 * 7)); exit 3", os.getcwd())
        )
        try:
            outcome = await running.wait(_ignore)
        finally:
            await running.release()
    except AgentError as error:
        return [Finding(Level.FAIL, "terminal", str(error), advice)]
    if (outcome.output, outcome.exit_code) != ("42", 3):
        said = f"a command gave {outcome.output!r} and exit code {outcome.exit_code}, not '42' and 3"
        return [Finding(Level.FAIL, "terminal", said, advice)]
    return [Finding(Level.OK, "terminal", "commands run, with their output and exit code")]


async def _ignore(_output: str) -> None:
    """The output counts as a whole."""
