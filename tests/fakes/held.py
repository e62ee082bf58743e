"""Commands that a test can wait for and hold, and processes that must be gone: events instead of sleeping."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from tests.fakes.editor import ScriptedEditor

PATIENCE = 20.0  # seconds a test waits for something that should take milliseconds


class Fifo:
    """A named pipe in the workspace: what a command and a test tell each other instead of sleeping.

    The test holds it open for both, so that neither side ever blocks in `open`.
    """

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def write_line(self, text: str = "") -> None:
        os.write(self._fd, text.encode() + b"\n")

    async def line(self) -> str:
        """The next line a command writes (short enough to come whole)."""
        with anyio.fail_after(PATIENCE):
            await anyio.wait_readable(self._fd)
        return os.read(self._fd, 4096).decode()

    def close(self) -> None:
        os.close(self._fd)


class Held:
    """A command (`sh hold.sh`) that says who it is and then sleeps with a child, until somebody ends both."""

    COMMAND = "sh hold.sh"

    def __init__(self, editor: "ScriptedEditor") -> None:
        self._alive = editor.fifo("alive")
        (editor.workspace / "hold.sh").write_text('sleep 60 &\necho "$$ $!" > alive\nwait\n')

    async def pids(self) -> list[int]:
        """The shell and its child, once they run."""
        return [int(word) for word in (await self._alive.line()).split()]


async def processes_ended(pids: Sequence[int], within: float = 5.0) -> None:
    """Wait until no process of `pids` runs any more; a zombie nobody reaped does not run."""

    async def ended(pid: int) -> None:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            await anyio.wait_readable(fd)
        finally:
            os.close(fd)

    with anyio.fail_after(within):
        async with anyio.create_task_group() as tasks:
            for pid in pids:
                tasks.start_soon(ended, pid)
