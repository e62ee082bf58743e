"""Where a session answers questions about itself: behind the slash commands (A17)."""

from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol, assert_never
from uuid import uuid4

from anyio import to_thread

from acp_agent.agent import notes
from acp_agent.config import Loaded
from acp_agent.core.backends import FileSystem
from acp_agent.core.clock import utc
from acp_agent.core.conduct import Choices, Conduct, Mode, model_in_force
from acp_agent.core.errors import AgentError, StoreUnavailable, ToolError, ToolErrorCategory
from acp_agent.core.events import EventSink, UsageChanged
from acp_agent.core.messages import Message, Role, TextPart, Usage
from acp_agent.core.ports import Toolset
from acp_agent.core.redaction import Redact, placeholders
from acp_agent.core.services import Compaction, Memories, Remembered
from acp_agent.core.types import CallOrigin, ToolCall, ToolResult
from acp_agent.gates.gate import Gates
from acp_agent.session.conversation import Conversation
from acp_agent.session.models import SessionModels
from acp_agent.session.session import Session
from acp_agent.session.slash import commands
from acp_agent.session.slash.commands import ALWAYS, Name
from acp_agent.session.slash.review import Review, review_changes, review_path
from acp_agent.session.toolset import gate_factory
from acp_agent.session.toolset.gate_memory import GateMemory


def spent(usage: Usage, cost: float | None, *, complete: bool) -> Sequence[str]:
    """Lines; none before the first answer.

    cost       US dollars of the calls whose price is known; None where none is
    complete   whether that is all of them. Where it is not, the price is never a guess: it is said what is missing
    """
    if usage == Usage() and cost is None:
        return () if complete else ("The model's server does not say what its answers take.",)
    kinds = (
        ("sent", usage.input),
        ("sent and kept in the cache", usage.cache_write),
        ("read from the cache", usage.cache_read),
        ("written by the model", usage.output),
    )
    return (
        *(f"{count:,} tokens {kind}" for kind, count in kinds if count),
        _price(cost, complete=complete),
    )


def _price(cost: float | None, *, complete: bool) -> str:
    if cost is None:
        return "Price: not known for this model"
    return f"Price: ${cost:.4f}" if complete else f"Price: at least ${cost:.4f}; that of some calls is not known"


class RedactedMemories:
    """Memories before others: a core.memory.Memories that keeps the promise that texts are redacted already."""

    def __init__(self, memories: Memories, redact: Redact) -> None:
        self._memories = memories
        self._redact = redact

    @property
    def method(self) -> str:
        """How searches find."""
        return self._memories.method

    async def save(self, content: str) -> tuple[Remembered, bool]:
        """Keep a note without its secrets. Raises ToolError (invalid_parameters) too when nothing else is in it."""
        text = await self._redacted(content)
        words = text
        for mark in placeholders(text):
            words = words.replace(mark, "")
        if text.strip() and not words.strip():
            raise ToolError(
                ToolErrorCategory.INVALID_PARAMETERS,
                "the note is nothing but a secret, and secrets are not remembered",
                "Save where the secret is found instead, such as the name of its variable.",
            )
        return await self._memories.save(text)

    async def search(self, query: str, limit: int) -> tuple[Remembered, ...]:
        """The notes that fit a query without its secrets: no note has any."""
        return await self._memories.search(await self._redacted(query), limit)

    async def _redacted(self, text: str) -> str:
        return await to_thread.run_sync(self._redact, text, abandon_on_cancel=True)


_LISTED = 20  # notes
_LONGEST = 300  # characters of a note in a list
_OFF = "No notes are kept: memory is switched off (`memory.enabled`)."
_USAGE = "Usage: `/memory`, `/memory search WORDS` or `/memory delete ID`"


class Notes(Memories, Protocol):
    """Notes that can be deleted, too."""

    async def delete(self, note: str) -> Remembered | None:
        """Remove the note with this id; it as it was, None where there is none. Raises StoreUnavailable."""
        ...


