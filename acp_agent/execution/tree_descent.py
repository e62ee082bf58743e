"""Going through a tree by its directories' fds, whatever its depth, and never through a link (security.md 2.4)."""

import errno
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from acp_agent.core.backends import EntryKind
from acp_agent.execution.entry_kind import kind_of_entry
from acp_agent.execution.open_beneath import WalkOpener

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_BARRED = frozenset({errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENOTDIR})


@dataclass(frozen=True, slots=True)
class Leaf:
    """An entry that was not entered. `at` is the open directory it is in; `path` is relative to the walk's top.

    `error` is why a directory could not be entered; another one without it was not wanted.
    """

    at: int
    path: str
    name: str
    kind: EntryKind
    error: OSError | None = None


@dataclass(frozen=True, slots=True)
class Entered:
    """A directory, before what is in it. `at` is the directory itself."""

    at: int
    path: str
    name: str


@dataclass(frozen=True, slots=True)
class Left:
    """A directory, after what is in it. `at` is the directory it is in."""

    at: int
    path: str
    name: str


Step: TypeAlias = Leaf | Entered | Left


class Cursor:
    """An open directory that can be changed for one in it, and for the one it is in. Owns the fd it is given.

    It holds one descriptor at any depth. The way back up is "..", and where that leads must be the directory it came
    from, by device and inode: a directory that was moved meanwhile leads nowhere.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._above: list[tuple[int, int]] = []

    def enter(self, name: str) -> None:
        """Go into a directory. Raises OSError; ELOOP when the name is a link."""
        deeper = open_child(self.fd, name)
        self._above.append(identity(os.fstat(self.fd)))
        self._turn_to(deeper)

    def leave(self) -> None:
        """Go back to where `enter` was called. Raises OSError; ELOOP when that is not above any more."""
        above = os.open("..", _DIRECTORY, dir_fd=self.fd)
        if identity(os.fstat(above)) != self._above.pop():
            os.close(above)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), "..")
        self._turn_to(above)

    def close(self) -> None:
        """Give the fd back."""
        os.close(self.fd)

    def _turn_to(self, fd: int) -> None:
        os.close(self.fd)
        self.fd = fd


def open_child(at: int, name: str) -> int:
    """A new fd of the directory `name` in `at`. Raises OSError; ELOOP when it is a link."""
    return WalkOpener()(at, name, _DIRECTORY)


def identity(status: os.stat_result) -> tuple[int, int]:
    """What makes a file the same file."""
    return status.st_dev, status.st_ino


@contextmanager
def holding(fd: int) -> Generator[int]:
    """The fd, closed after the block."""
    try:
        yield fd
    finally:
        os.close(fd)


def descend(top: int, enters: Callable[[str], bool] = lambda _: True) -> Generator[Step]:
    """Everything below the directory `top`, by name, each directory before and after what is in it.

    A directory's names are read once, when it is entered. `enters` says by its path whether a directory is. What
    vanishes meanwhile may be missing. Raises OSError. Close it (`contextlib.closing`) for its fd.
    """
    here, parts = Cursor(os.dup(top)), list[str]()
    try:
        levels = [_entries(here.fd)]
        while levels:
            entry = next(levels[-1], None)
            if entry is not None:
                name, kind = entry
                path = "/".join((*parts, name))
                step = _met(here, path, name, kind, enters)
                if isinstance(step, Entered):
                    parts.append(name)
                    levels.append(_entries(here.fd))
                if step is not None:
                    yield step
                continue
            levels.pop()
            if parts:
                here.leave()
                path = "/".join(parts)
                yield Left(here.fd, path, parts.pop())
    finally:
        here.close()


def _met(here: Cursor, path: str, name: str, kind: EntryKind, enters: Callable[[str], bool]) -> Leaf | Entered | None:
    """What an entry is to the walk, entered if it can be; None when it is gone."""
    if kind is not EntryKind.DIRECTORY or not enters(path):
        return Leaf(here.fd, path, name, kind)
    try:
        here.enter(name)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in _BARRED:
            return Leaf(here.fd, path, name, kind, error)
        raise
    return Entered(here.fd, path, name)


def _entries(directory_fd: int) -> Iterator[tuple[str, EntryKind]]:
    with os.scandir(directory_fd) as entries:
        return iter(sorted((entry.name, kind_of_entry(entry)) for entry in entries))
