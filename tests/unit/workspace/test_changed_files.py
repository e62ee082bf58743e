"""What a command has changed: which files are looked at, and which differences are shown."""

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acp_agent.config.files import PathStamps
from acp_agent.core.types import Access
from acp_agent.workspace import changed_files, snapshots
from acp_agent.workspace.changed_files import CommandChanges, FileWatch, SessionSnapshots
from acp_agent.workspace.git.objects import SnapshotLimits
from acp_agent.workspace.roots import Roots
from acp_agent.workspace.snapshots import FolderWatch, TextStore


class Folder:
    """A folder that a watch looks at."""

    def __init__(self, path: Path, roots: Roots) -> None:
        self.path = path
        self.watch = FileWatch(roots, SessionSnapshots("/dev/null/undo/a", "a"), None)

    def put(self, name: str, text: str | bytes = "text\n") -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)

    def changes(self, **files: str | bytes | None) -> CommandChanges:
        """Return what is noticed if these files are written or, for None, deleted; `__` stands for a dot."""
        state = self.watch.before()
        for name, text in files.items():
            path = name.replace("__", ".")
            if text is None:
                (self.path / path).unlink()
            else:
                self.put(path, text)
        return self.watch.since(state)

    def names(self, found: CommandChanges) -> tuple[list[str], list[str], list[str]]:
        diffs = [diff.path for diff in found.diffs]
        return tuple([Path(path).name for path in paths] for paths in (found.changed, found.deleted, diffs))  # type: ignore[return-value]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    with Roots(str(tmp_path)) as roots:
        yield Folder(tmp_path, roots)


def test_new_changed_and_deleted_files_are_noticed_and_the_same_again_is_not(folder: Folder) -> None:
    folder.put("a.py", "one\n")
    folder.put("b.py", "two\n")
    found = folder.changes(a__py="uno\n", b__py=None, c__py="three\n")
    assert folder.names(found) == (["a.py", "c.py"], ["b.py"], ["a.py", "c.py", "b.py"])
    assert [(diff.old_text, diff.new_text) for diff in found.diffs] == [
        ("one\n", "uno\n"),
        (None, "three\n"),
        ("two\n", ""),
    ]
    assert folder.changes() == CommandChanges([], [], ())
    assert folder.changes(a__py="uno\n") == CommandChanges([], [], ()), "written again with the same text"


def test_ignored_files_and_the_folders_of_tools_are_not_looked_at(folder: Folder) -> None:
    folder.put(".gitignore", "*.log\nout/\n")
    folder.put("out/a", "a")
    folder.put(".git/index", "a")
    state = folder.watch.before()
    for name in ("x.log", "out/a", ".git/index", "node_modules/m/index.js", "src/kept.py"):
        folder.put(name, "new\n")
    assert folder.names(folder.watch.since(state)) == (["kept.py"], [], ["kept.py"])


def test_what_is_known_of_folders_that_are_gone_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("out*/\n")
    with Roots(str(tmp_path)) as roots:
        watch = FolderWatch(roots.all[0], TextStore(), SnapshotLimits())
        for number in range(20):
            folders = [tmp_path / f"{name}{number}" for name in ("out", "made")]
            for folder in folders:
                folder.mkdir()
            watch.look_at_all()
            watch.look(first=True)
            for folder in folders:
                folder.rmdir()
        assert sorted(watch._ignored.items()) == [("made19", False), ("out19", True)]


def test_names_that_are_no_utf_8_are_noticed_beside_an_ignore_file(folder: Folder) -> None:
    folder.put(".gitignore", "*.log\n")
    inside, log = os.fsdecode(b"caf\xe9/\xff.py"), os.fsdecode(b"caf\xe9/\xff.log")
    folder.put(inside)
    found = folder.changes(**{inside: "changed\n", log: "new\n"})
    assert [os.path.relpath(path, folder.path) for path in found.changed] == [inside]


def test_binary_large_and_secret_files_are_named_and_not_shown(folder: Folder) -> None:
    found = folder.changes(a__bin=b"\0\1", big__txt="x" * 200_000, __env="KEY=1", plain__txt="p\n")
    assert folder.names(found) == ([".env", "a.bin", "big.txt", "plain.txt"], [], ["plain.txt"])


def test_at_most_ten_differences_are_shown(folder: Folder) -> None:
    found = folder.changes(**{f"f{number:02}__txt": "x\n" for number in range(15)})
    assert len(found.changed) == 15
    assert len(found.diffs) == changed_files.MOST_DIFFS


