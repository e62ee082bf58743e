"""A stamp tells two states of a file apart, or there is none."""

import os
import shutil
import time
from pathlib import Path

import pytest

from acp_agent.workspace.local_files import file_stamp
from acp_agent.workspace.roots import Roots

pytestmark = pytest.mark.anyio


def later() -> int:
    """A minute from now, when every file of a test has settled."""
    return time.time_ns() + 60_000_000_000


async def test_the_same_file_has_the_same_stamp_by_every_name(roots: Roots, project: Path):
    (project / "a").write_text("text")
    (project / "link").symlink_to("a")

    stamp = await file_stamp(roots, "a", later)

    assert stamp is not None
    assert stamp == await file_stamp(roots, str(project / "a"), later) == await file_stamp(roots, "./link", later)


async def test_a_change_of_the_same_size_with_its_time_set_back_shows(roots: Roots, project: Path):
    file = project / "a"
    file.write_text("one")
    before, times = await file_stamp(roots, "a", later), file.stat()
    while file.stat().st_ctime_ns == times.st_ctime_ns:  # until the clock of the file system has ticked
        file.write_text("two")
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))

    assert file.stat().st_mtime_ns == times.st_mtime_ns
    assert await file_stamp(roots, "a", later) != before


async def test_a_file_put_in_its_place_shows(roots: Roots, project: Path):
    (project / "a").write_text("one")
    (project / "b").write_text("two")
    shutil.copystat(project / "a", project / "b")
    before = await file_stamp(roots, "a", later)
    os.replace(project / "b", project / "a")

    assert await file_stamp(roots, "a", later) != before


async def test_a_file_that_changed_just_now_has_none(roots: Roots, project: Path):
    (project / "a").write_text("text")
    changed = (project / "a").stat().st_ctime_ns

    assert await file_stamp(roots, "a", lambda: changed + 1_999_999_999) is None
    assert await file_stamp(roots, "a", lambda: changed + 2_000_000_000) is not None


@pytest.mark.parametrize("path", ["missing", ".", "../outside/secret", "fifo", "a/b", "x\0", "", "loop"])
async def test_what_is_no_file_that_may_be_read_has_none(roots: Roots, project: Path, path: str):
    (project / "a").write_text("text")
    (project / "loop").symlink_to("loop")
    os.mkfifo(project / "fifo")

    assert await file_stamp(roots, path, later) is None
