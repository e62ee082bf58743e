"""Read the files of a git folder (`.git`) in bounded time and memory, and tell later whether they have changed.

Nothing here runs git. A repository may be hostile, with a FIFO in place of a file or a huge file; neither is awaited.
"""

import os
import re
import stat
from typing import TypeAlias

from acp_agent.core.untrusted import now_ns
from acp_agent.workspace.git.settings import NotReadable

_SMALL = 64 * 1024
_SETTLED = 20_000_000  # nanoseconds: another change within one tick of the file system's clock would not show
_HEAD = re.compile(rb"(?:ref:[ \t\r\n]{0,99}refs/|[0-9a-f]{40})")
_MAX_ENTRIES = 10_000
_MAX_LINKS = 40

Stamp: TypeAlias = tuple[int, int, int, int, int, int]


class StampedReader:
    """Reads files and folders, and keeps a stamp of each, which tells whether it has changed."""

    def __init__(self) -> None:
        self._stamps: dict[str, Stamp | None] = {}
        self._begun = now_ns()
        self._newest = 0

    def unchanged(self) -> bool:
        """Return whether everything that was read is unchanged."""
        if self._begun - self._newest < _SETTLED:
            return False
        return all(_stamp(_status(path)) == stamp for path, stamp in self._stamps.items())

    def status(self, path: str) -> os.stat_result | None:
        """Return the status of a path, links followed; None if nothing is there."""
        status = _status(path)
        self._stamps[path] = _stamp(status)
        if status is not None:
            self._newest = max(self._newest, status.st_ctime_ns)
        return status

    def is_folder(self, path: str) -> bool:
        """Return whether a path leads to a folder."""
        status = self.status(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def content(self, path: str, limit: int = _SMALL) -> bytes | None:
        """Return the content of a file; None if there is none.

        limit   bytes of the largest file that is read

        Raises:
            NotReadable: It is no regular file, is too large, or may not be read.

        """
        status = self.status(path)
        if status is None:
            return None
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            raise NotReadable("is no regular file, or too large")
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise NotReadable("may not be read") from error
        try:
            return _all_of(fd, limit)
        finally:
            os.close(fd)

    def line(self, path: str) -> str:
        """Return the text of a file of one line; empty if there is none.

        Raises:
            NotReadable: It cannot be read as git reads it.

        """
        data = self.content(path) or b""
        if b"\0" in data:
            raise NotReadable("holds a NUL byte")
        return data.decode("utf-8", "surrogateescape").rstrip("\r\n")

    def entries(self, folder: str, most: int = _MAX_ENTRIES) -> list[os.DirEntry[str]]:
        """Return the entries of a folder; none if there is no folder.

        Raises:
            NotReadable: It has more than `most` entries, or may not be listed.

        """
        if not self.is_folder(folder):
            return []
        found = list[os.DirEntry[str]]()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if len(found) >= most:
                        raise NotReadable(f"has more than {most} entries")
                    found.append(entry)
        except OSError as error:
            raise NotReadable("may not be listed") from error
        return found

    def resembles_git_folder(self, path: str) -> bool:
        """Return whether git may take a folder for a repository's, even if `is_git_folder` cannot read it."""
        if not os.path.lexists(os.path.join(path, "HEAD")):
            return False
        parts = all(self.status(os.path.join(path, name)) is not None for name in ("objects", "refs"))
        return parts or self.status(os.path.join(path, "commondir")) is not None

    def is_git_folder(self, path: str) -> bool:
        """Return whether git certainly takes a folder for a repository's."""
        head = os.path.join(path, "HEAD")
        try:
            is_head = os.readlink(head).startswith("refs/")
        except OSError:
            is_head = False
        try:
            is_head = is_head or _HEAD.match(self.content(head) or b"") is not None
            common = self.common(path) if is_head else path
        except NotReadable:
            return False
        folders = [self.status(os.path.join(common, name)) for name in ("objects", "refs")]
        return is_head and all(each is not None and stat.S_ISDIR(each.st_mode) and _entered(each) for each in folders)

    def common(self, path: str) -> str:
        """Return the git folder that a linked worktree shares, or the given one if it is no linked worktree's.

        Raises:
            NotReadable: The file that names it cannot be read, or means another place for each process.

        """
        given = self.line(os.path.join(path, "commondir"))
        return real_path(os.path.join(path, given)) if given else path


def real_path(path: str) -> str:
    """Return the path with its links resolved, as `os.path.realpath` does.

    Raises:
        NotReadable: It leads through /proc, where git may reach another place than this process, or is no path.

    """
    rest, at, links = os.path.join(os.getcwd(), path).split("/")[::-1], "/", 0
    while rest:
        name = rest.pop()
        if name in ("", "."):
            continue
        at = os.path.dirname(at) if name == ".." else os.path.join(at, name)
        if at == "/proc" or links > _MAX_LINKS:
            raise NotReadable("leads to an unknown place")
        try:
            link = os.readlink(at) if name != ".." else ""
        except OSError:
            continue
        except ValueError as error:
            raise NotReadable("is no path") from error
        if link:
            links, at = links + 1, "/" if link.startswith("/") else os.path.dirname(at)
            rest += link.split("/")[::-1]
    return at


def _entered(status: os.stat_result) -> bool:
    return bool(status.st_mode & stat.S_IXUSR)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (OSError, ValueError):
        return None


def _stamp(status: os.stat_result | None) -> Stamp | None:
    if status is None:
        return None
    if stat.S_ISDIR(status.st_mode):
        return (status.st_dev, status.st_ino, status.st_mode, 0, status.st_mtime_ns, 0)
    return (
        status.st_dev, status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns,
    )  # fmt: skip


def _all_of(fd: int, limit: int) -> bytes:
    """Return the content of an open file. Raises NotReadable if it is larger than the limit."""
    parts, left = list[bytes](), limit + 1
    while left > 0 and (part := os.read(fd, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    if left <= 0:
        raise NotReadable("is too large")
    return b"".join(parts)


MAX_FOLDERS = 4096
"""The most folders of one git folder that are searched."""

_MAX_LINK_ENTRIES = 50_000
_STORES = frozenset(("objects", "lfs/objects", "annex/objects"))
_LISTED = frozenset(("objects/pack", "objects/info"))
_FREE = frozenset(("hooks",))
_OTHERS = frozenset(("modules",))


def link_in(reader: StampedReader, folder: str) -> str:
    """Return the first link below a git folder, symbolic or hard, as a path in it; empty if there is none.

    Git itself makes none there. It opens files such as COMMIT_EDITMSG, logs/HEAD and FETCH_HEAD and writes what a
    command says into them, also if they are links, and reads packed-refs, info/grafts and the like through links. The
    objects are searched only to their first folders. Hooks may be links, and each submodule is a git folder itself.

    Raises:
        NotReadable: There are too many folders or entries.

    """
    pending, count = [""], 0
    while pending:
        at = pending.pop()
        count += 1
        if count > MAX_FOLDERS:
            raise NotReadable(f"has more than {MAX_FOLDERS} folders")
        store = at in _STORES or at in _LISTED
        for entry in reader.entries(os.path.join(folder, at), _MAX_LINK_ENTRIES):
            name = f"{at}/{entry.name}" if at else entry.name
            if name in _FREE:
                continue
            if entry.is_symlink():
                return name
            if entry.is_dir():
                if name not in _OTHERS and (not store or name in _LISTED):
                    pending.append(name)
            elif not store and _is_shared(entry):
                return name
    return ""


def _is_shared(entry: os.DirEntry[str]) -> bool:
    """Return whether a file has another hard link."""
    try:
        return entry.stat(follow_symlinks=False).st_nlink > 1
    except OSError:
        return False
