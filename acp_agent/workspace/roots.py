"""The sandbox of the file tools: the paths that exist for a session, and the only way to open them.

`Roots.place` resolves a path and judges the result, a `Place` carries it, and `Root` opens it by its directory's fd, so
that what was judged is what is opened. Nothing else in the agent may open a path that came from a model, a file or an
editor.
"""

import errno
import os
import stat
import threading
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Self, TypeAlias, TypeVar

from acp_agent.core.data import frozen
from acp_agent.core.errors import ConfigError, Refused, ToolError, ToolErrorCategory
from acp_agent.core.secrets import secrecy
from acp_agent.core.types import Access
from acp_agent.workspace.beneath import (
    Opener,
    best_opener,
    check_text,
    errors_about,
    expansion_wanted,
    holding,
    path_error,
)

T = TypeVar("T")


class SharedFd:
    """An open file descriptor that is closed once, and only after its last use has ended.

    If a thread still uses the number of a closed descriptor, it may mean another file by then. Without `close`, the
    descriptor is closed together with this object.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._close = weakref.finalize(self, os.close, fd)
        self._lock = threading.Lock()
        self._users = 0
        self._closing = False

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closing

    def use(self, action: Callable[[int], T]) -> T:
        """Return what `action` returns for the descriptor. Raises OSError (EBADF) after `close`."""
        with self._lock:
            if self._closing:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            self._users += 1
        try:
            return action(self._fd)
        finally:
            with self._lock:
                self._users -= 1
                is_over = self._closing and not self._users
            if is_over:
                self._close()

    def close(self) -> None:
        """Close the descriptor now, or when the uses under way have ended. Safe to call twice."""
        with self._lock:
            self._closing = True
            is_over = not self._users
        if is_over:
            self._close()


PathPolicy: TypeAlias = Callable[[str, Access], str | None]
"""Returns why a resolved absolute path inside the roots may not be touched, or None."""

_ROOT_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_GENTLY = os.O_NONBLOCK | os.O_NOCTTY  # a FIFO must not block, and a terminal must not become ours
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | _GENTLY


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is a folder, or below it, as text."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


class Root:
    """One allowed directory, held open from the session's start. `path` is absolute and resolved.

    The fd, not the name, is the root: renaming or replacing the directory later does not move the sandbox. The methods
    take resolved paths relative to it, "." for itself, and raise OSError.
    """

    def __init__(self, path: str, opener: Opener | None = None) -> None:
        self.path = os.path.realpath(path, strict=True)
        self._prefix = self.path if self.path.endswith("/") else f"{self.path}/"
        self._fd = SharedFd(os.open(self.path, _ROOT_FLAGS))
        self._open = opener or self._fd.use(best_opener)

    def relative(self, resolved: str) -> str | None:
        """Return a resolved path relative to the root ("." for the root), or None if it lies elsewhere."""
        if resolved == self.path:
            return "."
        return resolved[len(self._prefix) :] if resolved.startswith(self._prefix) else None

    def absolute(self, relative: str) -> str:
        """Return the absolute path of a path below the root."""
        return self.path if relative == "." else self._prefix + relative

    def open(self, relative: str, flags: int) -> int:
        """Return a new fd. Raises OSError: ELOOP or EXDEV if there is a link, EBADF if the session was closed."""
        return self._fd.use(lambda fd: self._open(fd, relative, flags))

    def open_regular(self, relative: str, flags: int = os.O_RDONLY) -> int:
        """Return a new fd of a regular file. Raises OSError: EISDIR or ENXIO for anything else."""
        return _checked_regular(self.open(relative, flags | _GENTLY), relative)

    def open_directory(self, relative: str) -> int:
        """Return a new fd of a directory, for reading it and for `dir_fd`."""
        return self.open(relative, os.O_RDONLY | os.O_DIRECTORY | _GENTLY)

    def status(self, relative: str) -> os.stat_result:
        """Return the status of an entry, without following a link."""
        if relative == ".":
            return self._fd.use(os.fstat)
        parent, name = os.path.split(relative)
        with holding(self.open_directory(parent or ".")) as fd:
            return os.stat(name, dir_fd=fd, follow_symlinks=False)

    def make_directories(self, relative: str) -> list[str]:
        """Create `relative` and the missing directories above it. Return those that were created, outermost first.

        If one cannot be made, the others are removed again.
        """
        made: list[str] = []
        parts = [] if relative == "." else relative.split("/")
        try:
            for depth in range(len(parts)):
                path = "/".join(parts[: depth + 1])
                if self._make_directory(path):
                    made += [path]
        except OSError:
            self.remove_directories(made)
            raise
        return made

    def _make_directory(self, path: str) -> bool:
        parent, name = os.path.split(path)
        with holding(self.open_directory(parent or ".")) as fd:
            try:
                os.mkdir(name, dir_fd=fd)
            except FileExistsError:
                return False
            os.fsync(fd)
            return True

    def remove_directories(self, made: Sequence[str]) -> None:
        """Undo `make_directories`. Directories that are no longer empty stay."""
        for relative in reversed(made):
            parent, name = os.path.split(relative)
            try:
                with holding(self.open_directory(parent or ".")) as fd:
                    os.rmdir(name, dir_fd=fd)
            except OSError:
                return

    def is_at(self, status: os.stat_result) -> bool:
        """Return whether this is the status of the root itself, by any name."""
        return os.path.samestat(status, self._fd.use(os.fstat))

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._fd.is_closed

    def close(self) -> None:
        """Close the fd. It is safe to call twice."""
        self._fd.close()


def _checked_regular(fd: int, relative: str) -> int:
    """Return the fd if it is a regular file, else close it. Raises OSError."""
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), relative)
    raise OSError(errno.ENXIO, os.strerror(errno.ENXIO), relative)


class FileOpener:
    """Opens many regular files below a root for reading, folder by folder, at less cost than `Root.open_regular`.

    It holds the folder of the last file. That folder was below the root, without a link on the way, when its first
    file was opened. If it is moved away after that, files in it are still opened. So an opener is for one moment only.
    """

    def __init__(self, root: Root) -> None:
        self._root = root
        self._folder = ""
        self._fd: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def open(self, relative: str) -> int:
        """Return a new fd. `relative` has no "." or ".." in it. Raises OSError: ELOOP if there is a link."""
        folder, _, name = relative.rpartition("/")
        if self._fd is None or folder != self._folder:
            self._leave()
            self._fd, self._folder = self._root.open_directory(folder or "."), folder
        return _checked_regular(os.open(name, _READING, dir_fd=self._fd), relative)

    def _leave(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


@frozen
class Place:
    """A path that was judged: `relative` below `root`. `given` is the path as the model wrote it."""

    root: Root
    relative: str
    given: str

    @property
    def path(self) -> str:
        """The absolute path, links resolved."""
        return self.root.absolute(self.relative)

    @property
    def parent(self) -> str:
        """The directory of the entry, relative to the root."""
        return os.path.dirname(self.relative) or "."

    @property
    def name(self) -> str:
        """The last component; "." for the root itself."""
        return os.path.basename(self.relative)

    def open_regular(self, flags: int = os.O_RDONLY) -> int:
        """Return a new fd of the regular file. Raises ToolError or Refused."""
        with errors_about(self.given):
            return self.root.open_regular(self.relative, flags)

    def open_directory(self) -> int:
        """Return a new fd of the directory. Raises ToolError or Refused."""
        with errors_about(self.given):
            return self.root.open_directory(self.relative)

    def status(self) -> os.stat_result | None:
        """Return the status without following a link, or None if nothing is there. Raises ToolError or Refused."""
        with errors_about(self.given):
            try:
                return self.root.status(self.relative)
            except (FileNotFoundError, NotADirectoryError):
                return None


class ReadableFolder(NamedTuple):
    """A folder outside the roots that may be read if the user agrees.

    path   absolute, links resolved
    name   what it is, in words: "site-packages of .venv"
    whose  what it is to the project or the user, in words
    """

    path: str
    name: str
    whose: str = "a dependency of this project"


FindFolder: TypeAlias = Callable[[str, str], ReadableFolder | None]
"""Returns the folder outside the roots that a path may be read in, if the user agrees, or None.

