"""Where a session answers questions about itself: /status, /mcp, /compact."""

from collections.abc import Callable, Sequence

from acp_agent.compose import upkeep
from acp_agent.compose.conversation import Conversation
from acp_agent.compose.memory import GateMemory
from acp_agent.compose.models import SessionModels
from acp_agent.config import Loaded
from acp_agent.core.events import EventSink, UsageChanged
from acp_agent.core.memory import Compaction
from acp_agent.protocol.session import Session


class SessionDesk:
    """Behind the slash commands.

    loaded    the configuration in force
    more      lines of parts that are not always there
    servers   a line for each MCP server
    """

    def __init__(
        self,
        session: Session,
        loaded: Callable[[], Loaded],
        conversation: Conversation,
        models: SessionModels,
        memory: GateMemory,
        emit: EventSink,
        more: Callable[[], Sequence[str]],
        servers: Callable[[], Sequence[str]],
    ) -> None:
        self._session = session
        self._loaded = loaded
        self._conversation = conversation
        self._models = models
        self._memory = memory
        self._emit = emit
        self._more = more
        self.servers = servers

    def status(self) -> Sequence[str]:
        """One line a matter; what is switched off has none."""
        loaded = self._loaded()
        return (
            self._model(loaded),
            f"Mode: {self._session.active.mode.value}; approval: {self._session.active.auto_approve.value}",
            *self._conversation.status(),
            *self._models.ledger.status(),
            self._calls(),
            *(
                f"Blocked: {alarm.tool}, {alarm.rate:.0%} of its calls failed"
                for alarm in self._memory.anomalies.alarms
            ),
            *upkeep.status(loaded.settings, self._memory),
            *self._more(),
            f"Configuration: {loaded.file}",
        )

    async def compact(self, focus: str) -> str:
        """Sum the conversation up (L11, manual). Raises ToolError when nothing came of it."""
        told = await self._conversation.compactor.compact(Compaction.MANUAL, focus)
        if agent := self._conversation.agent:
            await self._emit(UsageChanged(self._conversation.history.estimate(), agent.provider.context_window))
        return told

    def _model(self, loaded: Loaded) -> str:
        llm = loaded.settings.llm
        if llm.model is None:
            return "Model: none is configured"
        agent = self._conversation.agent
        used = f"{agent.provider.name}:{agent.provider.model}" if agent else llm.model
        chain = f"; fallback: {', '.join(llm.fallback)}" if llm.fallback else ""
        return f"Model: {used}{chain}"

    def _calls(self) -> str:
        use = self._memory.quota.use
        limit = "" if use.limit is None else f" of {use.limit}"
        return f"Tool calls: {use.calls} in {use.batches}{limit} batches"
