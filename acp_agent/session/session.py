"""One session: its folder, its conduct, its turns, one at a time (A12.1).

Light on purpose: what a turn needs (tools, gates, the model, terminals, servers) is an Engine, made in the background
after `session/new` is answered, or at the next prompt at the latest. A session that rests has none: it was the least
recently used of too many, or idle for long (A11). Whoever prompts it wakes it up again, from the store.
"""

from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import anyio

from acp_agent.config.conduct import conduct_taken_up
from acp_agent.config.load import Loaded
from acp_agent.core.conduct import LEAVE, AutoApprove, Choices, Conduct, Mode, model_in_force, settle
from acp_agent.core.errors import AgentError
from acp_agent.core.events import Event, Notice, Severity, UsageChanged
from acp_agent.core.mcp import McpServer
from acp_agent.core.messages import StopReason
from acp_agent.core.redaction import Redact, verbatim
from acp_agent.core.sessions import Change, HistoryState, SessionRecord, SessionSnapshot, UsageTotals
from acp_agent.core.types import Json, JsonObject
from acp_agent.log import Log
from acp_agent.protocol.client import Client
from acp_agent.protocol.options import config_options
from acp_agent.protocol.paths import EditorPaths
from acp_agent.protocol.peer import Incoming, Peer
from acp_agent.protocol.shared_languages import SharedLanguages
from acp_agent.protocol.updates import Updates, session_info
from acp_agent.session.slash import commands
from acp_agent.session.transcript import Story
from acp_agent.session.turn_slot import Answer, Engine, TurnSlot


class Notices:
    """Notices that wait for a turn: told when one begins or ends, for then somebody reads them."""

    def __init__(self, waiting: Sequence[Notice] = ()) -> None:
        self._waiting = list(waiting)

    def add(self, notice: Notice) -> None:
        """Keep one to be told."""
        self._waiting.append(notice)

    def warn(self, problem: str) -> None:
        """Keep a warning to be told."""
        self.add(Notice(Severity.WARNING, problem))

    async def tell(self, emit: Callable[[Event], Awaitable[None]], redact: Redact) -> None:
        """Tell all there are, without secrets."""
        while self._waiting:
            notice = self._waiting.pop(0)
            await emit(replace(notice, text=redact(notice.text)))


_ZED_REPEAT = 0.1
"""Seconds. Zed drops an update that arrives together with the answer that makes its session known (acp.md 4.1)."""


class Announcer:
    """Of one session.

    update   sends one update
    over     whether the session was closed: nothing is told of it then
    """

    def __init__(self, update: Callable[[JsonObject], Awaitable[None]], over: Callable[[], bool]) -> None:
        self._update = update
        self._over = over
        self._announcement = commands.Announcement()

    async def begin(self, client: Client) -> None:
        """Tell which commands there always are, once more to an editor that may drop what comes too early."""
        await self.tell(commands.ALWAYS)
        if client.name == "zed":
            await anyio.sleep(_ZED_REPEAT)
            if not self._over():
                await self._update(commands.advertised())

    async def tell(self, available: Collection[commands.Name]) -> None:
        """Tell which commands there are, where that has changed."""
        if not self._over() and (news := self._announcement.news(available)):
            await self._update(news)


class ConductAtRest:
    """Remembers what was in force and what was stored when both were last known to agree, as far as they do.

    They need not be the same: the configuration may allow less than what is stored (A7.5).
    """

    def __init__(self, conduct: Conduct, stored: Conduct | None) -> None:
        """`stored`: what the store holds; None for a session that begins with what is kept of `conduct`."""
        self._here = replace(conduct)
        self._stored = conduct.to_keep(Conduct()) if stored is None else replace(stored)

    def kept(self, conduct: Conduct) -> Conduct:
        """Take note that this is being stored. Return what is to be stored of it."""
        self._here = replace(conduct)
        self._stored = conduct.to_keep(self._stored)
        return self._stored

    def has_changed(self, conduct: Conduct) -> bool:
        """Whether it is another than then: the user has chosen since."""
        return conduct != self._here

    def take_over(self, conduct: Conduct, stored: Conduct, choices: Choices) -> str:
        """Take into `conduct` what others have stored since, but for what was changed here, too.

        Gives a line for the user where that is a model which is gone; else "".
        """
        model, chosen = conduct.model, {*conduct.chosen}
        for name in (each.name for each in fields(Conduct) if each.name != "chosen"):
            if self._was_changed(name, stored) and getattr(conduct, name) == getattr(self._here, name):
                setattr(conduct, name, getattr(stored, name))
                chosen.add(name)
        conduct.chosen = tuple(name for name in LEAVE if name in chosen)
        gone = settle(conduct, choices)
        self._here, self._stored = replace(conduct), replace(stored)
        return gone if conduct.model != model else ""

    def _was_changed(self, name: str, stored: Conduct) -> bool:
        """Return whether others have changed a field since; of the leave only what the user chose counts (A7.5)."""
        if name in LEAVE and name not in stored.chosen:
            return False
        first = name in LEAVE and name not in self._stored.chosen
        return first or getattr(stored, name) != getattr(self._stored, name)