It is given the absolute path as it was named, and with its links resolved.
"""


class ReadableFolders:
    """The folders outside the roots that may be read, each only during a call that was allowed to read it.

    find        returns the folder that contains a path, such as a dependency of the project
    open_root   opens a folder. Raises OSError
    """

    def __init__(
        self, find: FindFolder = lambda _path, _resolved: None, open_root: Callable[[str], Root] = Root
    ) -> None:
        self.find = find
        self._open_root = open_root
        self._lock = threading.Lock()
        self._open = list[str]()

    def open(self, folders: Sequence[str]) -> Callable[[], Awaitable[None]]:
        """Let these folders be read until the returned function was called. The same folder may be opened twice."""
        with self._lock:
            self._open += folders

        async def close() -> None:
            with self._lock:
                for folder in folders:
                    self._open.remove(folder)

        return close

    def place(self, path: str, resolved: str, given: str, *, unasked: bool = False) -> Place | None:
        """Return the place of a path in a folder that is open, or in any folder if `unasked`; None if there is none."""
        if unasked:
            found = self.find(path, resolved)
            folder = found and found.path
        else:
            with self._lock:
                folder = next((each for each in self._open if is_below(resolved, each)), None)
        if folder is None or secrecy(resolved):
            return None
        try:
            root = self._open_root(folder)
        except OSError:
            return None
        relative = root.relative(resolved)
        return None if relative is None else Place(root, relative, given)


class Roots:
    """The directories of a session: its cwd and `extra`. They are closed with the session.

    Raises ConfigError if one of them is not a directory that can be opened. The caller closes those that `open_root`
    opens. `opener` is for tests. `readable` are folders outside that may be read.
    """

    def __init__(
        self,
        cwd: str,
        extra: Sequence[str] = (),
        *,
        policy: PathPolicy = lambda _path, _access: None,
        opener: Opener | None = None,
        open_root: Callable[[str], Root] | None = None,
        readable: ReadableFolders | None = None,
    ) -> None:
        self._policy = policy
        self.readable = readable or ReadableFolders()
        self._roots: list[Root] = []
        for path in (cwd, *extra):
            try:
                self._roots.append(open_root(path) if open_root else Root(path, opener))
            except (OSError, ValueError) as error:
                if open_root is None:
                    self.close()
                why = error.strerror if isinstance(error, OSError) else str(error)
                raise ConfigError("session", "directory", path, f"a directory that can be opened ({why})") from error
        self.cwd = self._roots[0].path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        """Whether one of the roots was closed, so that nothing in it can be opened."""
        return any(root.is_closed for root in self._roots)

    def close(self) -> None:
        """Close the fds of the roots. Nothing can be opened afterwards."""
        for root in self._roots:
            root.close()

    @property
    def all(self) -> Sequence[Root]:
        """The roots. That of the session's folder comes first."""
        return self._roots

    def resolve(self, path: str, access: Access) -> str:
        """Return the absolute path, links resolved, that `path` means. Raises ToolError or Refused."""
        return self.place(path, access).path

    def resolve_readable(self, path: str, access: Access) -> str:
        """Do what `resolve` does, also for a path in a readable folder outside that is not open to the session yet."""
        return self.place(path, access, unasked=True).path

    def folder(self, path: str) -> ReadableFolder | None:
        """Return the folder outside the roots in which the user may let a path be read; None for any other path."""
        try:
            return self._folder(*self._resolved(os.path.expanduser(path), Access.READ))
        except (Refused, ToolError):
            return None

    def _folder(self, given: str, resolved: str) -> ReadableFolder | None:
        inside = any(root.relative(resolved) is not None for root in self._roots)
        return None if inside else self.readable.find(os.path.normpath(os.path.join(self.cwd, given)), resolved)

    def place(self, path: str, access: Access, *, unasked: bool = False) -> Place:
        """Return the place of `path` if it may be touched. It need not exist. Raises ToolError or Refused.

        A link at the end is followed unless the access is to the entry itself. With `unasked`, the path may be in a
        readable folder outside that is not open to the session yet: what is there may be looked at, but not shown.
        """
        return self._place(*self._resolved(path, access), access, unasked=unasked)

    def _resolved(self, path: str, access: Access) -> tuple[str, str]:
        """Return a path as it was given, and as it really is. Raises ToolError or Refused."""
        given = check_text(path)
        wanted = expansion_wanted(given)
        if wanted is not None and not os.path.lexists(os.path.join(self.cwd, given.split("/", 1)[0])):
            raise wanted
        resolve = _real_entry if access.of_the_entry else _real
        return given, resolve(os.path.join(self.cwd, given), given)

    def _place(self, given: str, resolved: str, access: Access, *, unasked: bool = False) -> Place:
        found = ((root, root.relative(resolved)) for root in self._roots)
        place = next((Place(root, relative, given) for root, relative in found if relative is not None), None)
        if place is None and not access.changes:
            named = os.path.normpath(os.path.join(self.cwd, given))
            place = self.readable.place(named, resolved, given, unasked=unasked)
        if place is None:
            raise Refused(f"{given}: outside the directories of this session", "Stay below the working directory.")
        reason = self._policy(resolved, access)
        if reason is not None:
            raise Refused(f"{given}: {reason}")
        return place

    def allows(self, resolved: str, access: Access) -> bool:
        """Return whether the policy allows a path that a search found below a place."""
        return self._policy(resolved, access) is None

    def holds_root(self, resolved: str) -> bool:
        """Return whether a root is at this path or below it."""
        return any(root.path == resolved or root.path.startswith(f"{resolved}/") for root in self._roots)

    def is_root(self, status: os.stat_result) -> bool:
        """Return whether this is the status of a root, by identity: the root may have been renamed."""
        return any(root.is_at(status) for root in self._roots)


