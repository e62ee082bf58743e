"""Change modes and times for contained commands that have no mounts of their own, and only where they may write.

Landlock does not know the calls that change the mode, the owner or the times of a file. The filter of system calls
stops each of them and asks this process, which makes the change itself if the file lies within the walls. It opens the
file first, so nobody can put another one in its place. https://man7.org/linux/man-pages/man2/seccomp_unotify.2.html
"""

import ctypes
import errno
import fcntl
import os
import platform
import select
import stat
import struct
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from threading import Thread
from typing import NamedTuple

from acp_agent.workspace.beneath import holding
from acp_agent.workspace.roots import is_below

_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102  # requests of ioctl
_NOTICE = struct.Struct("=QIIiIQ6Q")
_HERE = -100  # AT_FDCWD
_NO_FOLLOW = 0x100  # AT_SYMLINK_NOFOLLOW
_PATH_BYTES = 4096
_PAGE = 4096
_SAME = 0xFFFFFFFF  # stands for an owner that stays the same
_NANOSECONDS = 1_000


class _Subject(Enum):
    MODE = 1
    OWNER = 2
    TIMES = 3  # two times, each in seconds and nanoseconds
    MICROSECONDS = 4
    SECONDS = 5


class _Call(NamedTuple):
    """The positions of a system call's arguments. None if it has no such argument."""

    subject: _Subject
    value: int
    directory: int | None = None
    path: int | None = None
    flags: int | None = None
    follows: bool = True


_CALLS = {
    "x86_64": {
        90: _Call(_Subject.MODE, 1, path=0),
        91: _Call(_Subject.MODE, 1, directory=0),
        92: _Call(_Subject.OWNER, 1, path=0),
        93: _Call(_Subject.OWNER, 1, directory=0),
        94: _Call(_Subject.OWNER, 1, path=0, follows=False),
        132: _Call(_Subject.SECONDS, 1, path=0),
        235: _Call(_Subject.MICROSECONDS, 1, path=0),
        260: _Call(_Subject.OWNER, 2, directory=0, path=1, flags=4),
        261: _Call(_Subject.MICROSECONDS, 2, directory=0, path=1),
        268: _Call(_Subject.MODE, 2, directory=0, path=1),
        280: _Call(_Subject.TIMES, 2, directory=0, path=1, flags=3),
        452: _Call(_Subject.MODE, 2, directory=0, path=1, flags=3),
    },
    "aarch64": {
        52: _Call(_Subject.MODE, 1, directory=0),
        53: _Call(_Subject.MODE, 2, directory=0, path=1),
        54: _Call(_Subject.OWNER, 2, directory=0, path=1, flags=4),
        55: _Call(_Subject.OWNER, 1, directory=0),
        88: _Call(_Subject.TIMES, 2, directory=0, path=1, flags=3),
        452: _Call(_Subject.MODE, 2, directory=0, path=1, flags=3),
    },
}


def metadata_calls() -> tuple[int, ...]:
    """Return the numbers of the calls that are answered here; none for a machine that is not known."""
    return tuple(_CALLS.get(platform.machine(), {}))


def serve(listener: int, writable: Sequence[str], closed: Sequence[str]) -> None:
    """Answer the calls of one command in a thread of its own, until its last process has ended. Closes `listener`.

    writable   the folders and files whose metadata may be changed
    closed     those below them that stay as they are
    """
    Thread(target=_Broker(listener, writable, closed).run, name="metadata", daemon=True).start()


