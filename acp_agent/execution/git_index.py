"""Read from git's index which files it holds, and which of them are repositories of their own (submodules).

Source: https://git-scm.com/docs/index-format
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

MAX_BYTES = 128 * 1024 * 1024
"""The largest index that is read."""

_MODE = b"\x00\x00\xe0\x00"
_GITLINK = 0o160000
_HEADER = struct.Struct(">4sII")
_CHANGED_AT = 8
_STATUS = struct.Struct(">8I")
_HASH_AT = 40
_EXTENDED = 0x4000
_LONG_NAME = 0xFFF


class Entry(NamedTuple):
    """What an index says of one file.

    path      relative to the worktree; empty where it stands in another file, which this one replaces in part
    name      of the object that holds its content, in hexadecimal
    seconds   when the file was last changed, as it was when it came into the index
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

    hash_size   bytes of an object's name: 20, or 32 where extensions.objectFormat is sha256

    Raises:
        ValueError: it is no index, or of a version nobody knows, or leaves out a path.

    """
    if _MODE not in data:
        return ()
    found = tuple(entry.path for entry in entries(data, hash_size) if entry.is_repository)
    if not all(found):
        raise ValueError("it names no path")
    return found


def entries(data: bytes, hash_size: int = 20) -> Iterator[Entry]:
    """Yield the files of an index.

    hash_size   bytes of an object's name: 20, or 32 where extensions.objectFormat is sha256

    Raises:
        ValueError: it is no index, or of a version nobody knows.

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
        yield Entry(name.decode("utf-8", "surrogateescape"), mode, size, seconds, nanoseconds, named)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, as pack files write offsets, and where it ends."""
    value = -1
    while at < len(data):
        value = (value + 1 << 7) + (data[at] & 0x7F)
        at += 1
        if not data[at - 1] & 0x80:
            return value, at
    raise ValueError("it ends too early")
