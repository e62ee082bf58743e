"""Check a path as text before the disk is asked, and put errors of the system into words.

A path means what it says: nothing in it is expanded. A path that a shell would expand is refused with advice, because
taken literally it would read nothing or create a folder named `~`.
"""

import errno
import os
import re
import stat
from collections.abc import Generator
from contextlib import contextmanager

from acp_agent.core.backends import EntryKind
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory

_PATH_BYTES = 4095
_NAME_BYTES = 255
_HOME = re.compile(r"~([a-z_][a-z0-9_-]*)?")
_VARIABLE = re.compile(r"\$(\{\w+\}|\([^)]*\)|[A-Z_][A-Z0-9_]*)|%\w+%")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def check_text(path: object) -> str:
    """Return the path if it can be one. Raises ToolError (type_mismatch or invalid_parameters) otherwise."""
    if not isinstance(path, str):
        msg = f"path: expected a string, got {type(path).__name__}"
        raise ToolError(ToolErrorCategory.TYPE_MISMATCH, msg)
    if not path:
        raise _invalid("path is empty: expected a file or directory")
    if "\0" in path:
        raise _invalid(f"{_shown(path)}: a path cannot contain a NUL character")
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise _invalid(f"{_shown(path)}: a path cannot contain half of a surrogate pair") from None
    if size > _PATH_BYTES:
        raise _invalid(f"{_shown(path)}: {size} bytes are too long for a path (at most {_PATH_BYTES})")
    longest = max(path.split("/"), key=lambda name: len(name.encode()))
    if len(longest.encode()) > _NAME_BYTES:
        raise _invalid(f"{_shown(path)}: a name in it is longer than {_NAME_BYTES} bytes")
    return path


def expansion_wanted(path: str) -> Refused | None:
    """Return the refusal of a path that a shell or a browser would expand, or None.

    The caller makes sure that its first name does not exist literally: `$HOME` and `~me` are legal names.
    """
    first = re.split(r"[/\\]", path, maxsplit=1)[0]
    if _HOME.fullmatch(first):
        return _unexpanded(path, "~ does not mean the home directory here")
    if _VARIABLE.fullmatch(first):
        return _unexpanded(path, "variables are not expanded in paths")
    if _URL.match(path):
        return _unexpanded(path, "a URL is not a path")
    return None


def _unexpanded(path: str, why: str) -> Refused:
    return Refused(f"{_shown(path)}: {why}", "Give the path itself, relative to the session's directory.")


def _invalid(message: str) -> ToolError:
    return ToolError(ToolErrorCategory.INVALID_PARAMETERS, message)


def _shown(path: str) -> str:
    """Return the path for a message: printable and short."""
    text = path.encode("utf-8", "replace").decode().replace("\0", "\\0")
    return text if len(text) <= 120 else f"{text[:60]}…{text[-40:]}"


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
def errors_about(path: str) -> Generator[None]:
    """Turn an OSError of the block into a ToolError or Refused about `path`, which is written as the model wrote it."""
    try:
        yield
    except OSError as error:
        raise path_error(error, path) from error


def path_error(error: OSError, path: str) -> ToolError | Refused:
    """Return the error to raise for an OSError: Refused if a link was swapped in meanwhile, else a ToolError."""
    code = error.errno or 0
    if code in _SWAPPED:
        return Refused(f"{path}: changed into a link while it was being opened")
    return ToolError(category_of(error), f"{path}: {in_words(error)}")


def in_words(error: OSError) -> str:
    """Return the message of an error without the path of the system."""
    if error.errno is None:
        return "the time is up" if isinstance(error, TimeoutError) else "the system reported an error"
    return _WORDS.get(error.errno) or os.strerror(error.errno)


def not_a_directory(path: str) -> ToolError:
    """Return the error for a path that exists but is no directory. ENOTDIR alone does not tell."""
    return ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"{path}: is a file, not a directory")


def category_of(error: OSError) -> ToolErrorCategory:
    """Return the category in which a model is told of a system error."""
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


def kind_of(mode: int) -> EntryKind:
    """Return the kind of an entry, by its lstat mode."""
    match stat.S_IFMT(mode):
        case stat.S_IFDIR:
            return EntryKind.DIRECTORY
        case stat.S_IFREG:
            return EntryKind.FILE
        case stat.S_IFLNK:
            return EntryKind.SYMLINK
        case _:
            return EntryKind.OTHER


def kind_of_entry(entry: "os.DirEntry[str]") -> EntryKind:
    """Return the kind of a scanned entry, without a system call where possible. OTHER if it vanished."""
    if entry.is_symlink():
        return EntryKind.SYMLINK
    if entry.is_dir(follow_symlinks=False):
        return EntryKind.DIRECTORY
    return EntryKind.FILE if entry.is_file(follow_symlinks=False) else EntryKind.OTHER
