"""An agent that a fork server makes (fork_server.py), to be used like a process that was opened."""

import atexit
import ctypes
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

CAN_FORK = hasattr(os, "pidfd_open") and not os.environ.get("ACP_AGENT_TEST_SPAWN")
"""Whether agents are forked: not where the system cannot, nor where somebody wants each of them started anew."""

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37


@cache
def start_fork_server() -> str:
    """Return the socket of the fork server. The first worker of the test run that needs it starts it.

    It ends when the last of them does: each holds an end of the pipe that is its standard input.
    """
    folder = _folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    path, alive = folder / "agents", folder / "alive"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not alive.exists():
            os.mkfifo(alive)
        held = os.open(alive, os.O_RDWR)  # for writing alone it would wait for the server
        if not path.exists():
            _start(str(path), str(alive))
    atexit.register(os.close, held)
    return str(path)


def _folder() -> Path:
    """Return a folder that the workers of a test run have in common."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    return Path(tempfile.gettempdir(), f"acp-fork-{run}") if run else Path(tempfile.mkdtemp(prefix="acp-fork-"))


def _start(path: str, alive: str) -> None:
    with _orphans_left_alone(), open(alive, "rb") as reading:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.fork_server", path],
            stdin=reading, stdout=subprocess.PIPE, start_new_session=True,
            cwd=Path(__file__).parents[2], env={**os.environ, "PYDANTIC_DISABLE_PLUGINS": "__all__"},
        )  # fmt: skip
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.readline() == b"ready\n", "the fork server did not start"
        process.wait()  # the server itself is nobody's child


@contextmanager
def _orphans_left_alone() -> Generator[None]:
    """Let no orphan become a child of this process, which a test may have made the parent of orphans."""
    prctl, before = ctypes.CDLL(None).prctl, ctypes.c_int()
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    prctl(_PR_SET_CHILD_SUBREAPER, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, before.value)


class PipeReader(ByteReceiveStream):
    """The reading end of a pipe."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor

    async def receive(self, max_bytes: int = 65536) -> bytes:
        while True:
            await anyio.wait_readable(self._descriptor)
            try:
                data = os.read(self._descriptor, max_bytes)
            except BlockingIOError:
                continue
            if not data:
                raise anyio.EndOfStream
            return data

    def rest(self) -> bytes:
        """What can be read without waiting, at most 64 KiB."""
        try:
            return os.read(self._descriptor, 65536)
        except BlockingIOError:
            return b""

    async def aclose(self) -> None:
        self.close_now()

    def close_now(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class PipeWriter(ByteSendStream):
    """The writing end of a pipe."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor

    async def send(self, item: bytes) -> None:
        rest = memoryview(item)
        while rest:
            if self._descriptor < 0:
                raise anyio.ClosedResourceError
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._descriptor)
            except BrokenPipeError as error:
                raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        if self._descriptor >= 0:
            anyio.notify_closing(self._descriptor)
            self.close_now()

    def close_now(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class ForkedAgent(Process):
    """A running agent. The process is a child of the fork server, and leader of its own session.

    stays   whether `aclose` leaves it running, for another test (shared_agents.py)
    """

    stays = False

    def __init__(self, control: socket.socket, pipes: tuple[int, int, int]) -> None:
        self._control = control
        self._told = b""
        self._stdin, self._stdout, self._stderr = PipeWriter(pipes[0]), PipeReader(pipes[1]), PipeReader(pipes[2])

    async def begun(self) -> None:
        """Wait until it runs."""
        await self._heard(1)

    @property
    def pid(self) -> int:
        return int(self._told.splitlines()[0])

    @property
    def returncode(self) -> int | None:
        self._hear()
        lines = self._told.splitlines()
        return int(lines[1]) if len(lines) > 1 else None

    @property
    def stdin(self) -> ByteSendStream:
        return self._stdin

    @property
    def stdout(self) -> ByteReceiveStream:
        return self._stdout

    @property
    def stderr(self) -> ByteReceiveStream:
        return self._stderr

    async def wait(self) -> int:
        await self._heard(2)
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, signal: int) -> None:
        os.kill(self.pid, signal)

    async def aclose(self) -> None:
        if self.stays:
            return
        with anyio.CancelScope(shield=True):
            for stream in (self._stdin, self._stdout, self._stderr):
                await stream.aclose()
            await self.wait()
            self._control.close()

    def close_now(self) -> None:
        """Wait for its end without an event loop, and close all."""
        self._control.setblocking(True)
        while self._hear():
            pass
        self._control.close()
        for stream in (self._stdin, self._stdout, self._stderr):
            stream.close_now()

    def rest_of_log(self) -> bytes:
        """What it wrote to its log and nobody has read."""
        return self._stderr.rest()

    async def _heard(self, lines: int) -> None:
        while self._told.count(b"\n") < lines:
            await anyio.wait_readable(self._control)
            assert self._hear(), "the fork server is gone"

    def _hear(self) -> bool:
        """Take what the server has told by now; whether more may come."""
        if self._control.fileno() < 0:
            return False
        try:
            data = self._control.recv(64)
        except BlockingIOError:
            return True
        self._told += data
        return bool(data)


def ask_for_process(
    environment: Mapping[str, str],
    cwd: str,
    arguments: Sequence[str],
    descriptors: Sequence[int],
    server: str = "",
    closed: Sequence[int] = (),
) -> socket.socket:
    """Have a fork server start a process with these three descriptors. Return the socket on which it tells of it.

    closed    the numbers among 0, 1 and 2 that the process finds closed
    """
    control = socket.socket(socket.AF_UNIX)
    control.connect(server or start_fork_server())
    request = {"env": dict(environment), "cwd": cwd, "arguments": list(arguments), "closed": list(closed)}
    socket.send_fds(control, [json.dumps(request).encode()], descriptors)
    return control


async def fork_agent(
    environment: Mapping[str, str], cwd: str, arguments: Sequence[str] = (), server: str = ""
) -> ForkedAgent:
    """A new agent, which is ended like any other process. `server` is the fork server's socket, by default ours."""
    (stdin, to_agent), (from_agent, stdout), (from_log, stderr) = os.pipe(), os.pipe(), os.pipe()
    control = ask_for_process(environment, cwd, arguments, [stdin, stdout, stderr], server)
    for descriptor in (stdin, stdout, stderr):
        os.close(descriptor)
    control.setblocking(False)
    agent = ForkedAgent(control, (to_agent, from_agent, from_log))
    await agent.begun()
    return agent
