"""An MCP connection without a server, in the hands of a test."""

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.mcp import McpDefinition, McpOrigin, McpReply, McpServer, McpState, StdioServer
from acp_agent.core.types import JsonObject

TEXT: JsonObject = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def server(
    name: str = "srv", origin: McpOrigin = McpOrigin.CONFIG, *, command: str = "prog", **more: object
) -> McpServer:
    return McpServer(name, StdioServer(command), origin, **more)  # pyright: ignore[reportArgumentType]


def definition(name: str = "echo", description: str = "Says it again.", parameters: JsonObject = TEXT) -> McpDefinition:
    return McpDefinition(name, description, parameters)


@dataclass
class FakeConnection:
    """Becomes what the test says. `calls` holds what was called; the reply may be changed.

    meanwhile   happens when a call has begun: it reconnects, say
    """

    server: McpServer
    changed: Callable[[], None] = lambda: None
    state: McpState = McpState.STARTING
    problem: str = ""
    offered: tuple[McpDefinition, ...] = ()
    reply: McpReply = field(default_factory=lambda: McpReply("said"))
    calls: list[tuple[str, JsonObject]] = field(default_factory=list[tuple[str, JsonObject]])
    meanwhile: Callable[[], None] = lambda: None
    running: bool = False
    closed: bool = False
    contained: bool = False

    def definitions(self) -> tuple[McpDefinition, ...]:
        return self.offered

    async def call(self, definition: McpDefinition, arguments: JsonObject) -> McpReply:
        self.meanwhile()
        if self.state is not McpState.READY:
            raise ToolError(ToolErrorCategory.NETWORK_ERROR, f"{self.server.name} is not connected")
        if definition not in self.offered:
            raise ToolError(ToolErrorCategory.POLICY_BLOCKED, f"{self.server.name} has changed {definition.name}")
        self.calls.append((definition.name, arguments))
        return self.reply

    async def run(self) -> None:
        self.running = True
        await anyio.sleep_forever()

    def close(self) -> None:
        self.closed = True

    # ------------------------------------------------------------------- the test's side

    def ready(self, *definitions: McpDefinition, problem: str = "") -> None:
        self.state, self.offered, self.problem = McpState.READY, definitions, problem
        self.changed()

    def become(self, state: McpState, problem: str = "") -> None:
        self.state, self.problem = state, problem
        if state in (McpState.FAILED, McpState.CLOSED):
            self.offered = ()
        self.changed()
