"""Where a session answers questions about itself: behind the slash commands (A17)."""

from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from acp_agent.agent import notes
from acp_agent.compose import upkeep
from acp_agent.compose.conversation import Conversation
from acp_agent.compose.desk_cost import spent
from acp_agent.compose.desk_memory import Notes, memory
from acp_agent.compose.memory import GateMemory
from acp_agent.compose.models import SessionModels
from acp_agent.config import Loaded
from acp_agent.core.choices import Choices, model_in_force
from acp_agent.core.conduct import Conduct, Mode
from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.events import EventSink, UsageChanged
from acp_agent.core.memory import Compaction
from acp_agent.core.messages import Message, Role, TextPart
from acp_agent.core.wrapper import Gate
from acp_agent.protocol.commands import ALWAYS, Name
from acp_agent.protocol.session import Session

_MODES = {
    Mode.CODE: "reads, edits and runs commands",
    Mode.ARCHITECT: "reads and plans; changes nothing",
    Mode.ASK: "answers questions from what it can read",
}


class Models(Choices, Protocol):
    """The models there are, in words: a compose.choices.ModelChoices."""

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
    gates             gives the gates of the moment, outermost first
    """

    conduct_changed: Callable[[], None] = _nothing
    forget: Callable[[], Awaitable[None]] = _forgotten
    forget_results: Callable[[], None] = _nothing
    models: Callable[[], Models | None] = _none
    refresh_models: Callable[[str], Awaitable[int]] = _as_it_is
    notes: Callable[[], Notes | None] = _none
    gates: Callable[[], Sequence[Gate]] = tuple


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
            *upkeep.status(loaded.settings, self._memory),
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
        from acp_agent.compose.desk_policy import PolicyDesk  # noqa: PLC0415 - few sessions ask

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
