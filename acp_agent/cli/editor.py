"""The editors of `run` and `demo`: the client side of the ACP SDK.

The editor of `demo` serves the files and the terminals of this machine to the agent. The editor of `run` serves none.
"""

import codecs
import os
import pathlib
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple, Self, TypeVar, cast

import acp
import anyio
from acp.schema import ClientCapabilities, EnvVariable, Implementation, PermissionOption, PromptResponse, ToolCallUpdate
from anyio import Path
from anyio.abc import Process, TaskGroup

from acp_agent.cli.agent_process import AgentGone, AgentProcess, AgentRefused
from acp_agent.core.types import Json, JsonObject
from acp_agent.workspace.processes.table import open_process

_T = TypeVar("_T")

Decide = Callable[[JsonObject], Awaitable[str | None]]
"""The user's answer to the parameters of `session/request_permission`: an optionId, or None to cancel the question."""


class ListedSession(NamedTuple):
    """A session as `session/list` describes it. `title` is "" if it has none."""

    id: str
    cwd: str
    title: str


class Editor:
    """An ACP client of a running agent, without files and terminals. Leaving its context ends the agent.

    The SDK calls the methods that are named as those of `acp.Client`, and refuses requests for the missing ones.
    """

    capabilities: ClassVar[JsonObject] = {}

    def __init__(self, agent: AgentProcess, decide: Decide) -> None:
        self._agent = agent
        self._decide = decide
        self._asking: dict[str, set[anyio.CancelScope]] = {}
        self._connection = acp.connect_to_agent(cast("acp.Client", self), agent)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self._agent.end()  # before the connection is closed, so that the last messages are read
            await self._connection.close()

    async def initialize(self, *, shows_output: bool = False) -> None:
        """Send `initialize`. `shows_output` asks the agent for the output of the commands that it runs, as it comes."""
        offered = self.capabilities | ({"_meta": {"terminal_output": True}} if shows_output else {})
        capabilities = ClientCapabilities.model_validate(offered)
        info = Implementation(name="acp-agent-editor", version="1")
        await self._answer("initialize", self._connection.initialize(acp.PROTOCOL_VERSION, capabilities, info))

    async def new_session(self, cwd: str) -> str:
        """Create a session in a folder and return its id."""
        return (await self._answer("session/new", self._connection.new_session(cwd))).session_id

    async def resume_session(self, session_id: str, cwd: str) -> None:
        """Continue a stored session in a folder. What was said before is not shown again."""
        await self._answer("session/resume", self._connection.resume_session(session_id=session_id, cwd=cwd))

    async def last_session(self, cwd: str) -> ListedSession | None:
        """Return the session of a folder that was used last, or None if there is none."""
        found, _ = await self._page_of_sessions(cwd=cwd)
        return found[0] if found else None

    async def sessions(self) -> list[ListedSession]:
        """Return all sessions. The last used come first."""
        sessions, cursor = await self._page_of_sessions()
        while cursor is not None:
            page, cursor = await self._page_of_sessions(cursor=cursor)
            sessions += page
        return sessions

    async def _page_of_sessions(
        self, *, cwd: str | None = None, cursor: str | None = None
    ) -> tuple[list[ListedSession], str | None]:
        page = await self._answer("session/list", self._connection.list_sessions(cwd=cwd, cursor=cursor))
        return [ListedSession(each.session_id, each.cwd, each.title or "") for each in page.sessions], page.next_cursor

    async def extension(self, name: str, params: JsonObject) -> JsonObject:
        """Send an extension request, whose method is `name` after an underscore, and return its result."""
        return await self._answer(f"_{name}", self._connection.ext_method(name, params))

    async def prompt(self, session_id: str, text: str, paths: Sequence[str] = ()) -> PromptResponse:
        """Send a prompt with links to files and folders, and wait for the end of the turn."""
        links = [acp.resource_link_block(os.path.basename(path) or path, pathlib.Path(path).as_uri()) for path in paths]
        return await self._answer("session/prompt", self._connection.prompt(session_id, [acp.text_block(text), *links]))

    async def cancel(self, session_id: str) -> None:
        """Cancel the turn and answer its open questions with `cancelled`, as the protocol demands of clients."""
        await self._answer("session/cancel", self._connection.cancel(session_id))
        for scope in self._asking.get(session_id, ()):
            scope.cancel()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_meta: object
    ) -> JsonObject:
        """Answer a permission question of the agent."""
        chosen: str | None = None
        waiting = self._asking.setdefault(session_id, set())
        with anyio.CancelScope() as scope:
            waiting.add(scope)
            try:
                shown: list[Json] = [_json(option) for option in options]
                chosen = await self._decide({"sessionId": session_id, "toolCall": _json(tool_call), "options": shown})
            except OSError as error:  # the user cannot see the question
                await self._agent.fail(error)
            finally:
                waiting.discard(scope)
        if chosen is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": chosen}}

    async def _answer(self, method: str, request: Awaitable[_T]) -> _T:
        """Return the agent's answer. Raises AgentGone, AgentRefused, or the OSError of a screen that is gone."""
        try:
            return await request
        except acp.RequestError as error:
            data = "" if error.data is None else f": {error.data}"
            raise AgentRefused(f"{error} ({error.code}){data}") from error
        except ConnectionError as error:
            raise self._agent.failure or AgentGone(f"no answer to {method}") from error
        except ValueError as error:  # the SDK's models refuse it
            raise AgentGone(f"the answer to {method} is not ACP: {error}") from error


