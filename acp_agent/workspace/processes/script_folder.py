"""A private folder for the scripts that an editor's terminal runs, and the removal of those of dead processes.

It lies among the temporary files, where other users may write. A folder there is ours only if it belongs to this user
and no other user has access. Links are not followed, and a folder that contains a folder stays.

The process holds its folder with `flock`, which ends with the process, however it dies.
"""

import fcntl
import os
import stat
import tempfile
from contextlib import suppress

from acp_agent.workspace.beneath import holding

_PREFIX = "acp-agent-scripts-"
_ATTEMPTS = 10


class ScriptFolder:
    """One folder, made when it is first needed. Only one thread may use it."""

    def __init__(self) -> None:
        self._held: tuple[str, int] | None = None

    def path(self) -> str:
        """Return the folder, or a new one if a cleaner of old files removed it. Raises OSError."""
        if self._held is not None and not _is_at(*self._held):
            self.close()
        if self._held is None:
            self._held = _made()
        return self._held[0]

    def close(self) -> None:
        """Remove the folder with all its scripts."""
        if self._held is not None:
            (path, fd), self._held = self._held, None
            try:
                _remove(path, fd)
            finally:
                os.close(fd)


def remove_abandoned() -> int:
    """Remove the folders of this user whose process is gone. Return their number. It blocks."""
    removed = 0
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for path in [entry.path for entry in entries if entry.name.startswith(_PREFIX)]:
            with suppress(OSError), holding(_open(path)) as fd:
                removed += _is_private(fd) and _locked(fd) and _is_at(path, fd) and _remove(path, fd)
    return removed


def _made() -> tuple[str, int]:
    """Return a new folder and the fd that holds it. If another process removes it before that, make another one."""
    for _ in range(_ATTEMPTS):
        path = tempfile.mkdtemp(prefix=_PREFIX)
        with suppress(FileNotFoundError):
            fd = _open(path)
            try:
                ours = _locked(fd)
            except OSError:  # no locks on this file system, so no process removes anything there either
                ours = True
            if ours and _is_at(path, fd):
                return path, fd
            os.close(fd)
    raise OSError("every new folder for scripts is removed at once")


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is_private(fd: int) -> bool:
    """Return whether a folder belongs to this user, and only to them."""
    found = os.fstat(fd)
    return found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == stat.S_IRWXU


def _locked(fd: int) -> bool:
    """Lock a folder until it is closed. Return False if another process has locked it. Raises OSError."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: str, fd: int) -> bool:
    """Return whether an open folder is the one at a path, links not followed."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _remove(path: str, fd: int) -> bool:
    """Remove a folder with its files. Return whether it is gone."""
    with suppress(OSError):
        for name in os.listdir(fd):
            os.unlink(name, dir_fd=fd)
        os.rmdir(path)
        return True
    return False
