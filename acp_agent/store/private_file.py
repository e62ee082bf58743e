"""Files of our own that other users cannot read and that no link can replace, and small TOML files among them.

A TOML file is replaced as a whole, so that it is complete at every moment. Users may edit it.
"""

import contextlib
import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TypeVar

from acp_agent.core.new_file import NewFile, open_folder, remove_leftovers
from acp_agent.core.untrusted import toml_table

T = TypeVar("T")

_LOCK_SECONDS = 1.0
"""Seconds to wait for a lock. Most are held for microseconds, but the database's until its file is checked."""


@contextmanager
def private_file(path: str, flags: int = 0) -> Generator[int]:
    """Open a file for reading and writing and close it at the end. A missing file is created with mode 0600.

    `flags` are added to those of `os.open`. A mode that lets other users in is corrected.

    Raises:
        OSError: The file cannot be opened, is a link, a pipe or a device, or belongs to another user.

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
            raise OSError(errno.EPERM, "belongs to another user")
        if stat.S_IMODE(status.st_mode) != 0o600:
            os.fchmod(fd, 0o600)
        yield fd
    finally:
        os.close(fd)


def lock(fd: int, kind: int = fcntl.LOCK_EX, seconds: float = _LOCK_SECONDS) -> None:
    """Take the `flock` of a file, which ends when the file is closed. Raises TimeoutError after `seconds`."""
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


@contextmanager
def locked(path: str, seconds: float = _LOCK_SECONDS) -> Generator[None]:
    """Hold the lock of a private file, which need not exist. Its folder is created. Raises OSError, TimeoutError."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with private_file(f"{path}.lock") as fd:
        lock(fd, seconds=seconds)
        yield


MAX_BYTES = 1024 * 1024
"""The most bytes of a file that is replaced as a whole. A larger TOML file is not read, and nothing is added to it."""


class DamagedFile(Exception):
    """The content of the file cannot be used. The message says why."""


def read_private(path: str) -> dict[str, object]:
    """Return the table of a TOML file, or an empty one if there is no file. Raises DamagedFile, OSError.

    Links are not followed and pipes are not waited for. Anything but a regular file of this user is an OSError, except
    /dev/null.
    """
    if path == os.devnull:  # how people say "none"
        return {}
    try:
        data = _read(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    if len(data) > MAX_BYTES:
        raise DamagedFile(f"larger than {MAX_BYTES} bytes")
    try:
        return toml_table(data.decode())
    except ValueError as error:
        raise DamagedFile(f"not readable as TOML ({error})") from None


def readable_text(path: str) -> str:
    """Return the beginning of a file as text, even if it is damaged, or "" if it cannot be read."""
    try:
        return _read(path).decode(errors="replace")
    except OSError:
        return ""


def _read(path: str) -> bytes:
    """Return the content of a file of this user, at most one byte more than allowed. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise OSError(errno.EINVAL, "not a regular file of your own")
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read(MAX_BYTES + 1)
    finally:
        os.close(fd)


def replace_private(path: str, text: str) -> None:
    """Replace a file with a new one of mode 0600, in one step. The new file is on the disk on return. Raises OSError.

    Only a regular file is replaced: a device such as /dev/null, a pipe or a link stays.
    """
    data = text.encode()
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise OSError(errno.EINVAL, "not a regular file of your own")
    if len(data) > MAX_BYTES:
        raise OSError(f"the file would be larger than {MAX_BYTES} bytes; remove entries from it")
    with open_folder(os.path.dirname(path)) as directory:
        remove_leftovers(directory)
        with contextlib.closing(NewFile(directory, 0o600)) as new:
            new.write(data)
            os.fsync(new.fd)
            new.replace(os.path.basename(path))
        os.fsync(directory)


ASK_AGAIN = ", and you will be asked again"
"""The end of a warning about a file of answers that was set aside."""


def free_name(stem: str, extension: str = "") -> str:
    """Return the first free name of `stem`, `stem-1`, `stem-2` and so on, with the extension."""
    names = (f"{stem}{f'-{number}' if number else ''}{extension}" for number in count())
    return next(name for name in names if not os.path.lexists(name))


def set_aside(path: str) -> str:
    """Rename a damaged file and return its new name. Raises OSError."""
    *names, last = _asides(path)
    aside = next((name for name in names if not os.path.lexists(name)), last)
    os.replace(path, aside)
    return aside


def read_or_set_aside(
    path: str, read: Callable[[str], T], damaged: Callable[[], T], warn: Callable[[str], None], advice: str = ""
) -> T:
    """Return what `read` returns for a file. If the file is damaged, set it aside, warn, and return `damaged()`.

    Raises OSError.
    """
    try:
        return read(path)
    except DamagedFile as damage:
        warn(f"{path}: {damage}; it was set aside as {set_aside(path)}{advice}")
        return damaged()


def set_aside_before(path: str) -> tuple[str, ...]:
    """Return the damaged files that `set_aside` renamed and that still exist."""
    return tuple(filter(os.path.lexists, _asides(path)))


def _asides(path: str) -> Iterator[str]:
    return (f"{path}.damaged-{number}" for number in range(1, 101))


def quoted(key: str) -> str:
    """Return a TOML key or text.

    JSON strings are TOML strings, except for DEL and for surrogates, which UTF-8 cannot hold.
    """
    clean = key.encode(errors="replace").decode()
    return json.dumps(clean, ensure_ascii=False).replace("\x7f", "\\u007f")
