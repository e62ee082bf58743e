"""Where a session works."""

from dataclasses import dataclass, field

from acp_agent.core.mcp import McpServer


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session works: absolute folders, `cwd` first among its roots, and what the editor brings along.

    servers   the MCP servers it names (A25)
    tools     the only tools or groups the client wants offered; None for all (G6)
    secrets   what the headers and the environment of its MCP servers hold, never to be shown (S9.4)
    ended     names of MCP servers the editor has ended that are named elsewhere, such as in the configuration (A25.7)
    """

    cwd: str
    additional: tuple[str, ...] = ()
    servers: tuple[McpServer, ...] = ()
    tools: tuple[str, ...] | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    ended: frozenset[str] = frozenset()
