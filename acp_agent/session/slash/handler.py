"""The handler of the slash commands: what each command does and tells the user."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Protocol, assert_never
from uuid import uuid4

import anyio

from acp_agent.agent.prompt import ran
from acp_agent.config.load import Loaded
from acp_agent.core.backends import FileSystem
from acp_agent.core.data import frozen
from acp_agent.core.delegation import SubAgents
from acp_agent.core.errors import AgentError, StoreUnavailable
from acp_agent.core.events import EventSink, OfferedCommand, UsageChanged
from acp_agent.core.messages import Message, Role, TextPart
from acp_agent.core.ports import Toolset
from acp_agent.core.secrets import Redact
from acp_agent.core.services import Compaction, Remembered
from acp_agent.core.session_options import FREEDOMS, Freedom, model_in_force
from acp_agent.core.types import CallOrigin, JsonObject, ToolCall, ToolResult, tool_id
from acp_agent.core.untrusted import utc
from acp_agent.gates.gate import Gates
from acp_agent.gates.permission import PermissionGate
from acp_agent.session.conversation import Conversation
from acp_agent.session.model_choices import ModelChoices
from acp_agent.session.models import SessionModels, spent
from acp_agent.session.session import Session
from acp_agent.session.slash import commands
from acp_agent.session.slash.commands import ALWAYS, CommandName, Review, review_changes, review_path
from acp_agent.session.subagents import HANDOFF_USAGE, SessionHandoff
from acp_agent.session.toolset import gate_factory
from acp_agent.session.toolset.extensions import EarlyLooks, Expansion, SessionExtensions, no_looks
from acp_agent.session.toolset.gate_factory import GateMemory
from acp_agent.session.toolset.settings import RedactedMemories
from acp_agent.session.turn_slot import Answer
from acp_agent.session.verdicts import PolicyCommand
from acp_agent.store.memories import MemoryStore
from acp_agent.text import abbreviated, counted, defanged, fenced
from acp_agent.tools.agent import handoff_prompt, listing

if TYPE_CHECKING:
    from acp_agent.session.toolset.hooks import SessionHooks

_LISTED = 20  # notes
_LONGEST = 300  # characters of a note in a list
_OFF = "No notes are stored: memory is switched off (`memory.enabled`)."
_NO_SKILLS = "Skills are switched off (`skills.enabled`)."
_NO_AGENTS = "Sub-agents are switched off (`agents.enabled`)."
_USAGE = "Usage: `/memory`, `/memory search WORDS` or `/memory delete ID`"


async def run_memory(text: str, notes: MemoryStore | None, redact: Redact) -> str:
    """List, find or delete notes. Return the message for the user. Raises StoreUnavailable."""
    if notes is None:
        return _OFF
    verb, *rest = text.split(maxsplit=1) or [""]
    words = "".join(rest).strip()
    match verb:
        case "delete":
            return await _delete(words.lstrip("#"), notes) if words else _USAGE
        case "search":
            return await _search(words, notes, redact) if words else _USAGE
        case _:
            return await _search(text, notes, redact)


async def _search(words: str, notes: MemoryStore, redact: Redact) -> str:
    """Return the notes that match; for no words, the newest."""
    found = await RedactedMemories(notes, redact).search(words, _LISTED)
    if not found:
        return f"No note fits (searched by {notes.method})." if words else "There are no notes yet."
    head = "Notes that fit, best first:" if words else f"Notes, newest first (at most {_LISTED}):"
    return "\n".join((head, "", *map(_line, found), "", "`/memory delete ID` removes one for good."))


async def _delete(note: str, notes: MemoryStore) -> str:
    gone = await notes.delete(note)
    return f"There is no note `{note[:20]}`." if gone is None else f"Deleted:\n\n{_line(gone)}"


def _line(note: Remembered) -> str:
    day = utc(note.created_at).date().isoformat()
    text = " ".join(note.content.split())
    return f"- `{note.id}` ({day}) {abbreviated(text, _LONGEST)}"


class Restore(Protocol):
    """A function that takes back the changes of a turn, by default the last one, or brings them back."""

    async def __call__(self, number: int | None, *, redo: bool) -> str:
        """Return the message for the user. Raises UndoError."""
        ...


@frozen
class CommandDependencies:
    """The dependencies of the commands, except the session and its conversation.

    forget           removes the conversation from the store. Raises StoreUnavailable
    forget_results   drops the cached results of tools
    models           returns the models that can be chosen; None if the model cannot be changed
    refresh_models   asks one provider again for its models, and returns their number. Raises AgentError
    notes            returns the notes of all sessions; None if memory is switched off
    gates            returns the gates in force, in their order
    more             returns the lines of /status about optional parts
    servers          returns a line for each MCP server
    restore          takes back the changes of a turn, or brings them back, and returns the message. Raises UndoError
    extensions       the definitions of users, such as skills and commands
    hooks            returns the user's hooks; None if there are none
    agents           the sub-agents
    look_early       returns functions that read from the disk what a prompt for the model needs: see EarlyLooks
    handoff          the agent under whose definition the session goes on
    record           records a call in the audit, its result and its seconds; None if nothing is recorded
    look_threads     limits how many threads of all sessions look at the disk for prompts; None for no limit
    """

    forget: Callable[[], Awaitable[None]]
    forget_results: Callable[[], object]
    models: Callable[[], ModelChoices | None]
    refresh_models: Callable[[str], Awaitable[int]]
    notes: Callable[[], MemoryStore | None]
    gates: Callable[[], Gates]
    more: Callable[[], Sequence[str]]
    servers: Callable[[], Sequence[str]]
    restore: Restore
    extensions: SessionExtensions
    hooks: Callable[[], "SessionHooks | None"]
    agents: SubAgents
    look_early: EarlyLooks
    handoff: SessionHandoff
    record: Callable[[ToolCall, ToolResult, float], None] | None = None
    look_threads: anyio.CapacityLimiter | None = None


class SlashCommandHandler:
    """The handler of the slash commands of one session. Answers are markdown.

    loaded   returns the configuration in force
    emit     shows events
    """

    def __init__(
        self,
        session: Session,
        loaded: Callable[[], Loaded],
        conversation: Conversation,
        models: SessionModels,
        memory: GateMemory,
        emit: EventSink,
        toolset: Toolset,
        dependencies: CommandDependencies,
    ) -> None:
        self._session = session
        self._loaded = loaded
        self._conversation = conversation
        self._models = models
        self._memory = memory
        self._emit = emit
        self._toolset = toolset
        self._needs = dependencies

    def available(self) -> frozenset[CommandName]:
        """Return the commands that are available now. This is cheap."""
        settings = self._loaded().settings
        tools = settings.tools
        ruled = tools.policy.enabled or tools.authorization.enabled or bool(tools.permissions)
        makes_sense = {
            CommandName.MCP: bool(self.servers()),
            CommandName.MEMORY: settings.memory.enabled,
            CommandName.SKILLS: bool(self._needs.extensions.skills.all),
            CommandName.POLICY: ruled,
            CommandName.SCHEDULE: settings.scheduler.enabled,
        }
        return ALWAYS | {name for name, sense in makes_sense.items() if sense}

    def offered(self) -> tuple[OfferedCommand, ...]:
        """Return all commands that are available now, as they are sent to editors. This is cheap."""
        return (*commands.offered(self.available()), *self._needs.extensions.offered())

    def expand(self, name: str, argument: str) -> Expansion | None:
        """Return what a command of the user, or a skill by its name, sends to the model; None for other words."""
        return self._needs.extensions.expand(name, argument)

    def mentioned(self, texts: Sequence[str]) -> tuple[str, str] | None:
        """Return the sub-agent that a prompt gives a task, and the task; None for other prompts."""
        enabled = self._loaded().settings.agents.enabled
        return commands.mentioned(texts, [each.name for each in self._needs.agents.offered()] if enabled else ())

    async def give(self, agent: str, task: str) -> str:
        """Give a sub-agent the user's task. Return its report; the model reads it in the next turn."""
        if not task.strip():
            return f"Say what `{agent}` is to do: `@{agent} TASK`"
        return await self._delegate("agent", {"agent": agent, "task": task}, f"the sub-agent {agent} do this: {task}")

    async def evaluate(self, text: str) -> str:
        """Have the user's task done and judged. Return the last report with the verdict."""
        if not self._loaded().settings.agents.enabled:
            return _NO_AGENTS
        criteria, colon, task = text.partition(":")
        if not (colon and criteria.strip() and task.strip()):
            return "Usage: `/evaluate CRITERIA: TASK`; `general` does the task, and `review` judges it by the criteria."
        arguments: JsonObject = {"criteria": criteria.strip(), "task": task.strip()}
        return await self._delegate("evaluate", arguments, f"sub-agents do and judge this: {text}")

    async def handoff(self, text: str) -> str | Expansion:
        """Go on under another definition. Return the message, or the user's words for the model. Raises ToolError."""
        name, *rest = text.split(maxsplit=1) or [""]
        if not name:
            return "\n\n".join((*self._needs.handoff.status(), HANDOFF_USAGE))
        words = "".join(rest).strip()
        told = await self._needs.handoff.to(name)
        return Expansion(handoff_prompt(self._needs.handoff.name, words)) if words else told

    async def schedule(self, text: str) -> str | Expansion:
        """List, add, cancel or run scheduled prompts. Raises AgentError."""
        schedule = self._session.scheduler
        if schedule is None:
            return "Nothing can be scheduled: this conversation is not stored."
        verb, *rest = text.split() or [""]
        if verb == "run":
            return Expansion(await schedule.now("".join(rest)))
        return await schedule.command(text)

    async def _delegate(self, tool: str, arguments: JsonObject, what: str) -> str:
        """Make a call that gives agents work. Return what the user is told; the model reads it in the next turn."""
        result = await self._toolset.run(ToolCall(str(uuid4()), tool, arguments, origin=CallOrigin.USER))
        if window := self._models.window():
            await self._emit(UsageChanged(self._conversation.history.estimate(), window))  # for what it cost
        if result.failure is not None:
            return result.failure.message
        words = f"I had {what}\n\n{fenced('tool-output', defanged(result.text))}"
        self._conversation.history.append(Message(Role.USER, (TextPart(words),)))
        return result.shown

    def limited_to(self, tools: tuple[str, ...] | None) -> AbstractContextManager[None]:
        """Return a context in which the running turn has only these tools; None for all."""
        return self._session.limited_to(tools)

    async def prepare(self, *, ask: bool) -> None:
        """Look for the users' definitions, and ask about new files of the project if wanted."""
        needs = self._needs
        await needs.extensions.ready(ask=ask, early=needs.look_early if ask else no_looks, threads=needs.look_threads)
        if hooks := self._needs.hooks():
            source = "resume" if self._conversation.history.messages() else "startup"
            hooks.began(source, self._session.take_moved_from)

    async def hook_notes(self) -> str:
        """Return the notes of hooks that the model reads with this prompt; empty for none."""
        hooks = self._needs.hooks()
        return "" if hooks is None else await hooks.notes()

    @property
    def calls(self) -> int:
        """The number of tool calls of the conversation so far."""
        return self._memory.quota.use.calls

    def record(self, call: ToolCall, result: ToolResult, seconds: float) -> None:
        """Record the turn of a scheduled prompt in the audit, as a call."""
        if self._needs.record is not None:
            self._needs.record(call, result, seconds)

    async def turn_ended(self, answer: Answer) -> None:
        """Tell the user's hooks that a turn ended."""
        if hooks := self._needs.hooks():
            await hooks.turn_ended(str(answer.reason))

    async def session_ended(self) -> None:
        """Tell the user's hooks that the session ends, or is evicted."""
        if hooks := self._needs.hooks():
            await hooks.ended()

    def reading_only(self) -> AbstractContextManager[None]:
        """Return a context in which the running turn can only read and search. The mode gate enforces it."""
        return self._session.reading_only()

    async def run(self, name: CommandName, argument: str, files: FileSystem) -> str | Review | Expansion:
        """Run a command. Return the message for the user, or the prompt for the model.

        A command that takes no argument is not run if it has one.
        """
        if told := commands.unwanted_argument(name, argument):
            return told
        try:
            return await self._run(name, argument, files)
        except AgentError as error:
            return str(error)

    async def _run(  # noqa: C901, PLR0911, PLR0912 - the table
        self, name: CommandName, argument: str, files: FileSystem
    ) -> str | Review | Expansion:
        match name:
            case CommandName.MODEL:
                return await self.model(argument)
            case CommandName.MODE:
                return self.mode(argument)
            case CommandName.CLEAR:
                return await self.clear()
            case CommandName.COMPACT:
                return await self.compact(argument)
            case CommandName.REVIEW:
                return await (review_path(argument, files) if argument else review_changes(self._toolset))
            case CommandName.RUN:
                return await self._run_command(argument)
            case CommandName.UNDO | CommandName.REDO:
                return await self._restore(argument, redo=name is CommandName.REDO)
            case CommandName.TOOLS:
                return self._reset_tools(argument) if argument else self._list_tools()
            case CommandName.MEMORY:
                return await self.memory(argument)
            case CommandName.EVALUATE:
                return await self.evaluate(argument)
            case CommandName.HANDOFF:
                return await self.handoff(argument)
            case CommandName.SCHEDULE:
                return await self.schedule(argument)
            case CommandName.POLICY:
                return await self.policy(argument)
            case CommandName.PERMISSIONS:
                return await self.permissions(argument)
            case CommandName.TRUST:
                return await self._trust(argument)
            case _:
                return self._lines(name)

    # ------------------------------------------------------------------------------------- telling

    def _lines(
        self,
        name: Literal[
            CommandName.HELP,
            CommandName.STATUS,
            CommandName.COST,
            CommandName.SKILLS,
            CommandName.AGENTS,
            CommandName.MCP,
        ],
    ) -> str:
        """Return the answer of a command that only tells something."""
        match name:
            case CommandName.HELP:
                return commands.help_text(self.available(), self._needs.extensions.offered())
            case CommandName.STATUS:
                return _listed(self.status(), "Nothing is known yet.")
            case CommandName.COST:
                return _listed(self.cost(), "No model was asked yet.")
            case CommandName.SKILLS:
                enabled = self._loaded().settings.skills.enabled
                return self._needs.extensions.skills.described() if enabled else _NO_SKILLS
            case CommandName.AGENTS:
                return listing(self._needs.agents) if self._loaded().settings.agents.enabled else _NO_AGENTS
            case CommandName.MCP:
                return _listed(self.servers(), "This session has no MCP servers.")
            case _:
                assert_never(name)

    def status(self) -> Sequence[str]:
        """Return one line for each subject, and none for parts that are switched off."""
        loaded, model, use = self._loaded(), self._models.in_force, self._memory.quota.use
        freedom = self._session.active.freedom
        fallback = ", ".join(loaded.settings.llm.fallback)
        rounds = counted(use.batches, "round")
        limit = "" if use.limit is None else f"; {use.limit} rounds are allowed"
        return (
            f"Model: {model}{f'; fallback: {fallback}' if fallback else ''}" if model else "Model: none is configured",
            f"Mode: {FREEDOMS[freedom][0]} (`{freedom}`)",
            *self._conversation.status(),
            *self._models.usage.status(),
            f"Tool calls: {use.calls} in {rounds}{limit}",
            *(
                f"Blocked: {alarm.tool}, {alarm.rate:.0%} of its calls failed (`/tools reset {alarm.tool}`)"
                for alarm in self._memory.anomalies.alarms
            ),
            *gate_factory.status(loaded.settings, self._memory),
            *self._needs.more(),
            f"Configuration: {loaded.file}",
        )

    def servers(self) -> Sequence[str]:
        return self._needs.servers()

    def gates(self) -> Gates:
        """Return the gates in force, in their order."""
        return self._needs.gates()

    def cost(self) -> Sequence[str]:
        """Return the tokens by kind, and the cost in dollars if any price is known."""
        usage = self._models.usage
        return spent(usage.tokens, usage.cost, complete=usage.complete)

    async def memory(self, text: str) -> str:
        """List, find or delete notes. Raises StoreUnavailable."""
        return await run_memory(text, self._needs.notes(), self._session.redact)

    async def policy(self, text: str) -> str:
        """Return the rules in force, or the verdict on one call."""
        session = self._session
        return await PolicyCommand(self._loaded(), session.workspace, session.active, self.gates()).answer(text)

    async def permissions(self, text: str) -> str:
        """List the answers that hold in the session and its project, revoke one, or let one hold everywhere."""
        gate = next((each for each in self.gates().in_order if isinstance(each, PermissionGate)), None)
        answers = () if gate is None else gate.answers()
        verb, *rest = text.split() or [""]
        if gate is None or not answers:
            return "You have not answered “always” to anything in this project."
        answer = next((each for number, each in enumerate(answers, start=1) if rest == [str(number)]), None)
        if verb == "revoke" and answer is not None:
            done = await gate.revoke(answer)
            return f"{'Revoked' if done else 'Revoked until the agent ends'}: {answer.told}"
        if verb == "everywhere" and answer is not None:
            if not answer.widens:
                return f"This cannot hold everywhere: {answer.told}. Only programs, sites and folders in a project can."
            await gate.widen(answer)
            return f"Changed: {replace(answer, project='').told}"
        if verb:
            usage = "Usage: `/permissions`, `/permissions revoke N` or `/permissions everywhere N`"
            return f"{usage}, with N from 1 to {len(answers)}"
        lines = (f"{number}. {answer.told}" for number, answer in enumerate(answers, start=1))
        usage = "`/permissions revoke N` takes one back, `/permissions everywhere N` lets one hold in every project."
        return "\n".join(("Your answers:", "", *lines, "", usage))

    def _list_tools(self) -> str:
        described = ((spec.name, " ".join(spec.description.split())) for spec in self._toolset.specs())
        lines = [f"- `{name}` {text.partition('. ')[0].rstrip('.')}" for name, text in described]
        return "\n".join(("Tools in this mode:", "", *lines)) if lines else "No tool is available."

    # ------------------------------------------------------------------------------------ changing

    def _reset_tools(self, text: str) -> str:
        """Allow tools again that are blocked because they kept failing: one, or all of them."""
        verb, _, tool = text.partition(" ")
        if verb != "reset":
            return "Usage: `/tools`, `/tools reset` or `/tools reset TOOL`"
        anomalies, tool = self._memory.anomalies, tool_id(tool.strip())
        reset = [alarm.tool for alarm in anomalies.alarms if tool in ("", alarm.tool)]
        anomalies.reset(tool)
        if not reset:
            return f"`{tool[:40]}` was not blocked." if tool else "No tool was blocked."
        return (
            f"The failures of {', '.join(f'`{name}`' for name in reset)} no longer count; the agent may use it again."
        )

    async def _trust(self, text: str) -> str:
        """Return how far the conversation is trusted, trust it again, or use the folder's definitions."""
        trust, extensions = self._memory.trust, self._needs.extensions
        if text == "accept":
            return await extensions.accept()
        if text == "reset":
            trust.reset()
            return "The conversation is trusted again, until the agent reads something from outside."
        if text:
            return "Usage: `/trust`, `/trust reset` or `/trust accept`"
        told = _listed(trust.status(), f"Trust: {trust.conversation}; nothing from outside was read.")
        waiting = extensions.waiting()
        return "\n".join((told, "", "Files of this folder that are not used:", "", *waiting)) if waiting else told

    async def _run_command(self, command: str) -> str:
        """Run the user's command through the same gates and terminal. The model sees it in the next turn."""
        if not command:
            return "Usage: `/run COMMAND`"
        call = ToolCall(str(uuid4()), "bash", {"command": command}, origin=CallOrigin.USER)
        result = await self._toolset.run(call)
        self.ran(command, result.text)
        if result.failure is not None:
            return f"`{command}`: {result.failure.message}"
        code = (result.envelope or {}).get("exit_code")
        return f"`{command}` finished." if code == 0 else f"`{command}` exited with code {code}."

    async def _restore(self, turn: str, *, redo: bool) -> str:
        """Take back the agent's changes of a turn, or bring them back. The model learns of it in the next turn.

        Raises UndoError.
        """
        if turn and not (turn.isdecimal() and len(turn) < _LONGEST):
            return f"Usage: `/{'redo' if redo else 'undo'}` or `/{'redo' if redo else 'undo'} TURN`, the turn's number"
        told = await self._needs.restore(int(turn) if turn else None, redo=redo)
        note = f"I {'brought back' if redo else 'took back'} changes that you made to files. {told}"
        self._conversation.history.append(Message(Role.USER, (TextPart(self._session.redact(note)),)))
        return told

    def ran(self, command: str, output: str) -> None:
        """Add a command that the user has run to the conversation."""
        self._conversation.history.append(Message(Role.USER, (TextPart(ran(command, output)),)))

    async def model(self, text: str) -> str:
        """List the models, or choose one from the next prompt on. Raises AgentError."""
        options, models = self._session.options, self._needs.models()
        if models is None:
            return "Model switching is not configured."
        provider = model_in_force(options, models).partition(":")[0]
        if text == "refresh" and provider:
            count = await self._needs.refresh_models(provider)
            self._session.options_chosen()
            return f"{provider} offers {counted(count, 'model')}.\n\n{models.listed(options)}"
        if not text:
            return (
                f"{models.listed(options)}\n\n`/model ID`, or some words of it, chooses; `/model refresh` asks again."
            )
        before = replace(options)
        told = models.choose(options, text)
        if options != before:
            self._session.options_chosen()
        return told

    def mode(self, text: str) -> str:
        """List the modes, or switch from the next prompt on."""
        options, name = self._session.options, text.strip().lower()
        if not name:
            now = options.freedom
            listed = (
                f"- `{each}` ({title}): {told}{' ← now' if each is now else ''}"
                for each, (title, told) in FREEDOMS.items()
            )
            usage = "`/mode NAME` switches; `/mode code` ends `architect` and `ask`."
            return "\n".join(("Modes:", "", *listed, "", usage))
        before = replace(options)
        if not options.choose_freedom(name):
            return f"There is no mode `{name[:40]}`: expected one of {', '.join(Freedom)}."
        if options != before:
            self._session.options_chosen()
        title, told = FREEDOMS[options.freedom]
        return f"Mode: {title} (`{options.freedom}`), from the next prompt on. {told}."

    async def compact(self, focus: str) -> str:
        """Summarize the conversation. Raises ToolError if there is no summary."""
        told = await self._conversation.compactor.compact(Compaction.MANUAL, focus)
        agent = self._conversation.agent
        if window := agent.provider.context_window if agent else self._models.window():
            await self._emit(UsageChanged(self._conversation.history.estimate(), window))
        return told

    async def clear(self) -> str:
        """Forget the conversation and its counts. The user's options, their "always" answers and the costs stay."""
        self._conversation.clear()
        self._memory.clear()
        self._needs.forget_results()
        told = "The conversation is forgotten; the next prompt begins a new one."
        try:
            await self._needs.forget()
        except StoreUnavailable as error:
            told = f"The model has forgotten the conversation, but it is still stored: {error}"
        if window := self._models.window():
            await self._emit(UsageChanged(0, window))
        return told


def _listed(lines: Sequence[str], nothing: str) -> str:
    return "\n".join(f"- {line}" for line in lines) or nothing
