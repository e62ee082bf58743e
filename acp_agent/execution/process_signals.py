"""Signalling processes and waiting for their end, without mixing up a process with a later one of the same pid."""

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable

from acp_agent.execution.process_table import ProcessTable

_POLL = 0.005


def pidfd_works() -> bool:
    """Whether this kernel has file descriptors for processes (Linux 5.3)."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def signal_and_wait(pids: Iterable[int], number: int, patience: float, table: ProcessTable, *, pidfds: bool) -> None:
    """Send signal `number` (0 = none) to all of them, then wait until all have ended or `patience` seconds are over.

    Processes that are gone or not ours are passed over. Those that ended are left to be reaped by their parents.
    """
    deadline = time.monotonic() + patience
    if pidfds:
        _by_pidfd(pids, number, deadline)
    else:
        _by_pid(pids, number, deadline, table)


def _by_pidfd(pids: Iterable[int], number: int, deadline: float) -> None:
    with contextlib.ExitStack() as closing:
        poll = select.poll()
        waiting = 0
        for pid in pids:
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            except OSError:  # too many files are open: it gets the signal all the same, and nobody waits for its end
                _send(pid, number)
                continue
            closing.callback(os.close, fd)
            with contextlib.suppress(OSError):
                if number:
                    signal.pidfd_send_signal(fd, number)
            poll.register(fd, select.POLLIN)
            waiting += 1
        while waiting and (left := deadline - time.monotonic()) > 0:
            for fd, _ in poll.poll(left * 1000):
                poll.unregister(fd)
                waiting -= 1


def _by_pid(pids: Iterable[int], number: int, deadline: float, table: ProcessTable) -> None:
    """Look again and again: without pidfds there is no event for the end of a process that is not our child."""
    waiting = {pid for pid in pids if _send(pid, number)}
    while waiting and time.monotonic() < deadline:
        time.sleep(_POLL)
        statuses = [table.status(pid) for pid in waiting]
        waiting = {status.pid for status in statuses if status is not None and not status.zombie}


def _send(pid: int, number: int) -> bool:
    """Whether there is such a process, after sending the signal if we may."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def reap(pid: int) -> None:
    """Take a dead child's exit status, if it is one."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