async def memory(text: str, notes: Notes | None, redact: Redact) -> str:
    """What the user is told. Raises StoreUnavailable."""
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


async def _search(words: str, notes: Notes, redact: Redact) -> str:
    """The notes that fit; the newest, for no words."""
    found = await RedactedMemories(notes, redact).search(words, _LISTED)
    if not found:
        return f"No note fits (searched by {notes.method})." if words else "There are no notes yet."
    head = "Notes that fit, best first:" if words else f"Notes, newest first (at most {_LISTED}):"
    return "\n".join((head, "", *map(_line, found), "", "`/memory delete ID` removes one for good."))


async def _delete(note: str, notes: Notes) -> str:
    gone = await notes.delete(note)
    return f"There is no note `{note[:20]}`." if gone is None else f"Deleted:\n\n{_line(gone)}"


def _line(note: Remembered) -> str:
    day = utc(note.created_at).date().isoformat()
    text = " ".join(note.content.split())
    return f"- `{note.id}` ({day}) {text if len(text) <= _LONGEST else f'{text[:_LONGEST]}…'}"


_MODES = {
    Mode.CODE: "reads, edits and runs commands",
    Mode.ARCHITECT: "reads and plans; changes nothing",
    Mode.ASK: "answers questions from what it can read",
}


class Models(Choices, Protocol):
    """The models there are, in words: a session.model_choices.ModelChoices."""

    def listed(self, conduct: Conduct) -> str:
        """All there is to choose, as markdown. Raises ToolError where there is nothing."""
        ...

    def choose(self, conduct: Conduct, text: str) -> str:
        """Have the model a text means answer from the next prompt on; what to tell the user. Raises ToolError."""
        ...


def _nothing() -> None:
    """Nobody is told."""


async def _forgotten() -> None:
    """Nothing is kept."""


async def _as_it_is(provider: str) -> int:
    del provider
    return 0


def _none() -> None:
    """There is none."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What a desk reaches beside the conversation. By default none of it.

    conduct_changed   tells the editor and the store that the user has chosen otherwise (A15.9)
    forget            removes what is kept of the conversation. Raises StoreUnavailable
    forget_results    drops the answers of tools that are kept
    models            gives what can be chosen; None where nothing can
    refresh_models    asks one provider again what it offers; how many models. Raises AgentError
    notes             gives the notes of all sessions; None where they are switched off
    gates             gives the gates of the moment
    """

    conduct_changed: Callable[[], None] = _nothing
    forget: Callable[[], Awaitable[None]] = _forgotten
    forget_results: Callable[[], None] = _nothing
    models: Callable[[], Models | None] = _none
    refresh_models: Callable[[str], Awaitable[int]] = _as_it_is
    notes: Callable[[], Notes | None] = _none
    gates: Callable[[], Gates] = Gates


