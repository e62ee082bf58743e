"""Single entries of a directory: replace a file, prepare the place of a new entry, delete a file, a link or a tree.

Everything happens by the fds of directories, so that no link is followed or can redirect it.

A file is replaced all or nothing, and only the file that was meant. The new bytes go into a new file of the same
directory (`core.new_file`), reach the disk, and take the name in one step. The old file is untouched until then. The
other names of a hard-linked file keep the old bytes. No kernel compares and renames in one step: the old file is
compared just before the rename. Another program that still has the old file open then writes to a file without a name.
A new file never replaces anything.

`shutil.rmtree` does not serve here: it checks no entry, goes into other file systems, cannot be cancelled, and fails in
deep trees, since it recurses.
"""

import ctypes
import errno
import os
import stat
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, contextmanager, suppress
from typing import TypeAlias, assert_never

from anyio.from_thread import check_cancelled

from acp_agent.core.backends import Deleted, EntryKind
from acp_agent.core.data import frozen
from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.new_file import NewFile, remove_leftovers
from acp_agent.core.types import Access
from acp_agent.workspace.beneath import (
    Entered,
    Leaf,
    Left,
    Step,
    descend,
    errors_about,
    holding,
    kind_of,
    open_child,
    path_error,
)
from acp_agent.workspace.roots import Place, Root, Roots

_CALLS = {"linux": ("renameat2", 1), "darwin": ("renameatx_np", 4)}  # name, the flag that forbids replacing
# No such call, a sandbox that forbids it, a file system that does not know the flag.
_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.ENOTSUP})
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS})


def rename_new(from_fd: int, old: str, to_fd: int, new: str) -> None:
    """Give the entry `old` of one directory the name `new` in another. A link is renamed itself.

    Raises OSError: FileExistsError when the name is taken, EXDEV between file systems, EINVAL for a directory into
    itself.
    """
    name, flag = _CALLS.get(sys.platform, ("", 0))
    call = getattr(ctypes.CDLL(None, use_errno=True), name, None) if name else None
    code = errno.ENOSYS
    if call is not None:
        if call(from_fd, ctypes.c_char_p(os.fsencode(old)), to_fd, ctypes.c_char_p(os.fsencode(new)), flag) == 0:
            return
        code = ctypes.get_errno()
    if code not in _UNSUPPORTED:
        raise OSError(code, os.strerror(code), new)
    rename_new_by_steps(from_fd, old, to_fd, new)


def rename_new_by_steps(from_fd: int, old: str, to_fd: int, new: str) -> None:
    """Do what `rename_new` does where the kernel has no such call."""
    is_directory = stat.S_ISDIR(os.stat(old, dir_fd=from_fd, follow_symlinks=False).st_mode)
    if not is_directory and _linked(from_fd, old, to_fd, new):
        try:
            os.unlink(old, dir_fd=from_fd)
        except OSError:
            with suppress(OSError):  # the first error is reported
                os.unlink(new, dir_fd=to_fd)
            raise
        return
    with suppress(FileNotFoundError):
        os.stat(new, dir_fd=to_fd, follow_symlinks=False)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
    os.rename(old, new, src_dir_fd=from_fd, dst_dir_fd=to_fd)


