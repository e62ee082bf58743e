"""The server process: how it is built, how it handles signals, and how it ends in order.

The process ends when the editor closes the stream, on SIGTERM, SIGINT or SIGHUP, and, with exit code 1, on an exception
that nothing handled. Turns are cancelled, commands are killed, and terminals are released if the pipe still works. All
this takes at most two seconds.
"""

import asyncio
import gc
import importlib
import json
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn, cast

import anyio
import anyio.to_thread

from acp_agent.capabilities import fork_offered, initialize_result
from acp_agent.config.files import FRAMES_VARIABLE, STRICT_VARIABLE, database_file
from acp_agent.config.load import Flags, Loaded, load, options_at_start, options_opened
from acp_agent.config.section import secret_values
from acp_agent.core.errors import ConfigError
from acp_agent.core.events import Notice, Severity
from acp_agent.core.process_limits import DescriptorReserve, raise_descriptor_limit
from acp_agent.core.services import Scheduler
from acp_agent.core.session_options import SessionOptions, settle
from acp_agent.core.sessions import SessionSnapshot, UsageTotals
from acp_agent.core.types import Json, JsonObject
from acp_agent.core.untrusted import now_ms
from acp_agent.log import Log
from acp_agent.protocol.jsonrpc import Request
from acp_agent.protocol.peer import Peer
from acp_agent.protocol.server import AuthState, Server
from acp_agent.protocol.stdio import FrameLog, LineReader, MessageWriter
from acp_agent.session.manager import SessionManager, evict_unused, purge_unused
from acp_agent.session.model_choices import ModelChoices, ModelLists
from acp_agent.session.pool import SessionLimits
from acp_agent.session.session import Opening, Session, SessionDependencies
from acp_agent.store.credentials import CredentialStore
from acp_agent.store.db import Database
from acp_agent.store.session_json import json_bytes, to_json
from acp_agent.store.session_locks import SessionLocks
from acp_agent.store.sessions import SessionStore

if TYPE_CHECKING:
    from acp_agent.boot import Handover
    from acp_agent.config.call_settings import SchedulerSettings
    from acp_agent.protocol.extensions import Extensions
    from acp_agent.protocol.strict import StrictObserver
    from acp_agent.session.engine import SessionEngine
    from acp_agent.session.processes import ProcessServices

_log = Log(__name__)
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_FIRST_TURN = (
    "acp_agent.protocol.content",
    "acp_agent.protocol.client_files",
    "acp_agent.protocol.client_terminal",
    "acp_agent.protocol.questions",
)
"""Modules of the protocol that a turn needs. They are loaded in a thread."""
_LAST_SEND = 0.4
"""Seconds to send pending updates when the process ends."""
_LAST_WRITE = 1.2
"""Seconds to wait for a database that is in use, to store pending events when the process ends."""
_BY_THREAD = 1.5
"""Seconds after which a thread ends the process, even if the event loop is blocked."""
_BY_SYSTEM = 4
"""Seconds after which the system ends the process, even if no thread runs any more."""
_RESERVE = 8
"""File descriptors that are reserved for ending child processes."""
_CRASHED = 1
"""The exit code after an exception that nothing handled."""


def main(handover: "Handover", argv: Sequence[str] = ()) -> NoReturn:
    """Serve until the end, and exit with 0, with 128 + n after signal n, or with 1 after a crash."""
    raise_descriptor_limit()
    code = _CRASHED
    try:
        code = anyio.run(_serve, handover, Flags.from_argv(argv))
    except BaseException as error:  # noqa: BLE001 - every crash is reported
        _report_crash(error)
    finally:
        os._exit(code)  # threads of the database or of an abandoned import would block an ordinary exit


async def _serve(handover: "Handover", flags: Flags) -> int:
    """Serve until the end, and return the exit code."""
    strict = _strict_observer(handover) if os.environ.get(STRICT_VARIABLE) == "1" else None
    app = App(handover, flags, strict)
    try:
        async with app.tasks:
            await app.run()
            app.tasks.cancel()
    finally:
        app.kill_processes()
        app.remove_sandboxes()
    if strict is not None:
        strict.summarize()
    return app.exit_code


