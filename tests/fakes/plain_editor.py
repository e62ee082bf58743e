"""An ACP client on JSON alone, without the SDK that `run` and `demo` are on: a test can send and answer anything.

It serves files and terminals honestly, records every message, and offers what its `capabilities` say.
"""

import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import acp
import anyio
from anyio.abc import Process

from acp_agent.cli.agent_process import AgentGone, Direction, RecordedFrame, Recording, end_agent, open_agent, text_at
from acp_agent.cli.editor import DemoEditor, EditorTerminals, read_lines, write_file

_LOG_KEPT = 64 * 1024  # bytes
EVERYTHING = DemoEditor.capabilities


class LiveRecording(Recording):
    """A recording that a test can wait for."""

    def __init__(self, watch: Callable[[RecordedFrame], None] | None = None) -> None:
        super().__init__(watch)
        self._grown = anyio.Event()

    def add(self, frame: RecordedFrame) -> None:
        super().add(frame)
        self._grown.set()
        self._grown = anyio.Event()

    async def until(self, wanted: Callable[[RecordedFrame], bool], start: int = 0) -> int:
        """Wait for the first message from index `start` on that `wanted` accepts, and return its index."""
        while True:
            for index in range(start, len(self.frames)):
                if wanted(self.frames[index]):
                    return index
            start = len(self.frames)
            await self._grown.wait()

    def updates(self, kind: str = "") -> list[dict[str, Any]]:
        """Return the agent's session updates in order, all of them or those of one `kind`."""
        found = [frame.update for frame in self.frames if frame.update]
        return [update for update in found if not kind or update.get("sessionUpdate") == kind]