def _linked(from_fd: int, old: str, to_fd: int, new: str) -> bool:
    """Give the entry the new name as a hard link. Return False if the file system has none."""
    try:
        os.link(old, new, src_dir_fd=from_fd, dst_dir_fd=to_fd, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NO_HARD_LINKS:
            return False
        raise
    return True


_NEW_FILE_MODE = 0o666
_PERMISSIONS = 0o777  # never set-user-id and the like: writing to a file takes them away too


@frozen
class OldFile:
    """A file to replace: an fd for reading, its status, and its bytes, which were read after the status."""

    fd: int
    status: os.stat_result
    data: bytes


def replace_file(directory_fd: int, name: str, data: bytes, old: OldFile | None, *, unnamed: bool = True) -> bool:
    """Make `name` in the directory a file with these bytes and the old one's permissions and owner.

    Return False if the name no longer is the old file as it was read, or if there is one where `old` is None. Raises
    OSError; the directory is then as it was. `unnamed=False` makes a temporary name from the beginning, for tests.
    """
    mode = _NEW_FILE_MODE if old is None else stat.S_IMODE(old.status.st_mode) & _PERMISSIONS
    new = NewFile(directory_fd, mode, unnamed=unnamed)
    with closing(new):
        if old is not None:
            _resemble(new.fd, old.status, mode)
        write_all(new.fd, data)
        os.fsync(new.fd)
        if not _take_name(new, directory_fd, name, old):
            return False
    os.fsync(directory_fd)
    return True


def take_new_name(new: NewFile, directory_fd: int, name: str) -> bool:
    """Give a new file its name in its directory. Return False if the name is taken. Raises OSError."""
    try:
        if not new.take_name(name):
            rename_new(directory_fd, new.temporary_name(), directory_fd, name)
            new.renamed()
    except FileExistsError:
        return False
    return True


def _take_name(new: NewFile, directory_fd: int, name: str, old: OldFile | None) -> bool:
    if old is None:
        return take_new_name(new, directory_fd, name)
    # The name is looked at last, because that takes the least time.
    if _version(os.fstat(old.fd)) != _version(old.status) or os.pread(old.fd, len(old.data) + 1, 0) != old.data:
        return False
    if not _has_name_still(directory_fd, name, old.status):
        return False
    new.temporary_name()
    if not _has_name_still(directory_fd, name, old.status):
        return False
    new.replace(name)
    return True


def _has_name_still(directory_fd: int, name: str, status: os.stat_result) -> bool:
    try:
        there = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return _version(there) == _version(status)


def _version(status: os.stat_result) -> tuple[int, ...]:
    """Return the values that change when a file is written or replaced."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _resemble(fd: int, old: os.stat_result, mode: int) -> None:
    mine = os.fstat(fd)
    if (mine.st_uid, mine.st_gid) != (old.st_uid, old.st_gid):
        with suppress(PermissionError):  # only root may give files away; otherwise the new file is ours
            os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, mode)


def write_all(fd: int, data: bytes, at: int = 0) -> None:
    """Write all bytes to a file from a position on. Raises OSError."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(fd, rest, at)
        rest, at = rest[written:], at + written


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

    Everything below is judged before anything is deleted, and each entry once more just before it is deleted. Raises
    Refused as FileSystem.delete does, and ToolError if something cannot be deleted.
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
            raise ToolError.permanent(msg, "Set recursive=true to delete it with everything in it.")
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

    with closing(descend(top)) as steps:
        for _ in judged(roots, place, steps, objection):
            pass
    try:
        with closing(removing(top)) as steps:
            below = sum(not isinstance(step, Entered) for step in judged(roots, place, steps, objection))
    except ToolError as error:
        msg = f"{error} (part of {place.given} may be deleted already)"
        raise ToolError(error.failure.category, msg, error.failure.suggestion) from error
    return below


def removing(top: int) -> Generator[Step]:
    """Remove everything below the directory `top`. A yielded step is done when the next one is asked for.

    Entries that vanish meanwhile count as removed. Raises OSError. Close the generator (`contextlib.closing`).
    """
    with closing(descend(top)) as steps:
        for step in steps:
            yield step
            with suppress(FileNotFoundError):
                match step:
                    case Leaf():
                        os.unlink(step.name, dir_fd=step.at)
                    case Entered():
                        pass
                    case Left():
                        os.rmdir(step.name, dir_fd=step.at)
                    case _:
                        assert_never(step)


_OWN = 0o700


@contextmanager
def open_destination(place: Place) -> Generator[int]:
    """Open the directory of a new entry. Missing directories are made, and removed again if the block fails.

    Raises ToolError or Refused about `place`, also for an OSError of the block.
    """
    made = list[str]()
    with errors_about(place.given):
        try:
            try:
                directory = place.root.open_directory(place.parent)
            except FileNotFoundError:
                made = place.root.make_directories(place.parent)
                directory = place.root.open_directory(place.parent)
            with holding(directory):
                _sweep(directory)
                yield directory
        except BaseException:
            place.root.remove_directories(made)
            raise


def refuse_unfit(old: Place, kind: EntryKind, new: Place) -> None:
    """Raise ToolError if an entry cannot go to the path `new`: it lies in the entry itself, or something is there."""
    if kind is EntryKind.DIRECTORY and new.path.startswith(os.path.join(old.path, "")):
        raise into_itself(old.given, new.given)
    status = new.status()
    there = None if status is None else kind_of(status.st_mode)
    named_a_directory = there is None and kind is not EntryKind.DIRECTORY and new.given.endswith("/")
    if there is EntryKind.DIRECTORY or named_a_directory:
        what = "names a directory" if named_a_directory else "is a directory that exists already"
        raise no_whole_path(new.given, old.name, what)
    if there is not None:
        raise taken(new.given)


def no_whole_path(new: str, name: str, what: str = "is a directory that exists already") -> ToolError:
    """Return the error for a destination that names a directory, in which the entry `name` may be meant."""
    return ToolError.permanent(f"{new}: {what}", f"Give the whole new path: {os.path.join(new, name)}")


def taken(new: str) -> ToolError:
    """Return the error for a destination that exists."""
    advice = "Choose another destination, or delete what is there first."
    return ToolError.permanent(f"{new}: exists already; nothing was replaced", advice)


def into_itself(old: str, new: str) -> ToolError:
    """Return the error for a directory that should go into itself."""
    return ToolError.invalid(f"{old} -> {new}: a directory cannot hold itself")


def discard(parent: int, name: str) -> None:
    """Delete a directory with all its entries, whatever permissions its directories have. Raises OSError.

    `shutil.rmtree` fails below a directory that is not writable.
    """
    with holding(open_child(parent, name)) as top:
        os.fchmod(top, _OWN)
        with closing(removing(top)) as steps:
            for step in steps:
                if isinstance(step, Entered):
                    os.fchmod(step.at, _OWN)
    os.rmdir(name, dir_fd=parent)


def sweep(folders: Iterable[str]) -> None:
    """Delete what dead processes left in these folders, though not below them. It blocks."""
    for folder in folders:
        with suppress(OSError, ValueError), closing(Root(folder)) as root, holding(root.open_directory(".")) as fd:
            _sweep(fd)


def _sweep(directory_fd: int) -> None:
    """Delete what dead processes left in the directory. An entry that cannot be deleted stays."""
    for name in remove_leftovers(directory_fd):
        with suppress(OSError):
            discard(directory_fd, name)
