"""Limits of this process, and of the programs it starts.

Besides the number of open files, one limit serves as a tag: how long a process may run with real-time priority
without a pause (RLIMIT_RTTIME). Every value from _FIRST_TAG on means tens of thousands of years, and so no limit. All
children of a process inherit its limits, and neither a new session nor an empty environment changes them. So a daemon
can be recognized that has nothing else in common with the command that started it. Only Linux has this limit.
"""

import hashlib
import os
import resource
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress

_MOST = 10_240 if sys.platform == "darwin" else 65_536
"""The highest limit that is set. More is never needed, and some old programs close every possible descriptor.

macOS refuses a higher limit than its value here.
"""

_FIRST_TAG = 2**61
_MARGIN = 32
"""Descriptors that this process may open while it starts a program."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_LARGE_BLOCK = 1024 * 1024
"""Bytes from which on a block of memory is the system's own. Smaller ones are too many: asking for each takes time."""

_before: tuple[int, int] | None = None
_own_tag = resource.getrlimit(resource.RLIMIT_RTTIME) if sys.platform == "linux" else (0, 0)
"""The tag of the command that started this process, or no limit."""


def raise_descriptor_limit() -> None:
    """Raise the limit of open files of this process as far as the system allows, up to _MOST."""
    global _before  # noqa: PLW0603 - the limit is a property of the process
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    with suppress(OSError, ValueError):  # the limit stays as it is
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        _before = soft, hard


def give_back_memory() -> None:
    """Return freed memory to the system now, and from now on each large block as soon as it is freed.

    Otherwise glibc keeps up to 64 MB for later once blocks of some megabytes were freed, such as the texts of a long
    output. This takes a millisecond, and works only with glibc.
    """
    import ctypes  # noqa: PLC0415 - the server alone calls this

    with suppress(AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
        libc.mallopt(_M_TRIM_THRESHOLD, 2 * _LARGE_BLOCK)
        libc.malloc_trim(0)


@contextmanager
def limits_for_child(tag: int) -> Generator[None]:
    """Give a program that is started in the body a tag, and the limit of open files that this process began with.

    A program that uses `select` fails with descriptors over 1,023, which only a raised limit allows. While this process
    itself needs higher numbers, the program gets the raised limit. Only one thread may use this at a time.
    """
    wanted: dict[int, tuple[int, int]] = {}
    if _before is not None and _is_free_below(_before[0] - _MARGIN):
        wanted[resource.RLIMIT_NOFILE] = _before
    if sys.platform == "linux" and resource.getrlimit(resource.RLIMIT_RTTIME)[1] == resource.RLIM_INFINITY:
        wanted[resource.RLIMIT_RTTIME] = tag, resource.RLIM_INFINITY
    own: dict[int, tuple[int, int]] = {}
    try:
        for limit, value in wanted.items():
            own[limit] = resource.getrlimit(limit)
            resource.setrlimit(limit, value)
        yield
    finally:
        for limit, value in own.items():
            resource.setrlimit(limit, value)


def tag_of(mark: str) -> int:
    """Return the tag of a text. Two texts practically never have the same one."""
    return _FIRST_TAG + (int.from_bytes(hashlib.sha256(mark.encode()).digest()[:8]) >> 3)


def tag_of_process(pid: int) -> int | None:
    """Return the tag of a process, or None if it has none, has ended, or runs as another user."""
    if sys.platform != "linux":
        return None
    try:
        soft, _ = resource.prlimit(pid, resource.RLIMIT_RTTIME)
    except OSError:
        return None
    return soft if soft >= _FIRST_TAG else None


def restore_limits(pid: int) -> None:
    """Restore the limits of a program that was started without `limits_for_child` (Linux).

    It gets the limit of open files and the tag that this process began with. It may have inherited others.
    """
    if sys.platform != "linux":
        return
    with suppress(OSError, ValueError):  # it has ended already, or runs as another user
        if _before is not None:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _before)
        # The program has the tag of a command if another thread started one at the same moment.
        resource.prlimit(pid, resource.RLIMIT_RTTIME, _own_tag)


def _is_free_below(number: int) -> bool:
    """Return whether the next descriptor that is opened will be lower than `number`."""
    try:
        fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    os.close(fd)
    return fd < number


def can_open(count: int) -> bool:
    """Return whether this process can open `count` more files now."""
    fds: list[int] = []
    try:
        fds.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        while len(fds) < count:
            fds.append(os.dup(fds[0]))
    except OSError:
        return False
    finally:
        for fd in fds:
            os.close(fd)
    return True


class DescriptorReserve:
    """Descriptors that are reserved for the end of the process, which must find its child processes and close files."""

    def __init__(self, count: int) -> None:
        self._fds: list[int] = []
        with suppress(OSError):  # the system allows fewer
            while len(self._fds) < count:
                self._fds.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def release(self) -> None:
        """Close the descriptors. It is safe to call this twice."""
        while self._fds:
            os.close(self._fds.pop())
