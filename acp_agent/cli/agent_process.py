"""An agent as a child process of `run` and `demo`, with JSON messages over its pipes.

The SDK is not loaded here, so that the agent starts while that happens.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import cast

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from acp_agent.cli.recording import Direction, RecordedFrame, Recording
from acp_agent.core.types import Json, JsonObject

_LOG_KEPT = 64 * 1024  # bytes of the agent's log, shown after a failure
_END_GRACE = 2.0  # seconds between closing its stdin, SIGTERM and SIGKILL
_LONGEST_LINE = 1 << 30  # bytes


class AgentGone(Exception):
    """The agent ended, or it wrote something that is not ACP."""


class AgentRefused(Exception):
    """The agent answered a request with an error."""


class AgentProcess:
    """An agent that runs inside `running`, and the transport of the SDK over its pipes: a JSON object on each line.

    The SDK's own transport starts the agent where Ctrl-C reaches it, prints a stack trace for a line that is no
    message and goes on, and hands on no updates and members that its models do not know. Here `recording` holds every
    message of both directions as it is.

    `failure` is the error that stopped the reading: a line that is no message, or a screen that cannot be drawn on.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], cwd: str, recording: Recording) -> None:
        self.recording = recording
        self.failure: Exception | None = None
        self._start = (command, environment, cwd)
        self._process: Process | None = None
        self._lines: BufferedByteReceiveStream | None = None
        self._sending = anyio.Lock()
        self._log = bytearray()

    @property
    def returncode(self) -> int | None:
        """The agent's exit code. It is negative for a signal, and None while the agent runs."""
        return None if self._process is None else self._process.returncode

    @property
    def log(self) -> str:
        """The end of the agent's stderr."""
        return self._log.decode("utf-8", "replace")

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Start the agent, and end it on exit in every case. Raises OSError if it cannot be started."""
        self._process = await open_agent(*self._start)
        assert self._process.stdout is not None
        self._lines = BufferedByteReceiveStream(self._process.stdout)
        async with self._process, anyio.create_task_group() as tasks:
            tasks.start_soon(self._read_log)
            try:
                yield
            finally:
                await self.end()
                tasks.cancel_scope.cancel()

    async def end(self) -> None:
        """Close the agent's stdin, wait for its end, and kill it if it does not end."""
        if self._process is not None:
            await end_agent(self._process)

    async def send(self, message: JsonObject) -> None:
        """Write one message and record it. Raises ConnectionError if the agent cannot read a request."""
        assert self._process is not None
        assert self._process.stdin is not None
        async with self._sending:
            self.recording.add(RecordedFrame(Direction.TO_AGENT, message, time.monotonic()))
            try:
                await self._process.stdin.send(json.dumps(message, separators=(",", ":")).encode() + b"\n")
            except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
                if "method" in message:  # an agent that is gone needs no answers
                    raise ConnectionError("the agent does not read any more") from error

    async def receive(self) -> JsonObject | None:
        """Return the agent's next request or response, or None at the end. Notifications are only recorded."""
        try:
            while True:
                message = await self._next_message()
                self.recording.add(RecordedFrame(Direction.FROM_AGENT, message, time.monotonic()))
                if "id" in message:
                    return message
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.ClosedResourceError):
            return None
        except (AgentGone, OSError) as error:
            self.failure = error
            return None

    async def fail(self, error: Exception) -> None:
        """Stop reading, so that every open request fails."""
        assert self._process is not None
        assert self._process.stdout is not None
        self.failure = error
        await self._process.stdout.aclose()

    async def close(self) -> None:
        """Do nothing: `end` closes the pipes."""

    async def _next_message(self) -> JsonObject:
        assert self._lines is not None
        line = await self._lines.receive_until(b"\n", _LONGEST_LINE)
        try:
            message: Json = json.loads(line)
        except ValueError as error:
            raise AgentGone(f"the agent wrote a line that is not JSON: {line[:200]!r}") from error
        if not isinstance(message, dict):
            raise AgentGone(f"the agent wrote a line that is not an object: {line[:200]!r}")
        return message

    async def _read_log(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        async for chunk in self._process.stderr:
            self._log += chunk
            del self._log[:-_LOG_KEPT]


async def open_agent(command: Sequence[str], environment: Mapping[str, str], cwd: str) -> Process:
    """Start an agent as the leader of its own process session. Raises OSError if it cannot be started."""
    return await anyio.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        cwd=cwd, env=environment, start_new_session=True,
    )  # fmt: skip


async def end_agent(process: Process) -> None:
    """End an agent as editors do: close its stdin, then send SIGTERM, then SIGKILL to its process group."""
    assert process.stdin is not None
    with anyio.CancelScope(shield=True):
        await process.stdin.aclose()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with anyio.move_on_after(_END_GRACE):
                await process.wait()
                return
            os.killpg(process.pid, number)


def problems(error: BaseException) -> list[str]:
    """Return the different messages of the errors in a tree of exception groups."""
    return list(dict.fromkeys(str(each) or type(each).__name__ for each in _leaves(error)))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the single errors in a tree of exception groups."""
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for child in cast("BaseExceptionGroup[BaseException]", error).exceptions:
        yield from _leaves(child)
