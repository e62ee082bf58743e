"""All checks in order."""

import argparse
import os

import anyio

from acp_agent.cli.doctor.finding import Finding, Level
from acp_agent.cli.doctor.folder import check_data_folder
from acp_agent.cli.doctor.model import check_model
from acp_agent.cli.doctor.programs import check_programs, check_terminal
from acp_agent.config.load import Flags, Loaded, load
from acp_agent.config.project import ProjectLoosens


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
            failed = failed or finding.level is Level.FAIL
    return 1 if failed else 0


def check_config(loaded: Loaded) -> list[Finding]:
    """The configuration file, and everything in any source that could not be used."""
    problems = [
        Finding(Level.WARN, "config", str(problem), "nothing to do, unless you meant it: then set it yourself")
        if isinstance(problem, ProjectLoosens)
        else Finding(Level.FAIL, "config", str(problem), "mend it; until then the default holds")
        for problem in loaded.problems
    ]
    if problems:
        return problems
    try:
        others_may_write = bool(os.stat(loaded.file).st_mode & 0o022)
    except OSError:
        return [Finding(Level.OK, "config", f"defaults; {loaded.file} does not exist")]
    if others_may_write:
        return [Finding(Level.WARN, "config", f"others may write {loaded.file}", f"chmod 600 {loaded.file}")]
    return [Finding(Level.OK, "config", loaded.file)]