if TYPE_CHECKING:
    from acp_agent.session.session import Session

Background = Callable[[Callable[[], Coroutine[Any, Any, None]]], object]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a session is given by the process it lives in.

    make_engine   makes what answers its prompts, to go on with what was saved. Raises AgentError
    background    runs a task
    clock         milliseconds since 1970
    """

    peer: Peer
    make_engine: Callable[["Session", SessionSnapshot | None], Awaitable[Engine]]
    background: Background
    clock: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session works: absolute folders, `cwd` first among its roots, and what the editor brings along.

    servers   the MCP servers it names (A25)
    tools     the only tools or groups the client wants offered; None for all (G6)
    secrets   what the headers and the environment of its MCP servers hold, never to be shown (S9.4)
    ended     names of MCP servers the editor has ended that are named elsewhere, such as in the configuration (A25.7)
    """

    cwd: str
    additional: tuple[str, ...] = ()
    servers: tuple[McpServer, ...] = ()
    tools: tuple[str, ...] | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    ended: frozenset[str] = frozenset()


_log = Log(__name__)
_CANCELLED_FLUSH = 0.2
"""Seconds the store may hold up the answer to a turn that was cancelled (A13)."""
_LOST = "the end of this conversation is not kept: the database cannot be written"


class Session:
    """Everything the protocol knows about one conversation.

    conduct    what the user chose; `active` is what the running turn obeys, taken over when a turn starts
               (A14.2, A15.7), which only reads while `reads_only` holds, whatever is chosen (A17.5)
    choices    what can be chosen
    saved      what it goes on with; None when it begins
    notices    what the user should hear of when a turn begins or ends
    redact     takes secrets out of notices, reasons and what is kept; whoever makes the engine puts it here first
    languages  what the editor's language servers tell; whoever makes the engine puts it here
    wake       makes sure that the session may have an engine, before it gets one; None: it may. Raises RpcError
    awake      whether it may; whoever says no has seen to it that no turn runs
    """

    def __init__(
        self,
        around: Surroundings,
        client: Client,
        place: Place,
        record: SessionRecord,
        conduct: Conduct,
        choices: Choices,
        saved: SessionSnapshot | None = None,
        notices: Sequence[Notice] = (),
    ) -> None:
        self.id = record.id
        self.client = client
        self.place = place
        self.conduct = conduct
        self.choices = choices
        self.active, self.reads_only = replace(conduct), False
        self.redact: Redact = verbatim
        self.languages: SharedLanguages | None = None
        self.wake: Callable[[Session], Awaitable[None]] | None = None
        self.awake = True
        self.paths = EditorPaths(place.cwd)
        self.turns = TurnSlot()
        self.notices = Notices(notices)
        self.story = Story(record, self._translator, self.update, around.background, self.notices.warn, around.clock)
        self._around = around
        self._saved = saved
        self._engine: Engine | None = None
        self._engine_lock = anyio.Lock()
        self._announcer = Announcer(self.update, lambda: self.turns.closed)
        self._at_rest = ConductAtRest(conduct, None if saved is None else saved.conduct)
        self._rested = False
        self._took: UsageTotals | None = None  # until it was put to rest

    # ------------------------------------------------------------------------------------- engine

    async def engine(self) -> Engine:
        """The engine, made once. Raises AgentError when the configuration does not allow one, or the store no look."""
        async with self._engine_lock:
            if self._engine is None:
                saved = await self.story.before() if self._saved is None and self._rested else self._saved
                self._engine = await self._around.make_engine(self, saved)
                self._saved = None  # not before: who could not make it goes on with it the next time
                self.story.follow(self._engine.kept, self.redact)
                if saved is not None and saved.unfinished_messages:
                    await self.story.look_through(saved.unfinished_messages, self.redact)
            return self._engine

    @property
    def ready(self) -> Engine | None:
        """The engine, if there is one now."""
        return self._engine

    async def announce(self) -> None:
        """Tell the editor which commands there are (A17.1), then make the engine ready while the user types."""
        await self._announcer.begin(self.client)
        try:
            if self.awake and not self.turns.closed:
                await self._announcer.tell((await self.engine()).commands())
        except Exception as error:  # noqa: BLE001 - only a head start: the first prompt meets the same and tells
            _log.warning("no engine yet", session=self.id, reason=str(error))

    async def tell_commands(self) -> None:
        """Tell the editor which slash commands make sense by now (A17.1)."""
        if self._engine is not None:
            await self._announcer.tell(self._engine.commands())

    def move(self, cwd: str) -> None:
        """Work in another folder. Nothing must be under way, and the engine of before is to be given back."""
        self.place = replace(self.place, cwd=cwd)
        self.paths = EditorPaths(cwd)
        self.languages = None
        self.story.move(cwd)

    async def rest(self, patience: float) -> None:
        """Give back all but what makes the session known. Nothing must be under way; the next prompt wakes it up.

        It goes on with what is in memory, until `trust_store`. The store is waited for so many seconds.
        """
        self.awake, self._rested = False, True
        if state := await self._let_go(patience):
            self._took, history = state.usage or UsageTotals(), state.history or HistoryState()
            self._saved = SessionSnapshot(self.story.record, replace(self.conduct), self._took, history)

    def trust_store(self) -> None:
        """All is kept, and somebody else may go on with it: it wakes with what is in the store then."""
        self._saved = None

    async def close(self, *, tell: bool = True) -> None:
        """End it: a running prompt is answered `cancelled` (A10.2), what it holds is given back, all is kept (A10).

        tell   whether the editor hears what it took in all
        """
        with anyio.CancelScope(shield=True):
            await self.turns.close()
            if tell and (took := self._took if self._engine is None else self._engine.state().usage) and took.size:
                await self._tell_at_once(UsageChanged(took.used, took.size, took.cost))
            await self._let_go(inf)
            if tell and self.client.notices and self.story.failing:
                await self._tell_at_once(Notice(Severity.WARNING, _LOST))
            await self.story.end()

    async def _let_go(self, patience: float) -> Change | None:
        """End the engine; what is to be kept of it. The store is waited for so many seconds."""
        async with self._engine_lock:
            engine, self._engine = self._engine, None
        await self.story.settle(patience=patience)
        state = None if engine is None else await engine.kept()
        self.story.follow(None)
        if engine is None or state is None:
            return None
        if self.story.failing:
            self.story.keep(state)  # nobody gives it any more when that is tried again
        await engine.close()
        return state

    # -------------------------------------------------------------------------------------- turns

    async def prompt(self, params: JsonObject, incoming: Incoming) -> JsonObject:
        """Run one turn. Raises RpcError when one is running, when params are wrong, or on a bug of ours."""
        incoming.on_cancel(self.turns.cancel)
        answer = await self.turns.run(partial(self._turn, params), self._settle)
        if self._engine is not None:
            incoming.after_response(partial(self._after, self._engine, answer))
        return answer.to_wire(self.redact)

    async def _turn(self, params: JsonObject) -> Answer:
        if self.wake is not None:
            await self.wake(self)
        self.take_conduct()
        try:
            engine = await self.engine()
        except AgentError as error:
            await self.emit(Notice(Severity.ERROR, self.redact(str(error))))
            return Answer(StopReason.END_TURN, error)
        await self.notices.tell(self.emit, self.redact)
        return await engine.answer(params)

    async def _settle(self, cancelled: bool) -> None:  # noqa: FBT001 - a callback
        """All that was told is sent before the answer (A12.16)."""
        await self.story.settle(within=_CANCELLED_FLUSH if cancelled else None, touch=True)
        await self.notices.tell(self.emit, self.redact)  # of what has come up meanwhile

    def _after(self, engine: Engine, answer: Answer) -> None:
        async def answered() -> None:
            await engine.answered(answer)
            await self.tell_commands()

        self._around.background(answered)

    def apply_config(self, loaded: Loaded) -> None:
        """Apply another configuration to what the user has chosen, and warn them of every stricter option."""
        conduct, stricter = conduct_taken_up(loaded, self.conduct)
        if stricter:
            self.notices.warn(stricter)
        if conduct != self.conduct:
            self.conduct = conduct
            self.take_conduct()
            self.post_mode()
            self.post_options()

    def take_conduct(self) -> None:
        """Obey what the user has chosen. For the beginning of a turn, or while none runs."""
        self.active.become(self.conduct)  # the gates hold this very object
        if self.reads_only:
            self.active.mode, self.active.auto_approve = Mode.ASK, AutoApprove.SUGGEST

    def keep_conduct(self) -> None:
        """The user has chosen: whoever takes it up later finds it so (A7.5). At rest others may have it; see `woke`."""
        if self.awake:
            self.story.keep(Change(conduct=self._at_rest.kept(self.conduct)))

    @property
    def chosen_at_rest(self) -> bool:
        """Whether the user has chosen something that is not kept, since the session rests."""
        return not self.awake and self._at_rest.has_changed(self.conduct)

    def woke(self, stored: Conduct | None = None) -> None:
        """It may have an engine, and is written here alone. `stored` is its conduct if others can have changed that."""
        self.awake, before, chosen = True, replace(self.conduct), self._at_rest.has_changed(self.conduct)
        if stored is not None and (gone := self._at_rest.take_over(self.conduct, stored, self.choices)):
            self.notices.warn(gone)
        if chosen:
            self.keep_conduct()
        if self.conduct != before:
            self.post_mode()
            self.post_options()

    def conduct_changed(self) -> None:
        """The user has chosen, but not through the editor's options: keep it, and tell the editor (A15.9)."""
        self.keep_conduct()
        self.post_mode()
        self.post_options()
        self.post_update(self.info())

    def post_mode(self) -> None:
        """Tell the editor which mode it is, without waiting."""
        self.post_update({"sessionUpdate": "current_mode_update", "currentModeId": self.conduct.mode.value})

    def post_options(self) -> None:
        """Tell the editor all options, without waiting (A15.4)."""
        self.post_update({"sessionUpdate": "config_option_update", "configOptions": self.options()})

    def options(self) -> list[Json]:
        """The whole set, as ACP has it."""
        return config_options(self.conduct, self.choices, self.client)

    # ------------------------------------------------------------------------------------ updates

    async def emit(self, event: Event) -> None:
        """Keep and send one event of the running turn; dropped once the turn has been answered."""
        if self.turns.busy:
            await self.story.tell(event)

    async def set_title(self, title: str) -> None:
        """Give the conversation a name, and tell the editor (A18.1); nothing when it may be open elsewhere."""
        if self.awake and not self.turns.closed:
            await self.story.name(title)
            await self.update(self.info())

    async def forget(self) -> None:
        """Remove what was said, and the title, from the store (A17.3). Raises StoreUnavailable."""
        await self.story.forget()
        await self.update(self.info())

    def info(self) -> JsonObject:
        """The `session_info_update` of now (A15.5, A18.8)."""
        model = model_in_force(self.conduct, self.choices)
        return session_info(self.story.record.title, self.story.record.updated_at, model)

    async def update(self, update: JsonObject) -> None:
        """Send one `session/update`."""
        await self._around.peer.notify("session/update", {"sessionId": self.id, "update": update})

    def post_update(self, update: JsonObject) -> None:
        """The same without waiting, for callbacks."""
        self._around.peer.post_notification("session/update", {"sessionId": self.id, "update": update})

    async def _tell_at_once(self, event: Event) -> None:
        for update in self._translator().translate(event):
            await self.update(update)

    def _translator(self) -> Updates:
        return Updates(self.client, self.place.cwd, self.paths)
