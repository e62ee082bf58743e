"""JSON-RPC over the pipes of a child process, one UTF-8 object on each line (ACP "Transports")."""

import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import Process

from acp_agent.cli.editor.frames import Direction, JsonRpcError, RecordedFrame, Recording, at, text_at
from acp_agent.core.types import Json, JsonObject

_STDERR_KEPT = 64 * 1024  # bytes of the agent's log, shown after a failure
_END_GRACE = 2.0  # seconds between closing its stdin, SIGTERM and SIGKILL


class AgentGone(Exception):
    """The agent ended, or it wrote something that is not ACP."""


@dataclass(slots=True)
class _Pending:
    answered: anyio.Event = field(default_factory=anyio.Event)
    message: JsonObject = field(default_factory=dict[str, Json])

    def resolve(self, message: JsonObject) -> None:
        """Store the answer and wake the task that waits for it."""
        self.message = message
        self.answered.set()


OnRequest = Callable[[RecordedFrame], Coroutine[None, None, None]]
"""A handler that answers a request of the agent. It runs in a task of its own."""


class AgentConnection:
    """The connection to a running agent. `recording` holds the messages of both directions."""

    def __init__(self, process: Process, recording: Recording, on_request: OnRequest) -> None:
        self.pid = process.pid
        self.recording = recording
        self.gone = anyio.Event()
        self._process = process
        self._on_request = on_request
        self._pending: dict[int, _Pending] = {}
        self._requests = 0
        self._sending = anyio.Lock()
        self._stderr = bytearray()

    @property
    def returncode(self) -> int | None:
        """The agent's exit code. It is negative for a signal, and None while the agent runs."""
        return self._process.returncode

    @property
    def stderr(self) -> str:
        """The end of the agent's log."""
        return self._stderr.decode("utf-8", "replace")

    async def request(self, method: str, params: Json) -> Json:
        """Send a request and return its result. Raises JsonRpcError or AgentGone."""
        if self.gone.is_set():
            raise AgentGone(f"the agent ended before {method}")
        self._requests += 1
        number, pending = self._requests, _Pending()
        self._pending[number] = pending
        try:
            await self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            await pending.answered.wait()
        finally:
            del self._pending[number]
        error = pending.message.get("error")
        if isinstance(error, dict):
            code = error.get("code")
            raise JsonRpcError(code if isinstance(code, int) else 0, text_at(error, "message"), error.get("data"))
        if "result" not in pending.message:
            raise AgentGone(f"no answer to {method}")
        return pending.message["result"]

    async def notify(self, method: str, params: Json) -> None:
        """Send a notification. Raises AgentGone."""
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def send(self, message: JsonObject) -> None:
        """Write one message and record it. Raises AgentGone."""
        async with self._sending:
            self.recording.add(RecordedFrame(Direction.TO_AGENT, message, time.monotonic()))
            await self._write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    async def send_bytes(self, data: bytes) -> None:
        """Write any bytes, which are not recorded. Raises AgentGone."""
        async with self._sending:
            await self._write(data)

    async def close_stdin(self) -> None:
        """Close the agent's stdin."""
        assert self._process.stdin is not None
        await self._process.stdin.aclose()

    async def wait(self) -> int:
        """Wait for the agent's end and return its exit code."""
        return await self._process.wait()

    async def read(self) -> None:
        """Read the agent's messages until it closes stdout. Raises AgentGone for a line that is no message."""
        assert self._process.stdout is not None
        try:
            async with anyio.create_task_group() as answering:
                rest = bytearray()
                async for chunk in self._process.stdout:
                    rest += chunk
                    if b"\n" not in chunk:
                        continue
                    *lines, rest = rest.split(b"\n")
                    for line in lines:
                        frame = self._take(line)
                        if frame.is_request:
                            answering.start_soon(self._on_request, frame)
                answering.cancel_scope.cancel()
        finally:
            self.gone.set()
            for pending in self._pending.values():
                pending.answered.set()

    async def read_stderr(self) -> None:
        """Read the agent's log and keep its end."""
        assert self._process.stderr is not None
        async for chunk in self._process.stderr:
            self._stderr += chunk
            del self._stderr[:-_STDERR_KEPT]

    async def end(self) -> None:
        """End the agent as editors do: close its stdin, then send SIGTERM, then SIGKILL to its process group."""
        with anyio.CancelScope(shield=True):
            await self.close_stdin()
            for number in (signal.SIGTERM, signal.SIGKILL):
                with anyio.move_on_after(_END_GRACE):
                    await self._process.wait()
                    return
                os.killpg(self.pid, number)

    def _take(self, line: bytearray) -> RecordedFrame:
        try:
            message: Json = json.loads(line)
        except ValueError as error:
            raise AgentGone(f"the agent wrote a line that is not JSON: {bytes(line[:200])!r}") from error
        if not isinstance(message, dict):
            raise AgentGone(f"the agent wrote a line that is not an object: {bytes(line[:200])!r}")
        frame = RecordedFrame(Direction.FROM_AGENT, message, time.monotonic())
        self.recording.add(frame)
        number = at(message, "id")
        if frame.is_response and isinstance(number, int) and number in self._pending:
            self._pending[number].resolve(message)
        return frame

    async def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise AgentGone("the agent does not read any more") from error


async def open_agent(command: Sequence[str], environment: Mapping[str, str], cwd: str) -> Process:
    """Start an agent as the leader of its own process session. Raises OSError if it cannot be started."""
    return await anyio.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        cwd=cwd, env=environment, start_new_session=True,
    )  # fmt: skip


@asynccontextmanager
async def connected(process: Process, recording: Recording, on_request: OnRequest) -> AsyncGenerator[AgentConnection]:
    """Connect to a started agent, and end it on exit in every case.

    Raises AgentGone in an exception group if the agent breaks the protocol.
    """
    async with process, anyio.create_task_group() as tasks:
        connection = AgentConnection(process, recording, on_request)
        tasks.start_soon(connection.read)
        tasks.start_soon(connection.read_stderr)
        try:
            yield connection
        finally:
            await connection.end()
            tasks.cancel_scope.cancel()
