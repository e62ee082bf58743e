"""The loop of one session, and the model behind it."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio.to_thread

from acp_agent.agent.history import History
from acp_agent.agent.prompt import system_prompt
from acp_agent.agent.turn import Agent, Limits
from acp_agent.config import (
    Loaded,
    model_advice,
)
from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.core.events import EventSink, Notice, Severity
from acp_agent.core.ports import Toolset
from acp_agent.llm.presentable import PresentableProvider
from acp_agent.llm.retry import RetryingProvider
from acp_agent.protocol.session import Session

if TYPE_CHECKING:
    from acp_agent.compose.workshop import Workshop


class SessionLoop:
    """The loop of one session. It is made when it is needed: sessions work without a model, too.

    loaded   the configuration in force: a file that is mended may name the model that was missing
    cwd      the session's folder, links resolved
    """

    def __init__(
        self,
        workshop: "Workshop",
        session: Session,
        loaded: Callable[[], Loaded],
        toolset: Toolset,
        cwd: str,
        emit: EventSink,
    ) -> None:
        self._workshop = workshop
        self._session = session
        self._loaded = loaded
        self._toolset = toolset
        self._cwd = cwd
        self._emit = emit
        self._history = History()
        self._agent: Agent | None = None

    async def agent(self) -> Agent:
        """What runs turns. Raises AgentError, with advice, when there is no model to run it."""
        prompt = self._system_prompt()
        if self._agent is None:
            loaded = self._loaded()
            settings = loaded.settings
            if settings.llm.model is None:
                raise ProviderError(
                    model_advice(settings.llm.providers, loaded.file), kind=ProviderErrorKind.NOT_CONFIGURED
                )
            provider = await anyio.to_thread.run_sync(self._workshop.model, settings.llm, abandon_on_cancel=True)
            limits = Limits(settings.agent.max_tool_iterations, settings.agent.context_budget_tokens)
            told = PresentableProvider(RetryingProvider(provider, on_retry=self._tell), self._session.redact)
            self._agent = Agent(told, self._toolset, self._history, self._emit, limits, prompt)
        self._agent.system_prompt = prompt
        return self._agent

    def _system_prompt(self) -> str:
        place = self._session.place
        return system_prompt(self._cwd, place.additional, sys.platform, self._session.active.mode)

    async def _tell(self, status: str) -> None:
        await self._emit(Notice(Severity.INFO, status))