class JsonRpcError(Exception):
    """A JSON-RPC error: the answer to a request of ours, or raised as the answer to a request of the agent."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{message} ({code})" if data is None else f"{message} ({code}): {data}")
        self.code = code
        self.message = message
        self.data = data


@dataclass
class _Pending:
    answered: anyio.Event = field(default_factory=anyio.Event)
    message: dict[str, Any] = field(default_factory=dict)

    def resolve(self, message: dict[str, Any]) -> None:
        self.message = message
        self.answered.set()


class AgentConnection:
    """JSON-RPC with a running agent. Each request of the agent is given to `on_request` in a task of its own."""

    def __init__(
        self, process: Process, recording: Recording, on_request: Callable[[RecordedFrame], Awaitable[None]]
    ) -> None:
        self.pid = process.pid
        self.recording = recording
        self.gone = anyio.Event()
        self._reading = anyio.CancelScope()
        self.requests = 0
        self._process = process
        self._on_request = on_request
        self._pending: dict[int, _Pending] = {}
        self._rest = bytearray()  # of a message that was not read to its end
        self._sending = anyio.Lock()
        self._log = bytearray()

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    @property
    def log(self) -> str:
        """The end of the agent's stderr."""
        return self._log.decode("utf-8", "replace")

    async def request(self, method: str, params: Any) -> Any:
        """Send a request and return its result. Raises JsonRpcError or AgentGone."""
        if self.gone.is_set():
            raise AgentGone(f"the agent ended before {method}")
        self.requests += 1
        number, pending = self.requests, _Pending()
        self._pending[number] = pending
        try:
            await self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            await pending.answered.wait()
        finally:
            del self._pending[number]
        error = pending.message.get("error")
        if isinstance(error, dict):
            raise JsonRpcError(error.get("code", 0), text_at(error, "message"), error.get("data"))
        if "result" not in pending.message:
            raise AgentGone(f"no answer to {method}")
        return pending.message["result"]

    async def notify(self, method: str, params: Any) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def send(self, message: dict[str, Any]) -> None:
        """Write one message and record it. Raises AgentGone."""
        async with self._sending:
            self.recording.add(RecordedFrame(Direction.TO_AGENT, message, time.monotonic()))
            await self._write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    async def send_bytes(self, data: bytes) -> None:
        """Write any bytes, which are not recorded. Raises AgentGone."""
        async with self._sending:
            await self._write(data)

    async def close_stdin(self, within: float = 0) -> None:
        """Close the agent's stdin: behind a message that is being written if that takes so long, else in its middle."""
        assert self._process.stdin is not None
        with anyio.move_on_after(within):
            async with self._sending:
                pass
        await self._process.stdin.aclose()

    async def stop_reading(self) -> None:
        """Close our end of the agent's stdout, so that its writes fail (EPIPE)."""
        assert self._process.stdout is not None
        self._reading.cancel()
        await self.gone.wait()
        await self._process.stdout.aclose()

    async def wait(self) -> int:
        """Wait for the agent's end and return its exit code."""
        return await self._process.wait()

    async def read(self) -> None:
        """Read the agent's messages until it closes stdout. Fails on a line that is no message."""
        assert self._process.stdout is not None
        try:
            with self._reading:
                async with anyio.create_task_group() as answering:
                    async for chunk in self._process.stdout:
                        self._rest += chunk
                        if b"\n" not in chunk:
                            continue
                        *lines, self._rest = self._rest.split(b"\n")
                        for line in lines:
                            frame = self._take(line)
                            if frame.is_request:
                                answering.start_soon(self._on_request, frame)
                    answering.cancel_scope.cancel()
        finally:
            self.gone.set()
            for pending in self._pending.values():
                pending.answered.set()

    async def read_log(self) -> None:
        assert self._process.stderr is not None
        async for chunk in self._process.stderr:
            self.take_log(chunk)

    def take_log(self, chunk: bytes) -> None:
        """Append to the log."""
        self._log += chunk
        del self._log[:-_LOG_KEPT]

    @property
    def is_idle(self) -> bool:
        """True if no request of ours is open, and the agent has not stopped in the middle of a message."""
        return not self._pending and not self._rest

    def _take(self, line: bytearray) -> RecordedFrame:
        message = json.loads(line)
        assert isinstance(message, dict), line[:200]
        frame = RecordedFrame(Direction.FROM_AGENT, message, time.monotonic())
        self.recording.add(frame)
        number = message.get("id")
        if not frame.method and isinstance(number, int) and number in self._pending:
            self._pending[number].resolve(message)
        return frame

    async def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise AgentGone("the agent does not read any more") from error


