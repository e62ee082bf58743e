"""What answers the prompts of one session, and what is kept of it."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol
from uuid import uuid4

from acp_agent.agent.history import History
from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import AgentError
from acp_agent.core.events import EventSink, Notice, Severity, TextDelta, UsageChanged, UserMessage
from acp_agent.core.mcp import ListedServer, McpServer
from acp_agent.core.messages import Message, Part, Role, StopReason, TextPart, typed
from acp_agent.core.ports import Backends, Toolset
from acp_agent.core.redaction import Redact, verbatim
from acp_agent.core.sessions import Change, UsageTotals
from acp_agent.core.types import JsonObject, Subject, ToolSpec
from acp_agent.output.markdown_images import defused
from acp_agent.output.redaction.redactor import Redactor
from acp_agent.protocol import wire
from acp_agent.protocol.content import Prompt, redacted
from acp_agent.session.mcp_servers import McpOfSession
from acp_agent.session.models import SessionModels
from acp_agent.session.slash import commands
from acp_agent.session.slash.commands import Name
from acp_agent.session.slash.handler import Desk, SessionDesk, Slash
from acp_agent.session.slash.review import Review
from acp_agent.session.snapshots import KeptHistory
from acp_agent.session.titles import Naming
from acp_agent.session.toolset.gate_memory import GateMemory
from acp_agent.session.toolset.toolset import LiveToolset
from acp_agent.session.turn_slot import Answer
from acp_agent.session.verdicts import Finding, call_with, judged


class Loop(Protocol):
    """What runs turns of the model. `failure` is the error that ended the last one, if one did."""

    @property
    def failure(self) -> AgentError | None:
        """None after a turn that ended as it should."""
        ...

    async def run(self, prompt: Message) -> StopReason:
        """Run one turn."""
        ...


def _forget(text: str) -> None:
    del text


class TurnEngine:
    """Answers prompts: slash commands itself, everything else with the loop.

    loop       gives the loop, or raises an AgentError whose text tells the user how to set a model up
    backends   what a prompt may be read with, asked anew for each
    desk       answers for the session
    begin      told of each prompt's typed text before anything is done with it
    redact     takes secrets out of what is attached to a prompt, and out of all of it before it is kept
    complaints what the editor's language servers complain of, as text for the model; None where nobody knows
    """

    def __init__(
        self,
        loop: Callable[[], Awaitable[Loop]],
        toolset: Toolset,
        backends: Callable[[], Awaitable[Backends]],
        emit: EventSink,
        desk: Desk,
        begin: Callable[[str], None] = _forget,
        redact: Redact = verbatim,
        complaints: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        self._loop = loop
        self._backends = backends
        self._emit = emit
        self._desk = desk
        self._begin = begin
        self._redact = redact
        self._complaints = complaints
        self._slash = Slash(desk, toolset)

    def commands(self) -> Collection[Name]:
        """The slash commands that make sense now, for the editor to offer (A17.1)."""
        return self._desk.available()

    async def answer(self, params: JsonObject) -> Answer:
        """One prompt. It was said once it is understood, whatever becomes of what it names (A6.3, A13)."""
        blocks = wire.prompt_blocks(params)
        texts = [block.text for block in blocks if isinstance(block, wire.Text)]
        command, slip = commands.parse(texts), commands.misspelt(texts)
        prompt = await Prompt.sent(blocks, self._redact)
        await self._emit(UserMessage(await redacted(prompt.parts, self._redact), str(uuid4())))
        self._begin(typed(prompt.parts))
        backends = await self._backends()
        complaints = None if command or slip else self._complaints
        message = await prompt.read(backends.files, backends.web, complaints)
        for skipped in prompt.skipped:
            await self._emit(Notice(Severity.WARNING, f"left out of the prompt: {skipped}"))
        if command:
            return await self._obey(*command, backends.files)
        if slip:
            return await self._say(_did_you_mean(*slip))
        return await self._ask(message.parts)

    async def _obey(self, name: Name, argument: str, files: FileSystem) -> Answer:
        outcome = await self._slash.obey(name, argument, files)
        if isinstance(outcome, Review):
            with self._desk.reading():
                return await self._ask((TextPart(outcome.prompt),))
        return await self._say(outcome)

    async def _ask(self, parts: Sequence[Part]) -> Answer:
        """A turn of the model."""
        try:
            loop = await self._loop()
        except AgentError as error:
            return await self._say(str(error), error)
        return Answer(await loop.run(Message(Role.USER, tuple(parts))), loop.failure)

    async def _say(self, text: str, failure: AgentError | None = None) -> Answer:
        """Words of ours, for the user alone (A17.6)."""
        await self._emit(TextDelta(defused(self._redact(text)), str(uuid4())))
        return Answer(StopReason.END_TURN, failure)


def _did_you_mean(word: str, name: Name) -> str:
    return (
        f"There is no command `/{word}`. Did you mean `/{name}`? "
        "Nothing was sent to the model; to send it this text, begin with another word."
    )


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
        if not gates.in_order:
            why = str(self._toolset.loaded.fault or "nothing runs in this session")
            return Finding("deny", "", "", (why,))
        return judged(gates.facts(call_with(subject)), gates.in_order)

    def servers(self) -> Sequence[ListedServer]:
        """Its MCP servers."""
        return self._mcp.servers.listed()

    def add_server(self, server: McpServer) -> str:
        """Start one more MCP server; why it is not started, else ""."""
        return self._mcp.add(server, self._toolset.loaded)

    def remove_server(self, name: str) -> bool:
        """End an MCP server and take its tools away; False when there is none of that name."""
        return self._mcp.remove(name)
