"""A link swapped in while an operation runs leads nowhere: 2,000 tries an operation, no escape."""

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from acp_agent.core.backends import GrepQuery
from acp_agent.core.errors import Refused, ToolError
from acp_agent.execution.local_files import LocalFileSystem
from acp_agent.execution.open_beneath import Opener
from acp_agent.execution.roots import Roots

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="swaps by renameat2"),
]

TRIES = 2000
SWAPPER = """
import ctypes, sys
libc = ctypes.CDLL(None)
pairs = [(a.encode(), b.encode()) for a, b in zip(sys.argv[1::2], sys.argv[2::2])]
print("swapping", flush=True)
while True:
    for a, b in pairs:
        assert libc.renameat2(-100, a, -100, b, 2) == 0
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


async def write(files: LocalFileSystem, path: str) -> str:
    await files.write_text(path, "written\n")
    return "written"


async def list_parent(files: LocalFileSystem, path: str) -> str:
    entries = await files.list_directory(path.removesuffix("/file") if "/" in path else ".")
    sizes = [entry.size for entry in entries if entry.name == "file" and entry.kind == "file"]
    return "SECRET" if 666 in sizes else "listed"


async def find(files: LocalFileSystem, path: str) -> str:
    return repr((await files.find(".", "**/file", 100)).paths)


async def grep(files: LocalFileSystem, path: str) -> str:
    return repr((await files.grep(GrepQuery(".", "."))).matches)


@pytest.mark.parametrize("operation", [read, write, list_parent, find, grep])
async def test_a_swapped_link_is_never_followed(
    world: Path, opener: Opener, operation: Callable[[LocalFileSystem, str], Awaitable[str]]
):
    project, secret = world / "project", world / "outside" / "file"
    secret.write_text("SECRET" * 111)  # 666 bytes, to be known in a listing
    done, refused = 0, 0
    with Roots(str(project), opener=opener) as roots:
        files = LocalFileSystem(roots, ripgrep=None)
        with swapping(project / "a", project / "b", project / "file", project / "link"):
            for number in range(TRIES):
                try:
                    shown = await operation(files, "a/file" if number % 2 else "file")
                except (Refused, ToolError):
                    refused += 1
                else:
                    done += 1
                    assert "SECRET" not in shown
                    assert "outside" not in shown
    assert done > 0
    assert refused > 0 or operation in (find, grep), "nothing was ever in the way: the race did not happen"
    assert os.listdir(world / "outside") == ["file"]
    assert secret.read_text() == "SECRET" * 111
