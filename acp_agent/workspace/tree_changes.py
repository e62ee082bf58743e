"""Make directories, and move and copy entries below the roots.

A tree is copied through the fds of its directories. `shutil.copytree` opens files by name, so another process could
redirect it with a link. Holes in files are kept. A copy that fails leaves nothing behind.
"""

import contextlib
import errno
import os
import stat
from typing import assert_never

from anyio.from_thread import check_cancelled

from acp_agent.core.backends import Copied, EntryKind
from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.new_file import NewFile, hold, temporary_name
from acp_agent.core.types import Access
from acp_agent.workspace.beneath import Cursor, Entered, Leaf, Left, descend, errors_about, holding, kind_of, open_child
from acp_agent.workspace.entries import (
    discard,
    into_itself,
    judged,
    open_destination,
    refuse_root,
    refuse_unfit,
    rename_new,
    take_new_name,
    taken,
    write_all,
)
from acp_agent.workspace.roots import Place, Roots


def make_directory(roots: Roots, path: str) -> bool:
    """Make a directory and its parents, as FileSystem.make_directory does. Return False if it exists already.

    Raises ToolError, Refused.
    """
    place = roots.place(path, Access.WRITE)
    status = place.status()
    if status is not None and kind_of(status.st_mode) is not EntryKind.DIRECTORY:
        raise ToolError.permanent(f"{place.given}: exists and is not a directory")
    with errors_about(place.given):
        made = place.root.make_directories(place.relative)
        try:
            os.close(place.root.open_directory(place.relative))  # another process may have made something else there
        except OSError:
            place.root.remove_directories(made)
            raise
        return place.relative in made


def move(roots: Roots, source: str, destination: str) -> None:
    """Move an entry, as FileSystem.move does, in a worker thread.

    Everything below the source is judged first, at its old and at its new path, since other rules may hold there. Files
    that another process puts into the tree after that are moved without being judged. Raises ToolError, Refused.
    """
    old = roots.place(source, Access.MOVE)
    new = roots.place(destination, Access.WRITE)
    refuse_root(roots, old)
    with errors_about(old.given), holding(old.root.open_directory(old.parent)) as parent:
        status = os.stat(old.name, dir_fd=parent, follow_symlinks=False)
        kind = kind_of(status.st_mode)
        refuse_root(roots, old, status)
        refuse_unfit(old, kind, new)
        if not roots.allows(old.path, _looked_at(is_directory=kind is EntryKind.DIRECTORY)):
            raise Refused(f"{old.given}: may not be read, so it cannot be moved")
        if kind is EntryKind.DIRECTORY:
            with holding(open_child(parent, old.name)) as top:
                _judge_below(roots, old, new, top)
        with open_destination(new) as directory:
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
                raise taken(new.given) from error
            case errno.EINVAL:
                raise into_itself(old.given, new.given) from error
            case errno.EXDEV:
                msg = f"{old.given} -> {new.given}: the two are on different file systems"
                raise ToolError.permanent(msg, "Copy it with copy_path, then delete the original.") from error
            case _:
                with errors_about(f"{old.given} -> {new.given}"):
                    raise


_CHUNK = 1024 * 1024
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OWN = 0o600
_PERMISSIONS = 0o777  # never set-user-id and the like
# The user may not read the file, or it is gone, or it has become a link, a socket or a device.
_UNREADABLE = frozenset({errno.EACCES, errno.EPERM, errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.ENODEV})


def copy_file(at: int, name: str, directory: int) -> bool:
    """Copy a regular file of the directory `at` into another directory, under the same name.

    Return False if it cannot be read. Raises OSError if the copy cannot be written.
    """
    try:
        source = os.open(name, _READ, dir_fd=at)
    except OSError as error:
        if error.errno in _UNREADABLE:
            return False
        raise
    with holding(source):
        if not stat.S_ISREG(os.fstat(source).st_mode):
            return False
        copy_open_file(source, directory, name)
    return True


def copy_open_file(source: int, directory: int, name: str) -> None:
    """Make `name` in the directory a new file with the bytes, holes and permissions of an open one.

    Raises OSError, and FileExistsError if the name is taken. An unfinished file stays.
    """
    with holding(os.open(name, _NEW, _OWN, dir_fd=directory)) as target:
        copy_bytes(source, target)


