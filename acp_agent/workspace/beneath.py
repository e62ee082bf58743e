"""Opening a file below a directory without ever following a link (security.md 2.4).

Two ways with one contract: `KernelOpener` asks the kernel (openat2, Linux 5.6), `WalkOpener` opens one component
after the other. Both take a path that is already resolved, so an honest path has no link left in it and a link
found on the way was swapped in meanwhile: that is ELOOP.
"""

import ctypes
import errno
import os
import stat
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from acp_agent.core.backends import EntryKind
from acp_agent.workspace.paths import kind_of_entry

_OPENAT2 = 437
# From 5.1 on new system calls have one number on every architecture but alpha and mips.
_MACHINES = ("x86_64", "aarch64", "riscv64", "ppc64le", "s390x", "loongarch64", "armv7l", "i686")
_NO_MAGIC_LINKS = 0x02
_NO_SYMLINKS = 0x04
_BENEATH = 0x08
_TRIES = 16
_LONGEST = 4095  # the kernel's own limit, for the walk to have one too
_ALWAYS = os.O_CLOEXEC | os.O_NOFOLLOW
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | _ALWAYS


class Opener(Protocol):
    """Opens `relative` below the directory `root_fd`."""

    def __call__(self, root_fd: int, relative: str, flags: int) -> int:
        """A new fd, close-on-exec. `relative` is "." or a path without "..", ".", or a leading slash.

        Raises OSError; ELOOP or EXDEV when the path turned out to have a link in it or to lead away.
        """
        ...


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class KernelOpener:
    """openat2 with BENEATH, NO_SYMLINKS and NO_MAGICLINKS: one system call, no race left."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def __call__(self, root_fd: int, relative: str, flags: int) -> int:
        how = _OpenHow(flags | _ALWAYS, 0, _BENEATH | _NO_SYMLINKS | _NO_MAGIC_LINKS)
        path = ctypes.c_char_p(os.fsencode(relative))
        code = 0
        for _ in range(_TRIES):
            fd = self._libc.syscall(
                ctypes.c_long(_OPENAT2),
                ctypes.c_long(root_fd),
                path,
                ctypes.byref(how),
                ctypes.c_size_t(ctypes.sizeof(how)),
            )
            if fd >= 0:
                return fd
            code = ctypes.get_errno()
            if code not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: something was renamed while the kernel looked
                break
        raise OSError(code, os.strerror(code), relative)


class WalkOpener:
    """One component at a time, each opened from its parent's fd and never through a link."""

    def __call__(self, root_fd: int, relative: str, flags: int) -> int:
        if len(os.fsencode(relative)) > _LONGEST:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), relative)
        *parents, last = relative.split("/")
        at = root_fd
        try:
            for name in parents:
                deeper = _step(at, name, _STEP)
                if at != root_fd:
                    os.close(at)
                at = deeper
            return _step(at, last, flags | _ALWAYS)
        finally:
            if at != root_fd:
                os.close(at)


def _step(at: int, name: str, flags: int) -> int:
    if name == "..":
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
    try:
        return os.open(name, flags, dir_fd=at)
    except NotADirectoryError:
        # What a link gives to O_DIRECTORY; tell it from an honest file.
        if stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        raise


def best_opener(root_fd: int) -> Opener:
    """The kernel's way where it works on this machine, tried on the root itself; else the walk."""
    if sys.platform == "linux" and os.uname().machine in _MACHINES:
        kernel = KernelOpener()
        try:
            os.close(kernel(root_fd, ".", os.O_RDONLY | os.O_DIRECTORY))
        except OSError as error:
            # Old kernels know no openat2, some containers forbid it. A root we may not read is another matter.
            if error.errno in (errno.ENOSYS, errno.EPERM):
                return WalkOpener()
        return kernel
    return WalkOpener()


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
