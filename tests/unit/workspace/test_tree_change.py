"""Directories are made and entries moved: every rule at both ends, and nothing half done."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from acp_agent.core.backends import EntryKind
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.types import Access
from acp_agent.workspace.beneath import Opener
from acp_agent.workspace.entries import rename_new, rename_new_by_steps
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.roots import Roots
from tests.unit.workspace.trees import Rules, few_descriptors, make_deep, nobodys_folder, open_fds, state

pytestmark = pytest.mark.anyio


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def ruled(project: Path, opener: Opener, rules: Rules) -> Iterator[LocalFileSystem]:
    """The project's files under `rules`."""
    with Roots(str(project), policy=rules, opener=opener) as roots:
        yield LocalFileSystem(roots)


# -------------------------------------------------------------------------------- make_directory


async def test_a_directory_that_cannot_be_made_takes_its_new_parents_with_it(files: LocalFileSystem, project: Path):
    for path in (f"new/{'x' * 300}", "new/a\0b/c"):
        with pytest.raises(ToolError) as raised:
            await files.make_directory(path)
        assert raised.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS
    with nobodys_folder() as folder, Roots(str(folder)) as roots:
        (folder / "locked").mkdir(mode=0o500)
        with pytest.raises(ToolError, match="locked/a/b: permission denied"):
            await LocalFileSystem(roots).make_directory("locked/a/b")
        assert os.listdir(folder / "locked") == []
    assert os.listdir(project) == []


@pytest.mark.parametrize("make", ["file", "fifo", "link to a file"])
async def test_what_is_there_and_no_directory_is_an_error(files: LocalFileSystem, project: Path, make: str):
    match make:
        case "fifo":
            os.mkfifo(project / "odd")
        case "file":
            (project / "odd").write_text("x")
        case _:
            (project / "real").write_text("x")
            (project / "odd").symlink_to("real")
    with pytest.raises(ToolError, match="odd: exists and is not a directory"):
        await files.make_directory("odd")


async def test_a_protected_directory_is_not_made(ruled: LocalFileSystem, rules: Rules, project: Path):
    rules.refused = {("a/.git", Access.WRITE)}
    with pytest.raises(Refused, match=r"a/\.git: protected"):
        await ruled.make_directory("a/.git")
    assert os.listdir(project) == []


# ------------------------------------------------------------------------------------------ move


@pytest.fixture
def tree(project: Path) -> dict[str, tuple[int, bytes]]:
    """d/a, d/sub/b, d/sub/link and d/pipe in the project, as they are at the start."""
    (project / "d" / "sub").mkdir(parents=True)
    (project / "d" / "a").write_text("a")
    (project / "d" / "sub" / "b").write_text("b")
    (project / "d" / "sub" / "link").symlink_to("/etc")
    os.mkfifo(project / "d" / "pipe")
    return state(project)


async def test_every_kind_of_entry_is_moved_as_it_is(files: LocalFileSystem, project: Path, tree: object):
    (project / "d" / "a").chmod(0o640)
    inode = (project / "d" / "a").stat().st_ino
    await files.move("d", "x/y")
    moved = (project / "x" / "y" / "a").stat()
    assert (moved.st_ino, stat.S_IMODE(moved.st_mode)) == (inode, 0o640)
    assert os.readlink(project / "x" / "y" / "sub" / "link") == "/etc"
    await files.move("x/y/pipe", "pipe")
    assert stat.S_ISFIFO((project / "pipe").lstat().st_mode)


@pytest.mark.parametrize(
    "refused",
    [
        ("d", Access.MOVE),
        ("d", Access.LIST),
        ("d/a", Access.MOVE),
        ("d/a", Access.READ),
        ("d/sub", Access.LIST),
        ("d/sub/b", Access.READ),
        ("d/sub/link", Access.MOVE),
        ("new/d", Access.WRITE),
        ("new/d/a", Access.WRITE),
        ("new/d/sub", Access.WRITE),
        ("new/d/sub/b", Access.WRITE),
        ("new/d/pipe", Access.WRITE),
    ],
)
async def test_one_protected_entry_at_either_end_keeps_the_whole_tree_where_it_is(
    ruled: LocalFileSystem, rules: Rules, project: Path, tree: object, refused: tuple[str, Access]
):
    rules.refused = {refused}
    with pytest.raises(Refused):
        await ruled.move("d", "new/d")
    assert state(project) == tree


