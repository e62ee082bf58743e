"""The engine of one session: it answers prompts, slash commands, and extension requests about the session."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import nullcontext
from typing import Protocol
from uuid import uuid4

from acp_agent.core.editor import ReadPrompt
from acp_agent.core.errors import AgentError
from acp_agent.core.events import EventSink, Notice, Severity, TextDelta, UserMessage
from acp_agent.core.mcp import ListedServer, McpServer
from acp_agent.core.messages import Message, Part, Role, StopReason, TextPart, typed
from acp_agent.core.ports import Backends
from acp_agent.core.secrets import Redact, verbatim
from acp_agent.core.sessions import Change
from acp_agent.core.types import Subject, ToolSpec
from acp_agent.output.markdown_images import defused
from acp_agent.session.mcp_servers import SessionMcpServers
from acp_agent.session.slash import commands
from acp_agent.session.slash.commands import CommandName
from acp_agent.session.slash.handler import SlashCommandHandler
from acp_agent.session.slash.review import Review
from acp_agent.session.snapshots import SessionState
from acp_agent.session.titles import TitleUpdater
from acp_agent.session.toolset.toolset import ReloadingToolset
from acp_agent.session.turn_slot import Answer
from acp_agent.session.verdicts import Finding, call_with, judged


class ModelTurns(Protocol):
    """The part of an Agent that runs turns of the model."""

    @property
    def failure(self) -> AgentError | None:
        """The error that ended the last turn, if one did."""
        ...

    async def run(self, prompt: Message) -> StopReason:
        """Run one turn."""
        ...


class TurnEngine:
    """Answers prompts: slash commands itself, everything else with the model.

    agent         returns the agent that runs turns. Raises AgentError, whose text tells the user how to set up a model
    backends      returns the backends with which the links of a prompt are read
    handler       runs slash commands
    begin         called with the typed text of each prompt before the prompt is used
    redact        removes secrets from the attachments of a prompt, and from the whole prompt before it is stored
    diagnostics   returns the diagnostics of the editor's language servers as text for the model; None without servers
    """

    def __init__(
        self,
        agent: Callable[[], Awaitable[ModelTurns]],
        backends: Callable[[], Awaitable[Backends]],
        emit: EventSink,
        handler: SlashCommandHandler,
        begin: Callable[[str], object] = len,
        redact: Redact = verbatim,
        diagnostics: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        self._agent = agent
        self._backends = backends
        self._emit = emit
        self._handler = handler
        self._begin = begin
        self._redact = redact
        self._diagnostics = diagnostics

    async def answer(self, read: ReadPrompt) -> Answer:
        """Answer one prompt. It is part of the conversation once it was read, even if its links cannot be read."""
        prompt = await read(self._redact)
        command, slip = commands.parse(prompt.texts), commands.misspelt(prompt.texts)
        await self._emit(UserMessage(await prompt.stored_parts(), str(uuid4())))
        self._begin(typed(prompt.parts))
        backends = await self._backends()
        message = await prompt.read(backends.files, backends.web, None if command or slip else self._diagnostics)
        for skipped in prompt.skipped:
            await self._emit(Notice(Severity.WARNING, f"left out of the prompt: {skipped}"))
        parts: Sequence[Part] = message.parts
        outcome = await self._handler.run(*command, backends.files) if command else None
        if isinstance(outcome, Review):
            parts = (TextPart(outcome.prompt),)
        elif outcome is not None:
            return await self._say(outcome)
        elif slip:
            return await self._say(_did_you_mean(*slip))
        with self._handler.reading_only() if outcome is not None else nullcontext():
            try:
                agent = await self._agent()
            except AgentError as error:
                return await self._say(str(error), error)
            return Answer(await agent.run(Message(Role.USER, tuple(parts))), agent.failure)

    async def _say(self, text: str, failure: AgentError | None = None) -> Answer:
        """Tell the user a text that the model does not read."""
        await self._emit(TextDelta(defused(self._redact(text)), str(uuid4())))
        return Answer(StopReason.END_TURN, failure)


def _did_you_mean(word: str, name: CommandName) -> str:
    return (
        f"There is no command `/{word}`. Did you mean `/{name}`? "
        "Nothing was sent to the model; to send it this text, begin with another word."
    )


class SessionEngine:
    """The engine of one session: see Engine. It also answers about the session for the extension methods.

    answer    runs one turn
    handler   reports the status of the session
    toolset   its tools, by the configuration as it is on disk now
    mcp       its MCP servers
    redact    removes secrets from texts
    release   releases the resources of its tools
    """

    def __init__(
        self,
        turns: TurnEngine,
        state: SessionState,
        titles: TitleUpdater,
        handler: SlashCommandHandler,
        toolset: ReloadingToolset,
        mcp: SessionMcpServers,
        redact: Redact,
        release: Callable[[], None],
    ) -> None:
        self.answer = turns.answer
        self._state = state
        self._titles = titles
        self._handler = handler
        self._toolset = toolset
        self._mcp = mcp
        self.redact = redact
        self._release = release

    def state(self) -> Change:
        return self._state.state()

    async def kept(self) -> Change:
        return await self._state.kept()

    async def answered(self, answer: Answer) -> None:
        """Give the conversation a title if it has none."""
        await self._titles.answered(answer)

    def commands(self) -> Collection[CommandName]:
        return self._handler.available()

    async def close(self) -> None:
        """Close the MCP servers and the session's folders. The programs of the servers end in the background."""
        self._titles.close()
        self._mcp.connections.close()
        self._release()

    # -------------------------------------------------------------------------------------- answers

    def status(self) -> Sequence[str]:
        """Return the lines of /status."""
        return self._handler.status()

    def tools(self) -> Sequence[ToolSpec]:
        """Return the tools that the model may call now."""
        return self._toolset.specs()

    def judged(self, subject: Subject) -> Finding:
        """Return the verdict on a call with this subject, without asking the user or running anything."""
        self._toolset.specs()  # applies a configuration that has changed
        gates = self._handler.gates()
        if not gates.in_order:
            why = str(self._toolset.loaded.fault or "nothing runs in this session")
            return Finding("deny", "", "", (why,))
        return judged(gates.facts(call_with(subject)), gates.in_order)

    def servers(self) -> Sequence[ListedServer]:
        """Return the MCP servers."""
        return self._mcp.connections.listed()

    def add_server(self, server: McpServer) -> str:
        """Start one more MCP server. Return why it is not started, or ""."""
        return self._mcp.add(server, self._toolset.loaded)

    def remove_server(self, name: str) -> bool:
        """End an MCP server and remove its tools. Return False if no server has this name."""
        return self._mcp.remove(name)
