"""Which files the ignore files of a workspace may take in again: those that a line with `!` may match."""

import os
import stat
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from itertools import islice

_LARGEST = 256 * 1024


def exceptions(files: Iterator[str], most: int) -> Callable[[str], bool]:
    """Return a function that says whether a line of the files may take a path in again.

    most   files that are read; where there are more, or one that cannot be read whole, any path may be meant
    """
    lines = set[str]()
    for number, path in enumerate(islice(dict.fromkeys(files), most + 1)):
        found = _lines(path) if number < most else None
        if found is None:
            return _any
        lines.update(found)
    return lambda path: any(_may_mean(path, line) for line in lines)


def _any(path: str) -> bool:
    del path
    return True


def _lines(path: str) -> set[str] | None:
    """Return the lines with `!` without that mark; None where they cannot be told."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return set()
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return set()
        data = os.read(fd, _LARGEST + 1)
    except OSError:
        return None
    finally:
        os.close(fd)
    if len(data) > _LARGEST:
        return None
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    return {line[1:].rstrip() for line in text.split("\n") if line.startswith("!")}


def _may_mean(path: str, line: str) -> bool:
    """Return whether a line may match a file, or a folder above one that is not hidden itself."""
    *above, name = path.casefold().split("/")
    pattern = line.casefold().rstrip("/").rpartition("/")[2]
    special = next((at for at, char in enumerate(pattern) if char in "[\\"), None)
    if special is not None:
        pattern = f"{pattern[:special]}*"
    if not line.endswith("/") and fnmatchcase(name, pattern):
        return True
    return not name.startswith(".") and any(fnmatchcase(folder, pattern) for folder in above)