def _real(absolute: str, given: str) -> str:
    """Return the path as the kernel walks it: the nearest existing ancestor, resolved, and the rest."""
    head, rest = absolute, list[str]()
    while True:
        try:
            os.stat(head)  # the kernel checks loops, permissions and lengths before Python follows links
            real = os.path.realpath(head, strict=True)
            break
        except (FileNotFoundError, NotADirectoryError):
            head, name = os.path.split(head.rstrip("/"))
            if name not in ("", "."):
                rest.insert(0, name)
        except OSError as error:
            raise _unresolvable(error, given) from error
    if ".." in rest:
        raise Refused(f"{given}: goes up (..) from a directory that does not exist")
    if rest and _is_link(os.path.join(real, rest[0])):
        raise Refused(f"{given}: leads through a link to something that does not exist")
    return os.path.join(real, *rest)


def _real_entry(absolute: str, given: str) -> str:
    """Return the path of the entry itself: a link at its end is not followed."""
    parent, name = os.path.split(absolute.rstrip("/"))
    if name in ("", ".", ".."):
        return _real(absolute, given)
    return os.path.join(_real(parent, given), name)


def _unresolvable(error: OSError, given: str) -> ToolError | Refused:
    told = path_error(error, given)
    if isinstance(told, ToolError) and told.failure.category is ToolErrorCategory.INVALID_PARAMETERS:
        return told
    return Refused(f"{given}: cannot be resolved ({os.strerror(error.errno or 0).lower()})")


