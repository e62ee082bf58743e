"""One session: its folder, its options, and its turns, one at a time.

A session is light. What a turn needs (tools, gates, the model, terminals, servers) is an Engine, which is made in the
background after `session/new` is answered, or at the next prompt at the latest. An evicted session has no engine. Its
next prompt resumes it from the store.
"""

from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import Any

import anyio

from acp_agent.config.load import Loaded, conduct_taken_up
from acp_agent.core.conduct import LEAVE, AutoApprove, Choices, Mode, SessionOptions, model_in_force, settle
from acp_agent.core.editor import LanguageSettings, ReadPrompt, SessionEditor, SharedLanguages
from acp_agent.core.errors import AgentError
from acp_agent.core.events import (
    CommandsChanged,
    Event,
    ModeChanged,
    Notice,
    OptionsChanged,
    SessionInfoChanged,
    Severity,
    UsageChanged,
)
from acp_agent.core.mcp import McpServer
from acp_agent.core.messages import StopReason
from acp_agent.core.redaction import Redact
from acp_agent.core.sessions import Change, HistoryState, SessionRecord, SessionSnapshot, UsageTotals
from acp_agent.log import Log
from acp_agent.session.slash import commands
from acp_agent.session.transcript import Transcript
from acp_agent.session.turn_slot import Answer, Engine, TurnSlot

_log = Log(__name__)
_CANCELLED_FLUSH = 0.2
"""Seconds the store may delay the answer to a cancelled turn."""
_EARLY = 0.1
"""Seconds after which the commands are told again to an editor that drops early updates."""
_LOST = "the end of this conversation is not kept: the database cannot be written"


@dataclass(frozen=True, slots=True)
class SessionWorkspace:
    """Where a session works: absolute folders, `cwd` first among its roots, and what the editor brings along.

    servers   the MCP servers that the editor names
    tools     the only tools or groups the editor wants offered; None for all
    secrets   secret values in the headers and the environment of its MCP servers, which must never be shown
    ended     names of MCP servers that the editor has ended though they are named elsewhere, as in the configuration
    """

    cwd: str
    additional: tuple[str, ...] = ()
    servers: tuple[McpServer, ...] = ()
    tools: tuple[str, ...] | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    ended: frozenset[str] = frozenset()

    @property
    def folders(self) -> tuple[str, ...]:
        """All roots, `cwd` first."""
        return (self.cwd, *self.additional)


Background = Callable[[Callable[[], Coroutine[Any, Any, None]]], object]
"""Starts a task and does not wait for it."""


@dataclass(frozen=True, slots=True)
class SessionDependencies:
    """What a session is given by the process it lives in.

    make_engine   makes what answers its prompts, to go on with a snapshot. Raises AgentError
    resume        makes sure that a session may have an engine. Raises RequestError
    redact        removes secrets from texts while there is no engine
    background    starts a task
    clock         milliseconds since 1970
    """

    make_engine: Callable[["Session", SessionSnapshot | None], Awaitable[Engine]]
    resume: Callable[["Session"], Awaitable[None]]
    redact: Redact
    background: Background
    clock: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Opening:
    """What a session is made of; `saved` is None for one that begins."""

    record: SessionRecord
    workspace: SessionWorkspace
    editor: SessionEditor
    saved: SessionSnapshot | None = None


class PendingNotices:
    """Notices that wait for a turn. They are told when one begins or ends, because somebody reads them then."""

    def __init__(self, waiting: Sequence[Notice] = ()) -> None:
        self._waiting = list(waiting)

    def add(self, notice: Notice) -> None:
        """Keep a notice to be told."""
        self._waiting.append(notice)

    def warn(self, problem: str) -> None:
        """Keep a warning to be told."""
        self.add(Notice(Severity.WARNING, problem))

    async def tell(self, emit: Callable[[Event], Awaitable[None]], redact: Redact) -> None:
        """Tell all notices, without secrets."""
        while self._waiting:
            notice = self._waiting.pop(0)
            await emit(replace(notice, text=redact(notice.text)))


