"""Where the audit's chain ends, kept in a small file beside it, which is also the lock of all who write.

The chain alone cannot tell that its last lines were taken away; the head can.
"""

import fcntl
import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import BinaryIO

from acp_agent.store.audit_line import Link
from acp_agent.store.private_file import lock, private_file

_FORM = re.compile(rb"(\d{20}) (\d{20}) ([0-9a-f]{64})\n")
_LENGTH = 107
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe in the place of a file must not hold us


@dataclass(frozen=True, slots=True)
class Head:
    """The last record that was written whole, and the size of the audit file then, in bytes."""

    link: Link
    size: int


class NoHead(ValueError):
    """There is a head file, but nothing can be made of what it holds."""


def head_file(path: str) -> str:
    """Where the head of an audit file is."""
    return f"{path}.head"


@contextmanager
def locked_head(path: str) -> Generator[int]:
    """The head of the audit file `path`, open and ours alone. Raises OSError."""
    with private_file(head_file(path)) as fd:
        lock(fd)
        yield fd


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An audit file as it was at one moment: open, so many bytes long, and its head where it had one."""

    file: BinaryIO
    size: int
    head: Head | None


def snapshot(path: str) -> Snapshot:
    """The audit file for a reader, who needs no right to write, and who closes `file`.

    Empty where there is only a head. Raises NoHead, and OSError when there is neither or one cannot be read.
    """
    try:
        fd = os.open(head_file(path), _READ | os.O_NOFOLLOW)
    except FileNotFoundError:
        return _opened(path, None)
    try:
        lock(fd, fcntl.LOCK_SH)  # no record is half written now, and no file on its way to another name
        head = read_head(fd)
        try:
            return _opened(path, head)
        except FileNotFoundError:
            return Snapshot(BytesIO(), 0, head)
    finally:
        os.close(fd)


def _opened(path: str, head: Head | None) -> Snapshot:
    file = os.fdopen(os.open(path, _READ), "rb")
    return Snapshot(file, os.fstat(file.fileno()).st_size, head)


def read_head(fd: int) -> Head | None:
    """What the head says; None while the file is new. Raises NoHead."""
    data = os.pread(fd, _LENGTH + 1, 0)
    found = _FORM.fullmatch(data)
    if data and not found:
        raise NoHead("the head file does not hold what was written to it")
    return Head(Link(int(found[1]), found[3].decode()), int(found[2])) if found else None


def write_head(fd: int, head: Head) -> None:
    """Keep the head, in one write over the old one. Raises OSError."""
    text = f"{head.link.seq:020d} {head.size:020d} {head.link.hash}\n".encode()
    if os.pwrite(fd, text, 0) < len(text):
        raise OSError("the head file could not be written")
