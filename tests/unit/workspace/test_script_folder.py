"""The folder for scripts of an editor's terminal goes with its process, or with the next one."""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from acp_agent.workspace.processes.environment import PrivateFolder, remove_abandoned
from acp_agent.workspace.sandbox.landlock import _drop_capabilities

PROGRAM = """
import os, sys
from acp_agent.workspace.processes.environment import PrivateFolder
folder = PrivateFolder()
open(os.path.join(folder.path(), "a.sh"), "w").write("echo a secret")
print(folder.path(), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_is_private_stays_the_same_and_leaves_nothing(tmp: Path) -> None:
    folder = PrivateFolder()
    assert list(tmp.iterdir()) == [], "nothing is made before somebody asks"
    path = Path(folder.path())
    assert path.parent == tmp
    assert path.stat().st_mode & 0o777 == 0o700
    assert folder.path() == str(path)
    (path / "a.sh").write_text("true")
    folder.close()
    folder.close()
    assert list(tmp.iterdir()) == []


def test_folders_that_a_command_has_closed_are_removed_too(tmp: Path) -> None:
    """Go writes its cache of modules into folders that nobody may change."""

    def closed() -> None:
        if sys.platform == "linux":
            _drop_capabilities(ctypes.CDLL(None, use_errno=True))  # of this thread, for which modes count then
        folder = PrivateFolder(whole=True)
        module = Path(folder.path()) / "home" / "go" / "module"
        (module / "inner").mkdir(parents=True)
        (module / "inner" / "a.go").touch()
        (module / "away").symlink_to(outside)
        for path, mode in ((module / "inner", 0o111), (module, 0o555)):
            path.chmod(mode)
        folder.close()

    outside = tmp / "outside"
    outside.mkdir(mode=0o555)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(closed).result()
    assert list(tmp.iterdir()) == [outside]
    assert outside.stat().st_mode & 0o777 == 0o555


def test_one_that_was_swept_away_is_made_anew(tmp: Path) -> None:
    folder = PrivateFolder()
    first = Path(folder.path())
    first.rmdir()
    second = Path(folder.path())
    assert second.is_dir()
    second.rename(tmp / "aside")
    second.symlink_to(tmp / "aside")
    third = Path(folder.path())
    assert third not in (first, second), "a link in its place is not it"
    folder.close()
    assert not third.exists()


def test_what_a_killed_process_left_goes_with_the_next_and_nothing_of_one_that_lives(tmp: Path) -> None:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp)}, text=True
    ) as process:
        assert process.stdout is not None
        script = Path(process.stdout.readline().strip()) / "a.sh"
        mine = PrivateFolder()
        mine.path()
        assert remove_abandoned() == 0
        assert script.read_text() == "echo a secret"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert remove_abandoned() == 1
    assert list(tmp.iterdir()) == [Path(mine.path())]
    mine.close()


def link_to(target: Path) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def open_to_all(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)
    (path / "a.sh").touch()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to another user")
def test_what_belongs_to_another_user_is_left_alone(tmp: Path) -> None:
    foreign = tmp / "acp-agent-sh-foreign"
    foreign.mkdir(0o700)
    os.chown(foreign, 65534, -1)
    assert remove_abandoned() == 0
    assert foreign.exists()


def with_a_folder(path: Path) -> None:
    path.mkdir(0o700)
    (path / "sub").mkdir()


def test_what_is_not_ours_is_left_alone(tmp: Path) -> None:
    precious = tmp / "precious"
    precious.mkdir(0o700)
    (precious / "a.sh").touch()
    made = {"link": link_to(precious), "open": open_to_all, "deep": with_a_folder, "file": Path.touch}
    for name, make in made.items():
        make(tmp / f"acp-agent-sh-{name}")
    holds_a_link = tmp / "acp-agent-sh-links"
    holds_a_link.mkdir(0o700)
    (holds_a_link / "a.sh").symlink_to(precious / "a.sh")
    assert remove_abandoned() == 1
    assert not holds_a_link.exists()
    assert {path.name for path in tmp.iterdir()} == {"precious", *(f"acp-agent-sh-{name}" for name in made)}
    assert (precious / "a.sh").exists(), "the link went, not what it names"
    assert (tmp / "acp-agent-sh-open" / "a.sh").exists()