def _json(model: ToolCallUpdate | PermissionOption) -> Json:
    """Return the JSON that the agent sent."""
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
RESOURCE_NOT_FOUND = -32002

OnTerminalOutput = Callable[[str, str], None]
"""A function that gets a terminal's id and the text that it just printed."""

_OUTPUT_GRACE = 0.2  # seconds to read the rest of the pipe after a command has ended


async def read_lines(path: str, line: int | None, limit: int | None) -> str:
    """Return `limit` lines of a file from the 1-based `line` on. Raises acp.RequestError."""
    try:
        text = (await _absolute(path).read_bytes()).decode("utf-8")
    except FileNotFoundError as error:
        raise acp.RequestError(RESOURCE_NOT_FOUND, f"no such file: {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise acp.RequestError(INTERNAL_ERROR, f"cannot read {path}: {error}") from error
    lines = text.splitlines(keepends=True)[max((line or 1) - 1, 0) :]
    return "".join(lines if limit is None else lines[:limit])


async def write_file(path: str, content: str) -> None:
    """Write a file. A missing file and its folders are created. Raises acp.RequestError."""
    file = _absolute(path)
    try:
        await file.parent.mkdir(parents=True, exist_ok=True)
        await file.write_bytes(content.encode("utf-8"))
    except OSError as error:
        raise acp.RequestError(INTERNAL_ERROR, f"cannot write {path}: {error.strerror}") from error


def _absolute(path: str) -> Path:
    if not os.path.isabs(path):
        raise acp.RequestError(INVALID_PARAMS, f"path must be absolute: {path!r}")
    return Path(path)


class EditorTerminal:
    """A command in its own process session, so that it is killed together with its children.

    The last `limit` bytes of its output are kept, or all of it if `limit` is None.
    """

    def __init__(self, terminal_id: str, process: Process, limit: int | None, on_output: OnTerminalOutput) -> None:
        self.id = terminal_id
        self.exit_status: JsonObject | None = None
        self._exited = anyio.Event()
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
                ended_by = signal.Signals(-code).name if code < 0 else None
                self.exit_status = {"exitCode": None if ended_by else code, "signal": ended_by}
                self._exited.set()
                tasks.cancel_scope.cancel()
            finally:
                self.kill()

    async def wait(self) -> JsonObject | None:
        """Wait for the command's end and return the result of `terminal/wait_for_exit`."""
        await self._exited.wait()
        return self.exit_status

    def output(self) -> JsonObject:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        shown: JsonObject = {
            "output": decoder.decode(bytes(self._buffer), final=self._exited.is_set()),
            "truncated": self._truncated,
        }
        if self.exit_status is not None:
            shown["exitStatus"] = self.exit_status
        return shown

    def kill(self) -> None:
        """Kill the command and all its children if it is still running."""
        if self._process.returncode is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return  # it has just ended

    async def _collect(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        assert self._process.stdout is not None
        async for chunk in self._process.stdout:
            self._on_output(self.id, decoder.decode(chunk))
            self._buffer += chunk
            if self._limit is not None and len(self._buffer) > self._limit:
                self._truncated = True
                del self._buffer[: len(self._buffer) - self._limit]
                while self._buffer and self._buffer[0] & 0xC0 == 0x80:  # the output must start with a whole character
                    del self._buffer[0]
        self._drained.set()


class EditorTerminals:
    """All terminals of an editor by id. Their commands start with `environment` and run in `tasks`."""

    def __init__(self, tasks: TaskGroup, environment: Mapping[str, str], on_output: OnTerminalOutput) -> None:
        self._tasks = tasks
        self._environment = environment
        self._on_output = on_output
        self.open: dict[str, EditorTerminal] = {}
        self._made = 0

    async def create(
        self, command: list[str], cwd: str | None, extra: Mapping[str, str], limit: int | None
    ) -> EditorTerminal:
        """Start a command with `extra` variables. Raises acp.RequestError if it cannot be started."""
        try:
            process = await open_process(
                command,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
                cwd=cwd or None,
                env={**self._environment, **extra},
                start_new_session=True,
            )
        except OSError as error:
            raise acp.RequestError(INTERNAL_ERROR, f"cannot start {command[0]!r}: {error.strerror}") from error
        self._made += 1
        terminal = EditorTerminal(f"term-{self._made}", process, limit, self._on_output)
        self.open[terminal.id] = terminal
        self._tasks.start_soon(terminal.run)
        return terminal

    def find(self, terminal_id: str) -> EditorTerminal:
        """Return a terminal. Raises acp.RequestError if there is none with this id."""
        if terminal_id not in self.open:
            raise acp.RequestError(INVALID_PARAMS, f"unknown or released terminal {terminal_id!r}")
        return self.open[terminal_id]

    def release(self, terminal_id: str) -> None:
        """Kill a terminal's command and forget the terminal. Raises acp.RequestError."""
        self.find(terminal_id).kill()
        del self.open[terminal_id]


class DemoEditor(Editor):
    """An editor with files and terminals."""

    capabilities: ClassVar[JsonObject] = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}

    def __init__(self, agent: AgentProcess, decide: Decide, terminals: EditorTerminals) -> None:
        super().__init__(agent, decide)
        self._terminals = terminals

    async def read_text_file(
        self, path: str, line: int | None = None, limit: int | None = None, **_others: object
    ) -> JsonObject:
        return {"content": await read_lines(path, line, limit)}

    async def write_text_file(self, path: str, content: str, **_others: object) -> JsonObject:
        await write_file(path, content)
        return {}

    async def create_terminal(
        self,
        command: str,
        args: list[str] | None = None,
        env: list[EnvVariable] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
        **_others: object,
    ) -> JsonObject:
        extra = {pair.name: pair.value for pair in env or ()}
        terminal = await self._terminals.create([command, *(args or ())], cwd, extra, output_byte_limit)
        return {"terminalId": terminal.id}

    async def terminal_output(self, terminal_id: str, **_others: object) -> JsonObject:
        return self._terminals.find(terminal_id).output()

    async def wait_for_terminal_exit(self, terminal_id: str, **_others: object) -> JsonObject | None:
        return await self._terminals.find(terminal_id).wait()

    async def kill_terminal(self, terminal_id: str, **_others: object) -> None:
        self._terminals.find(terminal_id).kill()

    async def release_terminal(self, terminal_id: str, **_others: object) -> None:
        self._terminals.release(terminal_id)
