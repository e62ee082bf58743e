"""Delete a file, a link or a tree by the fds of the directories, so that no link is followed.

`shutil.rmtree` does not serve here: it checks no entry, goes into other file systems, cannot be cancelled, and fails in
deep trees, since it recurses.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Generator, Iterable
from typing import TypeAlias, assert_never

from anyio.from_thread import check_cancelled

from acp_agent.core.backends import Deleted, EntryKind
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.types import Access
from acp_agent.workspace.beneath import Entered, Leaf, Left, Step, descend, holding, open_child
from acp_agent.workspace.paths import errors_about, kind_of, path_error
from acp_agent.workspace.roots import Place, Roots

Objection: TypeAlias = Callable[[str, os.stat_result | None], str | None]
"""Returns why an entry may not be touched, or None, given its path in the tree and its status if it is a directory."""

_A_ROOT = "is a directory of this session, or has one below it"


def refuse_root(roots: Roots, place: Place, status: os.stat_result | None = None) -> None:
    """Raise Refused if a root of the session is at the place or below it, by path and by identity of the status."""
    if roots.holds_root(place.path) or (status is not None and roots.is_root(status)):
        raise Refused(f"{place.given}: {_A_ROOT}", "Name the entries in it instead.")


def judged(roots: Roots, place: Place, steps: Iterable[Step], objection: Objection) -> Generator[Step]:
    """Yield the steps through the tree at `place`, each after it was judged.

    Raises Refused at the first objection and at a root of the session, and ToolError for an unreadable directory. It
    runs in a worker thread and stops if its task is cancelled.
    """
    path = ""
    try:
        for step in steps:
            check_cancelled()
            path = step.path
            reason = _reason(roots, step, objection)
            if reason is not None:
                raise Refused(f"{_named(roots, place, step)}: {reason}")
            if isinstance(step, Leaf) and step.error is not None:
                raise step.error
            yield step
    except OSError as error:
        raise path_error(error, os.path.join(place.given, path)) from error


def _reason(roots: Roots, step: Step, objection: Objection) -> str | None:
    match step:
        case Leaf():
            return objection(step.path, None)
        case Entered():
            status = os.fstat(step.at)
            return _A_ROOT if roots.is_root(status) else objection(step.path, status)
        case Left():
            return None
        case _:
            assert_never(step)


def _named(roots: Roots, place: Place, step: Step) -> str:
    """Return the name of the entry for the model. Names that are hidden from listings stay hidden."""
    access = Access.READ if isinstance(step, Leaf) else Access.LIST
    if roots.allows(os.path.join(place.path, step.path), access):
        return os.path.join(place.given, step.path)
    return f"{place.given}: something below it"


_NOT_EMPTY = frozenset({errno.ENOTEMPTY, errno.EEXIST})


def delete(roots: Roots, path: str, *, recursive: bool) -> Deleted:
    """Delete an entry, as FileSystem.delete does, in a worker thread. It stops between two entries if it is cancelled.

    Everything below is judged before anything is deleted, and each entry once more just before it is deleted.
    """
    place = roots.place(path, Access.DELETE)
    refuse_root(roots, place)
    with errors_about(place.given), holding(place.root.open_directory(place.parent)) as parent:
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
            raise ToolError(
                ToolErrorCategory.PERMANENT_FAILURE, msg, "Set recursive=true to delete it with everything in it."
            )
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
    """Delete the entries of the directory. Return their number."""
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
    """Remove everything below the directory `top`. A yielded step is done when the next one is asked for.

    Entries that vanish meanwhile count as removed. Raises OSError. Close the generator (`contextlib.closing`).
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
