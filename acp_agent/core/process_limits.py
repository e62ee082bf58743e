"""Limits of this process, and of the programs it starts: how many files may be open."""

import os
import resource
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress

_MOST = 10_240 if sys.platform == "darwin" else 65_536
"""More are never needed. Old programs go through all numbers there may be, and macOS refuses more."""

_MARGIN = 32
"""Descriptors that this process may open while it starts a program."""

_before: tuple[int, int] | None = None


def raise_descriptor_limit() -> None:
    """Let this process open as many files as the system allows it to, up to _MOST."""
    global _before  # noqa: PLW0603 - it is the process's
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    with suppress(OSError, ValueError):  # then it stays as it is
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        _before = soft, hard


@contextmanager
def former_limits() -> Generator[None]:
    """Let a program that is started in the body have the limit this process was started with.

    A program that uses `select` fails with numbers over 1,023, which it meets only where it is let to. While this
    process needs higher numbers itself, the program keeps the raised limit.
    """
    if _before is None or not _is_free_below(_before[0] - _MARGIN):
        yield
        return
    raised = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, _before)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, raised)


def restore_limits(pid: int) -> None:
    """Give a program that was just started in a thread the former limit, where the system can (Linux)."""
    if _before is not None and sys.platform == "linux":
        with suppress(OSError, ValueError):  # it has ended already, or runs as somebody else
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _before)


def _is_free_below(number: int) -> bool:
    """Return whether the next descriptor would be lower than this."""
    try:
        fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    os.close(fd)
    return fd < number


def can_open(count: int) -> bool:
    """Return whether this process can open so many more files."""
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
    """Descriptors that are held back for the end of the process, which has to look for children and close files."""

    def __init__(self, count: int) -> None:
        self._fds: list[int] = []
        with suppress(OSError):  # there are fewer
            while len(self._fds) < count:
                self._fds.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def release(self) -> None:
        """Make them free for others. Safe to call twice."""
        while self._fds:
            os.close(self._fds.pop())
