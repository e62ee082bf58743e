"""When a session gets its title: the first words at once, a better one after the first turn (A12.13, A18.1)."""

from collections.abc import Callable, Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any

from acp_agent.compose.titles import Titles
from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.messages import StopReason
from acp_agent.log import Log
from acp_agent.protocol import commands
from acp_agent.protocol.answer import Answer
from acp_agent.protocol.session import Session

_log = Log(__name__)


class Naming:
    """Of one session. One that has a title keeps it, unless that is only the first words still.

    A process may end before a model has answered: then the next one that goes on with the session asks.

    background   runs a task
    """

    def __init__(
        self, session: Session, titles: Titles, background: Callable[[Callable[[], Coroutine[Any, Any, None]]], object]
    ) -> None:
        self._session = session
        self._titles = titles
        self._background = background
        self._prompt = ""
        self._done = False
        self._title = session.story.record.title  # the one it came with
        self._beginning = 0  # which conversation it is: what is made up for one is not for the next

    def began(self, typed: str) -> None:
        """The user has written. A command says nothing of what the session is about."""
        if self._title or self._done or self._prompt or commands.parse([typed]) is not None:
            return
        self._prompt = typed
        self._background(partial(self._set, self._titles.first(typed, self._session.id), self._beginning))

    async def answered(self, answer: Answer) -> None:
        """A turn was answered."""
        if self._done or not (self._prompt or self._title):
            return
        if answer.reason is StopReason.CANCELLED or answer.failure is not None:
            return
        self._done, beginning = True, self._beginning
        prompt = self._prompt or await self._behind_title()
        if prompt and (better := await self._titles.better(prompt)):
            await self._set(better, beginning)

    def forget(self) -> None:
        """The conversation begins anew."""
        self._prompt, self._title, self._done = "", "", False
        self._beginning += 1

    def close(self) -> None:
        """The session rests or ends: it may be another's by the time a title comes."""
        self._done = True
        self._beginning += 1

    async def _set(self, title: str, beginning: int) -> None:
        if beginning == self._beginning:
            await self._session.set_title(title)

    async def _behind_title(self) -> str:
        """The prompt whose first words the title is that the session came with; "" where it is a better one."""
        try:
            async with aclosing(self._session.story.prompts()) as prompts:
                async for prompt in prompts:
                    if commands.parse([prompt]) is None:
                        return prompt if self._titles.first(prompt, self._session.id) == self._title else ""
        except StoreUnavailable as error:
            _log.warning("no better title", session=self._session.id, reason=str(error))
        return ""
