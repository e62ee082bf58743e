"""Operating system errors about a path, as the model is told them (requirements L6.3, 2.10).

This is the local seam of the error tree: an OSError that passed it names no path but the one the model gave.
"""

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager

from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory

_SWAPPED = frozenset({errno.ELOOP, errno.EXDEV})
_WORDS = {
    errno.ENOENT: "no such file or directory",
    errno.ENOTDIR: "a part of the path is a file, not a directory",
    errno.EISDIR: "is a directory, not a file",
    errno.ENOSPC: "the disk is full; nothing was changed",
    errno.EDQUOT: "the disk quota is used up; nothing was changed",
    errno.EFBIG: "too large for this file system; nothing was changed",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "operation not permitted",
    errno.ENAMETOOLONG: "the path is too long",
    errno.ENXIO: "is not a regular file",
    errno.ENODEV: "is not a regular file",
    errno.EMFILE: "too many open files",
}


@contextmanager
def told_as(path: str) -> Generator[None]:
    """Turn an OSError of the block into ToolError or Refused about `path`, the path as the model gave it."""
    try:
        yield
    except OSError as error:
        raise path_error(error, path) from error


def path_error(error: OSError, path: str) -> ToolError | Refused:
    """What to raise for `error`: Refused when a link was swapped in under us, else a ToolError."""
    code = error.errno or 0
    if code in _SWAPPED:
        return Refused(f"{path}: changed into a link while it was being opened")
    return ToolError(category_of(error), f"{path}: {in_words(error)}")


def in_words(error: OSError) -> str:
    """What went wrong, without the path the system knows it by."""
    if error.errno is None:
        return "the time is up" if isinstance(error, TimeoutError) else "the system reported an error"
    return _WORDS.get(error.errno) or os.strerror(error.errno)


def not_a_directory(path: str) -> ToolError:
    """The error where the path itself is there, but is no directory; ENOTDIR alone does not tell."""
    return ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"{path}: is a file, not a directory")


def category_of(error: OSError) -> ToolErrorCategory:
    """What a model is told an operating system's error is (L6.3)."""
    match error:
        case PermissionError():
            return ToolErrorCategory.POLICY_BLOCKED
        case TimeoutError():
            return ToolErrorCategory.TIMEOUT
        case ConnectionError():
            return ToolErrorCategory.NETWORK_ERROR
        case BlockingIOError() | InterruptedError():
            return ToolErrorCategory.SERVER_ERROR
        case _ if error.errno == errno.ENAMETOOLONG:
            return ToolErrorCategory.INVALID_PARAMETERS
        case _:
            return ToolErrorCategory.PERMANENT_FAILURE