class StoredOptions:
    """The options of a session as the store has them, to merge what is chosen here and in other processes.

    Another process may open the session while it is evicted here. What is in force and what is stored need not be the
    same: the configuration may allow less than what is stored.
    """

    def __init__(self, options: SessionOptions, stored: SessionOptions | None) -> None:
        """`stored` is what the store holds; None for a session that begins with `options`."""
        self._here = replace(options)
        self._stored = options.to_keep(SessionOptions()) if stored is None else replace(stored)

    def store(self, options: SessionOptions) -> SessionOptions:
        """Take note that these options are being stored. Return what is to be stored of them."""
        self._here = replace(options)
        self._stored = options.to_keep(self._stored)
        return self._stored

    def differ(self, options: SessionOptions) -> bool:
        """Return whether the user has chosen something since the options were last stored or merged."""
        return options != self._here

    def merge(self, options: SessionOptions, stored: SessionOptions, choices: Choices) -> str:
        """Take into `options` what other processes have stored since, except for what was changed here, too.

        Returns a line for the user if the chosen model is gone; else "".
        """
        model, chosen = options.model, {*options.chosen}
        for name in (each.name for each in fields(SessionOptions) if each.name != "chosen"):
            if self._was_changed(name, stored) and getattr(options, name) == getattr(self._here, name):
                setattr(options, name, getattr(stored, name))
                chosen.add(name)
        options.become(replace(options, chosen=tuple(name for name in LEAVE if name in chosen)))
        gone = settle(options, choices)
        self._here, self._stored = replace(options), replace(stored)
        return gone if options.model != model else ""

    def _was_changed(self, name: str, stored: SessionOptions) -> bool:
        """Return whether others have changed a field since. Of the permission fields only the user's choice counts."""
        if name in LEAVE and name not in stored.chosen:
            return False
        first = name in LEAVE and name not in self._stored.chosen
        return first or getattr(stored, name) != getattr(self._stored, name)


