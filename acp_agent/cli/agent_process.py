"""An agent as a child process, with JSON messages over its pipes, and the record of these messages.

`run`, `demo` and `doctor --editor` start one. This module does not import the SDK, so that the agent can start while
the SDK is loaded.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import cast

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from acp_agent.capabilities import at
from acp_agent.core.data import frozen
from acp_agent.core.types import Json, JsonObject


class Direction(StrEnum):
    """The direction of a message."""

    TO_AGENT = "to_agent"
    FROM_AGENT = "from_agent"


def text_at(value: Json, *path: str) -> str:
    """Return the string at `path`, or ""."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def objects_at(value: Json, *path: str) -> list[JsonObject]:
    """Return the objects of the list at `path`, or an empty list."""
    found = at(value, *path)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


@frozen
class RecordedFrame:
    """One JSON-RPC message. `time` is when it was written or read, in seconds of the monotonic clock."""

    direction: Direction
    message: JsonObject
    time: float

    @property
    def method(self) -> str:
        """The method of a request or notification; empty for a response."""
        return text_at(self.message, "method")

    @property
    def params(self) -> JsonObject:
        """The parameters of a request or notification, or an empty object."""
        params = self.message.get("params")
        return params if isinstance(params, dict) else {}

    @property
    def update(self) -> JsonObject:
        """The update of a `session/update`, or an empty object for any other message."""
        update = at(self.message, "params", "update")
        return update if self.method == "session/update" and isinstance(update, dict) else {}

    @property
    def is_request(self) -> bool:
        """True for a request, which needs an answer."""
        return "method" in self.message and "id" in self.message


class Recording:
    """The messages of a connection in both directions, in order. `watch` is called with each of them.

    keep   whether they stay in `frames`
    """

    def __init__(self, watch: Callable[[RecordedFrame], None] | None = None, *, keep: bool = True) -> None:
        self.frames: list[RecordedFrame] = []
        self._keep = keep
        self._watch = watch

    def add(self, frame: RecordedFrame) -> None:
        if self._keep:
            self.frames.append(frame)
        if self._watch is not None:
            self._watch(frame)


@dataclass(slots=True)
class SeenCall:
    """A tool call as the editor saw it: its `tool_call` and every `tool_call_update`, in order.

    `start` and `end` are indexes of the recording. `end` is -1 until the final update.
    """

    start: int
    first: JsonObject
    updates: list[JsonObject] = field(default_factory=list[JsonObject])
    end: int = -1

    def add(self, update: JsonObject, index: int) -> None:
        """Append an update, which is at `index` of the recording."""
        self.updates.append(update)
        if text_at(update, "status") in ("completed", "failed"):
            self.end = index

    @property
    def id(self) -> str:
        return text_at(self.first, "toolCallId")

    @property
    def kind(self) -> str:
        return text_at(self.first, "kind")

    @property
    def final(self) -> JsonObject:
        """The final update, or an empty object before it."""
        return self.updates[-1] if self.end >= 0 else {}

    @property
    def status(self) -> str:
        """`completed`, `failed`, or `in_progress` while it runs."""
        return text_at(self.final, "status") or text_at(self.first, "status")

    def _content(self, kind: str) -> list[JsonObject]:
        content = [item for update in (self.first, *self.updates) for item in objects_at(update, "content")]
        return [item for item in content if item.get("type") == kind]

    @property
    def terminals(self) -> list[str]:
        """The ids of the editor's terminals in its content, in order of appearance."""
        return list(dict.fromkeys(text_at(item, "terminalId") for item in self._content("terminal")))

    @property
    def diffs(self) -> list[JsonObject]:
        return self._content("diff")

    @property
    def text(self) -> str:
        """The text of its final update."""
        return "\n".join(text_at(item, "content", "text") for item in objects_at(self.final, "content"))


def seen_calls(recording: Recording) -> list[SeenCall]:
    """Return all tool calls in the order of their start. Updates without a `tool_call` are ignored."""
    calls: dict[str, SeenCall] = {}
    for index, frame in enumerate(recording.frames):
        call_id = text_at(frame.update, "toolCallId")
        match text_at(frame.update, "sessionUpdate"):
            case "tool_call":
                calls.setdefault(call_id, SeenCall(index, frame.update))
            case "tool_call_update" if call_id in calls and calls[call_id].end < 0:
                calls[call_id].add(frame.update, index)
            case _:
                pass
    return list(calls.values())


_LOG_KEPT = 64 * 1024  # bytes of the agent's log, shown after a failure
_END_GRACE = 2.0
_LONGEST_LINE = 1 << 30  # bytes


class AgentGone(Exception):
    """The agent ended, or it wrote something that is not ACP."""


class AgentRefused(Exception):
    """The agent answered a request with an error."""


class AgentProcess:
    """An agent that runs inside `running`, and the transport of the SDK over its pipes: a JSON object on each line.

    It replaces the transport of the SDK, which starts the agent where Ctrl-C reaches it. That transport prints a stack
    trace for an invalid line and continues, and it drops updates and members that its models do not know. Here
    `recording` receives every message of both directions unchanged.

    grace     seconds between closing its stdin, SIGTERM and SIGKILL at the end
    failure   the error that stopped the reading: a line that is no message, or a screen that cannot be drawn on
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        cwd: str,
        recording: Recording,
        grace: float = _END_GRACE,
    ) -> None:
        self.recording = recording
        self._grace = grace
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
            await end_agent(self._process, self._grace)

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


async def end_agent(process: Process, grace: float = _END_GRACE) -> None:
    """End an agent as editors do: close its stdin, then send SIGTERM, then SIGKILL to its process group.

    grace   seconds between these steps
    """
    assert process.stdin is not None
    with anyio.CancelScope(shield=True):
        await process.stdin.aclose()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with anyio.move_on_after(grace):
                await process.wait()
                return
            with suppress(ProcessLookupError):  # it has just ended
                os.killpg(process.pid, number)


def problems(error: BaseException) -> list[str]:
    """Return the different messages of the errors in a tree of exception groups."""
    if not isinstance(error, BaseExceptionGroup):
        return [str(error) or type(error).__name__]
    children = cast("BaseExceptionGroup[BaseException]", error).exceptions
    return list(dict.fromkeys(problem for child in children for problem in problems(child)))
