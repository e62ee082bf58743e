"""Files of our own that nobody else may read, and that no link may stand in for (security.md 1, rows 17 and 18)."""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager

_LOCK_SECONDS = 1.0
"""Others hold a lock for microseconds. Who holds it longer was stopped, and must not stop us."""


@contextmanager
def private_file(path: str, flags: int = 0) -> Generator[int]:
    """The file, open for reading and appending, made with mode 0600 when missing; closed at the end.

    `flags` are added to those of `os.open`. Raises OSError, also for a link, a pipe or device, and a file of somebody
    else. A mode that lets others in is mended.
    """
    flags |= os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "a link stands in its place") from error
        raise
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        if status.st_uid != os.geteuid():
            raise OSError(errno.EPERM, "belongs to somebody else")
        if stat.S_IMODE(status.st_mode) != 0o600:
            os.fchmod(fd, 0o600)
        yield fd
    finally:
        os.close(fd)


def lock(fd: int, kind: int = fcntl.LOCK_EX, seconds: float = _LOCK_SECONDS) -> None:
    """Take a file's `flock`, which ends when the file is closed. Raises TimeoutError after so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, "another process holds its lock") from None
            time.sleep(0.0005)
        else:
            return
