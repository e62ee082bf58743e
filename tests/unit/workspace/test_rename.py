import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from acp_agent.workspace.atomic_write import rename_new, rename_new_by_steps
from tests.unit.workspace.trees import nobodys_folder

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
