"""Walls that a session holds and each command gets a copy of, on the real kernel."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest

from acp_agent.core.backends import CommandRequest
from acp_agent.core.editor import TerminalSettings
from acp_agent.core.secrets import verbatim
from acp_agent.core.types import Access
from acp_agent.protocol.client import EditorPaths
from acp_agent.protocol.client_terminal import ProxyTerminal
from acp_agent.workspace.processes.environment import child_environment
from acp_agent.workspace.processes.table import _read
from acp_agent.workspace.processes.tree import CommandWatchdog
from acp_agent.workspace.sandbox import bubblewrap as module
from acp_agent.workspace.sandbox import sandbox as walled
from acp_agent.workspace.sandbox.bubblewrap import BubblewrapSandbox, HeldWalls
from acp_agent.workspace.sandbox.sandbox import SandboxTier, SessionSandbox, tier_works, why_missing
from acp_agent.workspace.sandbox.walls import NetworkReach, WallRules
from tests.unit.protocol.scripted_editor import editor, quiet
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


def refuses(path: str, access: Access) -> str | None:
    return "secret" if access is Access.READ and path.endswith(("/secret", "/closed")) else None


@contextmanager
def held_walls() -> Iterator[Holding]:
    with TemporaryDirectory(dir="/var/tmp") as folder:
        root = Path(folder) / "root"
        root.mkdir()
        (root / "protected").write_text("as it was\n")
        (root / "secret").write_text("visible-if-it-escapes\n")
        (root / "closed").mkdir()
        sandbox = SessionSandbox(WallRules((str(root),), protects, refuses), child_environment(os.environ), TIER)
        try:
            yield Holding(root, sandbox)
        finally:
            sandbox.close()


@pytest.fixture
def holding() -> Iterator[Holding]:
    with held_walls() as holding:
        yield holding


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


def test_a_line_is_made_at_once_only_for_a_command_that_reads_where_its_walls_are_held_and_stand(holding: Holding):
    sandbox, folder = holding.sandbox, holding.folder
    reading = CommandRequest("cat protected; echo x > made", str(folder), read_only=True)

    def at_once(request: CommandRequest = reading) -> bool:
        return sandbox.shell_text_now(request, {}) is not None

    assert not at_once()
    for held in (False, True):
        sandbox.shell_text(reading, {})
        assert at_once() is held
    contained = sandbox.shell_text_now(reading, {"GIVEN": "1"})
    assert contained is not None
    assert contained.line == sandbox.shell_text(reading, {"GIVEN": "1"}).line
    assert contained.afterwards is None
    ended = subprocess.run(["sh", "-c", contained.line], capture_output=True, text=True, check=False)
    assert (ended.stdout, "Read-only file system" in ended.stderr) == ("as it was\n", True)
    assert not at_once(replace(reading, read_only=False))
    with sandbox._building:
        assert not at_once()
    (folder / "secret").rename(folder / "other")
    assert not at_once(), "its walls must be found anew"
    for _ in range(2):
        sandbox.shell_text(reading, {})
    assert at_once()
    sandbox.adopt(WallRules((str(folder),), protects, refuses))
    assert not at_once(), "the rules are others"


def test_a_line_is_not_made_at_once_on_a_disk_that_may_hang(holding: Holding, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(walled, "local_devices", lambda folders: frozenset())
    reading = CommandRequest("true", str(holding.folder), read_only=True)
    for _ in range(3):
        holding.sandbox.shell_text(reading, {})
    assert holding.sandbox.shell_text_now(reading, {}) is None


def test_a_line_is_not_made_at_once_where_many_paths_have_walls(holding: Holding):
    for number in range(40):
        (holding.folder / f"{number}").mkdir()
        (holding.folder / f"{number}/secret").touch()
    reading = CommandRequest("true", str(holding.folder), read_only=True)
    for _ in range(3):
        holding.sandbox.shell_text(reading, {})
    assert holding.sandbox.shell_text_now(reading, {}) is None


@pytest.mark.anyio
@pytest.mark.parametrize("command", ["sleep 1000 & true", "(setsid sleep 1000 &); sleep 0.1"])
async def test_what_a_reading_command_leaves_running_in_the_editors_terminal_ends_with_it(
    holding: Holding, command: str
):
    started = list[subprocess.Popen[bytes]]()

    def create(params: dict[str, Any]) -> Any:
        given = {each["name"]: each["value"] for each in params["env"]}
        words = [params["command"], *params["args"]]
        started.append(subprocess.Popen(words, env={**os.environ, **given}, stdout=subprocess.DEVNULL))
        return {"terminalId": "t1"}

    def ended(params: dict[str, Any]) -> Any:
        return {"exitCode": started[-1].wait()}

    settings = TerminalSettings(
        *("exec", str, "bash", (), 60, 60, CommandWatchdog(), verbatim),
        contain=holding.sandbox.shell_text,
        contain_now=holding.sandbox.shell_text_now,
    )
    output = {"output": "", "truncated": False}
    request = CommandRequest(command, str(holding.folder), read_only=True)
    async with editor(terminal_create=create, terminal_wait_for_exit=ended, terminal_output=output) as editing:
        terminal = ProxyTerminal(editing.peer, "s1", EditorPaths(str(holding.folder)), settings)
        for _ in range(3):
            running = await terminal.start(request)
            said = (await running.wait(quiet)).output
            await running.release()
            assert "background process" in said
            mark = running._tree.mark.encode()
            assert not [pid for pid in psutil.pids() if mark in _read(f"/proc/{pid}/environ")]


def test_a_copy_has_processes_and_shared_memory_of_its_own(holding: Holding):
    for _ in range(3):
        said = holding.run("ls /dev/shm; echo > /dev/shm/left; ls -d /proc/[0-9]* | wc -l; echo x > /dev/made")
        assert int(said.split("\n")[0]) < 6, "bubblewrap, bash, and the pipe"
    assert holding.held[1:] == [True, True]
    assert "Read-only file system" in said
    assert "pts" in holding.run("python3 -c 'import os; print(os.ttyname(os.openpty()[1]))' || echo pts")
    assert holding.run("echo lost > /dev/null; head -c 3 /dev/zero | od -An -c").split() == ["\\0"] * 3


def test_a_hidden_folder_is_empty_and_stays_so_in_a_copy(holding: Holding):
    (holding.folder / "closed/file").write_text("visible-if-it-escapes\n")
    for _ in range(3):
        said = holding.run("cat closed/*; touch closed/made")
        assert "visible" not in said
        assert "Read-only file system" in said
    assert holding.held == [False, True, True]


def test_a_command_of_a_usual_user_has_their_ids(monkeypatch: pytest.MonkeyPatch):
    """It had those of root, for which tar tries to set the owners of unpacked files, and fails."""
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    monkeypatch.setattr(os, "getegid", lambda: 8765)
    with held_walls() as holding:
        for network in (NetworkReach.SESSION, NetworkReach.NONE):
            assert [holding.run("id -u; id -g", network=network) for _ in range(3)] == ["4321\n8765\n"] * 3
    assert holding.held == [False, True, True, False, False, False]


def test_what_holds_walls_can_do_nothing_itself(holding: Holding):
    for _ in range(2):
        holding.run("true")
    (held,) = holding.walls
    status = Path(f"/proc/{held.holder.pid}/status").read_text()
    assert re.findall(r"^Cap(?:Eff|Prm|Inh):\s*(\w+)$", status, re.MULTILINE) == ["0" * 16] * 3


def test_the_walls_of_earlier_rules_are_given_up(holding: Holding):
    for number in range(4):
        folder = holding.folder / str(number)
        folder.mkdir()
        holding.sandbox.adopt(WallRules((str(holding.folder), str(folder)), protects, refuses, hidden=(str(folder),)))
        for _ in range(2):
            holding.run("true")
    assert holding.held == [False, True] * 4
    assert len(holding.walls) == module._MOST_HELD


def test_a_file_with_the_number_of_a_removed_one_is_hidden_as_well(holding: Holding):
    secret = holding.folder / "secret"
    for _ in range(2):
        holding.run("true")
    before = secret.stat().st_ino
    for _ in range(50):
        secret.unlink()
        secret.write_text("visible-if-it-escapes\n")
        if secret.stat().st_ino == before:
            break
    else:
        pytest.skip("this file system does not use numbers of files again")
    said = holding.run("echo here; cat secret")
    assert (said[:5], "visible" in said, holding.held[-1]) == ("here\n", False, False)


def test_the_settings_of_the_kernel_stay_read_only_in_a_copy(holding: Holding):
    settings = "/proc/sys/kernel/core_pattern /proc/irq/default_smp_affinity /proc/sysrq-trigger"
    tried = f"for each in {settings}; do if [ -e $each ]; then (: >> $each) 2>/dev/null && echo $each; fi; done"
    assert [holding.run(tried) for _ in range(3)] == [""] * 3
    assert holding.held[1:] == [True, True]


@pytest.mark.skipif(os.geteuid() != 0, reason="only for root")
@pytest.mark.parametrize("folder", ["/proc/bus", "/proc/irq"])
def test_folders_of_the_kernel_that_root_may_change_are_empty_in_a_copy(holding: Holding, folder: str):
    if not os.path.isdir(folder):
        pytest.skip("this kernel has no such folder")
    said = [holding.run(f"ls {folder}; umount {folder} 2>/dev/null && echo uncovered") for _ in range(3)]
    assert said[1:] == ["", ""]
    assert holding.held[1:] == [True, True]


def replace_file(folder: Path, name: str) -> None:
    (folder / "new").write_text("visible-if-it-escapes\n")
    os.replace(folder / "new", folder / name)


def remake_folder(folder: Path, name: str) -> None:
    moved = folder.with_name("moved")
    folder.rename(moved)
    folder.mkdir()
    for each in ("secret", "protected", "closed"):
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


def test_a_file_that_was_renamed_and_linked_back_does_not_stop_all_commands(holding: Holding):
    for _ in range(2):
        holding.run("true")
    file, renamed = holding.folder / "protected", holding.folder / "renamed"
    file.rename(renamed)
    file.hardlink_to(renamed)
    for _ in range(3):
        assert holding.run("echo here; echo changed 2> /dev/null > protected") == "here\n"
    assert file.read_text() == "as it was\n"
    assert holding.held[-3:] == [False, True, True]


def test_walls_that_were_built_around_another_file_are_not_held(holding: Holding, monkeypatch: pytest.MonkeyPatch):
    file, other, aside = (holding.folder / name for name in ("protected", "other", "aside"))
    other.write_text("another file\n")

    class SwappedWhileBuilt(module._Holder):
        def __init__(self, words: Sequence[str]) -> None:
            file.rename(aside)
            other.rename(file)
            try:
                super().__init__(words)
            finally:
                file.rename(other)
                aside.rename(file)

    holding.run("true")
    monkeypatch.setattr(module, "_Holder", SwappedWhileBuilt)
    assert [holding.run("echo here") for _ in range(3)] == ["here\n"] * 3
    assert holding.held == [False] * 4


def test_a_readable_folder_that_comes_back_is_readable_again():
    with TemporaryDirectory(dir="/var/tmp") as folder:
        root, tool, moved = (Path(folder) / name for name in ("root", "tool", "moved"))
        root.mkdir()
        tool.mkdir()
        (tool / "version").write_text("1\n")
        rules = WallRules((str(root),), protects, refuses, allow_read=(str(tool),))
        holding = Holding(root, SessionSandbox(rules, child_environment(os.environ), TIER))
        try:
            holding.run("true")
            tool.rename(moved)
            assert "No such file" in holding.run(f"cat {tool}/version")
            moved.rename(tool)
            assert [holding.run(f"cat {tool}/version") for _ in range(3)] == ["1\n"] * 3
        finally:
            holding.sandbox.close()


def test_walls_whose_holder_was_killed_are_built_again(holding: Holding):
    for _ in range(2):
        holding.run("true")
    (held,) = holding.walls
    process = psutil.Process(held.holder.pid)
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


def test_commands_run_where_the_home_is_the_root_folder(monkeypatch: pytest.MonkeyPatch):
    """From the second command on, bubblewrap found the links of the first one in the private home and ended."""
    monkeypatch.setenv("HOME", "/")
    with held_walls() as holding:
        said = [holding.run("echo here; cat secret; touch /made") for _ in range(3)]
    assert [each.partition("\n")[0] for each in said] == ["here"] * 3
    assert said[0] == said[1] == said[2]
    assert "visible" not in said[0]
    assert "Read-only file system" in said[0]


def lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_walls_out_of_use_last_until_commands_that_were_given_them_have_started(
    holding: Holding, monkeypatch: pytest.MonkeyPatch
):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    for _ in range(2):
        holding.run("true")
    left = [holding.walls[0].holder.pid]
    for _ in range(2):
        replace_file(holding.folder, "protected")
        for _ in range(2):
            holding.run("true")
        left.append(holding.walls[0].holder.pid)
        assert all(map(lives, left))
    now[0] += module._STARTED + 1
    replace_file(holding.folder, "protected")
    holding.run("true")
    assert [*map(lives, left)] == [False, False, True]


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


def print_what_a_mount_changes() -> None:
    with held_walls() as holding:
        place = holding.folder / "mounted"
        place.mkdir()
        for _ in range(2):
            holding.run("true")
        subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
        (place / "file").write_text("in the mount\n")
        said = [holding.run("cat mounted/file") for _ in range(3)]
        subprocess.run(["umount", "--lazy", place], check=True)
        print(said, holding.held)


def test_walls_are_built_again_when_a_mount_of_the_machine_has_changed():
    """The process has mounts of its own, since other tests would notice a change of those of the machine."""
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root can mount")
    code = "from tests.unit.workspace.sandbox.test_held_walls import print_what_a_mount_changes as main; main()"
    ended = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    said, held = ["in the mount\n"] * 3, [False, True, False, True, True]
    assert (ended.stdout, ended.stderr) == (f"{said} {held}\n", "")
