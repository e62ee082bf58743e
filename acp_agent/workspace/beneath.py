"""Open a file below a directory, or walk through a tree, without ever following a link.

There are two ways to open with one contract: `KernelOpener` asks the kernel (openat2, Linux 5.6), `WalkOpener` opens
one component after the other. Both take a resolved path, which has no link in it. A link that is found on the way was
swapped in meanwhile, and gives ELOOP.
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
        """Return a new fd, close-on-exec. `relative` is "." or a path without "..", ".", or a leading slash.

        Raises OSError: ELOOP or EXDEV if the path has a link in it or leads out of the root.
        """
        ...


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class KernelOpener:
    """Opens by openat2 with BENEATH, NO_SYMLINKS and NO_MAGICLINKS: one system call without a race."""

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
            if code not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: an entry was renamed meanwhile
                break
        raise OSError(code, os.strerror(code), relative)


class WalkOpener:
    """Opens one component at a time from its parent's fd, and never through a link."""

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
        # O_DIRECTORY gives this error for a link and for a file.
        if stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        raise


def best_opener(root_fd: int) -> Opener:
    """Return a KernelOpener if it works on the root, else a WalkOpener."""
    if sys.platform == "linux" and os.uname().machine in _MACHINES:
        kernel = KernelOpener()
        try:
            os.close(kernel(root_fd, ".", os.O_RDONLY | os.O_DIRECTORY))
        except OSError as error:
            # Old kernels have no openat2, and some containers forbid it. Other errors are those of the root.
            if error.errno in (errno.ENOSYS, errno.EPERM):
                return WalkOpener()
        return kernel
    return WalkOpener()


_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_BARRED = frozenset({errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENOTDIR})


@dataclass(frozen=True, slots=True)
class Leaf:
    """An entry that was not entered.

    at      the open directory that it is in
    path    relative to the top of the walk
    error   why a directory could not be entered; None for a directory that was not wanted
    """

    at: int
    path: str
    name: str
    kind: EntryKind
    error: OSError | None = None


@dataclass(frozen=True, slots=True)
class Entered:
    """A directory before its entries. `at` is the directory itself."""

    at: int
    path: str
    name: str


@dataclass(frozen=True, slots=True)
class Left:
    """A directory after its entries. `at` is the directory that it is in."""

    at: int
    path: str
    name: str


Step: TypeAlias = Leaf | Entered | Left


class Cursor:
    """An open directory that moves down into its subdirectories and back up. It owns the fd it is given.

    It holds one descriptor at any depth. It goes up by "..", which must lead to the directory that it came from, by
    device and inode. Otherwise a directory was moved meanwhile, and that is an error.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._above: list[tuple[int, int]] = []

    def enter(self, name: str) -> None:
        """Enter a directory. Raises OSError: ELOOP if the name is a link."""
        deeper = open_child(self.fd, name)
        self._above.append(identity(os.fstat(self.fd)))
        self._turn_to(deeper)

    def leave(self) -> None:
        """Go back to the directory of the last `enter`. Raises OSError: ELOOP if it is no longer the parent."""
        above = os.open("..", _DIRECTORY, dir_fd=self.fd)
        if identity(os.fstat(above)) != self._above.pop():
            os.close(above)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), "..")
        self._turn_to(above)

    def close(self) -> None:
        """Close the fd."""
        os.close(self.fd)

    def _turn_to(self, fd: int) -> None:
        os.close(self.fd)
        self.fd = fd


def open_child(at: int, name: str) -> int:
    """Return a new fd of the directory `name` in `at`. Raises OSError: ELOOP if it is a link."""
    return WalkOpener()(at, name, _DIRECTORY)


def identity(status: os.stat_result) -> tuple[int, int]:
    """Return the device and inode of a file."""
    return status.st_dev, status.st_ino


@contextmanager
def holding(fd: int) -> Generator[int]:
    """Close an fd after the block."""
    try:
        yield fd
    finally:
        os.close(fd)


def descend(top: int, enters: Callable[[str], bool] = lambda _: True) -> Generator[Step]:
    """Yield everything below the directory `top` in the order of names, each directory before and after its entries.

    A directory's names are read once, when it is entered. `enters` decides by its path whether a directory is entered.
    Entries that vanish meanwhile may be missing. Raises OSError. Close the generator (`contextlib.closing`).
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
    """Enter a directory if it is wanted and possible. Return the step for the entry, or None if it is gone."""
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
