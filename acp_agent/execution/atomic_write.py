"""Replacing a file all or nothing, and only the file that was meant (T4.22, A23.5, security.md 2.4).

The new bytes go into a temporary file of the same directory, reach the disk, and take the name in one step; the
old file is untouched until then. Everything happens by the directory's fd, so no link can redirect it. The other
names of a hard-linked file keep the old bytes.

No kernel compares and renames in one step. The last look at the old file comes just before the rename; what somebody
who had it open by then writes to it after that is lost. A new file never replaces anything.
"""

import contextlib
import os
import re
import secrets
import stat
from dataclasses import dataclass

from acp_agent.execution.rename import rename_new
from acp_agent.execution.tree_descent import holding

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE_MODE = 0o666
_PERMISSIONS = 0o777  # never set-user-id and the like: writing to a file takes them away too
_TEMPORARY = re.compile(r"\.acp-agent-[0-9a-f]{16}\.tmp")


@dataclass(frozen=True, slots=True)
class OldFile:
    """A file to replace: open for reading, what fstat said of it, and then all its bytes."""

    fd: int
    status: os.stat_result
    data: bytes


def temporary_name() -> str:
    """A new name for what is not finished yet."""
    return f".acp-agent-{secrets.token_hex(8)}.tmp"


def is_temporary(name: str) -> bool:
    """Whether an entry has such a name: no tool shows it, and a process that died may have left it (`landing`)."""
    return _TEMPORARY.fullmatch(name) is not None


def replace_file(directory_fd: int, name: str, data: bytes, old: OldFile | None) -> bool:
    """Make `name` in the directory a file with these bytes and the old one's permissions and owner.

    False when the name is not the old file as it was read any more; without an old file, when there is something.
    Raises OSError. The directory is then as it was.
    """
    temporary = temporary_name()
    mode = _NEW_FILE_MODE if old is None else stat.S_IMODE(old.status.st_mode) & _PERMISSIONS
    fd = os.open(temporary, _NEW, mode, dir_fd=directory_fd)
    named = False
    try:
        with holding(fd):
            if old is not None:
                _resemble(fd, old.status, mode)
            _write_all(fd, data)
            os.fsync(fd)
        named = _take_name(directory_fd, temporary, name, old)
    finally:
        if not named:
            with contextlib.suppress(OSError):  # the first error is the one to tell
                os.unlink(temporary, dir_fd=directory_fd)
    if named:
        os.fsync(directory_fd)
    return named


def _take_name(directory_fd: int, temporary: str, name: str, old: OldFile | None) -> bool:
    if old is None:
        try:
            rename_new(directory_fd, temporary, directory_fd, name)
        except FileExistsError:
            return False
        return True
    if not _is_still(directory_fd, name, old):
        return False
    os.replace(temporary, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
    return True


def _is_still(directory_fd: int, name: str, old: OldFile) -> bool:
    """Whether the name is the old file with the bytes it had. The bytes first: the quicker look is the last."""
    status = os.fstat(old.fd)
    if _version(status) != _version(old.status) or os.pread(old.fd, len(old.data) + 1, 0) != old.data:
        return False
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
