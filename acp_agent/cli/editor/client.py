"""The editor: it drives the agent, serves the file and terminal methods, and asks its user for permissions."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
from anyio import Path
from anyio.abc import Process, TaskGroup

from acp_agent.cli.editor.connection import AgentConnection, AgentGone, connected, open_agent
from acp_agent.cli.editor.frames import JsonRpcError, RecordedFrame, Recording, at, text_at
from acp_agent.cli.editor.terminals import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    RESOURCE_NOT_FOUND,
    EditorTerminals,
    OnTerminalOutput,
)
from acp_agent.core.types import Json, JsonObject


async def read_text_file(params: JsonObject) -> Json:
    """Return the result of `fs/read_text_file`: `limit` lines from the 1-based `line` on. Raises JsonRpcError."""
    path = _absolute(params)
    try:
        text = (await path.read_bytes()).decode("utf-8")
    except FileNotFoundError as error:
        raise JsonRpcError(RESOURCE_NOT_FOUND, f"no such file: {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise JsonRpcError(INTERNAL_ERROR, f"cannot read {path}: {error}") from error
    line, limit = at(params, "line"), at(params, "limit")
    first = line - 1 if isinstance(line, int) else 0
    lines = text.splitlines(keepends=True)[max(first, 0) :]
    return {"content": "".join(lines[:limit] if isinstance(limit, int) else lines)}


async def write_text_file(params: JsonObject) -> Json:
    """Serve `fs/write_text_file`. A missing file and its folders are created. Raises JsonRpcError."""
    path = _absolute(params)
    try:
        await path.parent.mkdir(parents=True, exist_ok=True)
        await path.write_bytes(text_at(params, "content").encode("utf-8"))
    except OSError as error:
        raise JsonRpcError(INTERNAL_ERROR, f"cannot write {path}: {error.strerror}") from error
    return {}


def _absolute(params: JsonObject) -> Path:
    path = Path(text_at(params, "path"))
    if not path.is_absolute():
        raise JsonRpcError(INVALID_PARAMS, f"path must be absolute: {str(path)!r}")
    return path


Decide = Callable[[JsonObject], Awaitable[str | None]]
"""The user's answer to the parameters of `session/request_permission`: an optionId, or None to cancel the question."""

EVERYTHING: JsonObject = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}
"""The capabilities of an editor with files and terminals."""


def ignore_output(terminal_id: str, text: str) -> None:
    """Ignore the output of a terminal."""


class Editor:
    """An ACP client. Methods that its `capabilities` do not offer get the error -32601.

    command       the command that starts the agent
    environment   the environment of the agent and of the terminals
    cwd           the folder in which the agent starts, which need not be a session's cwd
    decide        answers permission questions
    on_output     is called with the output of terminals as it is printed
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        cwd: str,
        decide: Decide,
        capabilities: JsonObject | None = None,
        on_output: OnTerminalOutput = ignore_output,
        recording: Recording | None = None,
    ) -> None:
        self.command = command
        self.environment = environment
        self.cwd = cwd
        self.decide = decide
        self.capabilities = EVERYTHING if capabilities is None else capabilities
        self.recording = recording or Recording()
        self.terminals = EditorTerminals(environment, on_output)
        self._asking: dict[str, set[anyio.CancelScope]] = {}
        self._connection: AgentConnection | None = None
        self._terminal_tasks: TaskGroup | None = None

    @property
    def agent(self) -> AgentConnection:
        """The connection to the running agent."""
        assert self._connection is not None, "the editor is not running"
        return self._connection

    @property
    def log(self) -> str:
        """The end of the agent's stderr."""
        return "" if self._connection is None else self._connection.stderr

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Start the agent. End it and every terminal on exit."""
        async with anyio.create_task_group() as self._terminal_tasks:
            process = await self.open_agent()
            async with connected(process, self.recording, self.answer) as self._connection:
                yield
            self._terminal_tasks.cancel_scope.cancel()

    async def open_agent(self) -> Process:
        """Start the agent. Raises OSError if it cannot be started."""
        return await open_agent(self.command, self.environment, self.cwd)

    async def initialize(self) -> Json:
        """Send `initialize` and return the agent's answer."""
        return await self.agent.request(
            "initialize",
            {
                "protocolVersion": 1,
                "clientCapabilities": self.capabilities,
                "clientInfo": {"name": "acp-agent-editor", "version": "1"},
            },
        )

    async def new_session(self, cwd: str) -> str:
        """Create a session in a folder and return its id."""
        return text_at(await self.agent.request("session/new", {"cwd": cwd, "mcpServers": []}), "sessionId")

    async def prompt(self, session_id: str, text: str) -> str:
        """Send a prompt, wait for the end of the turn and return the stop reason."""
        block: JsonObject = {"type": "text", "text": text}
        answer = await self.agent.request("session/prompt", {"sessionId": session_id, "prompt": [block]})
        return text_at(answer, "stopReason")

    async def cancel(self, session_id: str) -> None:
        """Cancel the turn and answer its open questions with `cancelled`, as the protocol demands of clients."""
        await self.agent.notify("session/cancel", {"sessionId": session_id})
        for scope in self._asking.get(session_id, ()):
            scope.cancel()

    async def answer(self, request: RecordedFrame) -> None:
        """Answer one request of the agent."""
        message: JsonObject = {"jsonrpc": "2.0", "id": request.message["id"]}
        try:
            message["result"] = await self.serve(request.method, request.params)
        except JsonRpcError as error:
            message["error"] = {"code": error.code, "message": error.message}
        try:
            await self.agent.send(message)
        except AgentGone:
            return  # there is no agent to send it to

    async def serve(self, method: str, params: JsonObject) -> Json:
        """Return the result of one request of the agent. Raises JsonRpcError."""
        if not self.offers(method):
            raise JsonRpcError(-32601, f"this editor does not offer {method}")
        match method:
            case "fs/read_text_file":
                return await read_text_file(params)
            case "fs/write_text_file":
                return await write_text_file(params)
            case "session/request_permission":
                return await self._ask(params)
            case _:
                assert self._terminal_tasks is not None
                return await self.terminals.serve(method, params, self._terminal_tasks)

    def offers(self, method: str) -> bool:
        """Return True if the capabilities include a method."""
        files = self.capabilities.get("fs")
        match method:
            case "session/request_permission":
                return True
            case "fs/read_text_file":
                return isinstance(files, dict) and files.get("readTextFile") is True
            case "fs/write_text_file":
                return isinstance(files, dict) and files.get("writeTextFile") is True
            case _:
                return method.startswith("terminal/") and self.capabilities.get("terminal") is True

    async def _ask(self, params: JsonObject) -> Json:
        chosen: str | None = None
        waiting = self._asking.setdefault(text_at(params, "sessionId"), set())
        with anyio.CancelScope() as scope:
            waiting.add(scope)
            try:
                chosen = await self.decide(params)
            finally:
                waiting.discard(scope)
        if chosen is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": chosen}}
