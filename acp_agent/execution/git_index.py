"""Read from git's index which folders are repositories of their own (gitlinks, as submodules have).

Source: https://git-scm.com/docs/index-format
"""

import struct

MAX_BYTES = 128 * 1024 * 1024
"""The largest index that is read."""

_MODE = b"\x00\x00\xe0\x00"
_GITLINK = 0o160000
_HEADER = struct.Struct(">4sII")
_MODE_AT = 24
_HASH_AT = 40
_EXTENDED = 0x4000


def gitlinks(data: bytes, hash_size: int = 20) -> tuple[str, ...]:
    """Return the paths of an index that are repositories of their own, relative to the worktree.

    hash_size   bytes of an object's name: 20, or 32 where extensions.objectFormat is sha256

    Raises:
        ValueError: it is no index, or of a version nobody knows, or leaves out a path.

    """
    if _MODE not in data:
        return ()
    signature, version, count = _HEADER.unpack_from(data) if len(data) >= _HEADER.size else (b"", 0, 0)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("no index of a known version")
    found, at, name = list[str](), _HEADER.size, b""
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
        at = end + 1 if version == 4 else start + (end - start + 8) // 8 * 8
        if int.from_bytes(data[start + _MODE_AT : start + _MODE_AT + 4], "big") == _GITLINK:
            if not name:  # its name stands in another file, which it replaces in part (a split index)
                raise ValueError("it names no path")
            found.append(name.decode("utf-8", "surrogateescape"))
    return tuple(found)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, as pack files write offsets, and where it ends."""
    value = -1
    while at < len(data):
        value = (value + 1 << 7) + (data[at] & 0x7F)
        at += 1
        if not data[at - 1] & 0x80:
            return value, at
    raise ValueError("it ends too early")
