"""The editor's terminals: it serves `terminal/*` with real processes (ACP "Terminals")."""

import codecs
import os
import signal
import subprocess
from collections.abc import Callable, Mapping

import anyio
from anyio.abc import Process, TaskGroup

from acp_agent.cli.editor.frames import JsonRpcError, at, objects_at, text_at
from acp_agent.core.types import Json, JsonObject

INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
RESOURCE_NOT_FOUND = -32002

OnTerminalOutput = Callable[[str, str], None]
"""A function that gets a terminal's id and the text that it just printed."""

_OUTPUT_GRACE = 0.2  # seconds to read the rest of the pipe after a command has ended


class EditorTerminal:
    """A command in its own process session, so that it is killed together with its children.

    The last `limit` bytes of its output are kept, or all of it if `limit` is None.
    """

    def __init__(self, terminal_id: str, process: Process, limit: int | None, on_output: OnTerminalOutput) -> None:
        self.id = terminal_id
        self.pid = process.pid
        self.exit_status: JsonObject | None = None
        self.exited = anyio.Event()
        self._process = process
        self._limit = limit
        self._on_output = on_output
        self._buffer = bytearray()
        self._truncated = False
        self._drained = anyio.Event()

    async def run(self) -> None:
        """Collect output until the command has ended, even if a child keeps the pipe open."""
        async with self._process, anyio.create_task_group() as tasks:
            tasks.start_soon(self._collect)
            try:
                code = await self._process.wait()
                with anyio.move_on_after(_OUTPUT_GRACE):
                    await self._drained.wait()
                self.exit_status = _exit_status(code)
                self.exited.set()
                tasks.cancel_scope.cancel()
            finally:
                self.kill()

    def output(self) -> JsonObject:
        """Return the result of `terminal/output`."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        shown: JsonObject = {
            "output": decoder.decode(bytes(self._buffer), final=self.exited.is_set()),
            "truncated": self._truncated,
        }
        if self.exit_status is not None:
            shown["exitStatus"] = self.exit_status
        return shown

    def kill(self) -> None:
        """Kill the command and all its children if it is still running."""
        if self._process.returncode is None:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                return  # it has just ended

    async def _collect(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        assert self._process.stdout is not None
        async for chunk in self._process.stdout:
            self._on_output(self.id, decoder.decode(chunk))
            self._buffer += chunk
            self._trim()
        self._drained.set()

    def _trim(self) -> None:
        if self._limit is None or len(self._buffer) <= self._limit:
            return
        self._truncated = True
        del self._buffer[: len(self._buffer) - self._limit]
        while self._buffer and self._buffer[0] & 0xC0 == 0x80:  # the output must start with a whole character
            del self._buffer[0]


class EditorTerminals:
    """All terminals of an editor by id. Their commands start with `environment`."""

    def __init__(self, environment: Mapping[str, str], on_output: OnTerminalOutput) -> None:
        self.open: dict[str, EditorTerminal] = {}
        self._environment = environment
        self._on_output = on_output
        self._made = 0

    async def serve(self, method: str, params: JsonObject, tasks: TaskGroup) -> Json:
        """Answer one `terminal/*` request; commands run in `tasks`. Raises JsonRpcError."""
        if method == "terminal/create":
            return await self._create(params, tasks)
        terminal = self._find(params)
        match method:
            case "terminal/output":
                return terminal.output()
            case "terminal/wait_for_exit":
                await terminal.exited.wait()
                return terminal.exit_status
            case "terminal/kill":
                terminal.kill()
                return {}
            case "terminal/release":
                terminal.kill()
                del self.open[terminal.id]
                return {}
            case _:
                raise JsonRpcError(-32601, f"unknown method {method}")

    async def _create(self, params: JsonObject, tasks: TaskGroup) -> Json:
        command, args = text_at(params, "command"), at(params, "args")
        words = [word for word in args if isinstance(word, str)] if isinstance(args, list) else []
        extra = {text_at(pair, "name"): text_at(pair, "value") for pair in objects_at(params, "env")}
        try:
            process = await anyio.open_process(
                [command, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=text_at(params, "cwd") or None,
                env={**self._environment, **extra},
                start_new_session=True,
            )
        except OSError as error:
            raise JsonRpcError(INTERNAL_ERROR, f"cannot start {command!r}: {error.strerror}") from error
        self._made += 1
        limit = at(params, "outputByteLimit")
        terminal = EditorTerminal(
            f"term-{self._made}", process, limit if isinstance(limit, int) else None, self._on_output
        )
        self.open[terminal.id] = terminal
        tasks.start_soon(terminal.run)
        return {"terminalId": terminal.id}

    def _find(self, params: JsonObject) -> EditorTerminal:
        terminal_id = text_at(params, "terminalId")
        if terminal_id not in self.open:
            raise JsonRpcError(INVALID_PARAMS, f"unknown or released terminal {terminal_id!r}")
        return self.open[terminal_id]


def _exit_status(code: int) -> JsonObject:
    if code < 0:
        return {"exitCode": None, "signal": signal.Signals(-code).name}
    return {"exitCode": code, "signal": None}
