"""Replacing a file all or nothing, and only the file that was meant (T4.22, A23.5, security.md 2.4).

The new bytes go into a new file of the same directory (`core.new_file`), reach the disk, and take the name in one step;
the old file is untouched until then. Everything happens by the directory's fd, so no link can redirect it. The other
names of a hard-linked file keep the old bytes.

No kernel compares and renames in one step. The last look at the old file comes just before the rename; what somebody
who had it open by then writes to it after that is lost. A new file never replaces anything.
"""

import contextlib
import os
import stat
from contextlib import closing
from dataclasses import dataclass

from acp_agent.core.new_file import NewFile
from acp_agent.execution.rename import rename_new

_NEW_FILE_MODE = 0o666
_PERMISSIONS = 0o777  # never set-user-id and the like: writing to a file takes them away too


@dataclass(frozen=True, slots=True)
class OldFile:
    """A file to replace: open for reading, what fstat said of it, and then all its bytes."""

    fd: int
    status: os.stat_result
    data: bytes


def replace_file(directory_fd: int, name: str, data: bytes, old: OldFile | None, *, unnamed: bool = True) -> bool:
    """Make `name` in the directory a file with these bytes and the old one's permissions and owner.

    False when the name is not the old file as it was read any more; without an old file, when there is something.
    Raises OSError. The directory is then as it was. `unnamed` is for tests: whether to do without a temporary name.
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
    """Whether the name is the old file with the bytes it had. The bytes first: the quicker look is the last."""
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
    """What changes when somebody writes to a file, or puts another in its place."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _resemble(fd: int, old: os.stat_result, mode: int) -> None:
    mine = os.fstat(fd)
    if (mine.st_uid, mine.st_gid) != (old.st_uid, old.st_gid):
        with contextlib.suppress(PermissionError):  # only root may give files away; the new file is then ours
            os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, mode)


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
