"""Deleting a file, a link or a tree, by the directories' fds (T4.3, T4.19; security.md 2.4)."""

import contextlib
import errno
import os
from collections.abc import Generator
from typing import assert_never

from acp_agent.core.backends import Deleted, EntryKind
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.types import Access
from acp_agent.execution.entry_kind import kind_of
from acp_agent.execution.path_errors import told_as
from acp_agent.execution.roots import Place, Roots
from acp_agent.execution.tree_descent import Entered, Leaf, Left, Step, descend, holding, open_child
from acp_agent.execution.tree_guard import judged, refuse_root

_NOT_EMPTY = frozenset({errno.ENOTEMPTY, errno.EEXIST})


def delete(roots: Roots, path: str, *, recursive: bool) -> Deleted:
    """See FileSystem.delete. Runs in a worker thread; when its task is cancelled it stops between two entries.

    Everything below is judged before anything is deleted, and once more just before it is.
    """
    place = roots.place(path, Access.DELETE)
    refuse_root(roots, place)
    with told_as(place.given), holding(place.root.open_directory(place.parent)) as parent:
        status = os.stat(place.name, dir_fd=parent, follow_symlinks=False)
        kind = kind_of(status.st_mode)
        if kind is not EntryKind.DIRECTORY:
            os.unlink(place.name, dir_fd=parent)
            return Deleted(kind, 0)
        refuse_root(roots, place, status)
        if _removed_empty(parent, place.name):
            return Deleted(kind, 0)
        if not recursive:
            msg = f"{place.given}: the directory is not empty"
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, msg, "Set recursive=true to delete all that is in it.")
        with holding(open_child(parent, place.name)) as top:
            below = _delete_below(roots, place, top)
        os.rmdir(place.name, dir_fd=parent)
        return Deleted(kind, below)


def _removed_empty(parent: int, name: str) -> bool:
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError as error:
        if error.errno in _NOT_EMPTY:
            return False
        raise
    return True


def _delete_below(roots: Roots, place: Place, top: int) -> int:
    """Delete what is in the directory. Returns how many entries that were."""
    device = os.fstat(top).st_dev

    def objection(path: str, directory: os.stat_result | None) -> str | None:
        if directory is not None and directory.st_dev != device:
            return "another file system is mounted there"
        return None if roots.allows(os.path.join(place.path, path), Access.DELETE) else "may not be deleted"

    with contextlib.closing(descend(top)) as steps:
        for _ in judged(roots, place, steps, objection):
            pass
    try:
        with contextlib.closing(removing(top)) as steps:
            below = sum(not isinstance(step, Entered) for step in judged(roots, place, steps, objection))
    except ToolError as error:
        msg = f"{error} (part of {place.given} may be deleted already)"
        raise ToolError(error.failure.category, msg, error.failure.suggestion) from error
    return below


def removing(top: int) -> Generator[Step]:
    """Remove everything below the directory `top`. Each step is given first and done when the next is asked for.

    What vanishes meanwhile counts as removed. Raises OSError. Close it (`contextlib.closing`) for its fd.
    """
    with contextlib.closing(descend(top)) as steps:
        for step in steps:
            yield step
            with contextlib.suppress(FileNotFoundError):
                match step:
                    case Leaf():
                        os.unlink(step.name, dir_fd=step.at)
                    case Entered():
                        pass
                    case Left():
                        os.rmdir(step.name, dir_fd=step.at)
                    case _:
                        assert_never(step)
