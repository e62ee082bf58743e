"""Databases nobody can use: the result arrives all the same and says why its whole was not stored."""

import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.thoughts import Mind, go, inside, reference_in, thinking
from tests.unit.store.databases import MIB

pytestmark = pytest.mark.anyio

BIG = "seq -f 'line %g of many' 20000"
LOCK = """import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = WAL")
connection.execute("CREATE TABLE IF NOT EXISTS theirs (x)")
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""


def corrupt(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + b"\x5a" * 8000)


def no_database(path: Path) -> None:
    path.write_text("these are somebody's notes\n" * 1000)


def folder(path: Path) -> None:
    path.mkdir()


def link(path: Path) -> None:
    path.symlink_to(path.parent / "elsewhere.db")


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 999")


async def said_with(folder: Path, prepare: Callable[[Path], None], **options: bool) -> tuple[str, str]:
    """What the model and the user were told of a large output, with a database that was prepared."""
    mind, path = Mind(), folder / "home" / "data" / "acp-agent.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    prepare(path)
    async with thinking(folder, mind.run(BIG), **options) as (editor, _):
        await go(editor)
    assert editor.call.status == "completed"
    assert inside(mind.said[0]).startswith("line 1 of many\n")
    assert inside(mind.said[0]).endswith("line 20000 of many")
    return mind.said[0], editor.told


@pytest.mark.parametrize(
    ("prepare", "cause"),
    [
        (folder, "is not a regular file"),
        (link, "a link stands in place of"),
        (newer, "was written by a newer version of this program: its format is 999"),
    ],
    ids=["a folder", "a link", "a newer version"],
)
async def test_something_else_in_its_place_is_left_alone_and_named(tmp_path, prepare, cause):
    said, _ = await said_with(tmp_path, prepare)
    (line,) = [line for line in said.splitlines() if "acp-agent.db" in line]
    assert line.startswith("[the whole output was not stored: the database ")
    assert cause in line


@pytest.mark.parametrize("prepare", [corrupt, no_database])
async def test_a_damaged_one_is_set_aside_told_once_and_a_new_one_works_at_once(tmp_path, prepare):
    said, told = await said_with(tmp_path, prepare)
    assert reference_in(said)
    again, told_again = await said_with(tmp_path, lambda _: None)
    assert reference_in(again)
    assert (told + told_again).count("was set aside as ") <= 1
    names = sorted(path.name for path in (tmp_path / "home" / "data").iterdir() if "corrupt" in path.name)
    assert len(names) == 1, names


@pytest.fixture
def locked_for_ever(tmp_path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that keeps the database locked until its stdin ends."""
    data = tmp_path / "home" / "data"
    data.mkdir(parents=True)
    command = [sys.executable, "-c", LOCK, str(data / "acp-agent.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        yield other


async def test_one_that_another_process_keeps_locked_costs_seconds_and_not_the_result(tmp_path, locked_for_ever):
    said, _ = await said_with(tmp_path, lambda _: None, short_waits=True)
    assert "the whole output was not stored" in said
    assert "another process keeps it locked" in said
    locked_for_ever.stdin.close()
    locked_for_ever.wait()
    said, _ = await said_with(tmp_path, lambda _: None)
    assert reference_in(said), "the next start works"


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
async def test_a_folder_nobody_may_write_is_named(tmp_path):
    data = tmp_path / "home" / "data"
    data.mkdir(parents=True)
    data.chmod(0o500)
    try:
        said, _ = await said_with(tmp_path, lambda _: None)
    finally:
        data.chmod(0o700)
    assert "the whole output was not stored" in said


async def test_a_full_disk_is_named_and_the_next_start_works(tmp_path):
    """A limit on the size of files stands for the disk: SQLite is told the same by either."""
    home = tmp_path / "home" / "data"
    home.mkdir(parents=True)
    mind = Mind()
    limited = Mind()
    async with thinking(tmp_path, limited.run(BIG)) as (editor, _):
        await editor.initialize()
        limit_files(editor.agent.pid, MIB // 4)
        await editor.say(await editor.new_session(str(editor.workspace)), "go")
    (line,) = [line for line in limited.said[0].splitlines() if "was not stored" in line]
    assert "acp-agent.db cannot be used: " in line
    assert inside(limited.said[0]).endswith("line 20000 of many")
    async with thinking(tmp_path, mind.run(BIG)) as (editor, _):
        await go(editor)
    assert reference_in(mind.said[0])


def limit_files(pid: int, size: int) -> None:
    """No file that a process writes may grow beyond a size, in bytes."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, size))
