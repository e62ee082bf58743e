"""The files below a folder that any process opens, by inotify. Only Linux has it."""

import ctypes
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

AVAILABLE = sys.platform == "linux"
_OPENED = 0x20
_EVENT = struct.Struct("iIII")


@dataclass
class Watch:
    """What was opened in some folders.

    folders   the watched folders by their numbers
    """

    fd: int
    folders: dict[int, Path] = field(default_factory=dict)

    def add(self, folder: Path) -> None:
        number = ctypes.CDLL(None, use_errno=True).inotify_add_watch(self.fd, os.fsencode(folder), _OPENED)
        if number < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch")
        self.folders[number] = folder

    def opened(self) -> Iterator[Path]:
        """The files and folders that were opened since the last call."""
        while True:
            try:
                data = os.read(self.fd, 1 << 20)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                number, mask, _, size = _EVENT.unpack_from(data, at)
                assert number >= 0, "more was opened than the kernel tells at once"
                name = data[at + _EVENT.size : at + _EVENT.size + size].rstrip(b"\0")
                at += _EVENT.size + size
                if mask & _OPENED:
                    yield self.folders[number] / os.fsdecode(name)


@contextmanager
def watching() -> Iterator[Watch]:
    """A watch without any folder yet."""
    fd = ctypes.CDLL(None, use_errno=True).inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "inotify_init1")
    try:
        yield Watch(fd)
    finally:
        os.close(fd)
