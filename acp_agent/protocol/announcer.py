"""Telling the editor which slash commands a session has (A17.1)."""

from collections.abc import Awaitable, Callable, Collection

import anyio

from acp_agent.core.types import JsonObject
from acp_agent.protocol import commands
from acp_agent.protocol.client import Client

_ZED_REPEAT = 0.1
"""Seconds. Zed drops an update that arrives together with the answer that makes its session known (acp.md 4.1)."""


class Announcer:
    """Of one session.

    update   sends one update
    over     whether the session was closed: nothing is told of it then
    """

    def __init__(self, update: Callable[[JsonObject], Awaitable[None]], over: Callable[[], bool]) -> None:
        self._update = update
        self._over = over
        self._announcement = commands.Announcement()

    async def begin(self, client: Client) -> None:
        """Tell which commands there always are, once more to an editor that may drop what comes too early."""
        await self.tell(commands.ALWAYS)
        if client.name == "zed":
            await anyio.sleep(_ZED_REPEAT)
            if not self._over():
                await self._update(commands.advertised())

    async def tell(self, available: Collection[commands.Name]) -> None:
        """Tell which commands there are, where that has changed."""
        if not self._over() and (news := self._announcement.news(available)):
            await self._update(news)
