"""One TOML file as a table, or the reason why not; and how to tell that it has changed."""

import os
import stat
from typing import TypeAlias

from acp_agent.core.clock import now_ns
from acp_agent.core.errors import ConfigError
from acp_agent.core.untrusted import toml_table

LIMIT = 1024 * 1024  # bytes; a configuration file is never that long

Stamp: TypeAlias = tuple[int, ...] | None
"""What tells one state of a file from the next; None for no file."""

_TICK = 50_000_000
"""Nanoseconds in which two writes may leave the same time behind: file systems count in ticks of some milliseconds."""


def stamp(path: str) -> Stamp:
    """The state a file is in. One that was written this very moment equals no later stamp, so it is read again.

    Follows links, as reading does. Opens nothing.
    """
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    now = now_ns()
    written = max(status.st_mtime_ns, status.st_ctime_ns)
    moment = now if abs(now - written) < _TICK else 0
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev, moment)


def read_toml(path: str) -> dict[str, object] | None:
    """The table in a file; None when there is no such file.

    Raises ConfigError when it is no regular file, cannot be read, is longer than 1 MiB, or is not TOML in UTF-8
    within the bounds of `core.untrusted`.
    """
    try:
        data = _read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(path, "", "", f"expected a file that can be read: {error.strerror}") from error
    try:
        return toml_table(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        why = f"expected TOML in UTF-8, but byte {error.start} is not (at line {line})"
        raise ConfigError(path, "", "", why) from error
    except ValueError as error:
        last = "at line {}, the end".format(data.count(b"\n") + 1)
        raise ConfigError(path, "", "", f"expected TOML: {error}".replace("at end of document", last)) from error


def _read(path: str) -> bytes:
    """The whole file. Opened so that a FIFO or device put in its place cannot make us wait."""
    if path == os.devnull:  # how people say "none"
        return b""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ConfigError(path, "", "", "expected a regular file")
        with os.fdopen(fd, "rb", closefd=False) as file:
            data = file.read(LIMIT + 1)
    finally:
        os.close(fd)
    if len(data) > LIMIT:
        raise ConfigError(path, "", "", "expected a file of at most 1 MiB")
    return data


def read_project(cwd: str, name: str) -> dict[str, object] | None:
    """Like `read_toml` for a file that comes with a project: a link out of the project is not followed."""
    path = os.path.join(cwd, name)
    root = os.path.realpath(cwd)
    if os.path.lexists(path) and os.path.commonpath((os.path.realpath(path), root)) != root:
        raise ConfigError(path, "", "", "expected a file inside the project, not a link out of it")
    return read_toml(path)