async def test_what_may_not_be_read_is_not_named_and_what_may_is(ruled: LocalFileSystem, rules: Rules, tree: object):
    rules.refused = {("d/sub/b", Access.READ), ("d/sub/b", Access.MOVE)}
    with pytest.raises(Refused, match="d: something below it: may not be moved"):
        await ruled.move("d", "new")
    rules.refused = {("d/sub/b", Access.MOVE)}
    with pytest.raises(Refused, match="d/sub/b: may not be moved"):
        await ruled.move("d", "new")


async def test_the_parents_of_a_destination_go_again_when_the_move_fails(
    ruled: LocalFileSystem, rules: Rules, project: Path, tree: object
):
    with nobodys_folder() as folder, Roots(str(folder)) as roots:
        (folder / "locked").mkdir()
        (folder / "locked" / "file").write_text("x")
        (folder / "locked").chmod(0o500)
        with pytest.raises(ToolError, match="locked/file -> new/deep/file: permission denied"):
            await LocalFileSystem(roots).move("locked/file", "new/deep/file")
        assert os.listdir(folder) == ["locked"]
        (folder / "locked").chmod(0o700)


async def test_what_appears_at_the_destination_meanwhile_is_not_replaced(
    ruled: LocalFileSystem, rules: Rules, project: Path, tree: object
):
    def appear(path: str, access: Access) -> None:
        if access is Access.WRITE and path.endswith("new/sub/b"):
            (project / "new").mkdir(exist_ok=True)

    rules.when = appear
    with pytest.raises(ToolError, match="new: exists already; nothing was replaced"):
        await ruled.move("d", "new")
    assert os.listdir(project / "new") == []


async def test_a_root_is_not_moved_nor_what_it_lies_below_whatever_it_is_called_now(project: Path, opener: Opener):
    (project / "deep" / "inner").mkdir(parents=True)
    with Roots(str(project), [str(project / "deep" / "inner")], opener=opener) as roots:
        files = LocalFileSystem(roots)
        for name in ("inner", "renamed"):
            (project / "deep" / "inner").rename(project / "deep" / name)
            for path in ("deep", f"deep/{name}"):
                for attempt in (partial(files.move, path, "new"), partial(files.delete, path, recursive=True)):
                    with pytest.raises(Refused, match="directory of this session"):
                        await attempt()


async def test_a_renamed_root_is_known_by_what_it_is_in_a_tree_that_moved_too(project: Path, opener: Opener):
    (project / "deep" / "inner").mkdir(parents=True)
    (project / "deep" / "inner" / "file").write_text("x")
    with Roots(str(project), [str(project / "deep" / "inner")], opener=opener) as roots:
        (project / "deep").rename(project / "moved")
        for attempt in (
            LocalFileSystem(roots).move("moved", "new"),
            LocalFileSystem(roots).delete("moved", recursive=True),
        ):
            with pytest.raises(Refused, match="moved/inner: is a directory of this session"):
                await attempt
    assert (project / "moved" / "inner" / "file").read_text() == "x"


async def test_between_two_roots_things_are_moved_and_between_file_systems_the_error_says_how(
    project: Path, outside: Path, opener: Opener
):
    (project / "file").write_text("x")
    (project / "sub").mkdir()
    with TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as memory:
        with Roots(str(project), [str(outside), memory], opener=opener) as roots:
            files = LocalFileSystem(roots)
            await files.move("file", f"{outside}/file")
            assert (outside / "file").read_text() == "x"
            if os.stat(memory).st_dev == os.stat(project).st_dev:
                pytest.skip("there is only one file system here")
            with pytest.raises(ToolError, match="different file systems") as raised:
                await files.move("sub", f"{memory}/new/sub")
        assert "copy_path" in raised.value.failure.suggestion
        assert os.listdir(memory) == []
    assert os.listdir(project) == ["sub"]


