"""The engine of one session: it answers prompts, slash commands, and extension requests about the session.

It also holds the state of the session that is stored in addition to its events, without secrets that the user typed.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import takewhile
from time import monotonic
from typing import cast
from uuid import uuid4

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint

from acp_agent.agent.history import History
from acp_agent.agent.turn import Agent
from acp_agent.core.editor import ReadPrompt
from acp_agent.core.errors import AgentError, ToolErrorCategory, ToolFailure
from acp_agent.core.events import EventSink, Notice, Severity, TextDelta, UsageChanged, UserMessage
from acp_agent.core.mcp import McpServer
from acp_agent.core.messages import Message, Part, Role, StopReason, TextPart, ToolUsePart, typed
from acp_agent.core.ports import Backends
from acp_agent.core.secrets import Redact, verbatim
from acp_agent.core.sessions import Change, DuePrompt, HistoryState, SeenFile, UsageTotals
from acp_agent.core.types import JsonObject, Subject, ToolCall, ToolResult
from acp_agent.output.markdown_images import defused
from acp_agent.output.redaction.redactor import Redactor
from acp_agent.session.mcp_servers import SessionMcpServers
from acp_agent.session.models import SessionModels
from acp_agent.session.slash import commands
from acp_agent.session.slash.commands import Review
from acp_agent.session.slash.handler import SlashCommandHandler
from acp_agent.session.titles import TitleUpdater
from acp_agent.session.toolset.extensions import Expansion
from acp_agent.session.toolset.gate_factory import GateMemory
from acp_agent.session.toolset.reloading import ReloadingToolset
from acp_agent.session.toolset.toolset import SessionTools
from acp_agent.session.turn_slot import Answer
from acp_agent.session.verdicts import Finding, call_with, examined
from acp_agent.session.workspace_facts import WorkspaceFacts

_NO_NAME = re.compile(r"[^A-Za-z0-9-]+")
_SHORT = 32 * 1024
"""Texts of up to this many characters are redacted on the event loop, longer ones in a thread."""


class RedactedHistory:
    """The history without secrets, for the store. Every message is redacted once and then stays the same object.

    Thoughts and opaque blocks are stored unchanged, because they are signed, or only their provider can read them.

    before   the stored messages with which the history begins
    """

    def __init__(self, history: History, redactor: Redactor, before: Sequence[Message] = ()) -> None:
        self._history = history
        self._redactor = redactor
        pairs = takewhile(lambda pair: pair[0] == pair[1], zip(history.messages(), before, strict=False))
        self._seen: tuple[Message, ...] = tuple(said for said, _ in pairs)
        self._state = HistoryState(tuple(before[: len(self._seen)]))
        self._ready: dict[int, tuple[Message, Message]] = {}  # long messages and their redacted forms, by id()

    async def redact_long(self) -> None:
        """Redact the long new messages in a thread, so that `state` does not block for long."""
        while True:
            long: list[Message] = []
            for message in self._new():
                length = 0
                for part in message.parts:
                    if isinstance(part, TextPart):
                        length += len(part.text)
                    elif isinstance(part, ToolUsePart):
                        length += len(part.raw_arguments)
                if length > _SHORT and id(message) not in self._ready:
                    long.append(message)
            if not long:
                return
            clean = await to_thread.run_sync(lambda new=long: list(map(self._redacted, new)), abandon_on_cancel=True)
            self._ready |= {id(said): (said, hidden) for said, hidden in zip(long, clean, strict=True)}

    def state(self) -> HistoryState:
        """Return the current history. Its tuple of messages stays the same object until the messages change."""
        history, messages = self._history, self._history.messages()
        kept = self._state.messages
        if messages is not self._seen:
            new = self._new()
            clean: list[Message] = []
            for message in new:
                ready = self._ready.get(id(message))
                clean.append(ready[1] if ready else self._redacted(message))
            kept = (*kept[: len(messages) - len(new)], *clean)
            self._seen = messages
            self._ready.clear()
        self._state = HistoryState(kept, history.summaries, history.estimate())
        return self._state

    def _new(self) -> tuple[Message, ...]:
        """Return the messages that are new or changed since `state` was called."""
        seen, messages = self._seen, self._history.messages()
        if messages is seen:
            return ()
        if messages[: len(seen)] == seen:  # fast: compares identities first
            return messages[len(seen) :]
        same = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], zip(seen, messages, strict=False)))
        return messages[same:]

    def _redacted(self, message: Message) -> Message:
        parts: list[Part] = []
        for part in message.parts:
            if isinstance(part, TextPart):
                parts.append(TextPart(self._redactor(part.text)))
            elif isinstance(part, ToolUsePart):
                arguments, shown = part.arguments, self._redactor(part.name)
                hidden = None if arguments is None else cast("JsonObject", self._redactor.json(arguments))
                # The model may have made up the name, and servers accept only some characters.
                name = part.name if shown == part.name else _NO_NAME.sub("_", shown)
                raw = self._redactor(part.raw_arguments)
                parts.append(replace(part, name=name, arguments=hidden, raw_arguments=raw))
            else:
                parts.append(part)
        return message if tuple(parts) == message.parts else replace(message, parts=tuple(parts))


class SessionState:
    """The state of a session that is stored besides its events: history, usage, model and the files it has seen.

    redact   removes secrets from texts
    before   the messages that are already stored
    seen     returns the files that the session has seen: the same object until something changes
    """

    def __init__(
        self,
        history: History,
        models: SessionModels,
        memory: GateMemory,
        redact: Redactor,
        before: Sequence[Message],
        seen: Callable[[], Mapping[str, SeenFile]],
    ) -> None:
        self.redact: Redact = redact
        self._history = history
        self._seen = seen
        self._redacted = RedactedHistory(history, redact, before)
        self._models = models
        self._memory = memory
        self._fill = (0, 0)  # tokens used, and the window's size

    def restore(self, totals: UsageTotals, typed: Sequence[str] = ()) -> None:
        """Continue from the totals of a stored session, and remember what the user typed in it."""
        for text in typed:
            self._memory.learn(text)
        self._fill = (totals.used, totals.size)
        self._models.usage.restore(totals)
        self._memory.quota.restore(totals.batches, totals.calls)
        self._memory.trust.has_read(totals.read_from)

    def measured(self, event: UsageChanged) -> UsageChanged:
        """Record how full the window is. Return the event with the cost of the session so far."""
        self._fill = (event.used, event.size)
        return UsageChanged(event.used, event.size, self._models.usage.cost)

    async def kept(self) -> Change:
        """Return the current state. Long texts are redacted in a thread."""
        await self._redacted.redact_long()
        return self.state()

    def state(self) -> Change:
        """Return the current state."""
        usage, use = self._models.usage, self._memory.quota.use
        used, size = self._fill
        under_way, sources = self._history.in_turn, tuple(self._memory.trust.read_from)
        spent = usage.tokens, usage.cost, usage.complete
        totals = UsageTotals(used, size, *spent, use.calls, use.batches, under_way, sources)
        model = self._models.in_use or None
        return Change(history=self._redacted.state(), usage=totals, model=model, seen=self._seen())


class TurnEngine:
    """The part of an engine that answers prompts: it runs slash commands, and a turn of the model for all others.

    agent         returns the agent that runs turns. Raises AgentError, whose text tells the user how to set up a model
    backends      returns the backends with which the links of a prompt are read
    handler       runs slash commands
    begin         called with the typed text of each prompt before the prompt is used
    redact        removes secrets from the attachments of a prompt, and from the whole prompt before it is stored
    diagnostics   returns the diagnostics of the editor's language servers as text for the model; None without servers
    facts         the facts about the folder that the model gets with a prompt; None for no facts
    """

    def __init__(
        self,
        agent: Callable[[], Awaitable[Agent]],
        backends: Callable[[], Awaitable[Backends]],
        emit: EventSink,
        handler: SlashCommandHandler,
        begin: Callable[[str], object] = len,
        redact: Redact = verbatim,
        diagnostics: Callable[[], Awaitable[str]] | None = None,
        facts: WorkspaceFacts | None = None,
    ) -> None:
        self._agent = agent
        self._backends = backends
        self._emit = emit
        self._handler = handler
        self._begin = begin
        self._redact = redact
        self._diagnostics = diagnostics
        self._facts = facts

    async def answer(self, read: ReadPrompt) -> Answer:
        """Answer one prompt. Once parsed it belongs to the conversation, even if its links cannot be read."""
        prompt = await read(self._redact)
        command = commands.parse(prompt.texts)
        await self._emit(UserMessage(await prompt.stored_parts(), str(uuid4())))
        self._begin(typed(prompt.parts))
        await self._handler.prepare(ask=command is None)
        expansion = None if command else self._handler.expand(*commands.first_word(prompt.texts))
        slip = None if expansion else commands.misspelt(prompt.texts)
        backends = await self._backends()
        message = await prompt.read(backends.files, backends.web, None if command or slip else self._diagnostics)
        for skipped in prompt.skipped:
            await self._emit(Notice(Severity.WARNING, f"left out of the prompt: {skipped}"))
        parts: Sequence[Part] = message.parts
        outcome = await self._handler.run(*command, backends.files) if command else None
        if isinstance(outcome, Expansion):
            expansion = outcome
        if isinstance(outcome, Review):
            parts = (TextPart(outcome.prompt),)
        elif expansion is not None:
            parts = prompt.message_with(expansion.text, commands.length(prompt.texts)).parts
        elif isinstance(outcome, str):
            return await self._say(outcome)
        elif slip:
            return await self._say(_hint(*slip))
        elif mention := self._handler.mentioned(prompt.texts):
            agent, words = mention
            task = prompt.message_with(words, commands.length(prompt.texts)).text
            return await self._say(await self._handler.give(agent, task))
        narrowed = self._handler.limited_to(None if expansion is None else expansion.tools)
        with narrowed, self._handler.reading_only() if isinstance(outcome, Review) else nullcontext():
            return await self._run(parts)

    async def carry_out(self, due: DuePrompt) -> Answer:
        """Run one turn for a scheduled prompt. Its text is never a slash command and does not count as the user's."""
        begun, failure = monotonic(), ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, "ended by an error")
        self._begin(f"/{commands.CommandName.SCHEDULE}")  # the prompt's text does not count as typed
        try:
            await self._handler.prepare(ask=False)
            await self._backends()
            answer = await self._run((TextPart(due.text),))
            failure = answer.failure and ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, str(answer.failure))
            return answer
        except anyio.get_cancelled_exc_class():
            failure = ToolFailure(ToolErrorCategory.CANCELLED, "cancelled")
            raise
        finally:
            result = ToolResult.failed(failure) if failure else ToolResult("")
            self._handler.record(ToolCall(due.id, "schedule", due.card), result, monotonic() - begun)

    async def _run(self, parts: Sequence[Part]) -> Answer:
        """Run one turn of the model."""
        try:
            agent = await self._agent()
        except AgentError as error:
            return await self._say(str(error), error)
        facts = await self._facts.news() if self._facts is not None else ""
        told = "\n\n".join(filter(None, (facts, await self._handler.hook_notes())))
        return Answer(await agent.run(Message(Role.USER, tuple(parts)), told), agent.failure)

    def look_around(self) -> None:
        """Read the folder's state in the background, for the facts of the next prompt."""
        if self._facts is not None:
            self._facts.look()

    async def _say(self, text: str, failure: AgentError | None = None) -> Answer:
        """Show the user a text as the answer of the turn. The model does not read it."""
        await self._emit(TextDelta(defused(self._redact(text)), str(uuid4())))
        return Answer(StopReason.END_TURN, failure)