class Session:
    """One conversation.

    options    what the user chose; `active` is what the running turn obeys. It is copied when a turn begins
    choices    what can be chosen
    saved      what it goes on with; None when it begins
    notices    what the user is told when a turn begins or ends
    resident   whether it holds its lock and may have an engine
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
        self.options = options
        self.choices = choices
        self.active = replace(options)
        self.languages: SharedLanguages | None = None
        self.resident = True
        self.turns = TurnSlot()
        self.notices = PendingNotices(notices)
        self.transcript = Transcript(
            opening.record, self._show, dependencies.background, self.notices.warn, dependencies.clock
        )
        self._dependencies = dependencies
        self._saved = saved
        self._engine: Engine | None = None
        self._engine_lock = anyio.Lock()
        self._redact = dependencies.redact
        self._reads_only = False
        self._commands: frozenset[commands.CommandName] | None = None  # those that the editor knows of
        self._stored = StoredOptions(options, None if saved is None else saved.conduct)
        self._was_evicted = False
        self._usage: UsageTotals | None = None  # of before it was evicted

    # ------------------------------------------------------------------------------------- engine

    async def engine(self) -> Engine:
        """Return the engine, made once. Raises AgentError if the configuration or the store does not allow one."""
        async with self._engine_lock:
            if self._engine is None:
                evicted = self._saved is None and self._was_evicted
                saved = await self.transcript.reload() if evicted else self._saved
                self._engine = await self._dependencies.make_engine(self, saved)
                self._redact = self._engine.redact
                self._saved = None  # not before: if no engine could be made, the next attempt goes on with it
                self.transcript.follow(self._engine.kept, self._redact)
                if saved is not None and saved.unfinished_messages:
                    await self.transcript.redact_unfinished(saved.unfinished_messages, self._redact)
            return self._engine

    def redact(self, text: str) -> str:
        """Return a text without secrets."""
        return self._redact(text)

    async def announce(self) -> None:
        """Tell the editor which commands there are, then make the engine ready while the user types."""
        await self._tell_commands(commands.ALWAYS)
        if self.editor.drops_early_updates:
            await anyio.sleep(_EARLY)
            told, self._commands = self._commands, None
            await self._tell_commands(told or commands.ALWAYS)
        try:
            if self.resident and not self.turns.closed:
                await self._tell_commands((await self.engine()).commands())
        except Exception as error:  # noqa: BLE001 - only a head start: the first prompt meets the same error and tells it
            _log.warning("no engine yet", session=self.id, reason=str(error))

    async def tell_commands(self) -> None:
        """Tell the editor which slash commands make sense by now."""
        if self._engine is not None:
            await self._tell_commands(self._engine.commands())

    async def _tell_commands(self, available: Collection[commands.CommandName]) -> None:
        if not self.turns.closed and frozenset(available) != self._commands:
            self._commands = frozenset(available)
            await self.editor.show(CommandsChanged(commands.offered(available)))

    def share_languages(self, loaded: Loaded) -> SharedLanguages | None:
        """Return the editor's language servers; None if it shares none or the user does not want them.

        The object stays the same: it knows what the editor has published, and the editor does not publish it again.
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
        """Work in another folder. No turn may run, and the engine must be closed next."""
        self.workspace = replace(self.workspace, cwd=cwd)
        self.editor.move(cwd)
        self.languages = None
        self.transcript.move(cwd)

    def reopen(self, workspace: SessionWorkspace, editor: SessionEditor) -> None:
        """Go on as the editor opens it now, perhaps in another folder. It is evicted."""
        self.workspace, self.editor = workspace, editor
        self.move(workspace.cwd)

    def add_server(self, server: McpServer) -> None:
        """Remember an MCP server that the editor has added, for the next engine."""
        self.workspace = replace(self.workspace, servers=(*self.workspace.servers, server))

    def remove_server(self, name: str) -> None:
        """Remember that the editor has ended an MCP server, wherever it is named."""
        left = tuple(each for each in self.workspace.servers if each.name != name)
        self.workspace = replace(self.workspace, servers=left, ended=self.workspace.ended | {name})

    # ---------------------------------------------------------------------------- eviction and end

    async def evict(self, patience: float) -> None:
        """Give back everything except what makes the session known. No turn may run; the next prompt resumes it.

        It goes on with what is in memory, until `trust_store`. Waits for the store for `patience` seconds.
        """
        self.resident, self._was_evicted = False, True
        if state := await self._close_engine(patience):
            self._usage, history = state.usage or UsageTotals(), state.history or HistoryState()
            self._saved = SessionSnapshot(self.transcript.record, replace(self.options), self._usage, history)

    def trust_store(self) -> None:
        """Forget what is in memory: all is stored, and another process may go on with it."""
        self._saved = None

    def suspend(self) -> None:
        """Have prompts wait until `resumed`: the session is being loaded."""
        self.resident = False

    def resumed(self, stored: SessionOptions | None = None) -> None:
        """Let it have an engine again. It holds its lock.

        stored   its options in the store, if other processes can have changed them
        """
        self.resident, before, chosen = True, replace(self.options), self._stored.differ(self.options)
        if stored is not None and (gone := self._stored.merge(self.options, stored, self.choices)):
            self.notices.warn(gone)
        if chosen:
            self.store_options()
        if self.options != before:
            self.post_mode()
            self.post_options()

    async def close(self, *, tell: bool = True) -> None:
        """End the session: cancel a running turn, store all that was said, and give back what it holds.

        tell   whether the editor is told what the session took in all
        """
        with anyio.CancelScope(shield=True):
            await self.turns.close()
            usage = self._usage if self._engine is None else self._engine.state().usage
            if tell and usage and usage.size:
                await self.editor.show(UsageChanged(usage.used, usage.size, usage.cost))
            await self._close_engine(inf)
            if tell and self.editor.shows_notices and self.transcript.failing:
                await self.editor.show(Notice(Severity.WARNING, _LOST))
            await self.transcript.end()

    async def _close_engine(self, patience: float) -> Change | None:
        """Close the engine and return what is to be stored of it. Waits for the store for `patience` seconds."""
        async with self._engine_lock:
            engine, self._engine = self._engine, None
        await self.transcript.flush(patience=patience)
        state = None if engine is None else await engine.kept()
        self.transcript.follow(None)
        if engine is None or state is None:
            return None
        if self.transcript.failing:
            self.transcript.store(state)  # when the store is tried again, there is no engine to ask
        await engine.close()
        return state

    # -------------------------------------------------------------------------------------- turns

    async def prompt(self, read: ReadPrompt) -> Answer:
        """Run one turn. Raises RequestError if another turn runs, if the prompt is malformed, or on a bug of ours."""
        answer = Answer(StopReason.CANCELLED)
        async with self.turns.turn(self._end_turn) as scope:
            await self._dependencies.resume(self)
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
        await self.notices.tell(self.emit, self.redact)  # those that have come up meanwhile

    def answered(self, answer: Answer) -> None:
        """Do, in the background, what nobody waits for: the turn has been answered."""
        if (engine := self._engine) is None:
            return

        async def follow_up() -> None:
            await engine.answered(answer)
            await self.tell_commands()

        self._dependencies.background(follow_up)

    async def emit(self, event: Event) -> None:
        """Store and show one event of the running turn. Events that come after the turn's end are dropped."""
        if self.turns.busy:
            await self.transcript.tell(event)

    async def _show(self, event: Event) -> None:
        await self.editor.show(event)

    async def replay(self) -> None:
        """Show the stored conversation again. Raises StoreUnavailable."""
        await self.editor.replay(self.transcript.events())

    # ------------------------------------------------------------------------------------ options

    def apply_config(self, loaded: Loaded) -> None:
        """Apply another configuration to what the user has chosen, and warn them of every stricter option."""
        options, stricter = conduct_taken_up(loaded, self.options)
        if stricter:
            self.notices.warn(stricter)
        if options != self.options:
            self.options = options
            self.activate_options()
            self.post_mode()
            self.post_options()

    def offer(self, choices: Choices) -> None:
        """Let other models and levels be chosen from now on."""
        self.choices = choices

    def activate_options(self) -> None:
        """Obey what the user has chosen. For the beginning of a turn, or while none runs."""
        active = self.options
        if self._reads_only:
            active = replace(active, mode=Mode.ASK, auto_approve=AutoApprove.SUGGEST)
        self.active.become(active)  # the gates hold this very object

    @contextmanager
    def reading_only(self) -> Generator[None]:
        """Allow the running turn only to read and to search, whatever is chosen meanwhile."""
        self._reads_only = True
        self.activate_options()
        try:
            yield
        finally:
            self._reads_only = False
            self.activate_options()

    def store_options(self) -> None:
        """Store what the user has chosen. While the session is evicted, others may have it: see `resumed`."""
        if self.resident:
            self.transcript.store(Change(conduct=self._stored.store(self.options)))

    @property
    def chosen_while_evicted(self) -> bool:
        """Whether the user has chosen something that is not stored, since the session was evicted."""
        return not self.resident and self._stored.differ(self.options)

    def options_chosen(self) -> None:
        """Store and show what the user has chosen by a slash command."""
        self.store_options()
        self.post_mode()
        self.post_options()
        self.editor.post(self.info())

    def post_mode(self) -> None:
        """Tell the editor the mode, without waiting."""
        self.editor.post(ModeChanged(self.options.mode))

    def post_options(self) -> None:
        """Tell the editor all options, without waiting."""
        self.editor.post(OptionsChanged(self.options, self.choices))

    # -------------------------------------------------------------------------------- information

    async def set_title(self, title: str) -> None:
        """Give the conversation a title and tell the editor. Does nothing if it may be open elsewhere."""
        if self.resident and not self.turns.closed:
            await self.transcript.set_title(title)
            await self.editor.show(self.info())

    async def forget(self) -> None:
        """Remove what was said, and the title, from the store. Raises StoreUnavailable."""
        await self.transcript.clear()
        await self.editor.show(self.info())

    def info(self) -> SessionInfoChanged:
        """Return what lists say of the session now."""
        record = self.transcript.record
        return SessionInfoChanged(record.title, record.updated_at, model_in_force(self.options, self.choices))
