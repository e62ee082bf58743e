"""MCP servers as the rest of the agent sees them (E6, A25; security.md 2.8). No shape of the protocol itself."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeAlias

from acp_agent.core.types import ImagePart, JsonObject


class McpOrigin(StrEnum):
    """Who named a server: the user's configuration, the editor (`session/new`), or a file of the project."""

    CONFIG = "config"
    EDITOR = "editor"
    PROJECT = "project"


@dataclass(frozen=True, slots=True)
class StdioServer:
    """A program to start. `command` and `args` are run as they are, by no shell; `env` is added to a clean one."""

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    cwd: str | None = None


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A streamable HTTP endpoint. `allow_private`: the user's own word that it may be at a private address."""

    url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    allow_private: bool = False


McpReach: TypeAlias = StdioServer | HttpServer
"""How a server is reached."""


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server somebody named.

    name              unique in the session; part of its tools' names
    startup_timeout   seconds until its tools must be known, and of each later try
    tool_timeout      seconds of one call
    allow, deny       names of its tools as the server says them; deny wins, an empty allow means all
    read_only         tools of it that, on the user's word, change nothing; the server's own hint is not trusted
    """

    name: str
    reach: McpReach
    origin: McpOrigin
    startup_timeout: float = 30.0
    tool_timeout: float = 60.0
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class McpDefinition:
    """A tool as its server describes it, bounded but not yet trusted: `description` is the server's own words."""

    name: str
    description: str
    parameters: JsonObject


@dataclass(frozen=True, slots=True)
class McpReply:
    """What a call gave, bounded. `is_error`: the server says the tool failed; `text` then says why."""

    text: str
    images: tuple[ImagePart, ...] = ()
    structured: JsonObject | None = None
    is_error: bool = False


class McpState(StrEnum):
    """Where a connection stands."""

    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting"  # lost; will be tried again
    FAILED = "failed"  # given up
    CLOSED = "closed"


class McpConnection(Protocol):
    """One server of one session. Starts, watches and restarts itself in the background."""

    @property
    def server(self) -> McpServer:
        """What it was made from."""
        ...

    @property
    def state(self) -> McpState:
        """Where it stands."""
        ...

    @property
    def problem(self) -> str:
        """Why it is not ready, in one line fit for the user; empty when all is well."""
        ...

    def definitions(self) -> tuple[McpDefinition, ...]:
        """The tools the server last listed; none until it is ready. Those allow and deny leave out are left out."""
        ...

    async def call(self, definition: McpDefinition, arguments: JsonObject) -> McpReply:
        """Run a tool that is still what was agreed to: compared with what the server says in the moment it is called.

        Raises ToolError: policy_blocked (the definition is another now, nothing was called; or not authorized),
        network_error (not connected, died in the middle), timeout, rate_limited, server_error, permanent_failure
        (L6.11).
        """
        ...


@dataclass(frozen=True, slots=True)
class ListedServer:
    """An MCP server of a session. `tools` are the model's names for them; `problem` is empty when there is none."""

    server: McpServer
    state: McpState
    tools: tuple[str, ...] = ()
    problem: str = ""
