"""When a session gets its title: the first words at once, a better one after the first turn (A12.13, A18.1)."""

from collections.abc import Callable, Coroutine
from typing import Any

from acp_agent.compose.titles import Titles
from acp_agent.core.messages import StopReason
from acp_agent.protocol import commands
from acp_agent.protocol.answer import Answer
from acp_agent.protocol.session import Session


class Naming:
    """Of one session. One that has a title keeps it.

    background   runs a task
    """

    def __init__(
        self, session: Session, titles: Titles, background: Callable[[Callable[[], Coroutine[Any, Any, None]]], object]
    ) -> None:
        self._session = session
        self._titles = titles
        self._background = background
        self._prompt = ""
        self._done = bool(session.story.record.title)

    def began(self, typed: str) -> None:
        """The user has written. A command says nothing of what the session is about."""
        if self._done or self._prompt or commands.parse([typed]) is not None:
            return
        self._prompt = typed
        self._background(self._first)

    async def answered(self, answer: Answer) -> None:
        """A turn was answered."""
        if self._done or not self._prompt or answer.reason is StopReason.CANCELLED or answer.failure is not None:
            return
        self._done = True
        better = await self._titles.better(self._prompt)
        if better:
            await self._session.set_title(better)

    def forget(self) -> None:
        """The conversation begins anew."""
        self._prompt, self._done = "", False

    async def _first(self) -> None:
        await self._session.set_title(self._titles.first(self._prompt, self._session.id))
