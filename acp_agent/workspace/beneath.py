"""Check a path as text, open a file below a directory or walk through a tree without links, and put errors into words.

There are two ways to open with one contract: `kernel_open` asks the kernel (openat2, Linux 5.6), `walk_open` opens one
component after the other. Both take a resolved path, which has no link in it. A link that is found on the way was
swapped in meanwhile, and gives ELOOP.

A path means what it says: nothing in it is expanded. A path that a shell would expand is refused with advice, because
taken literally it would read nothing or create a folder named `~`.
"""

import ctypes
import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TypeAlias

from acp_agent.core.backends import EntryKind
from acp_agent.core.data import frozen
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory

_PATH_BYTES = 4095
_NAME_BYTES = 255
_HOME = re.compile(r"~([a-z_][a-z0-9_-]*)?")
_VARIABLE = re.compile(r"\$(\{\w+\}|\([^)]*\)|[A-Z_][A-Z0-9_]*)|%\w+%")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def check_text(path: object) -> str:
    """Return the path if it can be one. Raises ToolError (type_mismatch or invalid_parameters) otherwise."""
    if not isinstance(path, str):
        raise ToolError(ToolErrorCategory.TYPE_MISMATCH, f"path: expected a string, got {type(path).__name__}")
    if not path:
        raise ToolError.invalid("path is empty: expected a file or directory")
    if "\0" in path:
        raise ToolError.invalid(f"{_shown(path)}: a path cannot contain a NUL character")
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise ToolError.invalid(f"{_shown(path)}: a path cannot contain half of a surrogate pair") from None
    if size > _PATH_BYTES:
        raise ToolError.invalid(f"{_shown(path)}: {size} bytes are too long for a path (at most {_PATH_BYTES})")
    if size > _NAME_BYTES and max(len(name.encode()) for name in path.split("/")) > _NAME_BYTES:
        raise ToolError.invalid(f"{_shown(path)}: a name in it is longer than {_NAME_BYTES} bytes")
    return path


def expansion_wanted(path: str) -> Refused | None:
    """Return the refusal of a path that a shell or a browser would expand, or None.

    The caller makes sure that its first name does not exist literally: `$HOME` and `~me` are legal names.
    """
    first = re.split(r"[/\\]", path, maxsplit=1)[0]
    if _HOME.fullmatch(first):
        return _unexpanded(path, "~ does not mean the home directory here")
    if _VARIABLE.fullmatch(first):
        return _unexpanded(path, "variables are not expanded in paths")
    if _URL.match(path):
        return _unexpanded(path, "a URL is not a path")
    return None


def _unexpanded(path: str, why: str) -> Refused:
    return Refused(f"{_shown(path)}: {why}", "Give the path itself, relative to the session's directory.")


def _shown(path: str) -> str:
    """Return the path for a message: printable and short."""
    text = path.encode("utf-8", "replace").decode().replace("\0", "\\0")
    return text if len(text) <= 120 else f"{text[:60]}…{text[-40:]}"


_SWAPPED = frozenset({errno.ELOOP, errno.EXDEV})
_WORDS = {
    errno.ENOENT: "no such file or directory",
    errno.ENOTDIR: "a part of the path is a file, not a directory",
    errno.EISDIR: "is a directory, not a file",
    errno.ENOSPC: "the disk is full; nothing was changed",
    errno.EDQUOT: "the disk quota is used up; nothing was changed",
    errno.EFBIG: "too large for this file system; nothing was changed",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "operation not permitted",
    errno.ENAMETOOLONG: "the path is too long",
    errno.ENXIO: "is not a regular file",
    errno.ENODEV: "is not a regular file",
    errno.EMFILE: "too many open files",
}

_ADVICE = {
    errno.ENOENT: "Look for it by its name, or list the folder above it.",
    errno.EISDIR: "List it, or name a file in it.",
}
"""What the model is told to do. For all other errors it is the advice of the category."""


@contextmanager
def errors_about(path: str) -> Generator[None]:
    """Raise ToolError or Refused for an OSError of the block. The message names `path` exactly as it is given."""
    try:
        yield
    except OSError as error:
        raise path_error(error, path) from error


def path_error(error: OSError, path: str) -> ToolError | Refused:
    """Return the error to raise for an OSError: Refused if a link was swapped in meanwhile, else a ToolError."""
    code = error.errno or 0
    if code in _SWAPPED:
        return Refused(f"{path}: changed into a link while it was being opened")
    return ToolError(category_of(error), f"{path}: {in_words(error)}", _ADVICE.get(code, ""))


