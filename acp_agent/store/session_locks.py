"""Which process has a session open: only one at a time, so that no two processes write to one session.

All sessions share one file, and each session has a byte of it, anywhere in the four exabytes that a file could have. No
byte is ever written. POSIX locks on bytes end with the process, however it dies, are not inherited by its children, and
leave nothing behind. But all locks of a file end as soon as the process closes any file descriptor of that file, so it
is opened once and stays open until the end.
"""

import fcntl
import hashlib
import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress

from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.new_file import is_at
from acp_agent.store.private_file import private_file

_FILE_DESCRIPTORS = "/dev/fd"
"""The file descriptors of this process (Linux, macOS)."""
_ATTEMPTS = 10


class SessionLocks:
    """The sessions that this process has open. For one thread; blocks for microseconds, or longer on a network's disk.

    path    the absolute path of the file, in a folder that is created if it is missing. Only one object may use it
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._opened: tuple[int, ExitStack] | None = None
        self._held: set[str] = set()
        self._closed = False

    def take(self, session_id: str) -> bool:
        """Lock a session. Return True if this process has it, also from before, and False while another process has it.

        Call it again to check: if the file was removed, another process may have locked the session in a new file.
        Raises StoreUnavailable if nothing can be locked.
        """
        with self._ours():
            for _ in range(_ATTEMPTS):
                fd = self._file()
                taken = _lock(fd, session_id)
                if is_at(self._path, fd):  # no other process sees a lock in a file that was just removed
                    break
            else:
                raise OSError("another file is put in its place again and again")
        if taken:
            self._held.add(session_id)
        else:
            self._held.discard(session_id)
        return taken

    def holds(self, session_id: str) -> bool:
        """Return whether this process has the session, as far as it knows. The file is not checked."""
        return session_id in self._held

    def give_back(self, session_id: str) -> None:
        """Unlock a session. A session that is not locked is ignored. Raises StoreUnavailable."""
        if session_id in self._held and self._opened is not None:
            self._held.remove(session_id)
            with self._ours():
                fcntl.lockf(self._opened[0], fcntl.LOCK_UN, 1, _byte(session_id))

    def close(self) -> None:
        """Unlock all sessions. Nothing can be locked afterwards."""
        self._closed = True
        self._held.clear()
        if self._opened is not None:
            self._opened[1].close()
            self._opened = None

    def _file(self) -> int:
        """Return the descriptor of the file that is at the path now. If it is new, lock our sessions in it too.

        A session that another process has locked in the new file is no longer ours.
        """
        if self._closed:
            raise OSError("it is closed")
        if self._opened is not None and is_at(self._path, self._opened[0]):
            return self._opened[0]
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        if _is_open(self._path):
            raise OSError("this process has it open already")
        stack, before = ExitStack(), self._opened
        self._opened = stack.enter_context(private_file(self._path)), stack
        self._held = {session_id for session_id in self._held if _lock(self._opened[0], session_id)}
        if before is not None:
            before[1].close()
        return self._opened[0]

    @contextmanager
    def _ours(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            why = error.strerror or str(error)
            raise StoreUnavailable(f"sessions cannot be locked with {self._path}: {why}") from error


def _byte(session_id: str) -> int:
    digest = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8]) >> 2  # an offset has 63 bits, and the end of the locked byte is an offset too


def _lock(fd: int, session_id: str) -> bool:
    """Lock a session's byte. Return False if another process has it. Raises OSError."""
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte(session_id))
    except (BlockingIOError, PermissionError):  # POSIX allows either
        return False
    return True


def _is_open(path: str) -> bool:
    """Return whether this process has a file open.

    Opening it again would mean closing it again, which ends its locks.
    """
    with suppress(OSError):
        for name in os.listdir(_FILE_DESCRIPTORS):
            with suppress(OSError, ValueError):  # the folder's own is closed by now
                if is_at(path, int(name)):
                    return True
    return False
