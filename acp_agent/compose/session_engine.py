"""What answers the prompts of one session, and what is kept of it."""

from collections.abc import Collection

from acp_agent.agent.history import History
from acp_agent.compose.kept_history import KeptHistory
from acp_agent.compose.mcp import SessionServers
from acp_agent.compose.memory import GateMemory
from acp_agent.compose.models import SessionModels
from acp_agent.compose.naming import Naming
from acp_agent.core.events import UsageChanged
from acp_agent.core.sessions import Change, Tally
from acp_agent.core.types import JsonObject
from acp_agent.output.redaction import Redactor
from acp_agent.protocol.answer import Answer
from acp_agent.protocol.commands import Name
from acp_agent.protocol.engine import TurnEngine


class Kept:
    """What the store is given of a session besides what was told, and what it gives back."""

    def __init__(self, history: History, models: SessionModels, memory: GateMemory, redactor: Redactor) -> None:
        self._history = KeptHistory(history, redactor)
        self._models = models
        self._memory = memory
        self._fill = (0, 0)  # tokens used, and the window's size

    def take_up(self, tally: Tally) -> None:
        """Go on counting from there."""
        self._fill = (tally.used, tally.size)
        self._models.ledger.restore(tally)
        self._memory.quota.take_up(tally.batches, tally.calls)

    def measured(self, event: UsageChanged) -> UsageChanged:
        """Take note of how full the window is; the event with what all of it cost so far."""
        self._fill = (event.used, event.size)
        return UsageChanged(event.used, event.size, self._models.ledger.cost)

    def state(self) -> Change:
        """All of it, as it is now."""
        ledger, use = self._models.ledger, self._memory.quota.use
        used, size = self._fill
        tally = Tally(used, size, ledger.usage, ledger.cost, ledger.complete, use.calls, use.batches)
        return Change(history=self._history.state(), tally=tally, model=self._models.in_use or None)


class SessionEngine:
    """Turns, and what comes before and after them."""

    def __init__(self, turns: TurnEngine, kept: Kept, naming: Naming, servers: SessionServers) -> None:
        self._turns = turns
        self._kept = kept
        self._naming = naming
        self._servers = servers

    async def answer(self, params: JsonObject) -> Answer:
        """One turn; see protocol.answer.Engine."""
        return await self._turns.answer(params)

    def state(self) -> Change:
        """What is to be kept now."""
        return self._kept.state()

    async def answered(self, answer: Answer) -> None:
        """A conversation that has no name gets one (A18.1)."""
        await self._naming.answered(answer)

    def commands(self) -> Collection[Name]:
        """The slash commands that make sense now."""
        return self._turns.commands()

    async def close(self) -> None:
        """End the servers of the session; what their programs leave behind is cleared away in the background."""
        self._servers.close()
