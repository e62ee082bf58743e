"""What a Connection needs of the `mcp` package, behind one import: it takes half a second, so a thread does it."""

import ssl
from collections.abc import Callable, Mapping

from acp_agent.core.mcp import HttpServer, McpServer, StdioServer
from acp_agent.mcp.conversation import Conversation
from acp_agent.mcp.environment import server_environment
from acp_agent.mcp.http import HttpTransport
from acp_agent.mcp.stdio import StdioTransport
from acp_agent.mcp.transport import Transport
from acp_agent.mcp.wire import Sleep, Wire
from acp_agent.net.connection import Dial
from acp_agent.net.hosts import Resolve
from acp_agent.net.mcp_http import McpHttp

__all__ = ["Conversation", "Wire", "transport_to"]


def transport_to(
    server: McpServer,
    environment: Mapping[str, str],
    *,
    sleep: Sleep,
    resolve: Resolve,
    dial: Dial | None,
    trust: ssl.SSLContext | None,
    warn: Callable[[str], None],
) -> Transport:
    """The transport a server is reached by. Raises Refused for a URL that may not be used."""
    match server.reach:
        case StdioServer() as program:
            variables, dropped = server_environment(environment, program.env)
            if dropped:
                warn(f"not passed on to it: {', '.join(dropped)}")
            return StdioTransport(program, variables)
        case HttpServer(url, headers, allow_private):
            http = McpHttp(url, dict(headers), allow_private=allow_private, resolve=resolve, dial=dial, trust=trust)
            return HttpTransport(http, sleep)
