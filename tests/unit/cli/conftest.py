"""The command line as people run it: a real process with a home of its own."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from acp_agent.__main__ import main
from acp_agent.cli import commands

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "acp_agent"]

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="package", autouse=True)
def _one_parser() -> Iterator[None]:
    """Make the parser of the command line once: that takes longer than most commands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "command_line", cache(commands.command_line))
        yield


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    """What a process needs, and nothing of the machine's own configuration."""
    return {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT)}


@pytest.fixture
def in_process(
    environment: dict[str, str], home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Run:
    """The same as `acp_agent` below without the process: a tenth of its time. At most a loop of its own runs there."""

    def run(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        with monkeypatch.context() as patch:
            for name in os.environ:
                patch.delenv(name)
            for name, value in (environment | variables).items():
                patch.setenv(name, value)
            patch.chdir(home)
            try:
                code = main(arguments)
            except SystemExit as end:
                code = int(end.code or 0)
        out, err = capfd.readouterr()
        return subprocess.CompletedProcess([*arguments], code, out, err)

    return run


@pytest.fixture
def acp_agent(environment: dict[str, str], home: Path) -> Run:
    """`acp_agent("config", "show", VARIABLE="value")`, run in the home folder."""

    def run(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*COMMAND, *arguments],
            env=environment | variables,
            cwd=home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )

    return run