def _is_link(path: str) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError:
        return False


class RootPool:
    """A pool of open folders: each is opened once for all its users, and all are closed at the end."""

    def __init__(self) -> None:
        self._open: dict[str, Root] = {}
        self._replaced: list[Root] = []
        self._closed = False

    def open(self, path: str) -> Root:
        """Return the folder that is at the path now.

        Raises OSError, also after `close` (EBADF), and ValueError for an impossible path.
        """
        if self._closed:
            raise OSError(errno.EBADF, "the session was closed")
        real = os.path.realpath(path, strict=True)
        root = self._open.get(real)
        if root is not None and root.is_at(os.stat(real)):
            return root
        made = Root(real)
        if root is not None:
            self._replaced.append(root)
        self._open[real] = made
        return made

    def has_lost(self, path: str) -> bool:
        """Return whether the folder that was opened by this resolved path is no longer there."""
        root = self._open.get(path)
        try:
            return root is not None and not root.is_at(os.stat(path))
        except OSError as error:
            return error.errno == errno.ENOENT

    def close_replaced(self) -> None:
        """Close the folders that were replaced by others. Nothing may use them any more."""
        for root in self._replaced:
            root.close()
        self._replaced = []

    def close(self) -> None:
        """Close all folders. Nothing below them can be opened afterwards, and `open` refuses."""
        self._closed = True
        self.close_replaced()
        for root in self._open.values():
            root.close()
        self._open = {}
