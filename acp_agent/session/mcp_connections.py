"""The connections to the MCP servers of one session, and their tools.

Connections run in the background, and their tools are offered once they are ready. If the process has seen the tools of
the same server before, they are offered at once. The MCP client is loaded when the first server is started. If a server
fails, only its own tools are missing.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import anyio

from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.events import Notice, Severity
from acp_agent.core.mcp import ListedServer, McpDefinition, McpOrigin, McpServer, McpState, StdioServer
from acp_agent.core.ports import Background, Invocation
from acp_agent.core.types import McpSubject, ToolCall, ToolSpec
from acp_agent.gates.pins import PinBook, server_identity
from acp_agent.gates.rules.policy_rules import TrustLevel
from acp_agent.log import Log
from acp_agent.store.decisions import McpPins
from acp_agent.text import counted, some_of, visible
from acp_agent.tools.mcp_tool import McpTool, has_tool, server_slug, tool_names
from acp_agent.tools.registry import Registry

if TYPE_CHECKING:
    from acp_agent.mcp.connection import ServerConnection

_MOST_GONE = 64
"""The most tools per server that are remembered after the server has removed them."""
_MOST_LISTED = 20
"""The most tools of a server that a status line names."""


class ConnectedServer:
    """One server with its tools. `told` holds the notices about it that the user was shown."""

    def __init__(self, connection: "ServerConnection") -> None:
        self.connection = connection
        self.tools: dict[str, McpTool] = {}
        self.known: dict[str, McpTool] = {}  # includes removed tools, by lower-case name, the newest last
        self.was_ready = False
        self.told: set[str] = set()

    def offer(self, tools: dict[str, McpTool]) -> None:
        """Replace the tools by the server's current ones. Some removed tools are remembered, to answer their calls."""
        folded = {name.lower(): tool for name, tool in tools.items()}
        gone = [(name, tool) for name, tool in self.known.items() if name not in folded]
        ready = self.connection.state is McpState.READY
        self.known = {**dict(gone[-_MOST_GONE:] if ready else gone), **folded}
        self.tools = tools

    def line(self, changed: Callable[[McpTool], bool]) -> str:
        """Return a status line: name, state, tools by the server's own names, changed tools, and the problem."""
        connection, said = self.connection, ""
        if connection.state is McpState.READY:
            said = f", {counted(len(self.tools), 'tool')}{_listed(self.tools.values())}"
            asking = [tool for tool in self.tools.values() if changed(tool)]
            said += f"; changed, and will ask{_listed(asking)}" if asking else ""
        problem = f"{';' if said else ':'} {connection.problem}" if connection.problem else ""
        where = ""
        if isinstance(connection.server.reach, StdioServer):
            where = " in the sandbox" if connection.contained else " without a sandbox"
        name = f"{visible(connection.server.name)} ({connection.server.origin})"
        return f"{name} {connection.state}{where}{said}{problem}"

    def tool(self, name: str, definition: McpDefinition) -> McpTool:
        """Return a tool. An unchanged tool stays the same object, because prompt caching needs the same bytes."""
        known = self.known.get(name.lower())
        if known is not None and (known.name, known.definition) == (name, definition):
            return known
        return McpTool(name, definition, self.connection)

    def news(self, *, begun: bool) -> Notice | None:
        """Return a notice for the user, or None. `begun` is True if a turn of the session has begun already."""
        connection = self.connection
        name, problem = f"the MCP server {connection.server.name!r}", connection.problem
        match connection.state:
            case McpState.READY if problem:
                return Notice(Severity.WARNING, f"{name}: {problem}")
            case McpState.READY if begun and not self.was_ready:
                return Notice(Severity.INFO, f"{name} is ready: {', '.join(self.tools) or 'it has no tools'}")
            case McpState.WAITING if self.was_ready:
                return Notice(Severity.WARNING, f"{name} is lost and will be tried again: {problem}")
            case McpState.FAILED:
                return Notice(Severity.WARNING, f"{name} cannot be used: {problem}")
            case _:
                return None


def _listed(tools: Collection[McpTool]) -> str:
    names = [visible(tool.definition.name) for tool in tools]
    return f": {some_of(names, _MOST_LISTED)}" if names else ""


_PATIENCE = 2.0
"""Seconds that the first turn waits for starting servers. Without the wait, a model may say that it lacks tools."""

