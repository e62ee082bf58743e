"""The worker that carries out a run: a model with its own conversation and some of the session's tools."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from acp_agent.agent.compaction import CompactorFactory
from acp_agent.agent.history import History
from acp_agent.agent.hooks import Hooks, Reports
from acp_agent.agent.turn import Agent, Limits
from acp_agent.core.data import frozen
from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.events import Event, Notice, TextDelta, ToolProgress
from acp_agent.core.messages import Message, Role, StopReason, TextPart, ToolResultPart, ToolUsePart
from acp_agent.core.ports import Provider, Toolset
from acp_agent.core.types import CallingAgent, ToolCall, ToolResult, ToolSpec, Touches, tool_id
from acp_agent.gates.mode import offered_in
from acp_agent.gates.selection import Selection
from acp_agent.subagents.definitions import Definition

if TYPE_CHECKING:  # few sessions have a board
    from acp_agent.subagents.board import SharedWork


@frozen
class WorkOutcome:
    """The end of a run.

    report   its last message
    trouble  why it could not go on; empty if it could
    """

    report: str
    trouble: str = ""


Progress = Callable[[ToolProgress], Awaitable[None]]
"""Shows news of a call on its card."""


class Worker(Protocol):
    """A worker that carries out the tasks of one run, one after another, in one conversation."""

    @property
    def calls(self) -> int:
        """The number of tool calls so far."""
        ...

    async def work(self, words: str, caller: CallingAgent, progress: Progress) -> WorkOutcome:
        """Do the task in `words`. After a cancellation the conversation contains what was done until then.

        caller     who makes the calls, and whose card shows them
        progress   shows news on that card

        Raises AgentError if it cannot begin, or if another agent's program fails.
        """
        ...

    def conversation(self) -> str:
        """Return the conversation so far as text for people and models; empty for none."""
        ...


class NarrowedTools:
    """A part of the session's tools, for one sub-agent. Its calls pass the session's own gates.

    toolset    the session's tools
    selection  the definition's choice among them
    """

    def __init__(self, toolset: Toolset, selection: Selection, caller: CallingAgent) -> None:
        self._toolset = toolset
        self._selection = selection
        self._caller = caller
        self._refused: dict[str, ToolResult] = {}  # calls that `announce` refused, by id: they have ended
        self.calls = 0

    def specs(self) -> Sequence[ToolSpec]:
        """Return the tools that the sub-agent may call now."""
        mode = self._caller.mode
        return [
            spec
            for spec in self._toolset.specs()
            if offered_in(mode, spec) and not self._selection.objection(spec.name, spec.server, commands=spec.commands)
        ]

    async def announce(self, call: ToolCall) -> Touches:
        """Show the start of a call that will run later, and return what it touches. Refuse a tool that it lacks."""
        refused = self._refusal(call)
        if refused is None:
            return await self._toolset.announce(self._stamped(call))
        self._refused[call.id] = refused
        await self._toolset.refuse(self._stamped(call), refused)
        return Touches()

    async def run(self, call: ToolCall, *, announced: bool = False) -> ToolResult:
        """Run a call of a tool that the sub-agent has, and refuse any other."""
        self.calls += 1
        if (before := self._refused.get(call.id)) is not None:
            return before
        refused = self._refusal(call)
        if refused is None:
            return await self._toolset.run(self._stamped(call), announced=announced)
        await self.refuse(call, refused, announced=announced)
        return refused

    async def refuse(self, call: ToolCall, result: ToolResult, *, announced: bool = False) -> None:
        """Show and record a call that does not run."""
        if call.id not in self._refused:
            await self._toolset.refuse(self._stamped(call), result, announced=announced)

    def _refusal(self, call: ToolCall) -> ToolResult | None:
        """Return the refusal of a call of a tool that the sub-agent lacks; None for one that it has."""
        meant, has = tool_id(call.name).lower(), [spec.name for spec in self.specs()]
        if any(meant == name.lower() for name in has):
            return None
        advice = f"Use one of your tools ({', '.join(has)}), or report what you could not do."
        reason = f"{self._caller.name} has no tool '{call.name[:80]}'"
        return ToolResult.refused(reason, ToolErrorCategory.TOOL_NOT_FOUND, advice=advice)

    def _stamped(self, call: ToolCall) -> ToolCall:
        """Return the call with its caller, and without the id that it has in the sub-agent's conversation."""
        return replace(call, agent=self._caller, use_id="")


