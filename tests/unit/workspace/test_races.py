"""A link swapped in while an operation runs leads nowhere: hundreds of tries an operation, no escape.

`make properties` tries each of them thousands of times.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count as numbers
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import pytest

from acp_agent.core.backends import GrepQuery
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.workspace.beneath import Opener
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.roots import FileOpener, Root, Roots

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="swaps by renameat2"),
]

MORE = pytest.param(4000, marks=pytest.mark.soak)  # tries
SWAPPER = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
pairs = [(a.encode(), b.encode()) for a, b in zip(sys.argv[1::2], sys.argv[2::2])]
print("swapping", flush=True)
while True:
    for a, b in pairs:
        done = libc.renameat2(-100, a, -100, b, 2) == 0
        assert done or ctypes.get_errno() == 2, "only a missing name may be in the way"
"""


@pytest.fixture
def world() -> Iterator[Path]:
    """A folder in memory where there is one: thousands of writes that reach a disk would take minutes."""
    memory = "/dev/shm"
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as path:
        base = Path(path).resolve()
        (base / "outside").mkdir()
        (base / "outside" / "file").write_text("SECRET\n")
        (base / "project" / "a").mkdir(parents=True)
        (base / "project" / "a" / "file").write_text("inside\n")
        (base / "project" / "b").symlink_to("../outside")
        (base / "project" / "file").write_text("inside\n")
        (base / "project" / "link").symlink_to("../outside/file")
        yield base


@contextmanager
def swapping(*paths: Path) -> Iterator[None]:
    """Exchange the paths of each pair, over and over, from another process."""
    command = [sys.executable, "-c", SWAPPER, *map(str, paths)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"swapping\n"
        try:
            yield
            assert process.poll() is None, "the swapper gave up"
        finally:
            process.kill()


async def read(files: LocalFileSystem, path: str) -> str:
    return await files.read_text(path)


async def read_some_lines(files: LocalFileSystem, path: str) -> str:
    return repr(await files.read_lines(path, 0, 10))


async def read_all_bytes(files: LocalFileSystem, path: str) -> str:
    return (await files.read_bytes(path, 10_000)).decode()


async def head(files: LocalFileSystem, path: str) -> str:
    return repr(await files.head(path, 100))


async def write(files: LocalFileSystem, path: str) -> str:
    """A new file where there is none, else the old one replaced, without a look at what it holds."""
    for expected in ("inside\n", "written\n", None):
        with suppress(ToolError):
            await files.write_text(path, "written\n", expected=expected)
            return "written"
    raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, path)


async def edit(files: LocalFileSystem, path: str) -> str:
    """What the tool does: the text is read, then replaced where it still is the one."""
    old = await files.read_text(path)
    await files.write_text(path, "edited" if old == "inside\n" else "inside\n", expected=old)
    return old


async def list_parent(files: LocalFileSystem, path: str) -> str:
    entries = await files.list_directory(path.removesuffix("/file") if "/" in path else ".")
    return " ".join(entry.name for entry in entries)


async def find(files: LocalFileSystem, path: str) -> str:
    return repr((await files.find(".", "**/file", 100)).paths)


async def grep(files: LocalFileSystem, path: str) -> str:
    return repr((await files.grep(GrepQuery(".", "."))).matches)


async def count(files: LocalFileSystem, path: str) -> str:
    """What a search for the secret counts, of which it shows no line."""
    found = await files.grep(GrepQuery("SECRET", ".", limit=0))
    return "SECRET" if found.counts or found.files or found.total else ""


Operation: TypeAlias = Callable[[LocalFileSystem, str], Awaitable[str]]


@pytest.mark.parametrize("tries", [100, MORE])
@pytest.mark.parametrize("operation", [read, read_some_lines, read_all_bytes, head, write, edit, list_parent, find])
async def test_a_swapped_link_is_never_followed(world: Path, opener: Opener, operation: Operation, tries: int):
    await race(world, opener, operation, tries)


@pytest.mark.parametrize("tries", [15, MORE])
@pytest.mark.parametrize("operation", [grep, count])
async def test_a_link_that_tricks_ripgrep_shows_nothing(world: Path, opener: Opener, operation: Operation, tries: int):
    await race(world, opener, operation, tries)


@pytest.mark.parametrize("tries", [1000, MORE])
def test_a_file_that_is_opened_in_a_held_folder_is_never_behind_a_link(world: Path, opener: Opener, tries: int):
    project, paths = world / "project", ("a/file", "a/file", "a/link", "file", "b/file", "link")
    (project / "a" / "link").symlink_to("../../outside/file")
    opened = Counter[str]()
    with (
        closing(Root(str(project), opener)) as root,
        swapping(project / "a", project / "b", project / "file", project / "link"),
    ):
        for _ in range(tries):
            with FileOpener(root) as held:
                for path in paths:
                    with suppress(OSError), open(held.open(path), encoding="utf-8") as file:
                        opened[file.read()] += 1
    assert set(opened) == {"inside\n"}


