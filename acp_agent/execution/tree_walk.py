"""Walking a tree below a root without following a link."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from anyio.from_thread import check_cancelled

from acp_agent.core.backends import EntryKind
from acp_agent.core.new_file import is_temporary
from acp_agent.execution.roots import Root


@dataclass(frozen=True, slots=True)
class Met:
    """An entry met on the way. `path` is relative to the root, `depth` counts from the base's children (1)."""

    path: str
    name: str
    kind: EntryKind
    depth: int


def walk(root: Root, base: str, wanted: Callable[[Met], bool], max_depth: int | None = None) -> Iterator[Met]:
    """Everything below the directory `base`, ordered by path component, each directory before what is in it.

    What is not `wanted` is neither given nor entered. Directories that cannot be read are empty. Names that are no
    UTF-8 are left out, as no tool could open them, and what is only half written. Runs in a worker thread and stops
    when its task is cancelled.
    """
    levels = [iter(_scan(root, base, 1))]
    while levels:
        entry = next(levels[-1], None)
        if entry is None:
            levels.pop()
        elif wanted(entry):
            yield entry
            if entry.kind is EntryKind.DIRECTORY and (max_depth is None or entry.depth < max_depth):
                levels.append(iter(_scan(root, entry.path, entry.depth + 1)))


def _scan(root: Root, directory: str, depth: int) -> list[Met]:
    check_cancelled()
    prefix = "" if directory == "." else f"{directory}/"
    try:
        fd = root.open_directory(directory)
    except OSError:
        return []
    try:
        with os.scandir(fd) as entries:
            found = [Met(prefix + entry.name, entry.name, _kind(entry), depth) for entry in entries if _is_shown(entry)]
    except OSError:
        return []
    finally:
        os.close(fd)
    return sorted(found, key=lambda entry: entry.name)


def _kind(entry: "os.DirEntry[str]") -> EntryKind:
    if entry.is_symlink():
        return EntryKind.SYMLINK
    if entry.is_dir(follow_symlinks=False):
        return EntryKind.DIRECTORY
    return EntryKind.FILE if entry.is_file(follow_symlinks=False) else EntryKind.OTHER


def _is_shown(entry: "os.DirEntry[str]") -> bool:
    try:
        entry.name.encode()
    except UnicodeEncodeError:
        return False
    return not is_temporary(entry.name)
