"""Ends a server's program when the agent is gone without a word (SIGKILL, out of memory): a shell that waits for it.

It reads from a pipe whose other end only the agent holds. A line means that all is over and well; the end of the pipe
that the agent is no more, and then the program's process group is killed. What has left the group gets away. This
works on every POSIX system; PR_SET_PDEATHSIG would end the program with the thread that started it.
"""

import contextlib
import subprocess
from typing import Final

_SCRIPT: Final = 'read -r line || kill -s KILL -- "-$0"'
_PATIENCE: Final = 1.0


class Watchdog:
    """Watches over the process group of one program. `dismiss` it once that has ended, before its number is free."""

    def __init__(self, group: int) -> None:
        """Raises OSError where there is no shell."""
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, str(group)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,  # what is typed at the agent's terminal does not end it
        )

    def dismiss(self) -> None:
        """Have it go without doing anything. Blocks a moment."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # it may have been killed, or stopped
            self._process.communicate(b"well\n", timeout=_PATIENCE)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