class BackgroundTasks:
    """The background tasks of the process. At the end of the `async with` block all have ended.

    A task group of anyio takes three times as long to start a task, and each turn starts four.

    crashed   called with the exception of a task. It must end the process, because the other tasks go on
    """

    def __init__(self, crashed: Callable[[BaseException], object]) -> None:
        self._crashed = crashed
        self._running = dict[asyncio.Task[None], tuple[Callable[[], Awaitable[None]], anyio.CancelScope]]()
        self._is_cancelled = False

    def start(self, job: Callable[[], Awaitable[None]]) -> None:
        """Run a job in a task of its own."""
        scope = anyio.CancelScope()
        if self._is_cancelled:
            scope.cancel()
        task = asyncio.get_running_loop().create_task(self._run(job, scope))
        self._running[task] = job, scope
        task.add_done_callback(self._running.pop)

    async def _run(self, job: Callable[[], Awaitable[None]], scope: anyio.CancelScope) -> None:
        with scope:
            try:
                await job()
            except (anyio.get_cancelled_exc_class(), GeneratorExit):
                raise
            except BaseException as error:  # noqa: BLE001 - `crashed` ends the process in order
                self._crashed(error)

    def cancel(self, spared: Callable[[], Awaitable[None]] | None = None) -> None:
        """Cancel all tasks except those of the spared job. Every task that starts later is cancelled, too."""
        self._is_cancelled = True
        for job, scope in self._running.values():
            if job != spared:
                scope.cancel()

    async def __aenter__(self) -> None:
        """Do nothing: tasks begin with `start`."""

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.cancel()
        try:
            await self._ended()
        finally:
            if self._running:  # cancelled while it waited
                self.cancel()
                with anyio.CancelScope(shield=True):
                    await self._ended()

    async def _ended(self) -> None:
        while self._running:
            await asyncio.wait(self._running)


