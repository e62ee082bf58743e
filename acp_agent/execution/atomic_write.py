"""Replacing a file all or nothing (T4.22, security.md 2.4).

The new bytes go into a temporary file of the same directory, reach the disk, and take the name in one step; the
old file is untouched until then. Everything happens by the directory's fd, so no link can redirect it. The other
names of a hard-linked file keep the old bytes.
"""

import contextlib
import os
import secrets
import stat

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE_MODE = 0o666
_PERMISSIONS = 0o777  # never set-user-id and the like: writing to a file takes them away too


def replace_file(directory_fd: int, name: str, data: bytes, old: os.stat_result | None) -> None:
    """Make `name` in the directory a file with these bytes and the old one's permissions and owner.

    Raises OSError; the directory is then as it was.
    """
    temporary = f".acp-agent-{secrets.token_hex(8)}.tmp"
    mode = _NEW_FILE_MODE if old is None else stat.S_IMODE(old.st_mode) & _PERMISSIONS
    fd = os.open(temporary, _NEW, mode, dir_fd=directory_fd)
    try:
        try:
            if old is not None:
                _resemble(fd, old, mode)
            _write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            os.unlink(temporary, dir_fd=directory_fd)
        raise
    os.fsync(directory_fd)


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
