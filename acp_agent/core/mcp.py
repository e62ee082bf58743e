"""MCP servers as the rest of the agent sees them, without the shapes of the protocol itself."""

from dataclasses import field
from enum import StrEnum
from typing import Protocol, TypeAlias

from acp_agent.core.data import frozen
from acp_agent.core.errors import ToolFailure
from acp_agent.core.types import ImagePart, JsonObject

MAX_SERVERS = 64
"""The most MCP servers that an editor may name for one session."""


class McpOrigin(StrEnum):
    """The source of a server: the user's configuration, the editor (`session/new`), or a file of the project."""

    CONFIG = "config"
    EDITOR = "editor"
    PROJECT = "project"


@frozen
class StdioServer:
    """A program to start. `command` and `args` run as they are, without a shell. `env` is added to a clean environment.

    allow_write   files and folders that it may change in its sandbox, besides those of the session
    """

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    cwd: str | None = None
    allow_write: tuple[str, ...] = ()


@frozen
class HttpServer:
    """A streamable HTTP endpoint. If `allow_private`, the user allows it to be at a private address."""

    url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    allow_private: bool = False


McpReach: TypeAlias = StdioServer | HttpServer
"""The way to reach a server."""


@frozen
class McpServer:
    """An MCP server as it is configured.

    name              unique in the session; part of its tools' names
    startup_timeout   seconds in which it must list its tools, at the start and at each later attempt
    tool_timeout      seconds of one call
    allow, deny       names of its tools as the server gives them; deny wins, an empty allow means all
    read_only         tools that change nothing, as the user says; the server's own hint is not trusted
    """

    name: str
    reach: McpReach
    origin: McpOrigin
    startup_timeout: float = 30.0
    tool_timeout: float = 60.0
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()


@frozen
class McpDefinition:
    """A tool as its server describes it, bounded but not yet trusted. `description` is the server's text."""

    name: str
    description: str
    parameters: JsonObject


@frozen
class McpReply:
    """The bounded result of a call. If `is_error`, the tool failed and `text` says why.

    failure   the error if the call failed outside the tool, such as in the server. It quotes nothing of the server
    """

    text: str
    images: tuple[ImagePart, ...] = ()
    structured: JsonObject | None = None
    is_error: bool = False
    failure: ToolFailure | None = None


class McpState(StrEnum):
    """The state of a connection."""

    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting"  # the connection was lost and will be tried again
    FAILED = "failed"  # no further attempt is made
    CLOSED = "closed"


class McpConnection(Protocol):
    """One server of one session. It starts, watches and restarts itself in the background."""

    @property
    def server(self) -> McpServer: ...

    @property
    def state(self) -> McpState: ...

    @property
    def contained(self) -> bool:
        """Whether its program runs in a sandbox."""
        ...

    @property
    def problem(self) -> str:
        """The reason why the server is not ready, as one line for the user. Empty if it is ready."""
        ...

    def definitions(self) -> tuple[McpDefinition, ...]:
        """Return the tools that the server listed last, without those that allow and deny exclude.

        Empty until the server is ready.
        """
        ...

    async def call(self, definition: McpDefinition, arguments: JsonObject) -> McpReply:
        """Run a tool, if the server's definition of it is still the given one.

        Raises:
            ToolError: policy_blocked if the definition changed (nothing was called) or the server wants another login;
                network_error if the connection is missing or broke; timeout, rate_limited, server_error or
                permanent_failure otherwise.

        """
        ...


@frozen
class ListedServer:
    """An MCP server of a session. `tools` are the names that the model uses. `problem` is empty if there is none."""

    server: McpServer
    state: McpState
    tools: tuple[str, ...] = ()
    problem: str = ""
