"""A server's program: started without a shell in a session of its own, written to, listened to, ended for good."""

import os
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import anyio
import anyio.to_thread

from acp_agent.core.mcp import StdioServer
from acp_agent.core.process_limits import restore_limits
from acp_agent.mcp.environment import MARK
from acp_agent.mcp.watchdog import Watchdog
from acp_agent.tools.visible import visible

_READ: Final = 64 * 1024
_STDERR_KEPT: Final = 4 * 1024
_STDERR_SHOWN: Final = 300
_STDERR_FREE: Final = 1024 * 1024
_PAUSE: Final = 0.05


class Program:
    """One run of a program. `end` it on every path."""

    def __init__(self, process: subprocess.Popen[bytes], mark: str, watchdog: Watchdog | None) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._mark = mark
        self._watchdog = watchdog
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        for pipe in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(pipe.fileno(), False)
        self._last_words = b""

    @classmethod
    async def start(cls, server: StdioServer, environment: Mapping[str, str]) -> "Program":
        """Start it, with this environment and a mark. Raises OSError, or ValueError for what no program can be told."""
        mark = f"{os.getpid()}.{os.urandom(8).hex()}"

        def spawn() -> tuple[subprocess.Popen[bytes], Watchdog | None]:
            process = subprocess.Popen(
                [server.command, *server.args],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**environment, MARK: mark},
                cwd=server.cwd,
                start_new_session=True,
            )
            restore_limits(process.pid)
            with suppress(OSError):  # no shell: then it must notice by itself that its stdin is closed
                return process, Watchdog(process.pid)
            return process, None

        process, watchdog = await anyio.to_thread.run_sync(spawn)
        return cls(process, mark, watchdog)

    async def read(self) -> bytes:
        """What it has written to stdout; nothing once that is closed."""
        return await _read(self._stdout.fileno())

    async def write(self, data: bytes) -> None:
        """Write all of it to stdin. Raises OSError when that is closed."""
        fd, rest = self._stdin.fileno(), memoryview(data)
        while rest:
            await anyio.wait_writable(fd)
            try:
                rest = rest[os.write(fd, rest[:_READ]) :]
            except BlockingIOError:
                continue

    async def drain(self) -> None:
        """Read stderr until it is closed, keeping its end. Who floods it gets slow."""
        fd, since_pause = self._stderr.fileno(), 0
        while data := await _read(fd):
            self._last_words = (self._last_words + data)[-_STDERR_KEPT:]
            since_pause += len(data)
            if since_pause >= _STDERR_FREE:
                since_pause = 0
                await anyio.sleep(_PAUSE)

    async def exited(self) -> None:
        """Wait until the program itself has ended, whatever it left behind."""
        try:
            fd = os.pidfd_open(self._process.pid)
        except (AttributeError, OSError):  # no Linux, or an old one
            await anyio.to_thread.run_sync(self._process.wait, abandon_on_cancel=True)
            return
        try:
            await anyio.wait_readable(fd)
        finally:
            os.close(fd)

    def epitaph(self) -> str:
        """How it ended."""
        code = self._process.poll()
        if code is None:
            return "closed its output"
        return f"ended with signal {-code}" if code < 0 else f"ended with {code}"

    def last_words(self) -> str:
        """The last line it had to say on stderr, fit for the user; often there is none."""
        lines = [line for line in self._last_words.decode("utf-8", "replace").splitlines() if line.strip()]
        return visible(lines[-1].strip()[:_STDERR_SHOWN]) if lines else ""

    async def end(self) -> None:
        """Close its stdin, and within a second have nothing of it left. Cannot be cancelled."""
        from acp_agent.mcp.family import end_family  # noqa: PLC0415 - psutil takes 25 ms to load

        with anyio.CancelScope(shield=True):
            self._stdin.close()
            try:
                await anyio.to_thread.run_sync(end_family, self._process, self._mark)
                if self._watchdog is not None:
                    await anyio.to_thread.run_sync(self._watchdog.dismiss)
            finally:
                self._stdout.close()
                self._stderr.close()


async def _read(fd: int) -> bytes:
    while True:
        await anyio.wait_readable(fd)
        try:
            return os.read(fd, _READ)
        except BlockingIOError:
            continue
