"""A private folder for the scripts an editor's terminal runs, and the end of those whose process died (security.md 3).

It lies where temporary files do, which may be for everybody: what is there is ours only where it belongs to this user
and nobody else may look into it, links are not followed, and a folder in which there is another stays.

Whoever made a folder holds it with `flock`, which ends with the process, however that dies, and leaves nothing behind.
"""

import fcntl
import os
import stat
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress

_PREFIX = "acp-agent-scripts-"
_ATTEMPTS = 10


class ScriptFolder:
    """One folder, made when it is first asked for. For one thread."""

    def __init__(self) -> None:
        self._held: tuple[str, int] | None = None

    def path(self) -> str:
        """The folder; a new one when a cleaner of old files took the last. Raises OSError where none can be made."""
        if self._held is not None and not _is_at(*self._held):
            self.close()
        if self._held is None:
            self._held = _made()
        return self._held[0]

    def close(self) -> None:
        """Remove it, with all scripts in it."""
        if self._held is not None:
            (path, fd), self._held = self._held, None
            try:
                _remove(path, fd)
            finally:
                os.close(fd)


def remove_abandoned() -> int:
    """Remove the folders of this user whose process is gone; how many there were. Blocks: for a thread."""
    removed = 0
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for path in [entry.path for entry in entries if entry.name.startswith(_PREFIX)]:
            with suppress(OSError), _opened(path) as fd:
                removed += _is_private(fd) and _locked(fd) and _is_at(path, fd) and _remove(path, fd)
    return removed


def _made() -> tuple[str, int]:
    """A new folder, and what holds it. Somebody who tidies up may take it before it is held: then there is another."""
    for _ in range(_ATTEMPTS):
        path = tempfile.mkdtemp(prefix=_PREFIX)
        with suppress(FileNotFoundError):
            fd = _open(path)
            try:
                ours = _locked(fd)
            except OSError:  # nothing can be held there: nobody clears anything away either
                ours = True
            if ours and _is_at(path, fd):
                return path, fd
            os.close(fd)
    raise OSError("every new folder for scripts is taken away at once")


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


@contextmanager
def _opened(path: str) -> Generator[int]:
    fd = _open(path)
    try:
        yield fd
    finally:
        os.close(fd)


def _is_private(fd: int) -> bool:
    """Whether a folder is this user's, and nobody else could put anything there."""
    found = os.fstat(fd)
    return found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == stat.S_IRWXU


def _locked(fd: int) -> bool:
    """Hold a folder until it is closed; False where another process does. Raises OSError where nothing can be held."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: str, fd: int) -> bool:
    """Whether an open folder is the one at a path, links not followed."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _remove(path: str, fd: int) -> bool:
    """Remove what is in a folder, and the folder; whether it is gone."""
    with suppress(OSError):
        for name in os.listdir(fd):
            os.unlink(name, dir_fd=fd)
        os.rmdir(path)
        return True
    return False
