"""One MCP server of a session: its connection, the tools it has, and what is worth telling of it."""

from collections.abc import Callable, Collection
from typing import Protocol

from acp_agent.core.events import Notice, Severity
from acp_agent.core.mcp import McpConnection, McpDefinition, McpState
from acp_agent.tools.mcp_tool import McpTool
from acp_agent.tools.visible import visible

_MOST_GONE = 64
"""Tools a server no longer has that are remembered."""
_MOST_LISTED = 20
"""Tools of a server that a line names."""


class RunningConnection(McpConnection, Protocol):
    """A connection that can be set going."""

    async def run(self) -> None:
        """Connect and serve until closed or given up. Raises nothing but cancellation."""
        ...

    def close(self) -> None:
        """Have `run` return soon, everything of the server ended."""
        ...


class Served:
    """One server. `told` is what the user has been told of it."""

    def __init__(self, connection: RunningConnection) -> None:
        self.connection = connection
        self.tools: dict[str, McpTool] = {}
        self.known: dict[str, McpTool] = {}  # those that are gone, too, by lower-case name, the newest last
        self.was_ready = False
        self.told: set[str] = set()

    def offer(self, tools: dict[str, McpTool]) -> None:
        """It has these tools now. Of those that are gone a few are remembered, to answer calls of them."""
        folded = {name.lower(): tool for name, tool in tools.items()}
        gone = [(name, tool) for name, tool in self.known.items() if name not in folded]
        ready = self.connection.state is McpState.READY
        self.known = {**dict(gone[-_MOST_GONE:] if ready else gone), **folded}
        self.tools = tools

    def line(self, changed: Callable[[McpTool], bool]) -> str:
        """Name, state, tools by the server's own names, those that have changed, problem."""
        connection, said = self.connection, ""
        if connection.state is McpState.READY:
            said = f", {len(self.tools)} tool{'' if len(self.tools) == 1 else 's'}{_listed(self.tools.values())}"
            asking = [tool for tool in self.tools.values() if changed(tool)]
            said += f"; changed, and will ask{_listed(asking)}" if asking else ""
        problem = f"{';' if said else ':'} {connection.problem}" if connection.problem else ""
        return f"{visible(connection.server.name)} ({connection.server.origin}) {connection.state}{said}{problem}"

    def tool(self, name: str, definition: McpDefinition) -> McpTool:
        """The tool there was, where nothing about it has changed: prompt caching wants the same bytes."""
        known = self.known.get(name.lower())
        same = known is not None and (known.name, known.definition) == (name, definition)
        return known if known is not None and same else McpTool(name, definition, self.connection)

    def news(self, *, begun: bool) -> Notice | None:
        """What the user should hear of it now; `begun`: turns have begun before."""
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
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return f": {', '.join(names[:_MOST_LISTED])}{more}" if names else ""