class SessionDesk:
    """A protocol.slash.Desk.

    loaded    the configuration in force
    more      lines of parts that are not always there
    servers   a line for each MCP server
    reach     what the desk reaches beside the conversation; whoever has it puts it here
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
        self.reach = Reach()

    def available(self) -> Collection[Name]:
        """The commands that make sense now."""
        settings = self._loaded().settings
        tools = settings.tools
        ruled = tools.policy.enabled or tools.authorization.enabled or bool(tools.permissions)
        makes_sense = {Name.MCP: bool(self.servers()), Name.MEMORY: settings.memory.enabled, Name.POLICY: ruled}
        return ALWAYS | {name for name, sense in makes_sense.items() if sense}

    @contextmanager
    def reading(self) -> Generator[None]:
        """The running turn reads and searches only, by the gate of the mode, and reaches nobody without asking."""
        session = self._session
        session.reads_only = True
        session.take_conduct()
        try:
            yield
        finally:
            session.reads_only = False
            session.take_conduct()

    # ------------------------------------------------------------------------------------- telling

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
            *gate_factory.status(loaded.settings, self._memory),
            *self._more(),
            f"Configuration: {loaded.file}",
        )

    def cost(self) -> Sequence[str]:
        """Tokens by kind, and dollars where all or some prices are known (E6)."""
        ledger = self._models.ledger
        return spent(ledger.usage, ledger.cost, complete=ledger.complete)

    async def memory(self, text: str) -> str:
        """List, find or delete notes. Raises StoreUnavailable."""
        return await memory(text, self.reach.notes(), self._session.redact)

    async def policy(self, text: str) -> str:
        """What is allowed, or would be said to one call."""
        from acp_agent.session.slash.policy import PolicyDesk  # noqa: PLC0415 - few sessions ask

        session = self._session
        return PolicyDesk(self._loaded(), session.place, session.active, self.reach.gates()).answer(text)

    # ------------------------------------------------------------------------------------ changing

    def ran(self, command: str, output: str) -> None:
        """The user ran a command himself: it is part of the conversation at once, and kept with it."""
        self._conversation.history.append(Message(Role.USER, (TextPart(notes.ran(command, output)),)))

    async def model(self, text: str) -> str:
        """List the models, or choose one from the next prompt on (A16). Raises AgentError."""
        conduct, models = self._session.conduct, self.reach.models()
        if models is None:
            return "Model switching is not configured."
        provider = model_in_force(conduct, models).partition(":")[0]
        if text == "refresh" and provider:
            count = await self.reach.refresh_models(provider)
            self.reach.conduct_changed()
            return f"{provider} offers {count} models.\n\n{models.listed(conduct)}"
        if not text:
            return (
                f"{models.listed(conduct)}\n\n`/model ID`, or some words of it, chooses; `/model refresh` asks again."
            )
        before = replace(conduct)
        told = models.choose(conduct, text)
        if conduct != before:
            self.reach.conduct_changed()
        return told

    async def mode(self, text: str) -> str:
        """List the modes, or switch from the next prompt on (A14.2)."""
        conduct, name = self._session.conduct, text.strip().lower()
        if not name:
            listed = (f"- `{mode}` {told}{' ← now' if mode is conduct.mode else ''}" for mode, told in _MODES.items())
            return "\n".join(("Modes:", "", *listed, "", "`/mode NAME` switches."))
        if name not in set(Mode):
            return f"There is no mode `{name[:40]}`: expected one of {', '.join(Mode)}."
        if conduct.mode is not Mode(name):
            before = replace(conduct)
            conduct.mode = Mode(name)
            conduct.note_chosen(before)
            self.reach.conduct_changed()
        return f"Mode: {conduct.mode}. It {_MODES[conduct.mode]}, from the next prompt on."

    async def compact(self, focus: str) -> str:
        """Sum the conversation up (L11, manual). Raises ToolError when nothing came of it."""
        told = await self._conversation.compactor.compact(Compaction.MANUAL, focus)
        agent = self._conversation.agent
        if window := agent.provider.context_window if agent else self._models.window():
            await self._emit(UsageChanged(self._conversation.history.estimate(), window))
        return told

    async def clear(self) -> str:
        """Forget all that was said, and what was counted in it (A17.3). What the user chose, allowed and paid stays."""
        self._conversation.clear()
        self._memory.clear()
        self.reach.forget_results()
        told = "The conversation is forgotten; the next prompt begins a new one."
        try:
            await self.reach.forget()
        except StoreUnavailable as error:
            told = f"The model has forgotten the conversation, but it is still stored: {error}"
        if window := self._models.window():
            await self._emit(UsageChanged(0, window))
        return told

    # -------------------------------------------------------------------------------------- within

    def _model(self, loaded: Loaded) -> str:
        llm, model = loaded.settings.llm, self._models.in_force
        if not model:
            return "Model: none is configured"
        chain = f"; fallback: {', '.join(llm.fallback)}" if llm.fallback else ""
        return f"Model: {model}{chain}"

    def _calls(self) -> str:
        use = self._memory.quota.use
        limit = "" if use.limit is None else f" of {use.limit}"
        return f"Tool calls: {use.calls} in {use.batches}{limit} batches"


class Desk(Protocol):
    """Where a session answers questions about itself. Lines and texts are markdown; what awaits may raise AgentError.

    A text given is what stands behind the command, and may be empty.
    """

    def available(self) -> Collection[Name]:
        """The commands that make sense now. Cheap."""
        ...

    def reading(self) -> AbstractContextManager[None]:
        """While it lasts, the running turn can read and search only."""
        ...

    def status(self) -> Sequence[str]:
        """Model, context, limits, and what is switched on."""
        ...

    def ran(self, command: str, output: str) -> None:
        """The user ran a command himself: the model hears of it at the next turn, whoever runs that."""
        ...

    def servers(self) -> Sequence[str]:
        """The MCP servers and how they are; none when there are none."""
        ...

    def cost(self) -> Sequence[str]:
        """What the model calls took and cost."""
        ...

    async def compact(self, focus: str) -> str:
        """Sum the conversation up; what became of it."""
        ...

    async def clear(self) -> str:
        """Forget the conversation; what became of it."""
        ...

    async def model(self, text: str) -> str:
        """List the models, or choose the one a text means."""
        ...

    async def mode(self, text: str) -> str:
        """List the modes, or switch."""
        ...

    async def memory(self, text: str) -> str:
        """List, find or delete notes."""
        ...

    async def policy(self, text: str) -> str:
        """What is allowed in general, or would be said to one call."""
        ...


class Slash:
    """Obeys the commands of one session."""

    def __init__(self, desk: Desk, toolset: Toolset) -> None:
        self._desk = desk
        self._toolset = toolset

    async def obey(self, name: Name, argument: str, files: FileSystem) -> str | Review:
        """What the user is told, or the model is asked. A command that takes no argument does nothing with one."""
        if told := commands.in_vain(name, argument):
            return told
        try:
            return await self._obey(name, argument, files)
        except AgentError as error:
            return str(error)

    async def _obey(  # noqa: C901, PLR0911, PLR0912 - the table
        self, name: Name, argument: str, files: FileSystem
    ) -> str | Review:
        match name:
            case Name.HELP:
                return commands.help_text(self._desk.available())
            case Name.MODEL:
                return await self._desk.model(argument)
            case Name.MODE:
                return await self._desk.mode(argument)
            case Name.CLEAR:
                return await self._desk.clear()
            case Name.COMPACT:
                return await self._desk.compact(argument)
            case Name.REVIEW:
                return await (review_path(argument, files) if argument else review_changes(self._toolset))
            case Name.RUN:
                return await self._run_command(argument)
            case Name.TOOLS:
                return self._list_tools()
            case Name.STATUS:
                return _listed(self._desk.status(), "Nothing is known yet.")
            case Name.COST:
                return _listed(self._desk.cost(), "No model was asked yet.")
            case Name.MEMORY:
                return await self._desk.memory(argument)
            case Name.MCP:
                return _listed(self._desk.servers(), "This session has no MCP servers.")
            case Name.POLICY:
                return await self._desk.policy(argument)
            case _:
                assert_never(name)

    def _list_tools(self) -> str:
        lines = [f"- `{spec.name}` {_first_sentence(spec.description)}" for spec in self._toolset.specs()]
        return "\n".join(("Tools in this mode:", "", *lines)) if lines else "No tool is available."

    async def _run_command(self, command: str) -> str:
        """Run what the user typed, through the same gates and the same terminal; the model hears of it later."""
        if not command:
            return "Usage: `/run COMMAND`"
        call = ToolCall(str(uuid4()), "bash", {"command": command}, origin=CallOrigin.USER)
        result = await self._toolset.run(call)
        self._desk.ran(command, result.text)
        return _outcome(command, result)


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].rstrip(".")


def _listed(lines: Sequence[str], nothing: str) -> str:
    return "\n".join(f"- {line}" for line in lines) or nothing


def _outcome(command: str, result: ToolResult) -> str:
    if result.failure is not None:
        return f"`{command}`: {result.failure.message}"
    code = (result.envelope or {}).get("exit_code")
    return f"`{command}` finished." if code == 0 else f"`{command}` exited with code {code}."
