"""Copying a file or a tree, all or nothing (T4.3, T4.9, T4.20; security.md 2.4).

The copy grows under a temporary name beside its destination and takes the name in one step, which fails when the
name is taken meanwhile. Links and special files are never copied, nor what the session may not read.
"""

import contextlib
import errno
import os
from typing import assert_never

from anyio.from_thread import check_cancelled

from acp_agent.core.backends import Copied, EntryKind
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.new_file import NewFile, hold, temporary_name
from acp_agent.core.types import Access
from acp_agent.execution.entry_kind import kind_of
from acp_agent.execution.file_copy import copy_bytes, copy_file
from acp_agent.execution.landing import discard, landing, refuse_unfit, taken
from acp_agent.execution.rename import rename_new
from acp_agent.execution.roots import Place, Roots
from acp_agent.execution.tree_descent import Cursor, Entered, Leaf, Left, descend, holding, open_child

MAX_ENTRIES = 100_000
"""Files, directories and what is left out, of one copy."""

_OWN = 0o700
_OWN_FILE = 0o600
_ATTEMPTS = 10
_PERMISSIONS = 0o777
_LOOK = 0o500  # kept for the owner of every copied directory: without it nobody could take the copy away again


def copy(roots: Roots, source: str, destination: str, *, max_entries: int = MAX_ENTRIES) -> Copied:
    """See FileSystem.copy. Runs in a worker thread; when its task is cancelled nothing is left."""
    old = roots.place(source, Access.LIST)
    new = roots.place(destination, Access.WRITE)
    status = old.status()
    if status is None:
        raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"{old.given}: no such file or directory")
    kind = kind_of(status.st_mode)
    match kind:
        case EntryKind.FILE:
            return _copy_file(roots.place(source, Access.READ), new)
        case EntryKind.DIRECTORY:
            return _TreeCopy(roots, old, new, max_entries).run()
        case EntryKind.SYMLINK | EntryKind.OTHER:
            msg = f"{old.given}: is neither a file nor a directory"
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, msg)
        case _:
            assert_never(kind)


def _copy_file(old: Place, new: Place) -> Copied:
    refuse_unfit(old, EntryKind.FILE, new)
    with holding(old.open_regular()) as source, landing(new) as parent:
        with contextlib.closing(NewFile(parent, _OWN_FILE)) as copied:
            copy_bytes(source, copied.fd)
            try:
                if not copied.take_name(new.name):
                    rename_new(parent, copied.temporary_name(), parent, new.name)
                    copied.renamed()
            except FileExistsError as error:
                raise taken(new) from error
        os.fsync(parent)
    return Copied(EntryKind.FILE, 1, 0)


class _TreeCopy:
    """One copy of a directory."""

    def __init__(self, roots: Roots, old: Place, new: Place, max_entries: int) -> None:
        self._roots = roots
        self._old = old
        self._new = new
        self._room = max_entries
        self._files = 0
        self._left_out = 0

    def run(self) -> Copied:
        refuse_unfit(self._old, EntryKind.DIRECTORY, self._new)
        with holding(self._old.open_directory()) as source, landing(self._new) as parent:
            temporary, top = _new_directory(parent)
            try:
                with holding(top):
                    with contextlib.closing(Cursor(os.dup(top))) as target:
                        self._fill(source, target)
                        _finish(target.fd, os.fstat(source).st_mode)
                    _take_name(parent, temporary, self._new)
            except BaseException:
                with contextlib.suppress(OSError):
                    discard(parent, temporary)
                raise
            os.fsync(parent)
        return Copied(EntryKind.DIRECTORY, self._files, self._left_out)

    def _fill(self, source: int, target: Cursor) -> None:
        modes = list[int]()
        with contextlib.closing(descend(source, self._may_list)) as steps:
            for step in steps:
                check_cancelled()
                match step:
                    case Leaf():
                        self._count()
                        copied = self._copy_leaf(step, target.fd)
                        self._files += copied
                        self._left_out += not copied
                    case Entered():
                        self._count()
                        self._judge_new(step.path)
                        modes.append(os.fstat(step.at).st_mode)
                        os.mkdir(step.name, _OWN, dir_fd=target.fd)
                        target.enter(step.name)
                    case Left():
                        _finish(target.fd, modes.pop())
                        target.leave()
                    case _:
                        assert_never(step)

    def _copy_leaf(self, leaf: Leaf, directory: int) -> bool:
        if leaf.kind is not EntryKind.FILE or not self._roots.allows(
            os.path.join(self._old.path, leaf.path), Access.READ
        ):
            return False
        self._judge_new(leaf.path)
        return copy_file(leaf.at, leaf.name, directory)

    def _may_list(self, path: str) -> bool:
        return self._roots.allows(os.path.join(self._old.path, path), Access.LIST)

    def _judge_new(self, path: str) -> None:
        if not self._roots.allows(os.path.join(self._new.path, path), Access.WRITE):
            raise Refused(f"{os.path.join(self._new.given, path)}: may not be written; nothing was copied")

    def _count(self) -> None:
        if not self._room:
            msg = f"{self._old.given}: has too many entries for one copy; nothing was copied"
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, msg, "Copy its parts one by one, or use a command.")
        self._room -= 1


def _new_directory(parent: int) -> tuple[str, int]:
    """A new directory with a temporary name, and its fd, which keeps others from removing it. Raises OSError."""
    for _ in range(_ATTEMPTS):
        name = temporary_name()
        os.mkdir(name, _OWN, dir_fd=parent)
        with contextlib.suppress(FileNotFoundError):
            top = open_child(parent, name)
            if hold(top):
                return name, top
            os.close(top)
    raise OSError(errno.EAGAIN, "every new directory is removed at once")


def _take_name(parent: int, temporary: str, new: Place) -> None:
    try:
        rename_new(parent, temporary, parent, new.name)
    except FileExistsError as error:
        raise taken(new) from error


def _finish(directory: int, mode: int) -> None:
    """Give a directory that is filled its permissions, and the disk its names."""
    os.fchmod(directory, mode & _PERMISSIONS | _LOOK)
    os.fsync(directory)