def copy_bytes(source: int, target: int) -> None:
    """Give an open empty file the bytes, holes and permissions of another one, and sync it to the disk.

    If the source grows meanwhile, only its first length is copied. Raises OSError. It runs in a worker thread and stops
    if its task is cancelled.
    """
    status = os.fstat(source)
    at = 0
    while (at := _next_data(source, at, status.st_size)) < status.st_size:
        check_cancelled()
        chunk = os.pread(source, min(_CHUNK, status.st_size - at), at)
        if not chunk:
            break
        write_all(target, chunk, at)
        at += len(chunk)
    os.ftruncate(target, min(status.st_size, os.fstat(source).st_size))
    os.fchmod(target, status.st_mode & _PERMISSIONS)
    os.fsync(target)


def _next_data(source: int, at: int, size: int) -> int:
    """Return the position of the next bytes that are not in a hole, or `size`."""
    try:
        return os.lseek(source, at, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size
        if error.errno in (errno.EINVAL, errno.ENOTSUP):  # a file system without holes
            return at
        raise


MAX_ENTRIES = 100_000
"""The most entries of one copy, including those that are left out."""

_OWN_FOLDER = 0o700
_OWN_FILE = 0o600
_ATTEMPTS = 10
_LOOK = 0o500  # the owner of a copied directory always has these permissions, to be able to delete it


def copy(roots: Roots, source: str, destination: str, *, max_entries: int = MAX_ENTRIES) -> Copied:
    """Copy an entry, as FileSystem.copy does, in a worker thread. Nothing is left if its task is cancelled.

    Raises ToolError, Refused.
    """
    old = roots.place(source, Access.LIST)
    new = roots.place(destination, Access.WRITE)
    status = old.status()
    if status is None:
        raise ToolError.permanent(f"{old.given}: no such file or directory")
    kind = kind_of(status.st_mode)
    match kind:
        case EntryKind.FILE:
            return _copy_file(roots.place(source, Access.READ), new)
        case EntryKind.DIRECTORY:
            return _TreeCopy(roots, old, new, max_entries).run()
        case EntryKind.SYMLINK | EntryKind.OTHER:
            raise ToolError.permanent(f"{old.given}: is neither a file nor a directory")
        case _:
            assert_never(kind)


def _copy_file(old: Place, new: Place) -> Copied:
    refuse_unfit(old, EntryKind.FILE, new)
    with holding(old.open_regular()) as source, open_destination(new) as parent:
        with contextlib.closing(NewFile(parent, _OWN_FILE)) as copied:
            copy_bytes(source, copied.fd)
            if not take_new_name(copied, parent, new.name):
                raise taken(new.given)
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
        with holding(self._old.open_directory()) as source, open_destination(self._new) as parent:
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
        old = self._old.path
        with contextlib.closing(
            descend(source, lambda path: self._roots.allows(os.path.join(old, path), Access.LIST))
        ) as steps:
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
                        os.mkdir(step.name, _OWN_FOLDER, dir_fd=target.fd)
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

    def _judge_new(self, path: str) -> None:
        if not self._roots.allows(os.path.join(self._new.path, path), Access.WRITE):
            raise Refused(f"{os.path.join(self._new.given, path)}: may not be written; nothing was copied")

    def _count(self) -> None:
        if not self._room:
            msg = f"{self._old.given}: has too many entries for one copy; nothing was copied"
            raise ToolError.permanent(msg, "Copy its parts one by one, or use a command.")
        self._room -= 1


def _new_directory(parent: int) -> tuple[str, int]:
    """Return a new directory with a temporary name, and its fd, which protects it from removal. Raises OSError."""
    for _ in range(_ATTEMPTS):
        name = temporary_name()
        os.mkdir(name, _OWN_FOLDER, dir_fd=parent)
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
        raise taken(new.given) from error


def _finish(directory: int, mode: int) -> None:
    """Give a filled directory its permissions, and sync its names to the disk."""
    os.fchmod(directory, mode & _PERMISSIONS | _LOOK)
    os.fsync(directory)