def test_links_are_not_followed(folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (folder.path / "link").symlink_to(elsewhere)
    state = folder.watch.before()
    (elsewhere / "x.txt").write_text("x")
    (folder.path / "other").symlink_to("/etc/passwd")
    assert folder.names(folder.watch.since(state)) == (["other"], [], [])


def test_files_that_may_not_be_read_are_not_named(tmp_path: Path) -> None:
    def policy(path: str, access: Access) -> str | None:
        return "hidden" if access is Access.READ and path.endswith("hidden.txt") else None

    with Roots(str(tmp_path), policy=policy) as roots:
        folder = Folder(tmp_path, roots)
        found = folder.changes(hidden__txt="x", shown__txt="x")
    assert folder.names(found) == (["shown.txt"], [], ["shown.txt"])


def test_large_trees_are_not_looked_at_a_second_time(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "MOST_ENTRIES", 5)
    for number in range(7):
        folder.put(f"{number}.txt")
    folder.watch.before()
    assert folder.watch.limit == 5
    for number in range(3):
        (folder.path / f"{number}.txt").unlink()
    assert folder.changes(new__txt="x") == CommandChanges([], [], ())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the kernel does not tell which folders changed")
def test_nothing_is_kept_of_a_tree_that_is_too_large(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "SMALL", 3)
    monkeypatch.setattr(snapshots, "MOST_ENTRIES", 8)
    for number in range(7):
        folder.put(f"d/{number}.txt")
        folder.put(f"node_modules/{number}.txt")  # is not entered
    folder.watch.before()
    assert folder.watch.limit == 0
    watched = open_events()
    folder.put("d/e/7.txt")
    folder.watch.prepare()
    assert folder.watch.limit == 8
    assert open_events() < watched


def open_events() -> int:
    """The number of open descriptors of inotify."""
    links = (Path(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd"))
    return sum("inotify" in str(link.readlink()) for link in links if link.is_symlink())


def apply(folder: Path, step: tuple[str, str, str]) -> None:
    """Do one step of a command. A step that cannot be done does nothing."""
    what, one, two = step
    first, second = folder / one, folder / two
    with suppress(OSError):
        match what:
            case "write":
                first.parent.mkdir(parents=True, exist_ok=True)
                first.write_text(two)
            case "move":
                first.rename(second)
            case "delete":
                shutil.rmtree(first) if first.is_dir() else first.unlink()
            case "folder":
                first.mkdir(parents=True)
            case "link":
                os.link(first, second)
            case _:
                first.chmod(0o600 if first.is_file() else 0o711)


NAMES = ("a", "b", "d", "d/a", "d/e", "d/e/a", "f", "f/a", "f/e/b", ".gitignore", "build/x")
VERBS = st.sampled_from(("write", "write", "move", "delete", "folder", "mode", "link"))


def steps_on(names: Sequence[str]) -> st.SearchStrategy[list[tuple[str, str, str]]]:
    return st.lists(st.tuples(VERBS, st.sampled_from(names), st.sampled_from(names)), max_size=6)


STEPS = steps_on(NAMES)  # whether rules that a command makes in a subfolder apply to the same command is left open


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel does not tell what changed")
@given(commands=st.lists(STEPS, min_size=1, max_size=4), between=steps_on((*NAMES, "d/.gitignore")))
@example(
    commands=[[("link", "build/x", "a")], [("write", "build/x", "a")]],
    between=[("write", "build/x", "b")],
)
@example(commands=[[("write", ".gitignore", "d")], [("write", "d/a", "a")]], between=[])
def test_what_the_kernel_tells_is_what_a_walk_finds(commands: list[Any], between: list[Any]):
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch, Roots(name) as roots:
        path = Path(name)
        (path / "d/e").mkdir(parents=True)
        (path / ".gitignore").write_text("build\n")
        limits = SnapshotLimits()
        watched, walking = (FolderWatch(roots.all[0], TextStore(), limits) for _ in range(2))
        for steps in commands:
            for step in between:
                apply(path, step)
            patch.setattr(snapshots, "SMALL", 0)
            here = watched.look(first=True)
            patch.setattr(snapshots, "SMALL", 1000)
            assert here == walking.look(first=True)
            for step in steps:
                apply(path, step)
            assert watched.look() == walking.look()
        watched.close()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel does not tell what changed")
@pytest.mark.parametrize("trouble", ["it forgets", "it does not watch"])
def test_a_kernel_that_does_not_tell_what_changed_costs_a_walk(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, trouble: str
):
    monkeypatch.setattr(snapshots, "SMALL", 0)
    if trouble == "it forgets":
        monkeypatch.setattr(snapshots, "_IN_OVERFLOW", 0xFFFF)
    else:
        monkeypatch.setattr(snapshots, "_IN_CHANGES", 0)
    folder.put("a.txt")
    folder.put("d/b.txt")
    found = folder.changes(**{"d/b__txt": "new\n", "e/c__txt": "c\n"})
    assert folder.names(found) == (["b.txt", "c.txt"], [], ["b.txt", "c.txt"])


def test_of_a_large_tree_only_the_folders_that_changed_are_listed_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(snapshots, "SMALL", 0)
    for number in range(50):
        folder.put(f"d{number}/a.txt")
    listed: list[str] = []
    scanned = os.scandir
    folder.watch.before()
    monkeypatch.setattr(os, "scandir", lambda fd: listed.append(os.readlink(f"/proc/self/fd/{fd}")) or scanned(fd))
    found = folder.changes(**{"d7/a__txt": "new\n"})
    assert folder.names(found) == (["a.txt"], [], ["a.txt"])
    assert set(listed) == {str(folder.path / "d7")}


def test_a_tree_is_large_if_the_index_of_its_repository_is(folder: Folder) -> None:
    assert not folder.watch.measure(PathStamps())
    assert not folder.watch.is_large
    folder.put(".git/index", b"0" * 300_001)
    assert folder.watch.measure(PathStamps())
    assert folder.watch.is_large
