"""Files that have no name before they are whole, so that a killed process leaves nothing behind.

Linux can make a file without a name (O_TMPFILE) and give it one later. Only a rename can replace a file, and a rename
needs a name: the file then has a temporary one for microseconds. On other systems, and on file systems without such
files, it has a temporary name from the beginning. The writer holds the file with `flock`, which ends with the process.
So the next writer in the folder can tell leftovers and remove them.
"""

import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress

from acp_agent.core.untrusted import now_ns

_UNNAMED = getattr(os, "O_TMPFILE", 0)
_NAMED = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_ALWAYS = os.O_WRONLY | os.O_CLOEXEC
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_TEMPORARY = re.compile(r"\.acp-agent-[0-9a-f]{16}\.tmp")
_ATTEMPTS = 10
_ABANDONED = 3600 * 10**9  # nanoseconds. Where locks fail, a file that changed within them may still be in use


def temporary_name() -> str:
    """Return a new name for an unfinished file."""
    return f".acp-agent-{secrets.token_hex(8)}.tmp"


@contextmanager
def open_folder(path: str) -> Generator[int]:
    """Open a folder for the body. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def is_at(path: str, fd: int) -> bool:
    """Return whether an open file or folder is the one at a path, without following links. Raises OSError."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def is_temporary(name: str) -> bool:
    """Return whether an entry has the name of an unfinished file. No tool shows such entries."""
    return _TEMPORARY.fullmatch(name) is not None


class NewFile:
    """A file that is being written, without a name where that is possible. It must be closed on every path.

    directory_fd   the folder of the file
    mode           its permissions, before the umask
    unnamed        False makes it named from the beginning, for tests
    """

    def __init__(self, directory_fd: int, mode: int, *, unnamed: bool = True) -> None:
        """Create the file. Raises OSError."""
        self._directory_fd = directory_fd
        self._name: str | None = None
        fd = _open_unnamed(directory_fd, mode) if unnamed and _UNNAMED else None
        if fd is None:
            fd, self._name = _open_named(directory_fd, mode)
        self.fd = fd

    def take_name(self, name: str) -> bool:
        """Give the finished file its name. Return False if it already has a temporary one.

        Raises OSError, and FileExistsError if the name is taken.
        """
        if self._name is not None:
            return False
        _link(self.fd, self._directory_fd, name)
        return True

    def temporary_name(self) -> str:
        """Return the file's temporary name. Give it one if it has none. Raises OSError."""
        if self._name is None:
            _hold(self.fd)
            name = temporary_name()
            _link(self.fd, self._directory_fd, name)
            self._name = name
        return self._name

    def write(self, data: bytes) -> None:
        """Write bytes at its end. Raises OSError."""
        with open(self.fd, "wb", closefd=False) as file:
            file.write(data)

    def replace(self, name: str) -> None:
        """Give the finished file a name, in place of the file that has it. Raises OSError."""
        os.replace(self.temporary_name(), name, src_dir_fd=self._directory_fd, dst_dir_fd=self._directory_fd)
        self._name = None

    def renamed(self) -> None:
        """Note that the temporary name was renamed away."""
        self._name = None

    def close(self) -> None:
        """Close the file, and remove it if it still has its temporary name."""
        try:
            if self._name is not None:
                with suppress(OSError):
                    os.unlink(self._name, dir_fd=self._directory_fd)
        finally:
            os.close(self.fd)


def remove_leftovers(directory_fd: int) -> list[str]:
    """Remove the unfinished files of dead processes from a folder. Return the unfinished directories.

    Only regular files of this user are removed. A file that cannot be removed stays.
    """
    folders: list[str] = []
    with suppress(OSError), os.scandir(directory_fd) as entries:
        for name in [entry.name for entry in entries if is_temporary(entry.name)]:
            with suppress(OSError):
                status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
                is_folder = stat.S_ISDIR(status.st_mode)
                if not (is_folder or stat.S_ISREG(status.st_mode)) or not _is_abandoned(directory_fd, name, status):
                    continue
                if is_folder:
                    folders.append(name)
                else:
                    os.unlink(name, dir_fd=directory_fd)
    return folders


def hold(fd: int) -> bool:
    """Protect an open file or directory from `remove_leftovers` until it is closed. Return False if it was removed."""
    return _hold(fd) and os.fstat(fd).st_nlink > 0


def _hold(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # nothing can be locked here: only old files are removed
        return True
    return True


def _is_abandoned(directory_fd: int, name: str, status: os.stat_result) -> bool:
    """Return whether an entry belongs to this user and no running process writes it. Raises OSError."""
    if os.geteuid() not in (0, status.st_uid):
        return False
    is_old = now_ns() - status.st_mtime_ns > _ABANDONED
    try:
        fd = os.open(name, _LOOK, dir_fd=directory_fd)
    except PermissionError:
        return is_old
    try:
        if not os.path.samestat(os.fstat(fd), status):
            return False
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return is_old
    else:
        return True
    finally:
        os.close(fd)


def _open_unnamed(directory_fd: int, mode: int) -> int | None:
    """Return a file without a name, or None if the system has none or cannot name them later."""
    try:
        fd = os.open(".", _UNNAMED | _ALWAYS, mode, dir_fd=directory_fd)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EROFS):
            raise
        return None
    with suppress(OSError):
        if os.path.samestat(os.stat(_path(fd)), os.fstat(fd)):
            return fd
    os.close(fd)
    return None


def _open_named(directory_fd: int, mode: int) -> tuple[int, str]:
    for _ in range(_ATTEMPTS):
        name = temporary_name()
        fd = os.open(name, _NAMED | _ALWAYS, mode, dir_fd=directory_fd)
        if hold(fd):
            return fd, name
        os.close(fd)  # another process removed it as a leftover before the lock
    raise OSError(errno.EAGAIN, "every new file is removed at once")


def _link(fd: int, directory_fd: int, name: str) -> None:
    os.link(_path(fd), name, dst_dir_fd=directory_fd, follow_symlinks=True)


def _path(fd: int) -> str:
    return f"/proc/self/fd/{fd}"