class App:
    """The server process: one editor, many sessions. `run` must be called within the block of `tasks`."""

    def __init__(self, handover: "Handover", flags: Flags, observer: "StrictObserver | None") -> None:
        self.exit_code = 0
        self.tasks = BackgroundTasks(self._crashed)  # an exception in one ends the process in order
        self._flags = flags
        self._last_resort = LastResort(self.kill_processes, lambda: self.exit_code)
        self._process: ProcessServices | None = None
        self._sandbox_test_begun = False
        self._limits = SessionLimits()
        self._lists = ModelLists(os.environ, self._models_listed)
        self._database: Database | None = None
        self._extensions: Extensions | None = None
        self._problems: list[str] = []  # warnings from before the first session
        self._loaded: tuple[str, Loaded] | None = None  # folder and configuration of the newest session
        self._sessions = self._session_manager()
        frames = self._frame_log(handover)
        reader = LineReader(handover.input_fd, handover.unread, frames)
        writer = MessageWriter(handover.output_fd, frames)
        self._peer = Peer(reader, writer, self._shown, observer)
        auth = AuthState(self._forget_keys)
        self._opened = handover.opened
        self._known = handover.known
        self._server = Server(
            self._peer, self._sessions, self._warm_up, self._keep, self._extend, auth, handover.initialized
        )

    def _session_manager(self) -> SessionManager:
        """Make the session manager. No file is opened before the first session."""
        store = locks = None
        trouble = ""
        try:
            file = database_file(os.environ)
        except ConfigError as error:
            trouble = str(error)
        else:
            self._database = Database(file, self._warn_all)
            store = SessionStore(self._database)
            locks = SessionLocks(os.path.join(os.path.dirname(file), "sessions.lock"))
        return SessionManager(store, locks, self._make_session, lambda: self._limits, now_ms, trouble)

    def _frame_log(self, handover: "Handover") -> FrameLog | None:
        """Return the log that `ACP_AGENT_LOG_FRAMES` asks for. It gets the `initialize` that was already answered."""
        file = os.environ.get(FRAMES_VARIABLE)
        if not file:
            return None
        from acp_agent.output.redaction.redactor import Redactor  # noqa: PLC0415 - for this log only
        from acp_agent.output.redaction.rules import KnownSecrets  # noqa: PLC0415 - for this log only

        known = KnownSecrets()
        known.add(secret_values(os.environ))
        redactor = Redactor(known)

        def redact(frame: Json) -> Json:
            redacted = redactor.json(frame)
            return redacted if self._process is None else self._process.redactor.json(redacted)

        try:
            frames = FrameLog(os.path.abspath(os.path.expanduser(file)), redact)
        except OSError as error:
            self._problems.append(f"{FRAMES_VARIABLE}: {file} cannot be opened ({error.strerror})")
            return None
        if handover.initialized is not None:
            request, response = _initialize_messages(handover.initialized)
            frames.received(json.dumps(request).encode())
            frames.sent(json.dumps(response).encode())
        return frames

    async def run(self) -> None:
        """Serve the editor until the end, and store the sessions."""
        self.tasks.start(self._handle_signals)
        self.tasks.start(partial(evict_unused, self._sessions))
        try:
            await self._server.serve(self._last_resort.arm, self._opened)
        except BaseException as error:  # noqa: BLE001 - sessions are stored before the process ends
            self._crashed(error)
        await self._sessions.flush(within=_LAST_SEND, patience=_LAST_WRITE)
        self.tasks.cancel(self._handle_signals)  # the others would log that the database is closed
        if self._process is not None:
            await self._process.aclose()
        if self._database is not None:
            await self._database.aclose()

    def _crashed(self, error: BaseException) -> None:
        self.exit_code = _CRASHED
        try:
            self._last_resort.arm()
            _report_crash(error)
        finally:
            self._peer.end()

    def kill_processes(self, within: float = 1.0) -> None:
        """Kill the processes that cancelled turns have not ended, in at most `within` seconds."""
        if self._process is not None:
            self._process.kill_everything(within)

    def remove_sandboxes(self) -> None:
        """Remove the private folders of commands. If a large one takes too long, the next agent removes it."""
        if self._process is not None:
            self._process.remove_sandboxes()

    async def _handle_signals(self) -> None:
        with anyio.open_signal_receiver(*_SIGNALS) as signals:
            async for number in signals:
                self.exit_code = 128 + number
                self._peer.end()

    def _shown(self, session_id: str) -> Awaitable[None] | None:
        """Return an awaitable that ends when the updates of a session are sent, or None if all are sent.

        A question must reach the editor after the update that shows its tool call.
        """
        session = self._sessions.find(session_id)
        return session.transcript.shown() if session is not None and session.transcript.is_behind else None

    def _forget_keys(self) -> None:
        """Remove the keys that `acp-agent login` stored. Blocks. Raises ConfigError."""
        if self._process is None:
            CredentialStore(os.environ).forget()
        else:
            self._process.forget_keys()

    async def _extend(self, method: str, params: JsonObject) -> JsonObject:
        """Answer an extension request. Few editors send any, so the code is loaded at the first."""
        if self._extensions is None:
            module = await imported("acp_agent.protocol.extensions")
            host = module.ExtensionHost(self._sessions, partial(load, self._flags, os.environ), now_ms)
            self._extensions = cast("Extensions", module.Extensions(host))
        return await self._extensions.request(method, params)

    # -------------------------------------------------------------------------------------- sessions

    def _make_session(self, opening: Opening) -> Session:
        opened_in = opening.workspace.cwd
        reload = partial(load, self._flags, os.environ, opened_in)
        if self._loaded is None or self._loaded[0] != opened_in or not self._loaded[1].is_current():
            self._loaded = opened_in, reload()
        loaded = self._loaded[1]
        acp = loaded.settings.acp
        self._limits = SessionLimits(acp.max_sessions, acp.session_idle_timeout_secs)
        begun = False

        async def make_engine(session: Session, saved: SessionSnapshot | None) -> "SessionEngine":
            nonlocal begun
            process = await self._load_process(loaded)
            if session.workspace.cwd == opened_in:
                if begun:  # the session was evicted meanwhile
                    session.apply_config(reload(loaded))
                begun = True
                return process.engine(session, loaded, reload, saved)
            elsewhere = partial(load, self._flags, os.environ, session.workspace.cwd)  # the session moved meanwhile
            there = elsewhere()
            session.apply_config(there)
            return process.engine(session, there, elsewhere, saved)

        choices = self._choices(loaded)
        options, told = _options(loaded, opening.saved, choices)
        problems = [*(f"configuration: {problem}" for problem in loaded.problems), *told]
        notices = [Notice(Severity.WARNING, problem) for problem in problems]
        dependencies = SessionDependencies(
            make_engine, self._sessions.resume, self._redact, self.tasks.start, now_ms, partial(self._schedule, reload)
        )
        session = Session(dependencies, opening, options, choices, notices)
        session.share_languages(loaded)  # the editor may publish diagnostics before the first prompt
        return session

    def _schedule(self, reload: Callable[[], Loaded], session: Session) -> Scheduler | None:
        """Return the scheduled prompts of a session; None if nothing can be stored."""
        from acp_agent.session.slash.schedule import session_schedule  # noqa: PLC0415 - few sessions have any

        if self._database is None:
            return None

        def settings() -> "SchedulerSettings":
            return reload().settings.scheduler

        return session_schedule(session, self._database, settings, now_ms, self.tasks.start)

    def _redact(self, text: str) -> str:
        """Return a text without secrets. Before the services of the process are loaded, it is returned unchanged."""
        return text if self._process is None else self._process.redactor(text)

    def _choices(self, loaded: Loaded) -> ModelChoices:
        llm = loaded.settings.llm
        available = loaded.settings.acp.available_models
        return ModelChoices(llm, available, self._lists.of(llm), fetches=llm.list_models)

    def _models_listed(self) -> None:
        """Update the options of every session after the list of models has changed."""
        for session in self._sessions.all():
            session.post_options()

    def _warm_up(self, session: Session) -> None:
        """Show early warnings, and prepare the session for its first prompt while the user types it."""
        while self._problems:
            session.notices.warn(self._problems.pop(0))
        self.tasks.start(partial(session.announce, self._sessions.all_opened))

    def _keep(self, params: JsonObject, answer: JsonObject, session: Session) -> None:
        """Store the first answer to `session/new` for the next process.

        Later answers are not stored, because they contain lists of models that a new process has not fetched yet.
        """
        known, self._known = self._known, None
        if known is not None:
            options, usage = (
                json_bytes(to_json(each)) for each in (session.options.to_keep(SessionOptions()), UsageTotals())
            )
            keep = partial(known.keep, params, answer, options, usage)
            self.tasks.start(partial(anyio.to_thread.run_sync, keep, abandon_on_cancel=True))

    def _warn_all(self, problem: str) -> None:
        if not self._sessions.all():
            self._problems.append(problem)
        for session in self._sessions.all():
            session.notices.warn(problem)

    async def _load_process(self, loaded: Loaded) -> "ProcessServices":
        if self._process is not None:
            return self._process
        if not self._sandbox_test_begun:
            self._sandbox_test_begun = True
            await self._begin_sandbox_test(loaded)
        for name in _FIRST_TURN:
            await imported(name)
        module = await imported("acp_agent.session.processes")
        process = self._process
        if process is None:  # no other session has made it meanwhile
            process = self._process = module.ProcessServices(loaded, self.tasks.start, self._choices, self._database)
            self.tasks.start(partial(process.tidy_up, loaded))
            self.tasks.start(partial(purge_unused, self._sessions))
            await anyio.to_thread.run_sync(process.prepare, abandon_on_cancel=True)
        return process

    async def _begin_sandbox_test(self, loaded: Loaded) -> None:
        """Begin to test in a thread whether a sandbox can be built. Other modules are loaded during these 20 ms."""
        module = await imported("acp_agent.session.toolset.sandboxing")
        trial = partial(anyio.to_thread.run_sync, module.contains_commands, loaded.settings, abandon_on_cancel=True)
        self.tasks.start(trial)


