"""Where servers perform: a Connection in the background, a clock nobody waits for, and who is left afterwards."""

import os
import py_compile
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import psutil

import acp_agent.mcp.client_session
import acp_agent.mcp.transports  # noqa: F401 - likewise
from acp_agent.core.errors import Refused, ToolError, ToolFailure
from acp_agent.core.mcp import HttpServer, McpDefinition, McpOrigin, McpReply, McpServer, McpState, StdioServer
from acp_agent.core.types import JsonObject
from acp_agent.mcp.connection import ServerConnection
from acp_agent.workspace.processes.program import ProgramStart
from acp_agent.workspace.processes.table import MARK
from acp_agent.workspace.sandbox.sandbox import SessionSandbox

HOSTILE = py_compile.compile(str(Path(__file__).with_name("hostile.py")), doraise=True) or ""
"""The program hostile.py, compiled. Tests start it 130 times, and to compile it takes a third of a start."""
HEALTH = 30.0
"""The pause between signs of life; nobody else pauses for as long as exactly this."""


class Naps:
    """A clock: every pause is noted and over soon, but for health checks, which wait for `lap`."""

    def __init__(self) -> None:
        self.taken: list[float] = []
        self._lap = anyio.Event()
        self._asleep = anyio.Event()
        self._napped = anyio.Event()

    async def sleep(self, seconds: float) -> None:
        self.taken.append(seconds)
        napped, self._napped = self._napped, anyio.Event()
        napped.set()
        if seconds == HEALTH:
            self._asleep.set()
            await self._lap.wait()
        elif seconds < 0.5:  # what slows a flood down is real, or the flood would be too
            await anyio.sleep(seconds / 10)
        else:
            await anyio.lowlevel.checkpoint()

    async def lap(self) -> None:
        """Let the health check that is waiting, or the next one to, go on."""
        await self._asleep.wait()
        lap, self._lap, self._asleep = self._lap, anyio.Event(), anyio.Event()
        lap.set()

    async def napped(self) -> None:
        """Wait until somebody takes another pause."""
        await self._napped.wait()

    def waits(self) -> list[float]:
        """Pauses between tries."""
        return [seconds for seconds in self.taken if 0.5 < seconds < HEALTH]


class Stage:
    """A connection, and every change it told of."""

    def __init__(self, server: McpServer, contain: Callable[[], SessionSandbox] | None = None, **more) -> None:
        self.naps = Naps()
        self.changes: list[tuple[McpState, str]] = []
        self._event = anyio.Event()
        sleep = self.naps.sleep
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": os.environ["HOME"] if contain else "/home/fake",
            "LC_ALL": "C.UTF-8",
            "FAKE_API_KEY": "fake-key",
        }
        self.connection = ServerConnection(
            server, **{"changed": self._changed, "start": ProgramStart(environment, contain), "sleep": sleep, **more}
        )

    def _changed(self) -> None:
        self.changes.append((self.connection.state, self.connection.problem))
        event, self._event = self._event, anyio.Event()
        event.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.move_on_after(20):
            while not condition():
                await self._event.wait()
            return
        raise TimeoutError(f"in vain waited for; seen: {self.changes}")

    async def reach(self, state: McpState) -> str:
        """Wait for a state; gives the problem there is in it."""
        await self.until(lambda: self.connection.state is state)
        return self.connection.problem

    def names(self) -> list[str]:
        return [definition.name for definition in self.connection.definitions()]

    def definition(self, tool: str = "echo") -> McpDefinition:
        """A tool as it is listed now; one that nobody lists, where there is no such tool."""
        found = (each for each in self.connection.definitions() if each.name == tool)
        return next(found, McpDefinition(tool, "", {}))

    async def reply(self, arguments: JsonObject, tool: str = "echo") -> McpReply:
        return await self.connection.call(self.definition(tool), arguments)

    async def call(self, x: str = "") -> str:
        return (await self.reply({"x": x})).text

    async def failure(self, x: str = "", definition: McpDefinition | None = None) -> ToolFailure:
        arguments: JsonObject = {"x": x}
        try:
            reply = await self.connection.call(definition or self.definition(), arguments)
        except (ToolError, Refused) as error:
            return error.failure
        if reply.failure is not None:
            return reply.failure
        raise AssertionError(f"the call went well: {reply}")


def stdio(behaviour: str, state: Path | None = None, **more) -> McpServer:
    """A server of tests/mcp/hostile.py."""
    arguments = ("-I", "-S", "-B", HOSTILE, behaviour, *((str(state),) if state else ()))
    reach = StdioServer(sys.executable, arguments, **{key: more.pop(key) for key in ("env", "cwd") if key in more})
    return McpServer("hostile", reach, McpOrigin.CONFIG, **more)


def http(port: int, path: str = "/mcp", **more) -> McpServer:
    """A server on this machine."""
    reach = HttpServer(f"http://127.0.0.1:{port}{path}", more.pop("headers", ()), allow_private=True)
    return McpServer("hostile", reach, McpOrigin.CONFIG, **more)


@asynccontextmanager
async def on_stage(server: McpServer, **more) -> AsyncGenerator[Stage]:
    """Run a connection; leaving closes it, which must be quick and leave no process."""
    stage = Stage(server, **more)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.connection.run)
        yield stage
        with anyio.fail_after(10):
            stage.connection.close()
            await stage.until(lambda: stage.connection.state in {McpState.CLOSED, McpState.FAILED})
    assert left_over() == []


def left_over() -> list[str]:
    """Processes of servers that are still there."""
    found: list[str] = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.environ().get(MARK, "").startswith(f"{os.getpid()}."):
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found
