"""Ending a server's program with everything it started, also what left its process group (security.md 3).

Where orphans come to us (Linux, where the agent is a subreaper) nothing gets away that keeps its environment; what
does is found when the agent itself ends.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Final

import psutil

from acp_agent.mcp.environment import MARK

_GRACE: Final = 0.3
_KILL_PATIENCE: Final = 0.2
_KILL_ROUNDS: Final = 2  # the second finds what was forked while the first killed


def end_family(process: subprocess.Popen[bytes], mark: str) -> None:
    """Give it a moment to end by itself, its stdin being closed; then SIGTERM to all, then SIGKILL. Reaps. Blocks 1 s.

    `mark` is what MARK says in its environment. The program leads its own session.
    """
    _wait(process, _GRACE)
    for number, patience in ((signal.SIGTERM, _GRACE), *[(signal.SIGKILL, _KILL_PATIENCE)] * _KILL_ROUNDS):
        members = _members(process.pid, mark)
        if not members and process.poll() is not None:
            break
        _signal(process, members, number)
        deadline = time.monotonic() + patience
        _wait(process, patience)
        psutil.wait_procs(members, timeout=max(0.0, deadline - time.monotonic()))
    process.poll()


def _members(leader: int, mark: str) -> Sequence[psutil.Process]:
    """Everything that is alive of the family but its leader, whom only its Popen may reap."""
    return [
        member
        for member in psutil.Process().children(recursive=True)
        if member.pid != leader and _belongs(member, leader, mark)
    ]


def _belongs(member: psutil.Process, leader: int, mark: str) -> bool:
    return any(
        _holds(check)
        for check in (
            lambda: os.getsid(member.pid) == leader,
            lambda: os.getpgid(member.pid) == leader,
            lambda: member.environ().get(MARK) == mark,
        )
    )


def _holds(check: Callable[[], bool]) -> bool:
    try:
        return check()
    except (OSError, psutil.Error):  # gone meanwhile, or not ours to look into
        return False


def _signal(process: subprocess.Popen[bytes], members: Sequence[psutil.Process], number: int) -> None:
    """The leader first: a shell that saw its child die would go on with its next line."""
    with contextlib.suppress(OSError):
        process.send_signal(number)
    for member in members:
        with contextlib.suppress(OSError, psutil.Error):
            member.send_signal(number)


def _wait(process: subprocess.Popen[bytes], patience: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience)
