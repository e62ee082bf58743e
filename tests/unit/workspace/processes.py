"""Real processes for tests: how to start them, hear from them, and see that they are gone."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from acp_agent.workspace.processes.table import system_table
from acp_agent.workspace.processes.tree import is_subreaper

LINUX = sys.platform == "linux"
PR_SET_CHILD_SUBREAPER = 36


@contextmanager
def subreaper(on: bool) -> Iterator[None]:
    """Run with orphans falling to this process, or not."""
    before = is_subreaper()
    libc = ctypes.CDLL(None)
    if LINUX:
        libc.prctl(PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)
        is_subreaper.cache_clear()
    try:
        yield
    finally:
        if LINUX:
            libc.prctl(PR_SET_CHILD_SUBREAPER, int(before), 0, 0, 0)
            is_subreaper.cache_clear()


def exists(pid: int) -> bool:
    """Whether there is such a process, dead and unreaped ones included."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def ended(pid: int) -> bool:
    """Whether it has ended: reaped if it was ours to reap, else at least dead; init may take a moment."""
    if is_subreaper():
        return not exists(pid)
    status = system_table().status(pid)
    return status is None or status.zombie


class Caller:
    """A program that tells its pid and then does something, for a command line to start in its own way."""

    def __init__(self, folder: Path, name: str = "caller", then: str = "exec sleep 1000") -> None:
        self.program = folder / name
        self._phone = folder / f"{name}.phone"
        os.mkfifo(self._phone)
        self.program.write_text(f"#!/bin/sh\necho $$ > {self._phone}\n{then}\n")
        self.program.chmod(0o755)

    async def pid(self) -> int:
        """Wait for the call. The program goes on when somebody has listened, and not before."""
        with anyio.fail_after(20):
            return int(await anyio.to_thread.run_sync(self._phone.read_text, abandon_on_cancel=True))