_MOST_TOLD = 5
"""Notices about one server."""

_log = Log(__name__)


Connect: TypeAlias = Callable[[McpServer, Callable[[], None]], "ServerConnection"]
"""Makes the connection to a server. The second argument is called whenever the connection has changed."""


class McpConnections:
    """The connections to the servers of one session, and the names of their tools.

    pins         the tools that the user has approved
    background   runs the connections
    tell         tells the user a notice
    seen         the tools that servers of this process have listed, by the servers' identities; they are offered while
                 the same server starts again
    served       the servers by their names, in the order in which they were started
    """

    def __init__(
        self,
        pins: McpPins,
        background: Background,
        tell: Callable[[Notice], None],
        connect: Connect,
        seen: dict[str, tuple[McpDefinition, ...]] | None = None,
    ) -> None:
        self._seen = {} if seen is None else seen
        self._background = background
        self._tell = tell
        self._connect = connect
        self._identities: dict[str, str] = {}
        self.book = PinBook(pins, self._identities)
        self.served: dict[str, ConnectedServer] = {}
        self._moved = anyio.Event()
        self._begun = False

    def start(self, servers: Iterable[McpServer]) -> None:
        """Start servers. If two servers have the same name, only the first is started, and the user is told."""
        for server in servers:
            if objection := self._objection(server):
                told = f"the MCP server {server.name!r} ({server.origin}) is not started: {objection}"
                self._tell(Notice(Severity.WARNING, told))
            else:
                self._start(server)

    def add(self, server: McpServer) -> str:
        """Start one more server. The next turn waits for it too. Return why it is not started, or ""."""
        objection = self._objection(server)
        if not objection:
            self._begun = False
            self._start(server)
        return objection

    def remove(self, name: str) -> bool:
        """End a server and remove its tools. Return False if no server has this name."""
        served = self.served.pop(name, None)
        if served is None:
            return False
        del self._identities[name]
        served.connection.close()
        self._move()
        return True

    def listed(self) -> Sequence[ListedServer]:
        """Return all servers, in the order in which they were started."""
        connections = ((served, served.connection) for served in self.served.values())
        return [ListedServer(each.server, each.state, (*served.tools,), each.problem) for served, each in connections]

    def _objection(self, server: McpServer) -> str:
        slug = server_slug(server.name).lower()
        taken = next((name for name in self.served if server_slug(name).lower() == slug), None)
        told = f"the tools of another server, {taken!r}, would have the same names: rename one of the two"
        return "" if taken is None else told

    def _start(self, server: McpServer) -> None:
        self._identities[server.name] = server_identity(server)
        served = ConnectedServer(self._connect(server, partial(self._changed, server.name)))
        self.served[server.name] = served
        self._name_tools(served)
        self._background(partial(_run, served.connection))

    def close(self) -> None:
        """End all servers. Remaining processes of their programs are ended in the background."""
        for served in self.served.values():
            served.connection.close()

    async def settled(self) -> None:
        """Wait a few seconds for starting servers, before the first turn."""
        begun, self._begun = self._begun, True
        if begun:
            return
        with anyio.move_on_after(_PATIENCE):
            while self.joining():
                await self._moved.wait()

    def starting(self, tool: str) -> McpServer | None:
        """Return the server of a tool if it is starting."""
        for served in self.served.values():
            server = served.connection.server
            if served.connection.state is McpState.STARTING and has_tool(server.name, tool):
                return server
        return None

    async def started(self, tool: str) -> None:
        """Wait while the server of a tool is starting, for as long as its start may take."""
        server = self.starting(tool)
        with anyio.move_on_after(server.startup_timeout if server else 0):
            while self.starting(tool) is not None:
                await self._moved.wait()

    def joining(self) -> bool:
        """Return whether a server is still starting, so that tools may be added."""
        return any(served.connection.state is McpState.STARTING for served in self.served.values())

    def status(self) -> Sequence[str]:
        """Return a line for each server, for /status and /mcp."""
        return [f"MCP server {served.line(self._has_changed)}" for served in self.served.values()]

    # ------------------------------------------------------------------------------------ tools

    def specs(self) -> Sequence[ToolSpec]:
        """Return the current tools. If a tool has changed since its approval, its description is withheld."""
        every = (tool for served in self.served.values() for tool in served.tools.values())
        return [tool.withheld() if self._has_changed(tool) else tool.spec() for tool in every]

    async def understand(self, call: ToolCall) -> Invocation | None:
        """Parse a call of a server's tool, ignoring the case of its name. Return None for other tools.

        Raises ToolError, for example if the server has removed the tool.
        """
        for served in self.served.values():
            tool = served.known.get(call.name.lower())
            if tool is None:
                continue
            if served.connection.state is McpState.READY and tool.name not in served.tools:
                told = f"{tool.name}: its server has removed this tool"
                raise ToolError(ToolErrorCategory.TOOL_NOT_FOUND, told)
            return await tool.understand(call, agreed=not self._has_changed(tool))
        return None

    def _has_changed(self, tool: McpTool) -> bool:
        return bool(self.book.change(tool.definition.name, tool.spec()))

    def consent(self, invocation: Invocation) -> str:
        """Return the key under which an "always" answer for a server's tool is stored; "" for other tools."""
        tools = [each.tool for each in invocation.subjects if isinstance(each, McpSubject)]
        return self.book.consent(tools[0], invocation.spec) if tools else ""

    def trust(self, invocation: Invocation) -> TrustLevel:
        """Return the trust level of a server's tool.

        A tool of a server from the editor or a project is untrusted until the user has approved its current definition.
        After that, its calls ask as those of any other tool do. Tools of servers in the user's own configuration have
        that trust from the start, because the user chose them.
        """
        served = self.served.get(invocation.spec.server)
        tools = [each.tool for each in invocation.subjects if isinstance(each, McpSubject)]
        if served is None or not tools:
            return TrustLevel.UNTRUSTED
        chosen = served.connection.server.origin is McpOrigin.CONFIG
        if chosen or all(self.book.pinned(tool, invocation.spec) for tool in tools):
            return TrustLevel.PROVISIONAL
        return TrustLevel.UNTRUSTED

    def _changed(self, server: str) -> None:
        served = self.served.get(server)
        if served is not None:
            self._name_tools(served)
            self._tell_news(served)
        self._move()

    def _move(self) -> None:
        moved, self._moved = self._moved, anyio.Event()
        moved.set()

    def _name_tools(self, served: ConnectedServer) -> None:
        connection = served.connection
        identity = self._identities[connection.server.name]
        listed = connection.definitions()
        if connection.state is McpState.STARTING:
            listed = listed or self._seen.get(identity, ())
        elif connection.state is McpState.READY:
            self._seen[identity] = listed
        definitions = {each.name: each for each in listed}
        names = tool_names(connection.server.name, [*definitions])
        served.offer({names[tool]: served.tool(names[tool], each) for tool, each in definitions.items()})

    def _tell_news(self, served: ConnectedServer) -> None:
        """Show the user each notice about a server once, and none after `_MOST_TOLD` notices."""
        news = served.news(begun=self._begun)
        served.was_ready = served.was_ready or served.connection.state is McpState.READY
        if news is None or news.text in served.told or len(served.told) > _MOST_TOLD:
            return
        served.told.add(news.text)
        if len(served.told) > _MOST_TOLD:
            name = served.connection.server.name
            news = Notice(
                Severity.WARNING,
                f"the MCP server {name!r}: no more notices about it are shown; see /mcp",
            )
        self._tell(news)


class McpCatalogue:
    """The tools of a registry, and those of the MCP servers."""

    def __init__(self, registry: Registry, servers: McpConnections) -> None:
        self._registry = registry
        self._servers = servers

    def specs(self) -> Sequence[ToolSpec]:
        """Return all current tools."""
        return (*self._registry.specs(), *self._servers.specs())

    def is_starting(self, name: str) -> bool:
        """Return whether the server of a tool is starting."""
        return bool(self._servers.served) and self._servers.starting(name) is not None

    async def wait_for(self, name: str) -> None:
        """Wait for the server of a tool while it starts."""
        await self._servers.started(name)

    async def understand(self, call: ToolCall, files: FileSystem) -> Invocation:
        """Parse a call. The tools of a lost server are still known, but their calls fail. Raises ToolError."""
        served = await self._servers.understand(call) if self._servers.served else None
        return served or await self._registry.understand(call, files)


async def _run(connection: "ServerConnection") -> None:
    try:
        await connection.run()
    except Exception:  # noqa: BLE001 - top of a task: a bug ends the server, not the agent
        _log.error("MCP connection crashed", exc_info=True, server=connection.server.name)