class PlainEditor:
    """An editor whose `decide` answers permission questions by an optionId, or with None to cancel them.

    `command` starts the agent in `cwd`, which need not be a session's cwd. The agent and the commands of terminals get
    `environment`.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        cwd: str,
        decide: Callable[[dict[str, Any]], Awaitable[str | None]],
        capabilities: dict[str, Any] = EVERYTHING,
    ) -> None:
        self.command = command
        self.environment = environment
        self.cwd = cwd
        self.decide = decide
        self.capabilities = capabilities
        self.name = "acp-agent-editor"
        self.recording = LiveRecording()
        self._asking: dict[str, set[anyio.CancelScope]] = {}
        self._connection: AgentConnection | None = None
        self.terminals: EditorTerminals | None = None

    @property
    def agent(self) -> AgentConnection:
        """The connection to the running agent."""
        assert self._connection is not None, "the editor is not running"
        return self._connection

    @property
    def log(self) -> str:
        """The end of the agent's stderr."""
        return "" if self._connection is None else self._connection.log

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Start the agent. End it and every terminal on exit."""
        async with anyio.create_task_group() as terminal_tasks:
            self.terminals = EditorTerminals(terminal_tasks, self.environment, lambda _terminal, _text: None)
            process = await self.open_agent()
            async with process, anyio.create_task_group() as tasks:
                self._connection = AgentConnection(process, self.recording, self.answer)
                tasks.start_soon(self._connection.read)
                tasks.start_soon(self._connection.read_log)
                try:
                    yield
                finally:
                    await self.end_agent(process)
                    tasks.cancel_scope.cancel()
            terminal_tasks.cancel_scope.cancel()

    async def open_agent(self) -> Process:
        return await open_agent(self.command, self.environment, self.cwd)

    async def end_agent(self, process: Process) -> None:
        await end_agent(process)

    async def initialize(self) -> Any:
        """Send `initialize` and return the agent's answer."""
        return await self.agent.request(
            "initialize",
            {
                "protocolVersion": 1,
                "clientCapabilities": self.capabilities,
                "clientInfo": {"name": self.name, "version": "1"},
            },
        )

    async def new_session(self, cwd: str) -> str:
        """Create a session in a folder and return its id."""
        return text_at(await self.agent.request("session/new", {"cwd": cwd, "mcpServers": []}), "sessionId")

    async def prompt(self, session_id: str, text: str) -> str:
        """Send a prompt, wait for the end of the turn and return the stop reason."""
        block = {"type": "text", "text": text}
        answer = await self.agent.request("session/prompt", {"sessionId": session_id, "prompt": [block]})
        return text_at(answer, "stopReason")

    async def cancel(self, session_id: str) -> None:
        """Cancel the turn and answer its open questions with `cancelled`, as the protocol demands of clients."""
        await self.agent.notify("session/cancel", {"sessionId": session_id})
        for scope in self._asking.get(session_id, ()):
            scope.cancel()

    async def answer(self, request: RecordedFrame) -> None:
        """Answer one request of the agent."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": request.message["id"]}
        try:
            message["result"] = await self.serve(request.method, request.params)
        except acp.RequestError as error:
            message["error"] = {"code": error.code, "message": str(error)}
        try:
            await self.agent.send(message)
        except AgentGone:
            return  # there is no agent to send it to

    async def serve(self, method: str, params: dict[str, Any]) -> Any:
        """Return the result of one request of the agent. Raises acp.RequestError."""
        if not self.offers(method):
            raise acp.RequestError(-32601, f"this editor does not offer {method}")
        match method:
            case "fs/read_text_file":
                return {"content": await read_lines(params["path"], params.get("line"), params.get("limit"))}
            case "fs/write_text_file":
                await write_file(params["path"], params["content"])
                return {}
            case "session/request_permission":
                return await self._ask(params)
            case _:
                return await self._serve_terminal(method, params)

    def offers(self, method: str) -> bool:
        """Return True if the capabilities include a method."""
        files = self.capabilities.get("fs", {})
        match method:
            case "session/request_permission":
                return True
            case "fs/read_text_file":
                return files.get("readTextFile") is True
            case "fs/write_text_file":
                return files.get("writeTextFile") is True
            case _:
                return method.startswith("terminal/") and self.capabilities.get("terminal") is True

    async def _serve_terminal(self, method: str, params: dict[str, Any]) -> Any:
        assert self.terminals is not None
        if method == "terminal/create":
            words, extra = params.get("args", []), {pair["name"]: pair["value"] for pair in params.get("env", [])}
            limit = params.get("outputByteLimit")
            created = await self.terminals.create([params["command"], *words], params.get("cwd"), extra, limit)
            return {"terminalId": created.id}
        terminal = self.terminals.find(params["terminalId"])
        match method:
            case "terminal/output":
                return terminal.output()
            case "terminal/wait_for_exit":
                return await terminal.wait()
            case "terminal/kill":
                terminal.kill()
            case "terminal/release":
                self.terminals.release(terminal.id)
            case _:
                raise acp.RequestError(-32601, f"unknown method {method}")
        return {}

    async def _ask(self, params: dict[str, Any]) -> Any:
        chosen: str | None = None
        waiting = self._asking.setdefault(params["sessionId"], set())
        with anyio.CancelScope() as scope:
            waiting.add(scope)
            try:
                chosen = await self.decide(params)
            finally:
                waiting.discard(scope)
        if chosen is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": chosen}}
