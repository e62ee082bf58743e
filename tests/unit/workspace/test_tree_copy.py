"""Copying: all or nothing, bytes and permissions as they are, and nothing that may not be read."""

import os
import socket
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import anyio.from_thread
import pytest
from anyio import to_thread

from acp_agent.core.backends import Copied, EntryKind
from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.types import Access
from acp_agent.workspace import tree_changes as tree_copy
from acp_agent.workspace.beneath import Opener
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.roots import Roots
from tests.unit.workspace.trees import (
    ROOT_USER,
    Rules,
    few_descriptors,
    make_deep,
    no_file_larger_than,
    nobodys_folder,
    open_fds,
    state,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def ruled(project: Path, opener: Opener, rules: Rules) -> Iterator[LocalFileSystem]:
    """The project's files under `rules`: d/a, d/b/c and d/z."""
    (project / "d" / "b").mkdir(parents=True)
    for path in ("d/a", "d/b/c", "d/z"):
        (project / path).write_text(path)
    with Roots(str(project), policy=rules, opener=opener) as roots:
        yield LocalFileSystem(roots)


# ---------------------------------------------------------------------------------- what is copied


async def test_bytes_and_permissions_are_kept_and_set_user_id_is_not(files: LocalFileSystem, project: Path):
    (project / "d" / "bin").mkdir(parents=True)
    data = os.urandom(3 * 1024 * 1024 + 17)
    for path, mode in (("d/bin/tool", 0o4755), ("d/private", 0o600), ("d/open", 0o666), ("d/write-only", 0o444)):
        (project / path).write_bytes(data)
        (project / path).chmod(mode)
    (project / "d" / "bin").chmod(0o2555)
    (project / "d").chmod(0o750)
    assert await files.copy("d", "e") == Copied(EntryKind.DIRECTORY, 4, 0)
    assert await files.copy("d/bin/tool", "tool") == Copied(EntryKind.FILE, 1, 0)
    for path, mode in (("e/bin/tool", 0o755), ("e/private", 0o600), ("e/open", 0o666), ("e/write-only", 0o444)):
        assert (project / path).read_bytes() == data
        assert stat.S_IMODE((project / path).stat().st_mode) == mode
    assert stat.S_IMODE((project / "tool").stat().st_mode) == 0o755
    assert [stat.S_IMODE((project / path).stat().st_mode) for path in ("e", "e/bin")] == [0o750, 0o555]
    (project / "d" / "private").write_text("changed")
    assert (project / "e" / "private").read_bytes() == data


async def test_a_hole_is_copied_as_a_hole(files: LocalFileSystem, project: Path):
    with (project / "sparse").open("wb") as file:
        file.truncate(8 * 1024**3)
        file.seek(4 * 1024**3)
        file.write(b"in the middle")
    if (project / "sparse").stat().st_blocks > 1024:
        pytest.skip("this file system has no holes")
    await files.copy("sparse", "copy")
    copied = (project / "copy").stat()
    assert copied.st_size == 8 * 1024**3
    assert copied.st_blocks <= 4096
    with (project / "copy").open("rb") as file:
        file.seek(4 * 1024**3)
        assert file.read(14) == b"in the middle\0"


async def test_links_and_special_files_are_left_out_and_counted(files: LocalFileSystem, project: Path, outside: Path):
    (project / "d" / "sub").mkdir(parents=True)
    (project / "d" / "file").write_text("x")
    os.mkfifo(project / "d" / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(project / "d" / "sock"))
    (project / "d" / "link").symlink_to(outside / "secret")
    (project / "d" / "sub" / "folder").symlink_to(outside)
    if ROOT_USER:
        os.mknod(project / "d" / "device", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    assert await files.copy("d", "e") == Copied(EntryKind.DIRECTORY, 1, 5 if ROOT_USER else 4)
    assert sorted(state(project / "e")) == ["file", "sub"]
    for odd in ("pipe", "sock"):
        with pytest.raises(ToolError, match=f"d/{odd}: is neither a file nor a directory"):
            await files.copy(f"d/{odd}", "x")


async def test_a_name_that_is_no_text_is_copied_too(files: LocalFileSystem, project: Path):
    (project / "d").mkdir()
    Path(os.fsdecode(os.fsencode(project) + b"/d/caf\xe9")).write_text("x")
    assert (await files.copy("d", "e")).files == 1
    assert os.listdir(os.fsencode(project) + b"/e") == [b"caf\xe9"]


async def test_what_may_not_be_read_or_listed_is_left_out(ruled: LocalFileSystem, rules: Rules, project: Path):
    rules.refused = {("d/a", Access.READ), ("d/b", Access.LIST)}
    assert await ruled.copy("d", "e") == Copied(EntryKind.DIRECTORY, 1, 2)
    assert list(state(project / "e")) == ["z"]
    with pytest.raises(Refused, match="d/a: protected"):
        await ruled.copy("d/a", "f")
    with pytest.raises(Refused, match="d/b: protected"):
        await ruled.copy("d/b", "f")


async def test_what_the_user_may_not_read_is_left_out():
    with nobodys_folder() as folder, Roots(str(folder)) as roots:
        (folder / "d" / "locked").mkdir(parents=True)
        (folder / "d" / "secret").write_text("x")
        (folder / "d" / "open").write_text("x")
        (folder / "d" / "secret").chmod(0)
        (folder / "d" / "locked").chmod(0)
        files = LocalFileSystem(roots)
        assert await files.copy("d", "e") == Copied(EntryKind.DIRECTORY, 1, 2)
        assert os.listdir(folder / "e") == ["open"]
        for path in ("d/secret", "d/locked"):
            with pytest.raises(ToolError, match=f"{path}: permission denied"):
                await files.copy(path, "new/f")
        assert sorted(os.listdir(folder)) == ["d", "e"]


async def test_read_only_directories_can_be_copied_and_a_failed_copy_of_them_goes_again():
    with nobodys_folder() as folder:
        (folder / "d" / "sub").mkdir(parents=True)
        (folder / "d" / "sub" / "file").write_text("x")
        (folder / "d" / "z").write_text("x")
        (folder / "d" / "sub").chmod(0o500)
        (folder / "d").chmod(0o500)
        rules = Rules()
        with Roots(str(folder), policy=rules) as roots:
            files = LocalFileSystem(roots)
            assert (await files.copy("d", "e")).files == 2
            rules.refused = {("f/z", Access.WRITE)}
            with pytest.raises(Refused):
                await files.copy("d", "f")
        assert sorted(os.listdir(folder)) == ["d", "e"]
        assert stat.S_IMODE((folder / "e" / "sub").stat().st_mode) == 0o500
        for path in ("d", "d/sub", "e", "e/sub"):
            (folder / path).chmod(0o700)


async def test_a_tree_deeper_than_any_path_is_copied(project: Path):
    make_deep(project / "deep", 450)
    with Roots(str(project)) as roots:
        files = LocalFileSystem(roots)
        await files.list_directory(".")
        before = open_fds()
        with few_descriptors(10):
            assert (await files.copy("deep", "x/y")).files == 450
            assert (await files.delete("x", recursive=True)).below == 901
            await files.delete("deep", recursive=True)
        assert open_fds() == before


# -------------------------------------------------------------------------------- all or nothing


@pytest.mark.parametrize("refused", ["new/e", "new/e/a", "new/e/b", "new/e/b/c", "new/e/z"])
async def test_one_name_that_may_not_be_written_stops_the_whole_copy(
    ruled: LocalFileSystem, rules: Rules, project: Path, refused: str
):
    before = state(project)
    rules.refused = {(refused, Access.WRITE)}
    with pytest.raises(Refused, match=refused):
        await ruled.copy("d", "new/e")
    assert state(project) == before


@pytest.mark.parametrize("source", ["d", "d/big"])
async def test_a_full_disk_leaves_nothing_behind(files: LocalFileSystem, project: Path, source: str):
    (project / "d" / "sub").mkdir(parents=True)
    (project / "d" / "a").write_bytes(b"x" * 100)
    (project / "d" / "big").write_bytes(b"x" * 20_000)
    (project / "d" / "sub" / "c").write_bytes(b"x")
    before = state(project)
    await files.list_directory(".")
    descriptors = open_fds()
    with no_file_larger_than(10_000), pytest.raises(ToolError, match=r"new/e: too large .*; nothing was changed"):
        await files.copy(source, "new/e")
    assert state(project) == before
    assert open_fds() == descriptors


async def test_too_many_entries_are_an_error_and_leave_nothing(ruled: LocalFileSystem, project: Path):
    before = state(project)
    with Roots(str(project)) as roots:
        copying = partial(tree_copy.copy, roots, "d", "new/e", max_entries=3)
        with pytest.raises(ToolError, match="d: has too many entries for one copy; nothing was copied"):
            await to_thread.run_sync(copying)
        assert state(project) == before
        assert await to_thread.run_sync(partial(copying, max_entries=4)) == Copied(EntryKind.DIRECTORY, 3, 0)


@pytest.mark.parametrize("there", ["file", "directory", "link"])
async def test_what_appears_at_the_destination_meanwhile_is_not_replaced(
    ruled: LocalFileSystem, rules: Rules, project: Path, outside: Path, there: str
):
    def appear(path: str, access: Access) -> None:
        if not path.endswith("e/z"):
            return
        match there:
            case "file":
                (project / "e").write_text("theirs")
            case "directory":
                (project / "e").mkdir()
            case _:
                (project / "e").symlink_to(outside)

    rules.when = appear
    with pytest.raises(ToolError, match="e: exists already; nothing was replaced"):
        await ruled.copy("d", "e")
    assert sorted(os.listdir(project)) == ["d", "e"]
    assert there == "file" or os.listdir(project / "e") == (["secret"] if there == "link" else [])


async def test_a_link_swapped_into_the_growing_copy_is_not_followed(
    ruled: LocalFileSystem, rules: Rules, project: Path, outside: Path
):
    def swap(path: str, access: Access) -> None:
        growing = [name for name in os.listdir(project) if name.endswith(".tmp")]
        if path.endswith("e/b/c") and access is Access.WRITE:
            (project / growing[0] / "b").rename(outside / "b")
            (project / growing[0] / "b").symlink_to(outside)

    rules.when = swap
    with pytest.raises(Refused, match="changed into a link"):
        await ruled.copy("d", "e")
    assert os.listdir(project) == ["d"]
    assert (outside / "secret").read_text() == "SECRET\n"


async def test_a_link_swapped_into_the_source_is_left_out(
    ruled: LocalFileSystem, rules: Rules, project: Path, outside: Path
):
    def swap(path: str, access: Access) -> None:
        if path.endswith("d/z") and access is Access.READ:
            (project / "d" / "z").unlink()
            (project / "d" / "z").symlink_to(outside / "secret")
        if path.endswith("d/b") and access is Access.LIST:
            (project / "d" / "b").rename(project / "b")
            (project / "d" / "b").symlink_to(outside)

    rules.when = swap
    assert await ruled.copy("d", "e") == Copied(EntryKind.DIRECTORY, 1, 2)
    assert list(state(project / "e")) == ["a"]


async def test_a_cancelled_copy_leaves_nothing(ruled: LocalFileSystem, rules: Rules, project: Path):
    before = state(project)
    with anyio.CancelScope() as scope:

        def cancel(path: str, access: Access) -> None:
            if path.endswith("e/b/c"):
                anyio.from_thread.run_sync(scope.cancel)

        rules.when = cancel
        await ruled.copy("d", "new/e")
    assert scope.cancelled_caught
    assert state(project) == before


async def test_copying_leaves_no_descriptor_open(ruled: LocalFileSystem, rules: Rules, project: Path):
    await ruled.list_directory(".")
    before = open_fds()
    for source, destination in (
        ("d", "d/x"),
        ("missing", "x"),
        ("d", "d/a/x"),
        ("d/a", "d/z"),
        ("d", f"new/{'x' * 300}"),
    ):
        with pytest.raises(ToolError):
            await ruled.copy(source, destination)
    await ruled.copy("d", "new/e")
    await ruled.copy("d/a", "new/f")
    assert open_fds() == before