async def test_an_unreadable_directory_is_not_moved_unseen():
    with nobodys_folder() as folder, Roots(str(folder)) as roots:
        (folder / "d" / "locked").mkdir(parents=True)
        (folder / "d" / "locked").chmod(0)
        with pytest.raises(ToolError, match="d/locked: permission denied"):
            await LocalFileSystem(roots).move("d", "new")
        assert os.listdir(folder) == ["d"]


async def test_a_file_with_a_slash_behind_its_destination_is_told_the_whole_path(files: LocalFileSystem, tree: object):
    for attempt in (files.move("d/a", "new/"), files.copy("d/a", "new/")):
        with pytest.raises(ToolError, match="new/: names a directory") as raised:
            await attempt
        assert raised.value.failure.suggestion == "Give the whole new path: new/a"
    await files.move("d", "new/")
    assert await files.kind("new") is EntryKind.DIRECTORY


async def test_a_tree_of_any_depth_is_moved_and_deleted(project: Path):
    make_deep(project / "deep", 1200)
    with Roots(str(project)) as roots:
        files = LocalFileSystem(roots)
        await files.list_directory(".")
        before = open_fds()
        with few_descriptors(8):
            await files.move("deep", "x/y")
            assert (await files.delete("x", recursive=True)).below == 2401
        assert not open_fds() - before
    assert os.listdir(project) == []


Rename = Callable[[int, str, int, str], None]


@pytest.fixture(params=[rename_new, rename_new_by_steps])
def rename(request: pytest.FixtureRequest) -> Rename:
    return request.param


@pytest.fixture
def here(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def test_files_links_and_directories_get_their_new_name(rename: Rename, here: int, tmp_path: Path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "folder" / "sub").mkdir(parents=True)
    other = os.open(tmp_path / "folder" / "sub", os.O_RDONLY | os.O_DIRECTORY)
    rename(here, "file", other, "file2")
    rename(here, "link", other, "link2")
    rename(other, "file2", here, "file3")
    rename(here, "folder", here, "folder2")
    os.close(other)
    assert sorted(os.listdir(tmp_path)) == ["file3", "folder2"]
    assert (tmp_path / "file3").read_text() == "x"
    assert os.readlink(tmp_path / "folder2" / "sub" / "link2") == "nowhere"


@pytest.mark.parametrize("old", ["file", "link", "folder"])
@pytest.mark.parametrize("new", ["file2", "dangling", "empty", "full"])
def test_nothing_is_ever_replaced(rename: Rename, here: int, tmp_path: Path, old: str, new: str):
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file2").write_text("new")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(FileExistsError):
        rename(here, old, here, new)
    assert sorted(os.listdir(tmp_path)) == before
    assert (tmp_path / "file2").read_text() == "new"


def test_a_directory_into_itself_and_a_missing_entry_keep_their_own_errors(rename: Rename, here: int, tmp_path: Path):
    (tmp_path / "folder" / "sub").mkdir(parents=True)
    inside = os.open(tmp_path / "folder" / "sub", os.O_RDONLY | os.O_DIRECTORY)
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        rename(here, "folder", inside, "new")
    with pytest.raises(FileNotFoundError):
        rename(here, "missing", inside, "new")
    os.close(inside)


def test_a_file_that_cannot_lose_its_old_name_does_not_keep_two():
    with nobodys_folder() as folder:
        (folder / "locked").mkdir()
        (folder / "locked" / "file").write_text("x")
        (folder / "locked").chmod(0o500)
        locked = os.open(folder / "locked", os.O_RDONLY | os.O_DIRECTORY)
        free = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        with pytest.raises(PermissionError):
            rename_new_by_steps(locked, "file", free, "file")
        assert os.listdir(folder) == ["locked"]
        assert os.listdir(locked) == ["file"]
        os.close(locked)
        os.close(free)
        (folder / "locked").chmod(0o700)
