"""Making directories and moving entries below the roots (T4.9, T4.20; security.md 2.4)."""

import contextlib
import errno
import os

from acp_agent.core.backends import EntryKind
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.types import Access
from acp_agent.execution.entry_kind import kind_of
from acp_agent.execution.landing import into_itself, landing, refuse_unfit, taken
from acp_agent.execution.path_errors import told_as
from acp_agent.execution.rename import rename_new
from acp_agent.execution.roots import Place, Roots
from acp_agent.execution.tree_descent import descend, holding, open_child
from acp_agent.execution.tree_guard import judged, refuse_root


def make_directory(roots: Roots, path: str) -> bool:
    """See FileSystem.make_directory."""
    place = roots.place(path, Access.WRITE)
    status = place.status()
    if status is not None and kind_of(status.st_mode) is not EntryKind.DIRECTORY:
        raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"{place.given}: exists and is not a directory")
    with told_as(place.given):
        made = place.root.make_directories(place.relative)
        try:
            os.close(place.root.open_directory(place.relative))  # somebody else may have put something there
        except OSError:
            place.root.remove_directories(made)
            raise
        return place.relative in made


def move(roots: Roots, source: str, destination: str) -> None:
    """See FileSystem.move. Runs in a worker thread.

    Everything below the source is judged first, at its old and at its new path: a move changes which rules hold for
    it. What another process puts into the tree after that is moved unseen.
    """
    old = roots.place(source, Access.MOVE)
    new = roots.place(destination, Access.WRITE)
    refuse_root(roots, old)
    with told_as(old.given), holding(old.root.open_directory(old.parent)) as parent:
        status = os.stat(old.name, dir_fd=parent, follow_symlinks=False)
        kind = kind_of(status.st_mode)
        refuse_root(roots, old, status)
        refuse_unfit(old, kind, new)
        if not roots.allows(old.path, _looked_at(is_directory=kind is EntryKind.DIRECTORY)):
            raise Refused(f"{old.given}: may not be read, so it cannot be moved")
        if kind is EntryKind.DIRECTORY:
            with holding(open_child(parent, old.name)) as top:
                _judge_below(roots, old, new, top)
        with landing(new) as directory:
            _rename(old, parent, new, directory)
            os.fsync(directory)


def _looked_at(*, is_directory: bool) -> Access:
    return Access.LIST if is_directory else Access.READ


def _judge_below(roots: Roots, old: Place, new: Place, top: int) -> None:
    def objection(path: str, directory: os.stat_result | None) -> str | None:
        was = os.path.join(old.path, path)
        if not roots.allows(was, Access.MOVE) or not roots.allows(was, _looked_at(is_directory=directory is not None)):
            return "may not be moved"
        return None if roots.allows(os.path.join(new.path, path), Access.WRITE) else f"may not be put below {new.given}"

    with contextlib.closing(descend(top)) as steps:
        for _ in judged(roots, old, steps, objection):
            pass


def _rename(old: Place, parent: int, new: Place, directory: int) -> None:
    try:
        rename_new(parent, old.name, directory, new.name)
    except OSError as error:
        match error.errno:
            case errno.EEXIST | errno.ENOTEMPTY:
                raise taken(new) from error
            case errno.EINVAL:
                raise into_itself(old, new) from error
            case errno.EXDEV:
                msg = f"{old.given} -> {new.given}: the two are on different file systems"
                advice = "Copy it with copy_path, then delete the original."
                raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, msg, advice) from error
            case _:
                with told_as(f"{old.given} -> {new.given}"):
                    raise
