"""Read a git folder (`.git`) and its index without running git, in bounded time and memory.

A repository may be hostile, with a FIFO in place of a file or a huge file; neither is awaited. The index tells which
files and submodules git knows, and what it knows of files with secrets.

Source: https://git-scm.com/docs/index-format
"""

import os
import re
import stat
import struct
from collections.abc import Iterator, Mapping
from enum import Flag, auto
from typing import NamedTuple, TypeAlias

from acp_agent.core.secrets import secrecy
from acp_agent.core.untrusted import now_ns
from acp_agent.workspace.beneath import holding
from acp_agent.workspace.git.settings import NotReadable

_SMALL = 64 * 1024
_SETTLED = 20_000_000  # nanoseconds: another change within one tick of the file system's clock would not show
_HEAD = re.compile(rb"(?:ref:[ \t\r\n]{0,99}refs/|[0-9a-f]{40})")
_MAX_ENTRIES = 10_000
_MAX_LINKS = 40

Stamp: TypeAlias = tuple[int, int, int, int, int, int]


class StampedReader:
    """A reader of files and folders that keeps a stamp of each, which tells whether it has changed."""

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
        with holding(fd):
            return _all_of(fd, limit)

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
        return is_head and all(
            each is not None and stat.S_ISDIR(each.st_mode) and each.st_mode & stat.S_IXUSR for each in folders
        )

    def common(self, path: str) -> str:
        """Return the git folder that a linked worktree shares, or the given one if it is no linked worktree's.

        Raises:
            NotReadable: The file that names it cannot be read, or its path leads through /proc.

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

    Git itself makes none there. But git follows links: it writes a command's own words into COMMIT_EDITMSG, logs/HEAD,
    FETCH_HEAD and others, and it reads packed-refs, info/grafts and others. The objects are searched only to the first
    folders. Hooks may be links, and each submodule is a git folder itself.

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


MAX_INDEX_BYTES = 128 * 1024 * 1024
"""The largest index that is read."""

_MAX_NAMES = 1024 * 1024 * 1024
"""The most bytes of all names together. In version 4 a few bytes can repeat a name of megabytes."""

_MAX_NUMBER = 1 << 32
_MODE = b"\x00\x00\xe0\x00"
_GITLINK = 0o160000
_HEADER = struct.Struct(">4sII")
_STATUS = struct.Struct(">10I")
_HASH_AT = 40
_EXTENDED = 0x4000
_LONG_NAME = 0xFFF


class IndexEntry(NamedTuple):
    """One file of an index.

    path      relative to the worktree; empty if the entry replaces one of a shared index, which has the path
    size      modulo 2 to the 32, as are the inode and the seconds
    seconds   the time of the file's last change when it came into the index
    changed   the time of the last change of its status, in nanoseconds
    name      the name of the object with its content, in hexadecimal
    """

    path: str
    mode: int
    size: int
    inode: int
    seconds: int
    nanoseconds: int
    changed: int
    name: str

    @property
    def is_repository(self) -> bool:
        """Whether it is a repository of its own (a submodule)."""
        return self.mode == _GITLINK


def gitlinks(data: bytes, hash_size: int = 20) -> tuple[str, ...]:
    """Return the paths of an index that are repositories of their own, relative to the worktree.

    hash_size   the bytes of an object's name: 20, or 32 if extensions.objectFormat is sha256

    Raises:
        ValueError: It is no index, has an unknown version, or leaves out a path.

    """
    if _MODE not in data:
        return ()
    found = tuple(entry.path for entry in read_entries(data, hash_size) if entry.is_repository)
    if not all(found):
        raise ValueError("it names no path")
    return found


def read_entries(data: bytes, hash_size: int = 20) -> Iterator[IndexEntry]:
    """Yield the files of an index.

    hash_size   the bytes of an object's name: 20, or 32 if extensions.objectFormat is sha256

    Raises:
        ValueError: It is no index, has an unknown version, or is made to be slow.

    """
    signature, version, count = _HEADER.unpack_from(data) if len(data) >= _HEADER.size else (b"", 0, 0)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("no index of a known version")
    at, name, spelled = _HEADER.size, b"", 0
    for _ in range(count):
        start, at = at, at + _HASH_AT + hash_size
        flags = int.from_bytes(data[at : at + 2], "big")
        at += 4 if flags & _EXTENDED else 2
        kept = 0
        if version == 4:
            removed, at = _number(data, at)
            kept = len(name) - removed
        end = data.find(b"\0", at)
        if end < 0 or kept < 0:
            raise ValueError("it ends too early")
        name = name[:kept] + data[at:end]
        spelled += len(name)
        if spelled > _MAX_NAMES:
            raise ValueError("its names are too long")
        if min(len(name), _LONG_NAME) != flags & _LONG_NAME:
            raise ValueError("a name is longer or shorter than it says")
        at = end + 1 if version == 4 else start + (end - start + 8) // 8 * 8
        ctime, ctime_ns, seconds, nanoseconds, _, inode, mode, _, _, size = _STATUS.unpack_from(data, start)
        path, changed = name.decode("utf-8", "surrogateescape"), ctime * 10**9 + ctime_ns
        named = data[start + _HASH_AT : start + _HASH_AT + hash_size].hex()
        yield IndexEntry(path, mode, size, inode, seconds, nanoseconds, changed, named)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, as in the offsets of pack files, and its end. Raises ValueError."""
    value = -1
    while at < len(data) and value < _MAX_NUMBER:
        value = (value + 1 << 7) + (data[at] & 0x7F)
        at += 1
        if not data[at - 1] & 0x80:
            return value, at
    raise ValueError("it ends too early, or a number is too large")


