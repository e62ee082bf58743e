"""What the extension methods need of the agent behind them (requirements A26, A25.7)."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from acp_agent.core.conduct import Conduct
from acp_agent.core.mcp import McpServer, McpState
from acp_agent.core.sessions import SessionSnapshot, StoredEvent, UsageTotals
from acp_agent.core.types import JsonObject, Subject, ToolSpec


@dataclass(frozen=True, slots=True)
class ListedServer:
    """An MCP server of a session. `tools` are the model's names for them; `problem` is empty when there is none."""

    server: McpServer
    state: McpState
    tools: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """What would become of something, as `acp-agent check` says it.

    verdict   allow, ask, deny or blocked
    rule      what decided, in its author's words; empty when nothing of the kind did
    """

    verdict: str
    rule: str = ""
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """How a session is: the lines of /status, and the same for machines. `busy`: a turn runs."""

    lines: tuple[str, ...]
    conduct: Conduct
    tally: UsageTotals
    busy: bool


class ExtensionHost(Protocol):
    """The sessions, those of the store and those that are open here.

    Every method raises RpcError: -32002 for a session nobody knows, -32600 for what cannot be done in its present
    state. StoreUnavailable and other AgentErrors become -32603 with their message.
    """

    async def saved(self, session_id: str) -> SessionSnapshot:
        """What is kept of a session; need not be open here."""
        ...

    def told(self, session_id: str, after: int) -> AsyncGenerator[StoredEvent]:
        """What was told in it with a `seq` above `after`, oldest first."""
        ...

    async def take_in(self, saved: SessionSnapshot, told: Sequence[StoredEvent]) -> str:
        """Make a new session of one from elsewhere, whole or not at all; its id.

        The id of `saved` and the numbers of `told` do not count. Nor should its conduct: whoever wrote the file is
        not the one to say what runs without asking.
        """
        ...

    async def delete(self, session_id: str) -> bool:
        """Close and delete a session; False when there was none. Raises no -32002."""
        ...

    async def tools(self, session_id: str) -> Sequence[ToolSpec]:
        """The tools the model is offered as things are now. The session must be open here."""
        ...

    async def move(self, session_id: str, cwd: str) -> None:
        """Have an open session work in another folder, which exists: its roots, prompt and sandbox follow.

        -32600 while a turn runs.
        """
        ...

    async def servers(self, session_id: str) -> Sequence[ListedServer]:
        """The MCP servers of an open session."""
        ...

    async def add_server(self, session_id: str, server: McpServer) -> None:
        """Start one more. -32600 when there is one of that name. What its headers and variables hold is secret."""
        ...

    async def remove_server(self, session_id: str, name: str) -> bool:
        """End one and take its tools away; False when there is none of that name."""
        ...

    async def judge(self, session_id: str, subject: Subject) -> Judged:
        """What would become of a command, a path or a URL in an open session. Runs, asks and changes nothing."""
        ...

    async def audit(self, session_id: str, count: int) -> Sequence[JsonObject]:
        """The last records of a session, oldest first, as they stand in the file: redacted."""
        ...

    async def status(self, session_id: str) -> SessionStatus:
        """How an open session is."""
        ...
