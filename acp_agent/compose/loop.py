"""The loop of one session, and the model behind it."""

import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace

from acp_agent.agent.prompt import system_prompt
from acp_agent.agent.turn import Agent
from acp_agent.compose.conversation import Conversation
from acp_agent.compose.models import SessionModels
from acp_agent.config import Loaded
from acp_agent.core.errors import MissingKey
from acp_agent.core.events import EventSink
from acp_agent.core.ports import Toolset
from acp_agent.protocol.server import auth_required
from acp_agent.protocol.session import Session


class SessionLoop:
    """The loop of one session. It is made when it is needed: sessions work without a model, too.

    cwd      the session's folder, links resolved
    loaded   the configuration in force
    notes    gives what the project says of itself, for the system prompt
    """

    def __init__(
        self,
        session: Session,
        cwd: str,
        loaded: Callable[[], Loaded],
        models: SessionModels,
        toolset: Toolset,
        conversation: Conversation,
        emit: EventSink,
        notes: Callable[[Loaded], Awaitable[str]],
    ) -> None:
        self._session = session
        self._cwd = cwd
        self._loaded = loaded
        self._models = models
        self._toolset = toolset
        self._conversation = conversation
        self._emit = emit
        self._notes = notes

    async def agent(self) -> Agent:
        """What runs turns. Raises AgentError, with advice, when there is no model to run it.

        Raises RpcError -32000 where a key is missing and the editor can have the user log in: it shows how.
        """
        try:
            provider = await self._models.answering()
        except MissingKey as error:
            if self._session.client.terminal_login:
                raise auth_required(str(error)) from None
            raise
        prompt = await self._system_prompt()
        conversation = self._conversation
        if conversation.agent is None:
            conversation.agent = Agent(
                provider,
                self._toolset,
                conversation.history,
                self._emit,
                conversation.limits,
                prompt,
                hooks=replace(conversation.hooks, began=self._began, abandoned=self._abandoned),
            )
        conversation.agent.provider = provider  # the user may have chosen another one
        conversation.agent.system_prompt = prompt
        return conversation.agent

    def _began(self) -> None:
        self._session.story.keep_soon()

    def _abandoned(self) -> bool:
        return self._session.turns.abandoned

    async def _system_prompt(self) -> str:
        """For the model that answered last: one that knows no tools is told of none.

        Tools the offer hides for the moment are named all the same: the prompt stays the same from call to call, which
        caches it, and a model that names a hidden tool is shown it.
        """
        place = self._session.place
        tools = self._toolset.specs() if self._models.take_tools() else ()
        notes = await self._notes(self._loaded())
        mode = self._session.active.mode
        return system_prompt(self._cwd, place.additional, sys.platform, mode, tools=tools, notes=notes)
