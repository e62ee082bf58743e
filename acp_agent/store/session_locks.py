"""Which process has a session open: one at a time, so that no two ever write to one session.

One file for all sessions, and a byte of it for each, anywhere in the four exabytes a file could have; none is ever
written. POSIX locks on bytes end with the process, however it dies, are not handed on to its children, and leave
nothing behind. But all of a file's are gone as soon as the process closes any file descriptor of that file. So it is
opened once and held until the end.
"""

import fcntl
import hashlib
import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress

from acp_agent.core.errors import StoreUnavailable
from acp_agent.store.private_file import private_file

_FILE_DESCRIPTORS = "/dev/fd"
"""Those of whoever looks (Linux, macOS)."""
_ATTEMPTS = 10


class SessionLocks:
    """The sessions this process has open. For one thread; blocks for microseconds, on a disk elsewhere for a while.

    path    of the file, absolute, in a folder of ours that is made when it is missing. Only one object may use it
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._opened: tuple[int, ExitStack] | None = None
        self._held: set[str] = set()
        self._closed = False

    def take(self, session_id: str) -> bool:
        """Whether this process has the session, now or since before; False while another one has it.

        To ask again is how to know: when the file was removed, another process may have taken it in a new one.
        Raises StoreUnavailable where nothing can be locked.
        """
        with self._ours():
            for _ in range(_ATTEMPTS):
                fd = self._file()
                taken = _lock(fd, session_id)
                if _same(self._path, fd):  # a lock in a file that was removed just now keeps nobody out
                    break
            else:
                raise OSError("another file is put in its place again and again")
        if taken:
            self._held.add(session_id)
        else:
            self._held.discard(session_id)
        return taken

    def holds(self, session_id: str) -> bool:
        """Whether this process has the session, as far as it knows: it does not look."""
        return session_id in self._held

    def give_back(self, session_id: str) -> None:
        """Let others have the session; nothing happens to one that was not taken. Raises StoreUnavailable."""
        if session_id in self._held and self._opened is not None:
            self._held.remove(session_id)
            with self._ours():
                fcntl.lockf(self._opened[0], fcntl.LOCK_UN, 1, _byte(session_id))

    def close(self) -> None:
        """Give all back. Nothing can be taken any more."""
        self._closed = True
        self._held.clear()
        if self._opened is not None:
            self._opened[1].close()
            self._opened = None

    def _file(self) -> int:
        """The file that is at the path now. When that is another one than before, what we have is taken in it, too.

        What others have there already is lost.
        """
        if self._closed:
            raise OSError("it is closed")
        if self._opened is not None and _same(self._path, self._opened[0]):
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
    return int.from_bytes(digest[:8]) >> 2  # an offset has 63 bits, and something is to follow it


def _lock(fd: int, session_id: str) -> bool:
    """Lock a session's byte; False when another process has. Raises OSError."""
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte(session_id))
    except (BlockingIOError, PermissionError):  # POSIX allows either
        return False
    return True


def _same(path: str, fd: int) -> bool:
    """Whether an open file is the one at a path, links not followed."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _is_open(path: str) -> bool:
    """Whether this process has a file open: to open it again would be to close it again, one day."""
    with suppress(OSError):
        for name in os.listdir(_FILE_DESCRIPTORS):
            with suppress(OSError, ValueError):  # the folder's own is closed by now
                if _same(path, int(name)):
                    return True
    return False
