"""The MCP servers of one session: connections run in the background, their tools join the others when they are ready.

Nothing of the client is loaded before a server is named (E6). A server that fails costs its own tools alone.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Protocol, TypeAlias

import anyio

from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.events import Notice, Severity
from acp_agent.core.mcp import McpConnection, McpDefinition, McpOrigin, McpServer, McpState
from acp_agent.core.ports import Invocation
from acp_agent.core.types import McpSubject, ToolCall, ToolSpec
from acp_agent.gates.pins import PinBook, server_identity
from acp_agent.gates.trust_level import TrustLevel
from acp_agent.log import Log
from acp_agent.store.mcp_pins import McpPins
from acp_agent.tools.mcp_tool import McpTool, server_slug, tool_names
from acp_agent.tools.registry import Registry
from acp_agent.tools.visible import visible

_PATIENCE = 2.0
"""Seconds the first turn waits for servers that are starting: a model that sees no tool says it has none."""

_log = Log(__name__)

Background: TypeAlias = Callable[[Callable[[], Awaitable[None]]], object]
"""Starts a task and does not wait for it."""


class RunningConnection(McpConnection, Protocol):
    """A connection that can be set going."""

    async def run(self) -> None:
        """Connect and serve until closed or given up. Raises nothing but cancellation."""
        ...

    def close(self) -> None:
        """Have `run` return soon, everything of the server ended."""
        ...


Connect: TypeAlias = Callable[[McpServer, Callable[[], None]], RunningConnection]
"""Makes the connection to a server; the second argument is told whenever something about it has changed."""


class _Served:
    """One server: its connection, the tools it has now, and what the user has been told of it."""

    def __init__(self, connection: RunningConnection) -> None:
        self.connection = connection
        self.tools: dict[str, McpTool] = {}
        self.was_ready = False
        self.told: set[str] = set()

    @property
    def line(self) -> str:
        """Name, state, number of tools, problem."""
        connection, count = self.connection, len(self.tools)
        tools = f", {count} tool{'' if count == 1 else 's'}" if connection.state is McpState.READY else ""
        problem = f": {connection.problem}" if connection.problem else ""
        return f"{visible(connection.server.name)} ({connection.server.origin}) {connection.state}{tools}{problem}"


class SessionServers:
    """Starts servers and keeps the names of their tools.

    pins         what the user has let run
    background   runs the connections
    tell         told what the user should hear of
    """

    def __init__(self, pins: McpPins, background: Background, tell: Callable[[Notice], None], connect: Connect) -> None:
        self._background = background
        self._tell = tell
        self._connect = connect
        self._identities: dict[str, str] = {}
        self.book = PinBook(pins, self._identities)
        self._served: dict[str, _Served] = {}
        self._known: dict[str, McpTool] = {}
        self._moved = anyio.Event()
        self._begun = False

    def start(self, servers: Iterable[McpServer]) -> None:
        """Start servers, in order of precedence: of two with one name the first counts, and the other is told."""
        for server in servers:
            taken = next((name for name in self._served if _same(name, server.name)), None)
            if taken is not None:
                told = f"the MCP server {server.name!r} ({server.origin}) is not started: {taken!r} has its name"
                self._tell(Notice(Severity.WARNING, told))
                continue
            self._identities[server.name] = server_identity(server)
            served = _Served(self._connect(server, partial(self._changed, server.name)))
            self._served[server.name] = served
            self._background(partial(_run, served.connection))

    def close(self) -> None:
        """End all of them; what their programs leave behind is cleared away in the background."""
        for served in self._served.values():
            served.connection.close()

    async def settled(self) -> None:
        """Give servers that are starting a moment, before the first turn."""
        begun, self._begun = self._begun, True
        if begun:
            return
        with anyio.move_on_after(_PATIENCE):
            while any(served.connection.state is McpState.STARTING for served in self._served.values()):
                await self._moved.wait()

    def joining(self) -> bool:
        """Whether tools of a server that is starting may still come."""
        return any(served.connection.state is McpState.STARTING for served in self._served.values())

    def status(self) -> Sequence[str]:
        """One line a server, for /status and /mcp; none without servers."""
        return [f"MCP server {served.line}" for served in self._served.values()]

    # ------------------------------------------------------------------------------------ tools

    def specs(self) -> Sequence[ToolSpec]:
        """The tools there are now. One that has changed since it was let run says only that (security.md 2.8)."""
        every = (tool for served in self._served.values() for tool in served.tools.values())
        return [
            tool.withheld() if self.book.change(tool.definition.name, tool.spec()) else tool.spec() for tool in every
        ]

    def tool(self, name: str) -> McpTool | None:
        """The tool the model means, whatever the case; also one whose server is gone. Raises ToolError: taken back."""
        known = self._known.get(name.lower())
        if known is None:
            return None
        served = self._served[known.connection.server.name]
        if known.connection.state is McpState.READY and known.name not in served.tools:
            told = f"{known.name}: its server has taken this tool back"
            raise ToolError(ToolErrorCategory.TOOL_NOT_FOUND, told)
        return known

    def consent(self, invocation: Invocation) -> str:
        """What a lasting yes to a tool of a server is bound to; "" for other tools."""
        tools = [each.tool for each in invocation.subjects if isinstance(each, McpSubject)]
        return self.book.consent(tools[0], invocation.spec) if tools else ""

    def trust(self, invocation: Invocation) -> TrustLevel:
        """How far a tool of a server is trusted (A25.2).

        One the editor named is untrusted until the user has let it run, as it is now: then it is asked about as any
        other tool is. Servers of the user's own configuration, and those he was asked about, are his choice.
        """
        served = self._served.get(invocation.spec.server)
        tools = [each.tool for each in invocation.subjects if isinstance(each, McpSubject)]
        if served is None or not tools:
            return TrustLevel.UNTRUSTED
        chosen = served.connection.server.origin is not McpOrigin.EDITOR
        if chosen or all(self.book.pinned(tool, invocation.spec) for tool in tools):
            return TrustLevel.PROVISIONAL
        return TrustLevel.UNTRUSTED

    def _changed(self, server: str) -> None:
        served = self._served.get(server)
        if served is not None:
            self._name_tools(served)
            self._tell_news(served)
        moved, self._moved = self._moved, anyio.Event()
        moved.set()

    def _name_tools(self, served: _Served) -> None:
        connection = served.connection
        definitions = {each.name: each for each in connection.definitions()}
        others = [name for name in self._served if name != connection.server.name]
        names = tool_names(connection.server.name, [*definitions], others)
        served.tools = {
            names[tool]: self._unchanged(names[tool], connection, definition)
            for tool, definition in definitions.items()
        }
        self._known |= {name.lower(): tool for name, tool in served.tools.items()}

    def _unchanged(self, name: str, connection: RunningConnection, definition: McpDefinition) -> McpTool:
        """The tool there was, where nothing about it has changed: prompt caching wants the same bytes."""
        known = self._known.get(name.lower())
        same = known is not None and known.connection is connection and known.definition == definition
        return known if known is not None and same else McpTool(name, definition, connection)

    def _tell_news(self, served: _Served) -> None:
        """Tell what the user should hear of, once."""
        news = _news(served, begun=self._begun)
        served.was_ready = served.was_ready or served.connection.state is McpState.READY
        if news is not None and news.text not in served.told:
            served.told.add(news.text)
            self._tell(news)


def _news(served: _Served, *, begun: bool) -> Notice | None:
    connection = served.connection
    name, problem = f"the MCP server {connection.server.name!r}", connection.problem
    match connection.state:
        case McpState.READY if problem:
            return Notice(Severity.WARNING, f"{name}: {problem}")
        case McpState.READY if begun and not served.was_ready:
            return Notice(Severity.INFO, f"{name} is ready: {', '.join(served.tools) or 'it has no tools'}")
        case McpState.WAITING if served.was_ready:
            return Notice(Severity.WARNING, f"{name} is lost and will be tried again: {problem}")
        case McpState.FAILED:
            return Notice(Severity.WARNING, f"{name} cannot be used: {problem}")
        case _:
            return None


class GrowingCatalogue:
    """A registry, and behind its tools those of the servers that are there."""

    def __init__(self, registry: Registry, servers: SessionServers) -> None:
        self._registry = registry
        self._servers = servers

    def specs(self) -> Sequence[ToolSpec]:
        """Every tool there is now."""
        return (*self._registry.specs(), *self._servers.specs())

    async def understand(self, call: ToolCall, files: FileSystem) -> Invocation:
        """Raises ToolError. A tool whose server is gone is understood; its call fails."""
        tool = self._servers.tool(call.name)
        return await (self._registry.understand(call, files) if tool is None else tool.understand(call))


def _same(one: str, other: str) -> bool:
    return server_slug(one).lower() == server_slug(other).lower()


async def _run(connection: RunningConnection) -> None:
    try:
        await connection.run()
    except Exception:  # noqa: BLE001 - top of a task of its own: a bug costs the server, not the agent
        _log.error("MCP connection crashed", exc_info=True, server=connection.server.name)
