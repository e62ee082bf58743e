"""Walls that a session holds and each command gets a copy of, on the real kernel."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest

from acp_agent.core.backends import CommandRequest
from acp_agent.workspace.processes.environment import child_environment
from acp_agent.workspace.sandbox import bubblewrap as module
from acp_agent.workspace.sandbox.bubblewrap import BubblewrapSandbox, HeldWalls
from acp_agent.workspace.sandbox.sandbox import SandboxTier, SessionSandbox, tier_works, why_missing
from acp_agent.workspace.sandbox.walls import NetworkReach, WallRules
from tests.unit.workspace.trees import open_fds

TIER = SandboxTier.BUBBLEWRAP
pytestmark = pytest.mark.skipif(not tier_works(TIER), reason=why_missing(TIER))


@dataclass
class Holding:
    """A sandbox around a folder on a disk, since walls around one in /dev/shm are not held."""

    folder: Path
    sandbox: SessionSandbox
    held: list[bool] = field(default_factory=list[bool])

    def run(self, command: str, **how: Any) -> str:
        """Return what a command printed. Note whether it ran in a copy of held walls."""
        with self.sandbox.launch(["bash", "-c", "--", command], str(self.folder), **how) as launch:
            self.held.append(any(word.startswith("--mount=") for word in launch.arguments))
            ended = subprocess.run(
                launch.arguments,
                pass_fds=launch.descriptors,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
        return ended.stdout

    @property
    def built(self) -> BubblewrapSandbox:
        """What builds the walls."""
        built = self.sandbox._built()
        assert isinstance(built, BubblewrapSandbox)
        return built

    @property
    def walls(self) -> Sequence[HeldWalls]:
        """The walls that are held now."""
        return [*filter(None, self.built._known.values())]


def protects(path: str) -> bool:
    return path.endswith("/protected")


@pytest.fixture
def holding() -> Iterator[Holding]:
    with TemporaryDirectory(dir="/var/tmp") as folder:
        root = Path(folder) / "root"
        root.mkdir()
        (root / "protected").write_text("as it was\n")
        (root / "secret").write_text("visible-if-it-escapes\n")
        rules = WallRules((str(root),), protects, lambda path, _: "secret" if path.endswith("/secret") else None)
        sandbox = SessionSandbox(rules, child_environment(os.environ), TIER)
        try:
            yield Holding(root, sandbox)
        finally:
            sandbox.close()


def test_walls_are_held_from_their_second_command_on(holding: Holding):
    for count in range(3):
        assert holding.run(f"echo {count} >> made; cat made") == "".join(f"{each}\n" for each in range(count + 1))
    assert holding.held == [False, True, True]
    assert len(holding.walls) == 1
    for _ in range(2):
        assert "Read-only file system" in holding.run("touch made", read_only=True)
    assert (holding.held[3:], len(holding.walls)) == ([False, True], 2)


def test_a_line_for_the_editor_runs_in_a_copy_as_well(holding: Holding):
    request, said = CommandRequest("cat secret; echo x > protected; pwd", str(holding.folder)), list[str]()
    for _ in range(3):
        line = holding.sandbox.shell_text(request, {}).line
        ended = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
        said.append(ended.stdout + ended.stderr)
        holding.held.append("--mount=" in line)
    assert holding.held == [False, True, True]
    assert said[0] == said[1] == said[2]
    assert f"{holding.folder}\n" in said[0]
    assert "visible" not in said[0]
    assert (holding.folder / "protected").read_text() == "as it was\n"


def test_a_copy_has_processes_and_shared_memory_of_its_own(holding: Holding):
    for _ in range(3):
        said = holding.run("ls /dev/shm; echo > /dev/shm/left; ls -d /proc/[0-9]* | wc -l; echo x > /dev/made")
        assert int(said.split("\n")[0]) < 6, "bubblewrap, bash, and the pipe"
    assert holding.held[1:] == [True, True]
    assert "Read-only file system" in said
    assert "pts" in holding.run("python3 -c 'import os; print(os.ttyname(os.openpty()[1]))' || echo pts")
    assert holding.run("echo lost > /dev/null; head -c 3 /dev/zero | od -An -c").split() == ["\\0"] * 3


def test_the_settings_of_the_kernel_stay_read_only_in_a_copy(holding: Holding):
    settings = "/proc/sys/kernel/core_pattern /proc/irq/default_smp_affinity /proc/sysrq-trigger"
    tried = f"for each in {settings}; do if [ -e $each ]; then (: >> $each) 2>/dev/null && echo $each; fi; done"
    assert [holding.run(tried) for _ in range(3)] == [""] * 3
    assert holding.held[1:] == [True, True]


def replace_file(folder: Path, name: str) -> None:
    (folder / "new").write_text("visible-if-it-escapes\n")
    os.replace(folder / "new", folder / name)


def remake_folder(folder: Path, name: str) -> None:
    moved = folder.with_name("moved")
    folder.rename(moved)
    folder.mkdir()
    for each in ("secret", "protected"):
        (moved / each).rename(folder / each)
    (folder / name).write_text("visible-if-it-escapes\n")


@pytest.mark.parametrize("change", [replace_file, remake_folder])
def test_a_file_that_the_user_replaces_stays_hidden_and_protected(
    holding: Holding, change: Callable[[Path, str], None]
):
    for name, kept in (("secret", "visible-if-it-escapes\n"), ("protected", "visible-if-it-escapes\n")):
        for _ in range(2):
            holding.run("true")
        assert holding.held[-1]
        change(holding.folder, name)
        for _ in range(3):
            said = holding.run("cat secret; echo changed > protected; echo changed > secret")
            assert "visible" not in said
            assert (holding.folder / name).read_text() == kept
        assert holding.held[-3:] == [False, True, True], name


def test_a_command_does_not_run_where_a_cover_is_gone_from_the_walls_it_was_given(holding: Holding):
    for _ in range(2):
        holding.run("true")
    with holding.sandbox.launch(["bash", "-c", "--", "cat secret"], str(holding.folder)) as launch:
        replace_file(holding.folder, "secret")
        ended = subprocess.run(
            launch.arguments, pass_fds=launch.descriptors, capture_output=True, text=True, check=False
        )
    assert (ended.returncode, ended.stdout) == (126, "")
    assert "folders were moved" in ended.stderr


def test_walls_whose_holder_was_killed_are_built_again(holding: Holding):
    for _ in range(2):
        holding.run("true")
    (held,) = holding.walls
    mount = next(word for word in held.words if word.startswith("--mount="))
    process = psutil.Process(int(mount.split("/")[2]))
    process.send_signal(signal.SIGKILL)
    psutil.wait_procs([process], timeout=10)
    assert [holding.run("echo here") for _ in range(3)] == ["here\n"] * 3
    assert holding.held[2:] == [False, True, True]


def test_walls_that_cannot_be_held_are_built_for_each_command(holding: Holding, monkeypatch: pytest.MonkeyPatch):
    tried: list[Sequence[str]] = []

    def refuse(words: Sequence[str]) -> bool:
        tried.append(words)
        return False

    monkeypatch.setattr(module, "_succeeds", refuse)
    before = open_fds()
    assert [holding.run("echo here") for _ in range(4)] == ["here\n"] * 4
    assert holding.held == [False] * 4
    assert len(tried) == 1, "it is not tried again"
    holding.sandbox.close()
    assert open_fds() <= before


def test_walls_around_a_folder_below_dev_are_not_held(tmp_path: Path):
    with TemporaryDirectory(dir="/dev/shm") as folder:
        sandbox = SessionSandbox(WallRules((folder,), protects, lambda *_: None), child_environment(os.environ), TIER)
        holding = Holding(Path(folder), sandbox)
        try:
            assert [holding.run("echo x > made && cat made") for _ in range(3)] == ["x\n"] * 3
        finally:
            sandbox.close()
    assert holding.held == [False] * 3


def test_a_command_that_reaches_other_hosts_builds_its_own_walls(holding: Holding):
    for reach in (NetworkReach.ALL, NetworkReach.NONE):
        for _ in range(3):
            assert holding.run("echo here", network=reach) == "here\n"
    assert holding.held == [False] * 6


def test_walls_out_of_use_last_until_commands_that_were_given_them_have_started(
    holding: Holding, monkeypatch: pytest.MonkeyPatch
):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    for _ in range(2):
        holding.run("true")
    with holding.sandbox.launch(["true"], str(holding.folder)) as launch:
        replace_file(holding.folder, "protected")
        holding.run("true")
        assert not subprocess.run(["test", "-e", launch.arguments[4].partition("=")[2]], check=False).returncode
    assert len(holding.built._left) == 1
    now[0] += module._STARTED + 1
    holding.run("true")
    replace_file(holding.folder, "protected")
    holding.run("true")
    assert [since for since, _ in holding.built._left] == [now[0]]


def test_nothing_of_held_walls_is_left_at_the_end(holding: Holding):
    before, children = open_fds(), {*psutil.Process().children()}
    for read_only in (True, True, False, False):
        holding.run("true", read_only=read_only)
    replace_file(holding.folder, "protected")
    holding.run("true")
    assert {*psutil.Process().children(recursive=True)} - children or open_fds() - before
    holding.sandbox.close()
    assert open_fds() <= before
    assert not [each for each in {*psutil.Process().children()} - children if each.status() != psutil.STATUS_ZOMBIE]
