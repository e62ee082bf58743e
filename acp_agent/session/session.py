"""One session: its folder, its options, and its turns, one at a time.

A session needs little memory. The parts for turns (tools, gates, the model, terminals, servers) are in its engine,
which is made in the background after `session/new` is answered, or at the next prompt at the latest. An evicted session
has no engine. Its next prompt resumes it from the store.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import field, fields, replace
from math import inf
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from acp_agent.config.load import Loaded, resumed_options
from acp_agent.core.data import frozen
from acp_agent.core.editor import LanguageSettings, ReadPrompt, SessionEditor, SharedLanguages
from acp_agent.core.errors import AgentError
from acp_agent.core.events import (
    CommandsChanged,
    Event,
    ModeChanged,
    Notice,
    OfferedCommand,
    OptionsChanged,
    SessionInfoChanged,
    Severity,
    UsageChanged,
)
from acp_agent.core.mcp import McpServer
from acp_agent.core.messages import StopReason
from acp_agent.core.secrets import Redact
from acp_agent.core.services import Scheduler
from acp_agent.core.session_options import (
    FREEDOMS,
    PERMISSION_FIELDS,
    AutoApprove,
    Choices,
    Mode,
    SessionOptions,
    model_in_force,
    settle,
    tighter,
)
from acp_agent.core.sessions import Change, HistoryState, SessionRecord, SessionSnapshot, UsageTotals
from acp_agent.log import Log
from acp_agent.session.slash import commands
from acp_agent.session.transcript import Transcript
from acp_agent.session.turn_slot import Answer, TurnSlot

if TYPE_CHECKING:
    from acp_agent.core.ports import Background
    from acp_agent.gates.selection import Selection
    from acp_agent.session.engine import SessionEngine

_log = Log(__name__)
_CANCELLED_FLUSH = 0.2
"""Seconds the store may delay the answer to a cancelled turn."""
_EARLY = 0.1
"""Seconds after which the list of commands is sent again to an editor that drops early updates."""
_LOST = "the end of this conversation is not stored: the database cannot be written"


@frozen
class SessionWorkspace:
    """The workspace of a session: its absolute folders, with `cwd` as the first root, and the editor's additions.

    servers   the MCP servers that the editor names
    tools     the tools or groups of tools that the editor allows; None if it allows all
    secrets   secret values in the headers and the environment of its MCP servers, which must never be shown
    ended     names of MCP servers that the editor has ended, even if the configuration still names them
    """

    cwd: str
    additional: tuple[str, ...] = ()
    servers: tuple[McpServer, ...] = ()
    tools: tuple[str, ...] | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    ended: frozenset[str] = frozenset()

    @property
    def folders(self) -> tuple[str, ...]:
        """The roots. `cwd` comes first."""
        return (self.cwd, *self.additional)


@frozen
class SessionDependencies:
    """The parts of the process that a session uses.

    make_engine   returns a new engine, which continues from the given snapshot. Raises AgentError
    resume        makes sure that a session may have an engine. Raises RequestError
    redact        removes secrets from texts while there is no engine
    background    starts a task
    clock         milliseconds since 1970
    schedule      returns the scheduled prompts of a session; None if nothing can be stored
    """

    make_engine: Callable[["Session", SessionSnapshot | None], Awaitable["SessionEngine"]]
    resume: Callable[["Session"], Awaitable[None]]
    redact: Redact
    background: "Background"
    clock: Callable[[], int]
    schedule: Callable[["Session"], Scheduler | None] = lambda _: None


@frozen
class Opening:
    """The parts of a new Session object. `saved` is None if the conversation is new."""

    record: SessionRecord
    workspace: SessionWorkspace
    editor: SessionEditor
    saved: SessionSnapshot | None = None


class PendingNotices:
    """Notices that wait for a turn. They are shown when a turn begins or ends, because then the user reads."""

    def __init__(self, waiting: Sequence[Notice] = ()) -> None:
        self._waiting = list(waiting)

    def add(self, notice: Notice) -> None:
        """Add a notice that `tell` will show."""
        self._waiting.append(notice)

    def warn(self, problem: str) -> None:
        """Add a warning that `tell` will show."""
        self.add(Notice(Severity.WARNING, problem))

    async def tell(self, emit: Callable[[Event], Awaitable[None]], redact: Redact) -> None:
        """Show all notices, without secrets, and forget them."""
        while self._waiting:
            notice = self._waiting.pop(0)
            await emit(replace(notice, text=redact(notice.text)))


class StoredOptions:
    """The options of a session as they are stored, to merge choices of this process with those of others.

    Another process may open the session while it is evicted here. The options in force may differ from the stored ones,
    because the configuration may allow less.
    """

    def __init__(self, options: SessionOptions, stored: SessionOptions | None) -> None:
        """Take the stored options. `stored` is None for a new session, which begins with `options`."""
        self._here = replace(options)
        self._stored = options.to_keep(SessionOptions()) if stored is None else replace(stored)

    def store(self, options: SessionOptions) -> SessionOptions:
        """Record that these options are being stored. Return the options to store."""
        self._here = replace(options)
        self._stored = options.to_keep(self._stored)
        return self._stored

    def differ(self, options: SessionOptions) -> bool:
        """Return whether the user has changed an option since the options were last stored or merged."""
        return options != self._here

    def merge(self, options: SessionOptions, stored: SessionOptions, choices: Choices) -> str:
        """Copy into `options` the fields that other processes have changed since the last merge.

        A field that was also changed here keeps its value.

        Return a line for the user if the chosen model no longer exists; else "".
        """
        model, chosen = options.model, {*options.chosen}
        for name in (each.name for each in fields(SessionOptions) if each.name != "chosen"):
            if self._was_changed(name, stored) and getattr(options, name) == getattr(self._here, name):
                setattr(options, name, getattr(stored, name))
                chosen.add(name)
        options.copy_from(replace(options, chosen=tuple(name for name in PERMISSION_FIELDS if name in chosen)))
        gone = settle(options, choices)
        self._here, self._stored = replace(options), replace(stored)
        return gone if options.model != model else ""

    def _was_changed(self, name: str, stored: SessionOptions) -> bool:
        """Return whether other processes have changed a field. A permission field counts only if chosen there."""
        if name in PERMISSION_FIELDS and name not in stored.chosen:
            return False
        first = name in PERMISSION_FIELDS and name not in self._stored.chosen
        return first or getattr(stored, name) != getattr(self._stored, name)


class Session:
    """One conversation.

    options      the user's choices. The running turn uses `active`, a copy that is made when the turn begins
    choices      the models and levels that can be chosen
    notices      the notices to show when a turn begins or ends
    resident     whether it holds its lock and may have an engine
    only_tools   the only tools of the running turn; None for all
    agent_tools  the tools that the definition of its agent allows; None if it has no definition
    """

    def __init__(
        self,
        dependencies: SessionDependencies,
        opening: Opening,
        options: SessionOptions,
        choices: Choices,
        notices: Sequence[Notice] = (),
    ) -> None:
        saved = opening.saved
        self.id = opening.record.id
        self.editor = opening.editor
        self.workspace = opening.workspace
        self.options, self.choices = options, choices
        self.active = replace(options)
        self._granted: SessionOptions | None = None  # what the running turn may do without the limits of an agent
        self.languages: SharedLanguages | None = None
        self.resident = True
        self.turns = TurnSlot()
        self.notices = PendingNotices(notices)
        self.transcript = Transcript(
            opening.record, self._show, dependencies.background, self.notices.warn, dependencies.clock
        )
        self._dependencies = dependencies
        self._saved = saved
        self._engine: SessionEngine | None = None
        self._engine_lock = anyio.Lock(fast_acquire=True)
        self._redact = dependencies.redact
        self._reads_only = self._was_evicted = False
        self.only_tools: tuple[str, ...] | None = None
        self.agent_tools: Selection | None = None
        self._loosest = Mode.CODE
        self._commands: tuple[OfferedCommand, ...] | None = None  # the commands that were sent to the editor
        self._stored = StoredOptions(options, None if saved is None else saved.options)
        self._schedule: Scheduler | None = None
        self._has_schedule = saved is not None and saved.has_schedule
        self._moved_from = ""
        self._usage: UsageTotals | None = None  # the state before the eviction

    # ------------------------------------------------------------------------------------- engine

    async def engine(self) -> "SessionEngine":
        """Return the engine, which is made at the first call.

        Raises:
            AgentError: The configuration is not usable, or the store cannot be read.

        """
        if self._engine is not None and not self._engine_lock.locked():
            return self._engine
        async with self._engine_lock:
            if self._engine is None:
                evicted = self._saved is None and self._was_evicted
                saved = await self.transcript.reload() if evicted else self._saved
                self._engine = await self._dependencies.make_engine(self, saved)
                self._redact = self._engine.redact
                self._saved = None  # only now, since another attempt needs it if this one fails
                self.transcript.follow(self._engine.kept, self._redact)
                if saved is not None and saved.unfinished_messages:
                    await self.transcript.redact_unfinished(saved.unfinished_messages, self._redact)
            return self._engine

    async def ready(self) -> None:
        """Make sure, for a new turn, that the session may have an engine. Raises RequestError."""
        self._granted = None
        await self._dependencies.resume(self)

    def redact(self, text: str) -> str:
        """Return a text without secrets."""
        return self._redact(text)

    @property
    def scheduler(self) -> Scheduler | None:
        """The scheduled prompts; None if this session is not stored. They are loaded at the first use."""
        if self._schedule is None:
            self._schedule = self._dependencies.schedule(self)
        return self._schedule

    async def announce(self, calm: Callable[[], Awaitable[object]] = anyio.lowlevel.checkpoint) -> None:
        """Send the editor the list of commands, then make the engine while the user types.

        calm   awaited before the engine is made, because making it blocks the event loop for a while
        """
        always = commands.offered(commands.ALWAYS)
        await self._tell_commands(always)
        if self.editor.drops_early_updates:
            await anyio.sleep(_EARLY)
            told, self._commands = self._commands, None
            await self._tell_commands(told or always)
        if self._has_schedule and not self.turns.closed and self.scheduler is not None:
            self.scheduler.begin()
        await calm()
        try:
            if self.resident and not self.turns.closed:
                await self._tell_commands((await self.engine()).commands())
        except Exception as error:  # noqa: BLE001 - the first prompt gets the same error and shows it
            _log.warning("no engine yet", session=self.id, reason=str(error))

    async def tell_commands(self) -> None:
        """Send the editor the slash commands that are available now."""
        if self._engine is not None:
            await self._tell_commands(self._engine.commands())

    async def _tell_commands(self, offered: tuple[OfferedCommand, ...]) -> None:
        if not self.turns.closed and offered != self._commands:
            self._commands = offered
            await self.editor.show(CommandsChanged(offered))

    def share_languages(self, loaded: Loaded) -> SharedLanguages | None:
        """Return the editor's language servers; None if it shares none or the user does not want them.

        The object stays the same, because it holds diagnostics that the editor does not publish again.
        """
        lsp = loaded.settings.acp.lsp
        if not lsp.enabled:
            self.languages = None
        elif self.languages is None:
            limits = lsp.max_diagnostic_files, lsp.max_diagnostics_per_file
            settings = LanguageSettings(*limits, lsp.request_timeout_secs, lsp.auto_diagnostics_on_save)
            self.languages = self.editor.languages(self.workspace.folders, settings)
        return self.languages

    # -------------------------------------------------------------------------------------- place

    def move(self, cwd: str) -> None:
        """Move the session to another folder. No turn may run, and the caller must close the engine afterwards."""
        self._moved_from = self.workspace.cwd if cwd != self.workspace.cwd else self._moved_from
        self.workspace = replace(self.workspace, cwd=cwd)
        self.editor.move(cwd)
        self.languages = None
        self.transcript.move(cwd)

    def take_moved_from(self) -> str:
        """Return the folder before the last move; empty if there was none since the last call."""
        moved_from, self._moved_from = self._moved_from, ""
        return moved_from

    def reopen(self, workspace: SessionWorkspace, editor: SessionEditor) -> None:
        """Use the workspace and the editor of a new load, perhaps in another folder. The session must be evicted."""
        self.workspace, self.editor = workspace, editor
        self.move(workspace.cwd)

    def add_server(self, server: McpServer) -> None:
        """Remember an MCP server that the editor has added, for the next engine."""
        self.workspace = replace(self.workspace, servers=(*self.workspace.servers, server))

    def remove_server(self, name: str) -> None:
        """Remember that the editor has ended an MCP server, even if the configuration names it."""
        left = tuple(each for each in self.workspace.servers if each.name != name)
        self.workspace = replace(self.workspace, servers=left, ended=self.workspace.ended | {name})

    # ---------------------------------------------------------------------------- eviction and end

    @property
    def runs_processes(self) -> bool:
        """Whether any process runs in the background. An eviction would end it."""
        return self._engine is not None and self._engine.runs_processes

    async def evict(self, patience: float) -> None:
        """Close the engine and keep the session known. No turn may run. The next prompt resumes the session.

        The session resumes from memory until `trust_store` is called. `patience` is the time to wait for the store, in
        seconds.
        """
        self.resident, self._was_evicted = False, True
        if state := await self._close_engine(patience):
            self._usage, history = state.usage or UsageTotals(), state.history or HistoryState()
            record, seen = self.transcript.record, state.seen or {}
            self._saved = SessionSnapshot(record, replace(self.options), self._usage, history, seen=seen)

    def trust_store(self) -> None:
        """Forget the copy in memory. Everything is stored, so another process may continue the session."""
        self._saved = None

    def suspend(self) -> None:
        """Make prompts wait until `resumed` is called, because the session is being loaded."""
        self.resident = False

    def resumed(self, stored: SessionOptions | None = None) -> None:
        """Allow the session an engine again. The caller holds its lock.

        stored   the session's options in the store, if other processes may have changed them
        """
        self.resident, before, chosen = True, replace(self.options), self._stored.differ(self.options)
        if stored is not None and (gone := self._stored.merge(self.options, stored, self.choices)):
            self.notices.warn(gone)
        if chosen:
            self.store_options()
        if self.options != before:
            self.post_mode()
            self.post_options()

    def end_with_process(self) -> None:
        """Cancel the running turn and begin no scheduled one, because the process ends."""
        if self._schedule is not None:
            self._schedule.stop()
        self.turns.end_with_session()

    async def close(self, *, tell: bool = True) -> None:
        """End the session: cancel a running turn, store the conversation and close the engine.

        tell   whether the editor is sent the session's total usage
        """
        with anyio.CancelScope(shield=True):
            if self._schedule is not None:
                self._schedule.stop()
            await self.turns.close()
            usage = self._usage if self._engine is None else self._engine.state().usage
            if tell and usage and usage.size:
                await self.editor.show(UsageChanged(usage.used, usage.size, usage.cost))
            await self._close_engine(inf)
            if tell and self.editor.shows_notices and self.transcript.failing:
                await self.editor.show(Notice(Severity.WARNING, _LOST))
            await self.transcript.end()

    async def _close_engine(self, patience: float) -> Change | None:
        """Close the engine and return the state to store. `patience` is the time to wait for the store, in seconds."""
        async with self._engine_lock:
            engine, self._engine = self._engine, None
        await self.transcript.flush(patience=patience)
        state = None if engine is None else await engine.kept()
        self.transcript.follow(None)
        if engine is None or state is None:
            return None
        if self.transcript.failing:
            self.transcript.store(state)  # the engine does not exist any more when the store is tried again
        await engine.close()
        return state

    # -------------------------------------------------------------------------------------- turns

    async def prompt(self, read: ReadPrompt) -> Answer:
        """Run one turn.

        Raises:
            RequestError: Another turn runs, the prompt is malformed, or the agent has a bug.

        """
        answer = Answer(StopReason.CANCELLED)
        async with self.turns.turn(self._end_turn) as scope:
            await self.ready()
            self.activate_options()
            try:
                engine = await self.engine()
            except AgentError as error:
                await self.emit(Notice(Severity.ERROR, self.redact(str(error))))
                answer = Answer(StopReason.END_TURN, error)
            else:
                await self.notices.tell(self.emit, self.redact)
                answer = await engine.answer(read)
        return Answer(StopReason.CANCELLED) if scope.cancel_called else answer

    async def _end_turn(self, cancelled: bool) -> None:  # noqa: FBT001 - a callback
        """Send all events before the answer."""
        await self.transcript.flush(within=_CANCELLED_FLUSH if cancelled else None, touch=True)
        await self.notices.tell(self.emit, self.redact)  # notices that were added during the turn

    def answered(self, answer: Answer) -> None:
        """Finish a turn in the background after its answer was sent."""
        if (engine := self._engine) is None:
            return

        async def follow_up() -> None:
            try:
                if not await engine.answered(answer):
                    return
            except Exception:  # noqa: BLE001 - the turn is answered: only its hooks and the title may be missing
                _log.error("turn not followed up", exc_info=True, session=self.id)
            await self.tell_commands()

        self._dependencies.background(follow_up)

    async def emit(self, event: Event) -> None:
        """Store and show one event of the running turn. Events that come after the turn's end are dropped."""
        if self.turns.busy:
            await self.transcript.tell(event)

    def _show(self, event: Event) -> Awaitable[None]:
        return self.editor.show(event)

    async def replay(self) -> None:
        """Show the stored conversation again. Raises StoreUnavailable."""
        await self.editor.replay(self.transcript.events())

    # ------------------------------------------------------------------------------------ options

    def apply_config(self, loaded: Loaded) -> None:
        """Apply a changed configuration to the user's options, and warn them of every option that became stricter."""
        options, stricter = resumed_options(loaded, self.options)
        if stricter:
            self.notices.warn(stricter)
        if options != self.options:
            self.options = options
            if self._granted is not None:  # the running turn follows the configuration, but no looser choice
                self._granted, _ = resumed_options(loaded, self._granted)
            self._limit()
            self.post_mode()
            self.post_options()

    def offer(self, choices: Choices) -> None:
        """Replace the models and levels that can be chosen."""
        self.choices = choices

    def activate_options(self) -> None:
        """Put the user's options in force. Call it when a turn begins or while none runs."""
        self._granted = replace(self.options)
        self._limit()

    def _limit(self) -> None:
        """Put in force what the running turn was granted, or the user's options, within the limits of the agent."""
        active = self._under_agent(self._granted if self._granted and self.turns.busy else self.options)
        if self._reads_only:
            active = replace(active, mode=Mode.ASK, auto_approve=AutoApprove.SUGGEST)
        self.active.copy_from(active)  # the gates share this object

    def _under_agent(self, options: SessionOptions) -> SessionOptions:
        return options if tighter(options.mode, self._loosest) is options.mode else replace(options, mode=self._loosest)

    def tighten(self) -> None:
        """Put a stricter mode or approval level that the user has chosen in force for the rest of the running turn."""
        if self.turns.busy and self._granted is not None:
            self._granted = replace(self._granted.tightened(self.options), chosen=self.options.chosen)
            self._limit()

    async def apply_choice(self) -> None:
        """Tighten the running turn, and tell the user if a looser choice counts only from their next prompt on."""
        self.tighten()
        then, now = self._under_agent(self.options).freedom, self.active.freedom
        if then is not now and self.turns.busy and self._granted is not None:
            told = f"{FREEDOMS[then][0]} counts from your next prompt on; this turn goes on as {FREEDOMS[now][0]}."
            await self.emit(Notice(Severity.INFO, told))

    def narrow(self, mode: Mode, tools: "Selection | None") -> None:
        """Limit the session to this mode and these tools, those of the agent to which it was handed over."""
        self._loosest, self.agent_tools = mode, tools
        self._limit()

    def hand_over(self, agent: str) -> None:
        """Store the name of the agent to which the session is handed over; empty for the session's own agent."""
        self.options.choose(agent=agent)
        self.store_options()

    @contextmanager
    def reading_only(self) -> Generator[None]:
        """Allow the running turn only to read and search, even if the user changes the options meanwhile."""
        self._reads_only = True
        self._limit()
        try:
            yield
        finally:
            self._reads_only = False
            self._limit()

    @contextmanager
    def limited_to(self, tools: tuple[str, ...] | None) -> Generator[None]:
        """Limit the running turn to these tools; None allows all. The selection gate enforces it."""
        self.only_tools = tools
        try:
            yield
        finally:
            self.only_tools = None

    def store_options(self) -> None:
        """Store the user's options. An evicted session stores them in `resumed`: another process may have it open."""
        if self.resident:
            self.transcript.store(Change(options=self._stored.store(self.options)))

    @property
    def chosen_while_evicted(self) -> bool:
        """Whether the user has changed an option since the eviction and the change is not stored."""
        return not self.resident and self._stored.differ(self.options)

    def options_chosen(self) -> None:
        """Store the options that the user has chosen by a slash command, and send them to the editor."""
        self.store_options()
        self.post_mode()
        self.post_options()
        self.editor.post(self.info())

    def post_mode(self) -> None:
        """Tell the editor the mode, without waiting."""
        self.editor.post(ModeChanged(self.options.freedom))

    def post_options(self) -> None:
        """Tell the editor all options, without waiting."""
        self.editor.post(OptionsChanged(self.options, self.choices))

    # -------------------------------------------------------------------------------- information

    async def set_title(self, title: str) -> None:
        """Set the title and send it to the editor. Do nothing if another process may have the session open."""
        if self.resident and not self.turns.closed:
            await self.transcript.set_title(title)
            await self.editor.show(self.info())

    async def forget(self) -> None:
        """Remove the conversation and the title from the store. Raises StoreUnavailable."""
        await self.transcript.clear()
        await self.editor.show(self.info())

    def info(self) -> SessionInfoChanged:
        """Return the session's entry in lists of sessions."""
        record = self.transcript.record
        return SessionInfoChanged(record.title, record.updated_at, model_in_force(self.options, self.choices))
