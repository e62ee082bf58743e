"""Deleting: all is judged first, links are taken themselves, and a stop leaves whole entries."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.from_thread
import pytest

from acp_agent.core.backends import Deleted, EntryKind
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.types import Access
from acp_agent.workspace.beneath import Opener
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.roots import Roots
from tests.unit.workspace.trees import Rules, nobodys_folder, open_fds, state

pytestmark = pytest.mark.anyio


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def ruled(project: Path, opener: Opener, rules: Rules) -> Iterator[LocalFileSystem]:
    """The project's files under `rules`: d/a, d/b/c and d/z."""
    (project / "d" / "b").mkdir(parents=True)
    for path in ("d/a", "d/b/c", "d/z"):
        (project / path).write_text("x")
    with Roots(str(project), policy=rules, opener=opener) as roots:
        yield LocalFileSystem(roots)


async def test_special_files_and_names_that_are_no_text_are_deleted(files: LocalFileSystem, project: Path):
    os.mkfifo(project / "pipe")
    assert await files.delete("pipe", recursive=False) == Deleted(EntryKind.OTHER, 0)
    (project / "d").mkdir()
    os.mkdir(os.fsencode(project) + b"/d/caf\xe9")
    os.mkfifo(os.fsencode(project) + b"/d/caf\xe9/\xff")
    os.symlink("..", project / "d" / "up")
    assert await files.delete("d", recursive=True) == Deleted(EntryKind.DIRECTORY, 3)
    assert os.listdir(project) == []


async def test_links_out_of_the_tree_lose_nothing_at_the_other_end(
    files: LocalFileSystem, project: Path, outside: Path
):
    (project / "d" / "sub").mkdir(parents=True)
    (project / "d" / "out").symlink_to(outside)
    (project / "d" / "sub" / "secret").symlink_to(outside / "secret")
    (project / "d" / "loop").symlink_to(".")
    os.link(outside / "secret", project / "d" / "hard")
    assert (await files.delete("d", recursive=True)).below == 5
    assert (outside / "secret").read_text() == "SECRET\n"
    (project / "out").symlink_to(outside)
    assert await files.delete("out/", recursive=True) == Deleted(EntryKind.SYMLINK, 0)
    assert os.listdir(outside) == ["secret"]


@pytest.mark.parametrize("refused", ["d", "d/a", "d/b", "d/b/c", "d/z"])
async def test_one_protected_entry_keeps_the_whole_tree(
    ruled: LocalFileSystem, rules: Rules, project: Path, refused: str
):
    before = state(project)
    rules.refused = {(refused, Access.DELETE)}
    with pytest.raises(Refused, match=refused):
        await ruled.delete("d", recursive=True)
    assert state(project) == before
    rules.refused = {(refused, Access.DELETE), (refused, Access.READ), (refused, Access.LIST)}
    with pytest.raises(Refused) as raised:
        await ruled.delete("d", recursive=True)
    assert refused == "d" or f"{refused}:" not in str(raised.value)


async def test_what_becomes_protected_meanwhile_is_not_deleted(ruled: LocalFileSystem, rules: Rules, project: Path):
    def move_in(path: str, access: Access) -> None:
        if path.endswith("d/z") and not (project / "d" / "b" / "key").exists():
            (project / "d" / "b" / "key").write_text("k")

    rules.when, rules.refused = move_in, {("d/b/key", Access.DELETE)}
    with pytest.raises(Refused, match="d/b/key"):
        await ruled.delete("d", recursive=True)
    assert (project / "d" / "b" / "key").read_text() == "k"


async def test_a_link_swapped_in_between_the_judging_and_the_deleting_is_not_followed(
    ruled: LocalFileSystem, rules: Rules, project: Path, outside: Path
):
    def swap(path: str, access: Access) -> None:
        if path.endswith("d/z") and not (project / "b").exists():
            (project / "d" / "b").rename(project / "b")
            (project / "d" / "b").symlink_to(outside)

    rules.when = swap
    assert (await ruled.delete("d", recursive=True)).below == 3
    assert os.listdir(outside) == ["secret"]
    assert os.listdir(project) == ["b"]


