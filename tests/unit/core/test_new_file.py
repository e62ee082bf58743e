"""Files that get their name when they are whole, and what a killed writer leaves behind."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from acp_agent.core.new_file import NewFile, is_temporary, remove_leftovers
from acp_agent.store.private_file import replace_private
from acp_agent.workspace.entries import OldFile, replace_file

HAS_UNNAMED = hasattr(os, "O_TMPFILE")
BOTH = pytest.mark.parametrize(
    "unnamed", [pytest.param(True, marks=pytest.mark.skipif(not HAS_UNNAMED, reason="O_TMPFILE")), False]
)


@pytest.fixture
def folder(tmp_path: Path):
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


@BOTH
def test_a_file_that_is_not_whole_leaves_nothing(tmp_path: Path, folder: int, unnamed: bool):
    with closing(NewFile(folder, 0o600, unnamed=unnamed)) as new:
        os.write(new.fd, b"half")
        names = os.listdir(tmp_path)
        assert names == [] if unnamed else all(is_temporary(name) for name in names)
        new.temporary_name()
        assert [is_temporary(name) for name in os.listdir(tmp_path)] == [True]
        assert remove_leftovers(folder) == []
        assert len(os.listdir(tmp_path)) == 1
    assert os.listdir(tmp_path) == []


@BOTH
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755, 0o444])
def test_a_file_is_replaced_with_its_permissions_and_a_new_one_never_replaces(
    tmp_path: Path, folder: int, unnamed: bool, mode: int
):
    assert replace_file(folder, "a", b"new", None, unnamed=unnamed)
    assert not replace_file(folder, "a", b"newer", None, unnamed=unnamed)
    (tmp_path / "a").chmod(mode)
    with open(tmp_path / "a", "rb") as file:
        old = OldFile(file.fileno(), os.fstat(file.fileno()), b"new")
        assert replace_file(folder, "a", b"newest", old, unnamed=unnamed)
        assert not replace_file(folder, "a", b"late", old, unnamed=unnamed)
    assert (tmp_path / "a").read_bytes() == b"newest"
    assert (tmp_path / "a").stat().st_mode & 0o777 == mode
    assert os.listdir(tmp_path) == ["a"]


def test_only_files_of_this_user_with_our_names_are_removed_and_no_link_is_followed(tmp_path: Path, folder: int):
    left, link, look_alike = ".acp-agent-0123456789abcdef.tmp", ".acp-agent-1123456789abcdef.tmp", ".acp-agent-x.tmp"
    (tmp_path / "kept").write_text("kept")
    (tmp_path / left).write_text("half")
    (tmp_path / look_alike).write_text("")
    (tmp_path / link).symlink_to(tmp_path / "kept")
    assert remove_leftovers(folder) == []
    assert sorted(os.listdir(tmp_path)) == sorted([link, look_alike, "kept"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_what_belongs_to_somebody_else_stays(tmp_path: Path, folder: int):
    left = tmp_path / ".acp-agent-0123456789abcdef.tmp"
    left.write_text("half")
    tmp_path.chmod(0o777)
    os.chown(left, 12345, 12345)
    pid = os.fork()
    if not pid:
        os.setresuid(65534, 65534, 65534)
        remove_leftovers(folder)
        os._exit(0)
    os.waitpid(pid, 0)
    assert left.exists()


KILLED = """
import os, sys
from acp_agent.core.new_file import NewFile
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
new = NewFile(fd, 0o600, unnamed=sys.argv[2] == "True")
os.write(new.fd, b"half")
if sys.argv[3] == "named":
    new.temporary_name()
print("writing", flush=True)
sys.stdin.readline()
"""


@BOTH
@pytest.mark.parametrize("how", ["plain", "named"])
def test_what_a_killed_process_was_writing_is_removed_by_the_next_and_not_before(
    tmp_path: Path, folder: int, unnamed: bool, how: str
):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(unnamed), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        remove_leftovers(folder)
        assert len(os.listdir(tmp_path)) == (0 if unnamed and how == "plain" else 1)
        process.send_signal(signal.SIGKILL)
    remove_leftovers(folder)
    assert os.listdir(tmp_path) == []


def test_a_private_file_is_replaced_whole_and_takes_leftovers_with_it(tmp_path: Path):
    (tmp_path / ".acp-agent-0123456789abcdef.tmp").write_text("key")
    replace_private(str(tmp_path / "a.toml"), "a = 1\n")
    replace_private(str(tmp_path / "a.toml"), "a = 2\n")
    assert os.listdir(tmp_path) == ["a.toml"]
    assert (tmp_path / "a.toml").read_text() == "a = 2\n"
    assert (tmp_path / "a.toml").stat().st_mode & 0o777 == 0o600
