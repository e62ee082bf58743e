"""A subcommand of `acp-agent` that a fork server starts, to be used like a `subprocess.Popen`.

Neither the command nor the agent that it starts import anything anew. The command is no child of this process, and the
agent is no child of the command.
"""

import os
import selectors
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Self

from tests.fakes.forked_agent import ask_for_process


class ForkedCommand:
    """A command under way. `stdin`, `stdout` and `stderr` are descriptors, or `subprocess.PIPE` or `DEVNULL`.

    closed    the numbers among 0, 1 and 2 that it finds closed
    """

    def __init__(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        *,
        stdin: int,
        stdout: int,
        stderr: int,
        closed: Sequence[int] = (),
    ) -> None:
        theirs: list[int] = []
        opened: list[int] = []
        self._ends: dict[int, int] = {}  # our ends of pipes, by number
        for number, wanted in enumerate((stdin, stdout, stderr)):
            if wanted == subprocess.PIPE:
                reading, writing = os.pipe()
                their, self._ends[number] = (reading, writing) if number == 0 else (writing, reading)
                opened.append(their)
            elif wanted == subprocess.DEVNULL:
                their = os.open(os.devnull, os.O_RDWR)
                opened.append(their)
            else:
                their = wanted
            theirs.append(their)
        self._control = ask_for_process(env, cwd, arguments, theirs, closed=closed)
        for descriptor in opened:
            os.close(descriptor)
        self._told = b""
        self.returncode: int | None = None
        self._hear(1, None)
        self.pid = int(self._told.splitlines()[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._ends.values():
            os.close(descriptor)
        self._ends.clear()
        self.wait()
        self._control.close()

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the command has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        with suppress(ProcessLookupError):
            self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its code. Raises TimeoutError."""
        if self.returncode is None:
            self._hear(2, timeout)
            self.returncode = int(self._told.splitlines()[1])
        return self.returncode

    def communicate(self, data: bytes = b"", timeout: float | None = None) -> tuple[bytes, bytes]:
        """Write the data, read all that it writes, and wait. Raises TimeoutError."""
        if 0 in self._ends:
            descriptor = self._ends.pop(0)
            os.write(descriptor, data)  # no more than a pipe holds
            os.close(descriptor)
        read = {1: b"", 2: b""}
        with selectors.DefaultSelector() as selector:
            for number, descriptor in self._ends.items():
                selector.register(descriptor, selectors.EVENT_READ, number)
            while selector.get_map():
                ready = selector.select(timeout)
                if not ready:
                    raise TimeoutError
                for key, _ in ready:
                    if data := os.read(key.fd, 65536):
                        read[key.data] += data
                    else:
                        selector.unregister(key.fd)
        self.wait(timeout)
        return read[1], read[2]

    def _hear(self, lines: int, timeout: float | None) -> None:
        """Wait until the server has told so many lines of this process."""
        self._control.settimeout(timeout)
        while self._told.count(b"\n") < lines:
            data = self._control.recv(64)
            assert data, "the fork server is gone"
            self._told += data


def run_forked(
    arguments: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    timeout: float,
    given: bytes = b"",
    closed: Sequence[int] = (),
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, like `subprocess.run`.

    given     what it reads from its standard input
    closed    the numbers among 0, 1 and 2 that it finds closed
    """
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with ForkedCommand(arguments, env, cwd, **pipes, closed=closed) as command:
        out, errors = command.communicate(given, timeout=timeout)
    return subprocess.CompletedProcess([*arguments], command.wait(), out.decode(), errors.decode())
