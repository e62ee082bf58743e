"""Copying the bytes of one regular file (security.md 2.4)."""

import errno
import os
import stat

from anyio.from_thread import check_cancelled

from acp_agent.execution.tree_descent import holding

_CHUNK = 1024 * 1024
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OWN = 0o600
_PERMISSIONS = 0o777  # never set-user-id and the like
# Not ours to read, gone, or by now a link, a socket or a device.
_UNREADABLE = frozenset({errno.EACCES, errno.EPERM, errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.ENODEV})


def copy_file(at: int, name: str, directory: int) -> bool:
    """Copy a regular file of the directory `at` into another, under the same name. False when it cannot be read.

    Raises OSError when it cannot be written.
    """
    try:
        source = os.open(name, _READ, dir_fd=at)
    except OSError as error:
        if error.errno in _UNREADABLE:
            return False
        raise
    with holding(source):
        if not stat.S_ISREG(os.fstat(source).st_mode):
            return False
        copy_open_file(source, directory, name)
    return True


def copy_open_file(source: int, directory: int, name: str) -> None:
    """Make `name` in the directory a new file with the bytes and permissions of an open one, holes and all.

    Raises OSError, FileExistsError when there is something of that name; a file it could not finish stays.
    """
    with holding(os.open(name, _NEW, _OWN, dir_fd=directory)) as target:
        copy_bytes(source, target)


def copy_bytes(source: int, target: int) -> None:
    """Give an open empty file the bytes and permissions of another one, holes and all, and have them on the disk.

    As long as the file was when it began: one that grows does not keep it busy. Raises OSError. Runs in a worker
    thread and stops when its task is cancelled.
    """
    status = os.fstat(source)
    at = 0
    while (at := _next_data(source, at, status.st_size)) < status.st_size:
        check_cancelled()
        chunk = os.pread(source, min(_CHUNK, status.st_size - at), at)
        if not chunk:
            break
        _write_all(target, chunk, at)
        at += len(chunk)
    os.ftruncate(target, min(status.st_size, os.fstat(source).st_size))
    os.fchmod(target, status.st_mode & _PERMISSIONS)
    os.fsync(target)


def _next_data(source: int, at: int, size: int) -> int:
    """Where the next bytes are that are not in a hole; `size` when there are none."""
    try:
        return os.lseek(source, at, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size
        if error.errno in (errno.EINVAL, errno.ENOTSUP):  # a file system without holes
            return at
        raise


def _write_all(target: int, data: bytes, at: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(target, rest, at)
        rest = rest[written:]
        at += written
