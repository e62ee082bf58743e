"""What answers the prompts of one session, and what is kept of it."""

from collections.abc import Callable, Collection, Sequence

from acp_agent.agent.history import History
from acp_agent.compose.desk import SessionDesk
from acp_agent.compose.kept_history import KeptHistory
from acp_agent.compose.mcp_servers import McpOfSession
from acp_agent.compose.memory import GateMemory
from acp_agent.compose.models import SessionModels
from acp_agent.compose.naming import Naming
from acp_agent.compose.reload import LiveToolset
from acp_agent.compose.verdicts import Finding, call_with, judged
from acp_agent.core.events import UsageChanged
from acp_agent.core.mcp import ListedServer, McpServer
from acp_agent.core.messages import Message
from acp_agent.core.sessions import Change, UsageTotals
from acp_agent.core.types import JsonObject, Subject, ToolSpec
from acp_agent.output.redaction import Redactor
from acp_agent.protocol.answer import Answer
from acp_agent.protocol.commands import Name
from acp_agent.protocol.engine import TurnEngine


class Kept:
    """What the store is given of a session besides what was told, and what it gives back.

    before   the messages it has already
    """

    def __init__(
        self,
        history: History,
        models: SessionModels,
        memory: GateMemory,
        redactor: Redactor,
        before: Sequence[Message] = (),
    ) -> None:
        self._history = KeptHistory(history, redactor, before)
        self._models = models
        self._memory = memory
        self._fill = (0, 0)  # tokens used, and the window's size

    def take_up(self, tally: UsageTotals, typed: Sequence[str] = ()) -> None:
        """Go on counting from there, and remember what the user typed."""
        for text in typed:
            self._memory.learn(text)
        self._fill = (tally.used, tally.size)
        self._models.ledger.restore(tally)
        self._memory.quota.take_up(tally.batches, tally.calls)

    def measured(self, event: UsageChanged) -> UsageChanged:
        """Take note of how full the window is; the event with what all of it cost so far."""
        self._fill = (event.used, event.size)
        return UsageChanged(event.used, event.size, self._models.ledger.cost)

    async def looked_through(self) -> Change:
        """All of it, as it is now, no long text looked through on the loop."""
        await self._history.look_through()
        return self.state()

    def state(self) -> Change:
        """All of it, as it is now."""
        ledger, use = self._models.ledger, self._memory.quota.use
        used, size = self._fill
        under_way = self._history.in_turn
        tally = UsageTotals(used, size, ledger.usage, ledger.cost, ledger.complete, use.calls, use.batches, under_way)
        return Change(history=self._history.state(), usage=tally, model=self._models.in_use or None)


class SessionEngine:
    """Turns, what comes before and after them, and answers about the session for others than the model.

    desk      tells how the session is
    toolset   its tools, by the configuration as it is on disk now
    mcp       its MCP servers
    release   gives back what its tools hold
    """

    def __init__(
        self,
        turns: TurnEngine,
        kept: Kept,
        naming: Naming,
        desk: SessionDesk,
        toolset: LiveToolset,
        mcp: McpOfSession,
        release: Callable[[], None],
    ) -> None:
        self._turns = turns
        self._kept = kept
        self._naming = naming
        self._desk = desk
        self._toolset = toolset
        self._mcp = mcp
        self._release = release

    async def answer(self, params: JsonObject) -> Answer:
        """One turn; see protocol.answer.Engine."""
        return await self._turns.answer(params)

    def state(self) -> Change:
        """What is to be kept now."""
        return self._kept.state()

    async def kept(self) -> Change:
        """The same; what takes a while is done beside the loop."""
        return await self._kept.looked_through()

    async def answered(self, answer: Answer) -> None:
        """A conversation that has no name gets one (A18.1)."""
        await self._naming.answered(answer)

    def commands(self) -> Collection[Name]:
        """The slash commands that make sense now."""
        return self._turns.commands()

    async def close(self) -> None:
        """End the servers of the session; what their programs leave behind is cleared away in the background.

        Its folders are closed, and can be neither read nor written through this object any more.
        """
        self._naming.close()
        self._mcp.servers.close()
        self._release()

    # -------------------------------------------------------------------------------------- answers

    def status(self) -> Sequence[str]:
        """The lines of /status."""
        return self._desk.status()

    def tools(self) -> Sequence[ToolSpec]:
        """What the model may call now."""
        return self._toolset.specs()

    def judged(self, subject: Subject) -> Finding:
        """What would become of a call with this subject. Nothing is asked, and nothing runs."""
        self._toolset.specs()  # takes up a configuration that has changed
        gates = self._desk.reach.gates()
        if not gates:
            why = str(self._toolset.loaded.fault or "nothing runs in this session")
            return Finding("deny", "", "", (why,))
        return judged(call_with(subject), gates)

    def servers(self) -> Sequence[ListedServer]:
        """Its MCP servers."""
        return self._mcp.servers.listed()

    def add_server(self, server: McpServer) -> str:
        """Start one more MCP server; why it is not started, else ""."""
        return self._mcp.add(server, self._toolset.loaded)

    def remove_server(self, name: str) -> bool:
        """End an MCP server and take its tools away; False when there is none of that name."""
        return self._mcp.remove(name)
