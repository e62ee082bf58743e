"""How messages get to a server and back. Each transport serves one Wire until that is lost or the task is cancelled."""

from typing import Protocol

from acp_agent.mcp.wire import Wire


class Transport(Protocol):
    """One connection to a server, made by whoever knows how it is reached."""

    async def serve(self, wire: Wire) -> None:
        """Carry messages until the server is gone, then say so by `wire.lose`. Raises nothing but cancellation."""
        ...
