"""Read git's index without running git: the files in it, its submodules, and what git knows of files with secrets.

Source: https://git-scm.com/docs/index-format
"""

import os
import stat
import struct
from collections.abc import Iterator, Mapping
from enum import Flag, auto
from typing import NamedTuple

from acp_agent.core.secrets import secrecy
from acp_agent.workspace.git.folder import StampedReader
from acp_agent.workspace.git.settings import NotReadable

MAX_INDEX_BYTES = 128 * 1024 * 1024
"""The largest index that is read."""

_MODE = b"\x00\x00\xe0\x00"
_GITLINK = 0o160000
_HEADER = struct.Struct(">4sII")
_CHANGED_AT = 8
_STATUS = struct.Struct(">8I")
_HASH_AT = 40
_EXTENDED = 0x4000
_LONG_NAME = 0xFFF


class IndexEntry(NamedTuple):
    """One file of an index.

    path      relative to the worktree; empty if the entry replaces one of a shared index, which has the path
    name      the name of the object with its content, in hexadecimal
    seconds   the time of the file's last change when it came into the index
    """

    path: str
    mode: int
    size: int
    seconds: int
    nanoseconds: int
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
        ValueError: It is no index, or has an unknown version.

    """
    signature, version, count = _HEADER.unpack_from(data) if len(data) >= _HEADER.size else (b"", 0, 0)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("no index of a known version")
    at, name = _HEADER.size, b""
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
        if min(len(name), _LONG_NAME) != flags & _LONG_NAME:
            raise ValueError("a name is longer or shorter than it says")
        at = end + 1 if version == 4 else start + (end - start + 8) // 8 * 8
        seconds, nanoseconds, _, _, mode, _, _, size = _STATUS.unpack_from(data, start + _CHANGED_AT)
        named = data[start + _HASH_AT : start + _HASH_AT + hash_size].hex()
        yield IndexEntry(name.decode("utf-8", "surrogateescape"), mode, size, seconds, nanoseconds, named)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, as in the offsets of pack files, and its end."""
    value = -1
    while at < len(data):
        value = (value + 1 << 7) + (data[at] & 0x7F)
        at += 1
        if not data[at - 1] & 0x80:
            return value, at
    raise ValueError("it ends too early")


_HASHES = (20, 32)


class Known(Flag):
    """The state of a file in git.

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

    def known(self, wanted: Known) -> Iterator[str]:
        """Yield the absolute paths of the secrets in the index that have one of these states."""
        for entry in self._secrets.values():
            path = os.path.join(self.top, entry.path)
            if (
                Known.TRACKED in wanted
                or (Known.CHANGED in wanted and _is_changed(path, entry))
                or (Known.STAGED in wanted and self._is_staged(entry))
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