async def test_a_directory_swapped_for_a_link_while_it_is_being_deleted_stops_it(
    ruled: LocalFileSystem, rules: Rules, project: Path, outside: Path
):
    seen = list[str]()

    def swap(path: str, access: Access) -> None:
        seen.append(path)
        if path.endswith("d/b/c") and seen.count(path) == 2:
            (project / "d" / "b").rename(outside / "b")
            (project / "d" / "b").symlink_to(outside)

    rules.when = swap
    with pytest.raises(Refused, match="d/b/c: changed into a link"):
        await ruled.delete("d", recursive=True)
    assert (outside / "secret").exists()
    assert (outside / "b").is_dir()


async def test_a_delete_that_is_refused_half_way_says_so():
    with nobodys_folder() as folder, Roots(str(folder)) as roots:
        (folder / "d" / "locked").mkdir(parents=True)
        (folder / "d" / "a").write_text("x")
        (folder / "d" / "locked" / "file").write_text("x")
        (folder / "d" / "locked").chmod(0o500)
        with pytest.raises(ToolError, match=r"d/locked/file: permission denied \(part of d may be deleted") as raised:
            await LocalFileSystem(roots).delete("d", recursive=True)
        assert raised.value.failure.category is ToolErrorCategory.POLICY_BLOCKED
        assert os.listdir(folder / "d") == ["locked"]
        (folder / "d" / "locked").chmod(0)
        with pytest.raises(ToolError, match=r"d/locked: permission denied$"):
            await LocalFileSystem(roots).delete("d", recursive=True)
        (folder / "d" / "locked").chmod(0o700)


async def test_a_cancelled_delete_stops_between_entries(ruled: LocalFileSystem, rules: Rules, project: Path):
    with anyio.CancelScope() as scope:

        def cancel(path: str, access: Access) -> None:
            if path.endswith("d/b/c") and not (project / "d" / "a").exists():
                anyio.from_thread.run_sync(scope.cancel)

        rules.when = cancel
        await ruled.delete("d", recursive=True)
    assert scope.cancelled_caught
    assert sorted(os.listdir(project / "d")) == ["b", "z"]


async def test_a_delete_cancelled_while_it_judges_removes_nothing(ruled: LocalFileSystem, rules: Rules, project: Path):
    before = state(project)
    with anyio.CancelScope() as scope:

        def cancel(path: str, access: Access) -> None:
            if path.endswith("d/a"):
                anyio.from_thread.run_sync(scope.cancel)

        rules.when = cancel
        await ruled.delete("d", recursive=True)
    assert scope.cancelled_caught
    assert state(project) == before


async def test_deleting_leaves_no_descriptor_open(ruled: LocalFileSystem, rules: Rules, project: Path):
    await ruled.list_directory(".")
    before = open_fds()
    rules.refused = {("d/b/c", Access.DELETE)}
    for path in ("d", "missing", "d/a/x", "d/b", ".", "d/b/c"):
        with pytest.raises((Refused, ToolError)):
            await ruled.delete(path, recursive=True)
    rules.refused = set()
    await ruled.delete("d", recursive=True)
    assert open_fds() == before


MOUNTED = """
import anyio, os, subprocess, sys
from acp_agent.core.errors import Refused
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.roots import Roots
project = sys.argv[1]
subprocess.run(["mount", "-t", "tmpfs", "none", f"{project}/d/mounted"], check=True)
open(f"{project}/d/mounted/file", "w").close()
with Roots(project) as roots:
    try:
        anyio.run(lambda: LocalFileSystem(roots).delete("d", recursive=True))
    except Refused as refused:
        print(refused, os.listdir(f"{project}/d"), os.listdir(f"{project}/d/mounted"))
"""


def test_what_is_mounted_inside_is_not_deleted(project: Path):
    private = ["unshare", "--user", "--map-root-user", "--mount"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*private, "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("no mounts of our own here")
    (project / "d" / "mounted").mkdir(parents=True)
    done = subprocess.run(
        [*private, sys.executable, "-c", MOUNTED, str(project)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "d/mounted: another file system is mounted there ['mounted'] ['file']\n"
