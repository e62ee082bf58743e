"""Files of our own that nobody else may read, and that no link may stand in for (security.md 1, rows 17 and 18)."""

import contextlib
import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from acp_agent.core.new_file import NewFile, remove_leftovers
from acp_agent.core.untrusted import toml_table

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


MAX_BYTES = 1024 * 1024
"""A larger file is not believed, and nothing is added to a file that has grown so large."""


class DamagedFile(Exception):
    """What the file holds cannot be used; the message says why."""


def read_private(path: str) -> dict[str, object]:
    """What a file says; nothing when there is none. Raises Damaged, OSError.

    Follows no link and waits for no pipe: what is no regular file of our own is an OSError, /dev/null aside.
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
    """The beginning of a file, damaged or not, as far as it is text; empty where there is none to be read."""
    try:
        return _read(path).decode(errors="replace")
    except OSError:
        return ""


def _read(path: str) -> bytes:
    """A file of our own, and one byte more than one may have. Raises OSError."""
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
    """Put a new file in a file's place, mode 0600, in one step, and on the disk before this returns. Raises OSError.

    Only a file's: a device such as /dev/null, a pipe or a link stays what it is.
    """
    data = text.encode()
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise OSError(errno.EINVAL, "not a regular file of your own")
    if len(data) > MAX_BYTES:
        raise OSError(f"the file would be larger than {MAX_BYTES} bytes; remove entries from it")
    folder = os.path.dirname(path)
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        remove_leftovers(directory)
        with contextlib.closing(NewFile(directory, 0o600)) as new:
            with os.fdopen(new.fd, "wb", closefd=False) as file:
                file.write(data)
            os.fsync(new.fd)
            os.replace(new.temporary_name(), os.path.basename(path), src_dir_fd=directory, dst_dir_fd=directory)
            new.renamed()
        os.fsync(directory)
    finally:
        os.close(directory)


def set_aside(path: str) -> str:
    """Give a damaged file another name, and return that. Raises OSError."""
    *names, last = _asides(path)
    aside = next((name for name in names if not os.path.lexists(name)), last)
    os.replace(path, aside)
    return aside


def set_aside_before(path: str) -> tuple[str, ...]:
    """Damaged files that `set_aside` gave another name, as far as they are there still."""
    return tuple(filter(os.path.lexists, _asides(path)))


def _asides(path: str) -> Iterator[str]:
    return (f"{path}.damaged-{number}" for number in range(1, 101))


def quoted(key: str) -> str:
    """A TOML key or text. JSON strings are TOML strings but for DEL, and for surrogates, which UTF-8 cannot hold."""
    clean = key.encode(errors="replace").decode()
    return json.dumps(clean, ensure_ascii=False).replace("\x7f", "\\u007f")