@frozen
class ModelDependencies:
    """The parts of a session that the models of its sub-agents use.

    toolset    returns the session's tools
    provider   returns the model of a definition. Raises AgentError
    prompt     returns the system prompt of a definition with these tools
    servers    returns the names of the session's MCP servers
    limits     returns the session's limits of a turn
    compactor  returns the compactor of a conversation, for its budget of tokens
    shared     returns the board and the mail of the session; None if it has none
    """

    toolset: Callable[[], Toolset]
    provider: Callable[[Definition], Awaitable[Provider]]
    prompt: Callable[[Definition, Sequence[ToolSpec]], Awaitable[str]]
    servers: Callable[[], Sequence[str]]
    limits: Callable[[], Limits]
    compactor: CompactorFactory
    shared: "Callable[[], SharedWork | None]" = lambda: None


_STOPPED = {
    StopReason.MAX_TURN_REQUESTS: "stopped after its last model call (max_turns)",
    StopReason.MAX_TOKENS: "stopped, since its context or its answer was full",
    StopReason.REFUSAL: "its model refused to go on",
}


class ModelWorker:
    """A worker that asks a model. Its conversation begins empty and goes on from task to task.

    calls   the number of tool calls so far
    """

    def __init__(self, definition: Definition, needs: ModelDependencies) -> None:
        self._definition = definition
        self._needs = needs
        self._history = History()
        self.calls = 0

    async def work(self, words: str, caller: CallingAgent, progress: Progress) -> WorkOutcome:
        """Run one turn. Its text is shown as progress, and its last message is the report. Raises AgentError."""
        definition, needs = self._definition, self._needs
        provider = await needs.provider(definition)
        tools = NarrowedTools(needs.toolset(), definition.selection(needs.servers()), caller)
        prompt = await needs.prompt(definition, tools.specs())

        async def show(event: Event) -> None:
            if isinstance(event, TextDelta | Notice):
                text = event.text if isinstance(event, TextDelta) else f"\n[{event.text}]\n"
                await progress(ToolProgress(caller.card, output=text))

        limits = replace(needs.limits(), max_tool_iterations=definition.max_turns)
        compactor = needs.compactor(self._history, show, lambda: limits.budget(provider.context_window))
        hooks = Hooks(limiter=compactor, reports=self._reports(caller.id))
        agent = Agent(provider, tools, self._history, show, limits, prompt, hooks=hooks)
        before = self.calls
        try:
            stop = await agent.run(Message(Role.USER, (TextPart(words),)))
        finally:
            self.calls = before + tools.calls
        report, is_answer = self._last_words(words)
        if agent.failure is not None:
            return WorkOutcome(report, f"its model could not answer: {agent.failure}")
        return WorkOutcome(report, _STOPPED.get(stop, "") or ("" if is_answer else "it ended without a report"))

    def _reports(self, run_id: str) -> Reports | None:
        """Return the reports about the sub-agent's messages and tasks; None if the session has neither."""
        if (shared := self._needs.shared()) is None:
            return None
        from acp_agent.subagents.board import SharedReports  # noqa: PLC0415 - few sessions have a board

        return SharedReports(shared, run_id)

    def _last_words(self, words: str) -> tuple[str, bool]:
        """Return the last text of the model in the turn that began with `words`, and whether it ended the turn.

        An empty answer is not in the history. Then the last text is from before the calls that ended the turn.
        """
        said = ""
        for message in reversed(self._history.messages()):
            if message.role is Role.ASSISTANT:
                said = said or message.text.strip()
            elif TextPart(words) in message.parts:
                return said, bool(said) and not self._history.awaits_reply
        return "", False  # the turn is no longer in the history

    def conversation(self) -> str:
        """Return the conversation so far, one heading a message."""
        return "\n\n".join(f"## {message.role.value}\n\n{_text_of(message)}" for message in self._history.messages())


def _text_of(message: Message) -> str:
    parts: list[str] = []
    for part in message.parts:
        match part:
            case TextPart(text):
                parts.append(text)
            case ToolUsePart():
                parts.append(f"[calls {part.name} {part.raw_arguments or part.arguments}]")
            case ToolResultPart():
                parts.append(f"[result]\n{part.text}")
            case _:
                pass
    return "\n\n".join(parts)