async def race(world: Path, opener: Opener, operation: Operation, tries: int) -> None:
    project, secret = world / "project", world / "outside" / "file"
    secret.write_text("SECRET" * 111)
    (world / "outside" / "SECRET.txt").write_text("")  # to be known in a listing
    done, refused = 0, 0
    passes_over = operation in (find, grep, count)  # a search does not end at what it may not follow
    with Roots(str(project), opener=opener) as roots:
        files = LocalFileSystem(roots)
        with swapping(project / "a", project / "b", project / "file", project / "link"):
            for number in numbers():
                if number >= tries and ((done and (refused or passes_over)) or number >= 20 * tries):
                    break
                try:
                    shown = await operation(files, "a/file" if number % 2 else "file")
                except (Refused, ToolError):
                    refused += 1
                else:
                    done += 1
                    assert "SECRET" not in shown
                    assert "outside" not in shown
    assert done > 0
    assert refused > 0 or passes_over, "nothing was ever in the way: the race did not happen"
    assert sorted(os.listdir(world / "outside")) == ["SECRET.txt", "file"]
    assert secret.read_text() == "SECRET" * 111


# ------------------------------------------------------------------------------------ tree changes


class Course:
    """The project of `world` while `a` and `b` change places: one is a directory, the other a link to outside.

    tree    a directory with such a pair in it: tree/a, tree/b, and a file tree/file in turn with tree/link
    """

    def __init__(self, world: Path, files: LocalFileSystem) -> None:
        self.project = world / "project"
        self.files = files
        self.inside = os.open(self.project / "a", os.O_RDONLY | os.O_DIRECTORY)
        self.pairs = [self.project / path for path in ("a", "b", "tree/a", "tree/b", "tree/file", "tree/link")]
        self.grow()

    def put(self, name: str) -> None:
        """A file in the real directory, whatever it is called at the moment."""
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, dir_fd=self.inside)
        os.write(fd, b"inside\n")
        os.close(fd)

    def grow(self) -> None:
        """The tree, if it is not there."""
        if (self.project / "tree").exists():
            return
        (self.project / "seed" / "a").mkdir(parents=True)
        (self.project / "seed" / "b").symlink_to("../../outside")
        (self.project / "seed" / "link").symlink_to("../../outside/file")
        for path in ("seed/a/file", "seed/file"):
            (self.project / path).write_text("inside\n")
        (self.project / "seed").rename(self.project / "tree")

    def take(self, *names: str) -> None:
        """Remove files and directories made by the last try, wherever in the project they are."""
        for name in names:
            for remove in (os.unlink, os.rmdir):
                with suppress(OSError):
                    remove(name, dir_fd=self.inside)


async def make(course: Course, number: int) -> None:
    try:
        await course.files.make_directory("a/new")
    finally:
        course.take("new")


async def delete(course: Course, number: int) -> None:
    course.put("file")
    course.grow()
    await course.files.delete("tree" if number % 2 else "a/file", recursive=True)


async def move(course: Course, number: int) -> None:
    course.put("file")
    course.grow()
    match number % 3:
        case 0:
            await course.files.move("a/file", f"moved{number}")
        case 1:
            (course.project / "mine").write_text("inside\n")
            try:
                await course.files.move("mine", "a/moved")
            finally:
                course.take("moved")
        case _:
            await course.files.move("tree", f"moved{number}")


async def copy(course: Course, number: int) -> None:
    course.put("file")
    match number % 3:
        case 0:
            await course.files.copy("a/file", f"copied{number}")
        case 1:
            try:
                await course.files.copy("tree/a/file", "a/copied")
            finally:
                course.take("copied")
        case _:
            await course.files.copy("tree", f"copied{number}")


@pytest.mark.parametrize("tries", [75, MORE])
@pytest.mark.parametrize("operation", [make, delete, move, copy])
async def test_no_change_of_a_tree_ends_outside(
    world: Path, opener: Opener, operation: Callable[[Course, int], Awaitable[None]], tries: int
):
    done, refused = 0, 0
    (world / "outside" / "file").write_text("SECRET\n")
    before = [(entry.name, entry.stat().st_mtime_ns) for entry in os.scandir(world / "outside")]
    with Roots(str(world / "project"), opener=opener) as roots:
        course = Course(world, LocalFileSystem(roots))
        with swapping(*course.pairs):
            for number in numbers():
                if number >= tries and ((done and refused) or number >= 20 * tries):
                    break
                try:
                    await operation(course, number)
                except (Refused, ToolError):
                    refused += 1
                else:
                    done += 1
        os.close(course.inside)
    assert done > 0
    assert refused > 0, "nothing was ever in the way: the race did not happen"
    assert [(entry.name, entry.stat().st_mtime_ns) for entry in os.scandir(world / "outside")] == before
    for folder, _, names in os.walk(world / "project"):
        for path in (os.path.join(folder, name) for name in names):
            assert os.path.islink(path) or "SECRET" not in Path(path).read_text()
