"""Replace a file all or nothing, and only the file that was meant.

The new bytes go into a new file of the same directory (`core.new_file`), reach the disk, and take the name in one step.
The old file is untouched until then. Everything happens by the directory's fd, so no link can redirect it. The other
names of a hard-linked file keep the old bytes.

No kernel compares and renames in one step. The old file is compared just before the rename. A program that has it open
and writes to it after that loses what it writes. A new file never replaces anything.
"""

import contextlib
import ctypes
import errno
import os
import stat
import sys
from contextlib import closing
from dataclasses import dataclass

from acp_agent.core.new_file import NewFile

_CALLS = {"linux": ("renameat2", 1), "darwin": ("renameatx_np", 4)}  # name, the flag that forbids replacing
# No such call, a sandbox that forbids it, a file system that does not know the flag.
_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.ENOTSUP})
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS})


def rename_new(from_fd: int, old: str, to_fd: int, new: str) -> None:
    """Give the entry `old` of one directory the name `new` in another. A link is renamed itself.

    Raises OSError: FileExistsError when the name is taken, EXDEV between file systems, EINVAL for a directory into
    itself.
    """
    name, flag = _CALLS.get(sys.platform, ("", 0))
    call = getattr(ctypes.CDLL(None, use_errno=True), name, None) if name else None
    code = errno.ENOSYS
    if call is not None:
        if call(from_fd, ctypes.c_char_p(os.fsencode(old)), to_fd, ctypes.c_char_p(os.fsencode(new)), flag) == 0:
            return
        code = ctypes.get_errno()
    if code not in _UNSUPPORTED:
        raise OSError(code, os.strerror(code), new)
    rename_new_by_steps(from_fd, old, to_fd, new)


def rename_new_by_steps(from_fd: int, old: str, to_fd: int, new: str) -> None:
    """Do what `rename_new` does where the kernel has no such call."""
    is_directory = stat.S_ISDIR(os.stat(old, dir_fd=from_fd, follow_symlinks=False).st_mode)
    if not is_directory and _linked(from_fd, old, to_fd, new):
        try:
            os.unlink(old, dir_fd=from_fd)
        except OSError:
            with contextlib.suppress(OSError):  # the first error is the one to tell
                os.unlink(new, dir_fd=to_fd)
            raise
        return
    with contextlib.suppress(FileNotFoundError):
        os.stat(new, dir_fd=to_fd, follow_symlinks=False)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
    os.rename(old, new, src_dir_fd=from_fd, dst_dir_fd=to_fd)


def _linked(from_fd: int, old: str, to_fd: int, new: str) -> bool:
    """Give the entry the new name as a hard link. Return False if the file system has none."""
    try:
        os.link(old, new, src_dir_fd=from_fd, dst_dir_fd=to_fd, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NO_HARD_LINKS:
            return False
        raise
    return True


_NEW_FILE_MODE = 0o666
_PERMISSIONS = 0o777  # never set-user-id and the like: writing to a file takes them away too


@dataclass(frozen=True, slots=True)
class OldFile:
    """A file to replace: an fd for reading, its status, and its bytes, which were read after the status."""

    fd: int
    status: os.stat_result
    data: bytes


def replace_file(directory_fd: int, name: str, data: bytes, old: OldFile | None, *, unnamed: bool = True) -> bool:
    """Make `name` in the directory a file with these bytes and the old one's permissions and owner.

    Return False if the name no longer is the old file as it was read, or if there is one where `old` is None. Raises
    OSError; the directory is then as it was. `unnamed=False` makes a temporary name from the beginning, for tests.
    """
    mode = _NEW_FILE_MODE if old is None else stat.S_IMODE(old.status.st_mode) & _PERMISSIONS
    new = NewFile(directory_fd, mode, unnamed=unnamed)
    with closing(new):
        if old is not None:
            _resemble(new.fd, old.status, mode)
        _write_all(new.fd, data)
        os.fsync(new.fd)
        if not _take_name(new, directory_fd, name, old):
            return False
    os.fsync(directory_fd)
    return True


def _take_name(new: NewFile, directory_fd: int, name: str, old: OldFile | None) -> bool:
    if old is None:
        try:
            if not new.take_name(name):
                rename_new(directory_fd, new.temporary_name(), directory_fd, name)
                new.renamed()
        except FileExistsError:
            return False
        return True
    if not _is_still(directory_fd, name, old):
        return False
    temporary = new.temporary_name()
    if not _has_name_still(directory_fd, name, old.status):
        return False
    os.replace(temporary, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
    new.renamed()
    return True


def _is_still(directory_fd: int, name: str, old: OldFile) -> bool:
    """Return whether the name is the old file with its old bytes. The quicker check is the last one."""
    if _version(os.fstat(old.fd)) != _version(old.status) or os.pread(old.fd, len(old.data) + 1, 0) != old.data:
        return False
    return _has_name_still(directory_fd, name, old.status)


def _has_name_still(directory_fd: int, name: str, status: os.stat_result) -> bool:
    try:
        there = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return _version(there) == _version(status)


def _version(status: os.stat_result) -> tuple[int, ...]:
    """Return the values that change when a file is written or replaced."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _resemble(fd: int, old: os.stat_result, mode: int) -> None:
    mine = os.fstat(fd)
    if (mine.st_uid, mine.st_gid) != (old.st_uid, old.st_gid):
        with contextlib.suppress(PermissionError):  # only root may give files away; otherwise the new file is ours
            os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, mode)


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
