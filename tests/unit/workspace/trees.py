"""Trees that are hard to change, and ways to step in while one is being changed."""

import os
import resource
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from acp_agent.core.types import Access

ROOT_USER = os.geteuid() == 0
NOBODY = 65534


@dataclass
class Rules:
    """A PathPolicy a test writes down: (end of a path, access) pairs that are refused, and what happens meanwhile.

    asked   every question, in order
    when    called with each question before it is answered, in the thread that asks
    """

    refused: set[tuple[str, Access]] = field(default_factory=set)
    asked: list[tuple[str, Access]] = field(default_factory=list)
    when: Callable[[str, Access], None] = lambda path, access: None

    def __call__(self, path: str, access: Access) -> str | None:
        self.asked.append((path, access))
        self.when(path, access)
        return "protected" if any(path.endswith(f"/{end}") and access is a for end, a in self.refused) else None


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Everything below a folder: path -> mode, and bytes or link target."""
    found = dict[str, tuple[int, bytes]]()
    for parent, directories, names in os.walk(folder):
        for name in (*directories, *names):
            path = os.path.join(parent, name)
            mode = os.lstat(path).st_mode
            if os.path.islink(path):
                data = os.fsencode(os.readlink(path))
            else:
                data = Path(path).read_bytes() if os.path.isfile(path) else b""
            found[os.path.relpath(path, folder)] = (mode, data)
    return found


def make_deep(top: Path, levels: int) -> None:
    """A chain of directories, deeper than any path can name, with a file in each."""
    top.mkdir()
    at = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(levels):
        os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=at))
        os.mkdir("directory", dir_fd=at)
        deeper = os.open("directory", os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)
        os.close(at)
        at = deeper
    os.close(at)


def open_fds() -> set[int]:
    return set(map(int, os.listdir("/dev/fd")))


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


@contextmanager
def few_descriptors(more: int) -> Generator[None]:
    """Hardly any descriptor is left to open."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_fds()) + more, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@contextmanager
def no_file_larger_than(size: int) -> Generator[None]:
    """The disk is full, as far as this process can tell: writes end early, then fail with EFBIG."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@contextmanager
def nobodys_folder() -> Generator[Path]:
    """A folder of a user without rights, who this process is inside the block."""
    with TemporaryDirectory() as path:
        folder = Path(path).resolve()
        if not ROOT_USER:
            yield folder
            return
        os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)
        try:
            yield folder
        finally:
            os.seteuid(0)
