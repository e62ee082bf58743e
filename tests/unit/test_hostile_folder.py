"""`python -m acp_agent` in somebody else's folder imports none of its modules, once it is ours that runs.

What Python itself imports before (`collections`, and a folder `acp_agent` for our own) only `python -P` keeps out.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import acp_agent
from acp_agent.__main__ import main

PARENT = Path(acp_agent.__file__).parent.parent


def test_modules_of_the_current_folder_are_not_taken_for_the_standard_librarys(tmp_path: Path) -> None:
    hostile, deleted = tmp_path / "hostile", tmp_path / "deleted"
    for folder in (hostile, deleted):
        folder.mkdir()
    for name in ("tomllib", "argparse", "json", "typing", "anyio"):
        (hostile / f"{name}.py").write_text("raise SystemExit('the project runs')\n")
    environment = {**os.environ, "PYTHONPATH": str(PARENT), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(tmp_path)}
    environment.pop("PYTHONSAFEPATH", None)
    python = [sys.executable, "-m", "acp_agent"]
    done = subprocess.run(
        [*python, "config", "show"], cwd=hostile, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    gone = subprocess.run(
        ["/bin/sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", *python, "--version"],
        cwd=deleted,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (gone.returncode, gone.stderr) == (0, "")


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (".:/usr/bin", "/usr/bin"),
        (":/usr/bin:", "/usr/bin"),
        ("node_modules/.bin:/a b::/usr/bin", "/a b:/usr/bin"),
        ("../bin", os.defpath),
        ("", os.defpath),
        ("/usr/local/bin:/usr/bin", "/usr/local/bin:/usr/bin"),
    ],
)
def test_no_program_is_searched_for_in_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: str, left: str
) -> None:
    monkeypatch.setenv("PATH", given)
    monkeypatch.setattr(acp_agent, "path_limited", False)
    with pytest.raises(SystemExit):
        main(["--version"])
    assert os.environ["PATH"] == left
    assert acp_agent.path_limited is (left != given)
    assert capsys.readouterr().err == ""


def test_a_missing_path_stays_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("PATH")
    with pytest.raises(SystemExit):
        main(["--version"])
    assert "PATH" not in os.environ
    assert capsys.readouterr().err == ""
