"""Real processes for tests: how to start them, hear from them, and see that they are gone."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from acp_agent.execution.process_tree import is_subreaper

LINUX = sys.platform == "linux"
PR_SET_CHILD_SUBREAPER = 36


@contextmanager
def subreaper(on: bool) -> Iterator[None]:
    """Run with orphans falling to this process, or not."""
    before = is_subreaper()
    libc = ctypes.CDLL(None)
    if LINUX:
        libc.prctl(PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)
    try:
        yield
    finally:
        if LINUX:
            libc.prctl(PR_SET_CHILD_SUBREAPER, int(before), 0, 0, 0)


def exists(pid: int) -> bool:
    """Whether there is such a process, dead and unreaped ones included."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Phone:
    """A FIFO by which a process tells its pid: writing waits until the test listens, and the other way round."""

    def __init__(self, folder: Path, name: str = "phone") -> None:
        self.path = folder / name
        os.mkfifo(self.path)

    async def pid(self) -> int:
        with anyio.fail_after(20):
            return int(await anyio.to_thread.run_sync(self.path.read_text, abandon_on_cancel=True))

    def call(self, then: str = "exec sleep 1000") -> str:
        """A shell command that tells its pid and then does something else."""
        return f"sh -c 'echo $$ > {self.path}; {then}'"