def in_words(error: OSError) -> str:
    """Return the message of an error without the path of the system."""
    if error.errno is None:
        return "the time is up" if isinstance(error, TimeoutError) else "the system reported an error"
    return _WORDS.get(error.errno) or os.strerror(error.errno)


def category_of(error: OSError) -> ToolErrorCategory:
    """Return the category in which a model is told of a system error."""
    match error:
        case PermissionError():
            return ToolErrorCategory.POLICY_BLOCKED
        case TimeoutError():
            return ToolErrorCategory.TIMEOUT
        case ConnectionError():
            return ToolErrorCategory.NETWORK_ERROR
        case BlockingIOError() | InterruptedError():
            return ToolErrorCategory.SERVER_ERROR
        case _ if error.errno == errno.ENAMETOOLONG:
            return ToolErrorCategory.INVALID_PARAMETERS
        case _:
            return ToolErrorCategory.PERMANENT_FAILURE


def kind_of(mode: int) -> EntryKind:
    """Return the kind of an entry, by its lstat mode."""
    match stat.S_IFMT(mode):
        case stat.S_IFDIR:
            return EntryKind.DIRECTORY
        case stat.S_IFREG:
            return EntryKind.FILE
        case stat.S_IFLNK:
            return EntryKind.SYMLINK
        case _:
            return EntryKind.OTHER


def kind_of_entry(entry: "os.DirEntry[str]") -> EntryKind:
    """Return the kind of a scanned entry, without a system call where possible. OTHER if it vanished."""
    if entry.is_symlink():
        return EntryKind.SYMLINK
    if entry.is_dir(follow_symlinks=False):
        return EntryKind.DIRECTORY
    return EntryKind.FILE if entry.is_file(follow_symlinks=False) else EntryKind.OTHER


_OPENAT2 = 437
# From 5.1 on new system calls have one number on every architecture but alpha and mips.
_MACHINES = ("x86_64", "aarch64", "riscv64", "ppc64le", "s390x", "loongarch64", "armv7l", "i686")
_NO_MAGIC_LINKS = 0x02
_NO_SYMLINKS = 0x04
_BENEATH = 0x08
_TRIES = 16
_LONGEST = 4095  # bytes of a path: the kernel's limit, which the walk checks itself
_ALWAYS = os.O_CLOEXEC | os.O_NOFOLLOW
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | _ALWAYS


Opener: TypeAlias = Callable[[int, str, int], int]
"""A way to open a path below a directory, given its fd, the path and flags. It returns a new fd, close-on-exec.

The path is "." or has no "..", "." or leading slash. Raises OSError: ELOOP or EXDEV if the path has a link in it or
leads out of the directory.
"""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def kernel_open(root_fd: int, relative: str, flags: int) -> int:
    """Open by openat2 with BENEATH, NO_SYMLINKS and NO_MAGICLINKS: one system call without a race. See Opener."""
    how = _OpenHow(flags | _ALWAYS, 0, _BENEATH | _NO_SYMLINKS | _NO_MAGIC_LINKS)
    path = ctypes.c_char_p(os.fsencode(relative))
    size = ctypes.c_size_t(ctypes.sizeof(how))
    code = 0
    for _ in range(_TRIES):
        fd = _libc().syscall(ctypes.c_long(_OPENAT2), ctypes.c_long(root_fd), path, ctypes.byref(how), size)
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: an entry was renamed meanwhile
            break
    raise OSError(code, os.strerror(code), relative)


def walk_open(root_fd: int, relative: str, flags: int) -> int:
    """Open one component after the other from its parent's fd, never through a link. See Opener."""
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
    """Return `kernel_open` if it works on the root, else `walk_open`."""
    if sys.platform != "linux" or os.uname().machine not in _MACHINES:
        return walk_open
    try:
        os.close(kernel_open(root_fd, ".", os.O_RDONLY | os.O_DIRECTORY))
    except OSError as error:
        # Old kernels have no openat2, and some containers forbid it. Other errors are those of the root.
        if error.errno in (errno.ENOSYS, errno.EPERM):
            return walk_open
    return kernel_open


_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_BARRED = frozenset({errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENOTDIR})


@frozen
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


@frozen
class Entered:
    """A directory before its entries. `at` is the directory itself."""

    at: int
    path: str
    name: str


@frozen
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
    return walk_open(at, name, _DIRECTORY)


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
    """Return the step for an entry, or None if it is gone. Enter a directory if that is wanted and possible."""
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