def _hint(word: str, meant: str) -> str:
    """Return the message to the user about a misspelt command."""
    advice = "Nothing was sent to the model; to send it this text, begin with another word."
    return f"There is no command `/{word}`. Did you mean `/{meant}`? {advice}"


class SessionEngine:
    """The engine of one session: it answers the prompts, and has the session's data for the extension methods.

    answer          runs one turn. Raises RequestError if the prompt is malformed
    carry_out       runs one turn for a scheduled prompt
    state           returns the state to store now: history, usage, model
    kept            returns the same, but redacts long texts in a thread
    answered        finishes a turn in the background: sets the title and reads the folder's state
    commands        returns the slash commands that are available now
    status          returns the lines of /status
    tools           returns the tools that the model may call now, under the configuration on disk
    servers         returns the MCP servers
    remove_server   ends an MCP server and removes its tools; returns False if no server has this name
    redact          removes secrets from texts. It does not keep the engine alive
    quiet           waits for a short time until no other session runs a turn
    """

    def __init__(
        self,
        turns: TurnEngine,
        state: SessionState,
        titles: TitleUpdater,
        handler: SlashCommandHandler,
        toolset: ReloadingToolset,
        mcp: SessionMcpServers,
        tools: SessionTools,
        quiet: Callable[[], Awaitable[None]] = checkpoint,
    ) -> None:
        self.answer, self.carry_out = turns.answer, turns.carry_out
        self.state, self.kept = state.state, state.kept
        self.commands, self.status = handler.offered, handler.status
        self.tools = toolset.specs
        self.servers, self.remove_server = mcp.connections.listed, mcp.remove
        self.redact = state.redact
        self._titles = titles
        self._handler = handler
        self._toolset = toolset
        self._mcp = mcp
        self._tools = tools
        self._turns = turns
        self._quiet = quiet
        self._answered: list[Answer] = []  # the answers of turns that are not finished

    async def answered(self, answer: Answer) -> bool:
        """Finish a turn in the background after its answer was sent. Turns of other sessions have precedence.

        Return False if an earlier turn still waits for them: it is then finished together with that one.
        """
        await self._handler.turn_ended(answer)
        self._answered.append(answer)
        if len(self._answered) > 1:
            return False
        try:
            await self._quiet()
        finally:
            answers, self._answered = self._answered, []
        self._turns.look_around()
        for each in answers:
            await self._titles.answered(each)
        return True

    @property
    def calls(self) -> int:
        """The number of tool calls of the conversation so far."""
        return self._handler.calls

    @property
    def runs_processes(self) -> bool:
        """Whether any process runs in the background."""
        return self._tools.runs_processes()

    async def close(self) -> None:
        """Close the MCP servers, the background processes and the session's folders.

        The programs of the servers end in the background.
        """
        self._titles.close()
        await self._handler.session_ended()
        self._mcp.connections.close()
        await self._tools.end()

    async def judged(self, subject: Subject) -> Finding:
        """Return the verdict on a call with this subject, without asking the user or running anything."""
        self._toolset.specs()  # this call applies a changed configuration
        gates = self._handler.gates()
        if not gates.in_order:
            why = str(self._toolset.loaded.fault or "nothing runs in this session")
            return Finding("deny", "", "", (why,))
        return await examined(gates.facts(call_with(subject)), gates.in_order)

    def add_server(self, server: McpServer) -> str:
        """Start one more MCP server. Return why it is not started, or ""."""
        return self._mcp.add(server, self._toolset.loaded)