_HASHES = (20, 32)


class GitState(Flag):
    """The state of a file in git, or several of them.

    TRACKED    it is in the index
    CHANGED    it is in the index, and has changed since it came there
    STAGED     it came into the index after the last commit
    UNTRACKED  it is neither in the index nor ignored
    IGNORED    .gitignore names it, and it is not in the index
    """

    TRACKED = auto()
    CHANGED = auto()
    STAGED = auto()
    UNTRACKED = auto()
    IGNORED = auto()


class GitFiles:
    """The files in the index of one repository. Raises ValueError or NotReadable if git finds no repository.

    top      the absolute path of its worktree
    reader   tells whether what was read is unchanged
    """

    def __init__(self, top: str) -> None:
        self.top = top
        self.reader = StampedReader()
        self._folder = _git_folder(top, self.reader)
        self._common = self.reader.common(self._folder)
        self._folders = set[str]()
        self._secrets: Mapping[str, IndexEntry] = {entry.path: entry for entry in self._entries() if self._notes(entry)}

    def known(self, wanted: GitState) -> Iterator[str]:
        """Yield the absolute paths of the secrets in the index that have one of these states."""
        for entry in self._secrets.values():
            path = os.path.join(self.top, entry.path)
            if (
                GitState.TRACKED in wanted
                or (GitState.CHANGED in wanted and _is_changed(path, entry))
                or (GitState.STAGED in wanted and self._is_staged(entry))
            ):
                yield path

    def holds(self, path: str) -> bool:
        """Return whether a secret is in the index, by its absolute path."""
        return os.path.relpath(path, self.top) in self._secrets

    def holds_below(self, folder: str) -> bool:
        """Return whether the index has files below a folder, so that git does not take it for another repository."""
        return os.path.relpath(folder, self.top) in self._folders

    def _notes(self, entry: IndexEntry) -> bool:
        folder = os.path.dirname(entry.path)
        while folder and folder not in self._folders:
            self._folders.add(folder)
            folder = os.path.dirname(folder)
        return not entry.is_repository and bool(secrecy(os.path.join(self.top, entry.path)))

    def _entries(self) -> Iterator[IndexEntry]:
        try:
            listed = [each.path for each in self.reader.entries(self._folder)]
        except NotReadable:
            listed = []
        shared = [path for path in listed if os.path.basename(path).startswith("sharedindex.")]
        for path in (os.path.join(self._folder, "index"), *shared):
            try:
                data = self.reader.content(path, MAX_INDEX_BYTES)
            except NotReadable:
                continue
            yield from _read(data) if data else ()

    def _is_staged(self, entry: IndexEntry) -> bool:
        """Return whether the content came after the last commit: its object is newer than the log of HEAD."""
        made = self._changed(os.path.join(self._common, "objects", entry.name[:2], entry.name[2:]))
        return made > self._changed(os.path.join(self._folder, "logs", "HEAD"))

    @staticmethod
    def _changed(path: str) -> int:
        try:
            return os.stat(path).st_mtime_ns
        except OSError:
            return 0


def holds_repository(folder: str) -> bool:
    """Return whether a folder has a `.git` that git takes for a repository's."""
    reader = StampedReader()
    try:
        return reader.is_git_folder(_git_folder(folder, reader))
    except (ValueError, NotReadable):
        return False


def _git_folder(top: str, reader: StampedReader) -> str:
    dot = os.path.join(top, ".git")
    if reader.is_folder(dot):
        return dot
    return os.path.realpath(os.path.join(top, reader.line(dot).removeprefix("gitdir: ")))


def _read(data: bytes) -> list[IndexEntry]:
    """Return the files of an index with any size of hashes; none if it cannot be read."""
    for size in _HASHES:
        try:
            found = [*read_entries(data, size)]
        except (ValueError, OverflowError):
            continue
        if all(stat.S_IFMT(entry.mode) for entry in found):
            return [entry for entry in found if entry.path]
    return []


def _is_changed(path: str, entry: IndexEntry) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    seconds, nanoseconds = divmod(status.st_mtime_ns, 1_000_000_000)
    if status.st_size & 0xFFFFFFFF != entry.size or seconds & 0xFFFFFFFF != entry.seconds:
        return True
    return bool(nanoseconds and entry.nanoseconds and nanoseconds != entry.nanoseconds)
