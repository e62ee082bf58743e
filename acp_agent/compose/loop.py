"""The loop of one session, and the model behind it."""

import sys
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
from acp_agent.core.events import Notice, Severity
from acp_agent.core.ports import Toolset
from acp_agent.execution.roots import Roots
from acp_agent.llm.retry import RetryingProvider
from acp_agent.protocol.session import Session

if TYPE_CHECKING:
    from acp_agent.compose.workshop import Workshop


class SessionLoop:
    """The loop of one session. It is made when it is needed: sessions work without a model, too."""

    def __init__(self, workshop: "Workshop", session: Session, loaded: Loaded, toolset: Toolset, roots: Roots) -> None:
        self._workshop = workshop
        self._session = session
        self._loaded = loaded
        self._toolset = toolset
        self._roots = roots
        self._history = History()
        self._agent: Agent | None = None

    async def agent(self) -> Agent:
        """What runs turns. Raises AgentError, with advice, when there is no model to run it."""
        prompt = self._system_prompt()
        if self._agent is None:
            settings = self._loaded.settings
            if settings.llm.model is None:
                raise ProviderError(
                    model_advice(settings.llm.providers, self._loaded.file), kind=ProviderErrorKind.NOT_CONFIGURED
                )
            provider = await anyio.to_thread.run_sync(self._workshop.model, settings.llm, abandon_on_cancel=True)
            limits = Limits(settings.agent.max_tool_iterations, settings.agent.context_budget_tokens)
            retrying = RetryingProvider(provider, on_retry=self._tell)
            self._agent = Agent(retrying, self._toolset, self._history, self._session.emit, limits, prompt)
        self._agent.system_prompt = prompt
        return self._agent

    def _system_prompt(self) -> str:
        place = self._session.place
        return system_prompt(self._roots.cwd, place.additional, sys.platform, self._session.active.mode)

    async def _tell(self, status: str) -> None:
        await self._session.emit(Notice(Severity.INFO, status))