class _Broker:
    """A server that answers the calls of one command."""

    def __init__(self, listener: int, writable: Sequence[str], closed: Sequence[str]) -> None:
        self._listener = listener
        self._writable = writable
        self._closed = closed
        self._calls = _CALLS[platform.machine()]
        self._library = ctypes.CDLL(None, use_errno=True)

    def run(self) -> None:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        try:
            while all(event == select.POLLIN for _, event in poll.poll()):
                with suppress(OSError):  # its process has ended meanwhile
                    self._answer()
        finally:
            os.close(self._listener)

    def _answer(self) -> None:
        notice = bytearray(_NOTICE.size)
        fcntl.ioctl(self._listener, _RECEIVE, notice)
        number, process, _, call, _, _, *arguments = _NOTICE.unpack(notice)
        try:
            self._perform(number, process, self._calls[call], arguments)
            fault = 0
        except OSError as error:
            fault = -(error.errno or errno.EPERM)
        fcntl.ioctl(self._listener, _SEND, bytearray(struct.pack("=QqiI", number, 0, fault, 0)))

    def _perform(self, number: int, process: int, call: _Call, arguments: Sequence[int]) -> None:
        flags = 0 if call.flags is None else arguments[call.flags]
        follows = call.follows and not flags & _NO_FOLLOW
        times = None
        with open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
            path = b""
            if call.path is not None and arguments[call.path]:
                path = _text(memory.fileno(), arguments[call.path])
            if call.subject not in (_Subject.MODE, _Subject.OWNER) and arguments[call.value]:
                times = _times(memory.fileno(), arguments[call.value], call.subject)
        base = _HERE if call.directory is None else ctypes.c_int32(arguments[call.directory] & 0xFFFFFFFF).value
        start = f"/proc/{process}/cwd" if base == _HERE else f"/proc/{process}/fd/{base}"
        with holding(os.open(start, os.O_PATH)) as folder:
            # This fails if the process has ended: another one could have its number now.
            fcntl.ioctl(self._listener, _IS_VALID, struct.pack("=Q", number))
            how = os.O_PATH | os.O_CLOEXEC | (0 if follows else os.O_NOFOLLOW)
            with holding(os.open(path, how, dir_fd=folder) if path else os.dup(folder)) as file:
                self._check(file)
                self._change(file, call, arguments, times)

    def _check(self, file: int) -> None:
        """Raise OSError if a file lies outside the walls."""
        path = os.readlink(f"/proc/self/fd/{file}")
        within = any(is_below(path, each) for each in self._writable)
        if not within or any(is_below(path, each) for each in self._closed):
            raise PermissionError(errno.EPERM, "outside the walls")

    def _change(self, file: int, call: _Call, arguments: Sequence[int], times: bytes | None) -> None:
        name, found = f"/proc/self/fd/{file}", os.fstat(file)
        match call.subject:
            case _Subject.MODE:
                mode = arguments[call.value] & 0o7777
                if stat.S_ISLNK(found.st_mode):
                    raise OSError(errno.EOPNOTSUPP, "a link has no mode")
                if stat.S_ISREG(found.st_mode) and mode & (stat.S_ISUID | stat.S_ISGID):
                    raise PermissionError(errno.EPERM, "set-user-ID and set-group-ID bits may not be set")
                os.chmod(name, mode)
            case _Subject.OWNER:
                user, group = (each & 0xFFFFFFFF for each in arguments[call.value : call.value + 2])
                if user not in (_SAME, found.st_uid) or group not in (_SAME, found.st_gid):
                    raise PermissionError(errno.EPERM, "files keep their owner")
            case _Subject.TIMES | _Subject.MICROSECONDS | _Subject.SECONDS:
                if self._library.utimensat(_HERE, name.encode(), times, 0) < 0:
                    raise OSError(ctypes.get_errno(), "the times cannot be set")


def _text(memory: int, address: int) -> bytes:
    """Return the text at an address of another process, which ends with a NUL."""
    text = b""
    while b"\0" not in text and len(text) < _PATH_BYTES:
        part = _bytes(memory, address + len(text), _PAGE - (address + len(text)) % _PAGE)
        if not part:  # the process has ended
            raise OSError(errno.EFAULT, "the path cannot be read")
        text += part
    path = text.partition(b"\0")[0]
    if len(path) >= _PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, "the path is too long")
    if not path:
        raise FileNotFoundError(errno.ENOENT, "the path is empty")
    return path


def _times(memory: int, address: int, subject: _Subject) -> bytes:
    """Return the times at an address of another process, as seconds and nanoseconds."""
    data = _bytes(memory, address, 16 if subject is _Subject.SECONDS else 32)
    try:
        if subject is _Subject.SECONDS:
            accessed, modified = struct.unpack("=2q", data)
            return struct.pack("=4q", accessed, 0, modified, 0)
        seconds, fraction, seconds2, fraction2 = struct.unpack("=4q", data)
        unit = 1 if subject is _Subject.TIMES else _NANOSECONDS
        return struct.pack("=4q", seconds, fraction * unit, seconds2, fraction2 * unit)
    except struct.error:  # there are fewer bytes, or a fraction is too large
        raise OSError(errno.EINVAL, "the times cannot be read") from None


def _bytes(memory: int, address: int, most: int) -> bytes:
    """Return the bytes at an address of another process, as many as can be read. Raises OSError."""
    try:
        return os.pread(memory, most, address)
    except OverflowError:  # the address is one of the kernel's
        raise OSError(errno.EFAULT, "there is no memory") from None