class LastResort:
    """A timer that ends the process some time after `arm`, if the process has not ended by itself.

    Until `arm` it reserves the file descriptors that are needed to find and end child processes.

    kill        ends all child processes in at most the given seconds
    exit_code   returns the exit code of the process
    """

    def __init__(self, kill: Callable[[float], None], exit_code: Callable[[], int]) -> None:
        self._kill = kill
        self._exit_code = exit_code
        self._armed = False
        self._reserve = DescriptorReserve(_RESERVE)

    def arm(self) -> None:
        """Start the timers; further calls do nothing. Must be called in the main thread."""
        if self._armed:
            return
        self._armed = True
        self._reserve.release()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_BY_SYSTEM)
        with suppress(RuntimeError):  # no thread can be started; the alarm remains
            threading.Thread(target=self._end, daemon=True).start()

    def _end(self) -> None:
        time.sleep(_BY_THREAD)
        try:
            self._kill(0.4)
        finally:
            os._exit(self._exit_code())


def _strict_observer(handover: "Handover") -> "StrictObserver":
    """Return the observer for `ACP_AGENT_STRICT`. It gets the `initialize` that was already answered."""
    from acp_agent.protocol.strict import StrictObserver  # noqa: PLC0415 - the SDK's models cost 17 MB and 0.4 s

    observer = StrictObserver()
    if handover.initialized is not None:
        observer.received(Request(0, "initialize", handover.initialized))
        observer.sent(_initialize_messages(handover.initialized)[1])
    return observer


def _initialize_messages(params: JsonObject) -> tuple[JsonObject, JsonObject]:
    """Return the `initialize` request with these params, which was already answered, and its answer. Both have id 0."""
    result = initialize_result(params, fork=fork_offered(os.environ))
    request: JsonObject = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    return request, {"jsonrpc": "2.0", "id": 0, "result": result}


async def imported(name: str) -> ModuleType:
    """Import a module in a thread, so that the editor is served meanwhile. A cancellation does not wait for it."""

    def load_it() -> ModuleType:
        gc.disable()  # modules are never freed, and collecting garbage would take a tenth of the time to load them
        try:
            return importlib.import_module(name)
        finally:
            gc.freeze()  # later collections skip the loaded modules
            gc.enable()

    return await anyio.to_thread.run_sync(load_it, abandon_on_cancel=True)


def _report_crash(error: BaseException) -> None:
    _log.error("acp-agent has crashed", exc_info=error)


def _options(loaded: Loaded, saved: SessionSnapshot | None, choices: ModelChoices) -> tuple[SessionOptions, list[str]]:
    """Return the options of a new or stored session, and lines for the user about what was changed."""
    tightened = ""
    if saved is None:
        options = options_at_start(loaded)
    else:
        options, tightened = options_opened(loaded, saved.options)
    return options, [line for line in (tightened, settle(options, choices)) if line]
