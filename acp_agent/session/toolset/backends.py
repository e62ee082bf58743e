"""The files, commands and pages of a session: those of the editor if it offers them, else those of this machine."""

import os
import shutil
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar
from uuid import uuid4

import anyio
import anyio.lowlevel
from anyio import to_thread

import acp_agent
from acp_agent.config.load import Loaded
from acp_agent.config.settings import Settings
from acp_agent.core.backends import (
    CommandRequest,
    FileSystem,
    Lines,
    RunningCommand,
    Terminal,
    TextFiles,
)
from acp_agent.core.editor import LanguageServers, TerminalSettings
from acp_agent.core.errors import BackendUnavailable, ConfigError, ToolError
from acp_agent.core.events import EventSink, Notice, Severity
from acp_agent.core.ports import Background
from acp_agent.core.services import Egress
from acp_agent.execution.audit import Auditor
from acp_agent.execution.wrappers import Stamp
from acp_agent.log import Log
from acp_agent.net.web import GuardedWeb, WebLimits
from acp_agent.output.sanitize import fence
from acp_agent.session.session import Session
from acp_agent.workspace.local_files import LocalFileSystem, file_stamp
from acp_agent.workspace.processes.background import ProcessPool
from acp_agent.workspace.processes.environment import child_environment, hidden_variables
from acp_agent.workspace.processes.terminal import LocalTerminal
from acp_agent.workspace.roots import Roots
from acp_agent.workspace.sandbox.sandbox import SessionSandbox
from acp_agent.workspace.sandbox.walls import WallRules

if TYPE_CHECKING:
    from acp_agent.session.processes import ProcessServices

_log = Log(__name__)
_MOST_DIAGNOSTICS = 100
"""The most diagnostics in one prompt."""


class CleanUps:
    """The tasks that clean up behind calls. The next prompt and the session's end wait for them.

    background   starts a task
    answered     waits until a turn that was cancelled is answered
    """

    def __init__(
        self, background: Background, answered: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint
    ) -> None:
        self._background = background
        self._answered = answered
        self._running = self._last = 0
        self._ended = anyio.Event()

    def start(self, clean_up: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self._running += 1
        self._background(partial(self._run, clean_up))

    def start_last(self, clean_up: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Start a task that looks for the changes of commands. It begins when the tasks of `start` have ended."""

        async def look() -> None:
            self._last += 1
            try:
                self._step()
                while self._running > self._last:
                    await self._ended.wait()
                await clean_up()
            finally:
                self._last -= 1

        self.start(look)

    async def _run(self, clean_up: Callable[[], Coroutine[Any, Any, object]]) -> None:
        try:
            await self._answered()
            await clean_up()
        except Exception:  # noqa: BLE001 - its failure must not end other sessions
            _log.error("clean-up behind a call failed", exc_info=True)
        finally:
            self._running -= 1
            self._step()

    def _step(self) -> None:
        self._ended.set()
        self._ended = anyio.Event()

    async def over(self) -> None:
        """Wait until no task runs."""
        while self._running:
            await self._ended.wait()


class SessionBackends:
    """The backends of one session. Terminals stay the same; files and web are made again for each configuration.

    settings     the settings at the session's start
    warn         shows the user a problem
    highest_id   returns the highest id of a process in a restored conversation: see ProcessPool
    terminal     the terminal for the model's and the user's commands
    programs     the local terminal for programs whose output only a tool reads
    processes    the commands that run beside the turns
    sandbox      contains the commands of the local terminal; None if it is off, or nothing here can build it
    clean_ups    the tasks behind calls
    """

    def __init__(
        self,
        process: "ProcessServices",
        session: Session,
        settings: Settings,
        sandbox: SessionSandbox | None,
        emit: EventSink,
        warn: Callable[[str], None],
        highest_id: Callable[[], int],
    ) -> None:
        self._editor = session.editor
        self._redact = session.redact
        self._settings = settings
        self._emit = emit
        self._watchdog = process.watchdog
        self.sandbox = sandbox
        self.clean_ups = CleanUps(process.background, session.turns.cancelled_over)
        self.programs = self._local_terminal(warn)
        self.terminal = self._any_terminal(process.script_folder)
        self.processes = ProcessPool(self.terminal, process.background, highest_id)

    def files(self, roots: Roots) -> FileSystem:
        """Return the files below these roots."""
        local = LocalFileSystem(roots)
        proxy = self._editor.files(local, self._settings.acp.request_timeout_secs)
        return local if proxy is None else CompositeFileSystem([proxy], local, self._fallen_back)

    def stamp(self, roots: Roots) -> Stamp:
        """Return the function that stamps the states of files. There are no stamps for an editor's files.

        The editor may have unsaved changes, which no stamp shows.
        """
        return _unstamped if self._editor.owns_buffers else partial(file_stamp, roots)

    @property
    def contained(self) -> bool:
        """Whether a sandbox contains the model's commands."""
        return self.reached is not None

    @property
    def reached(self) -> Sequence[str] | None:
        """The hosts that contained commands reach beside this one; None if no sandbox contains the model's commands."""
        local = self.terminal is self.programs
        if self.sandbox is None or not (local or self.sandbox.reaches_other_terminals):
            return None
        return tuple(map(str, self.sandbox.hosts))

    def sandbox_around(self, *, editor: bool) -> str:
        """Return the name of the sandbox around commands in the editor's terminal, or in ours; empty for none."""
        if self.sandbox is None or (editor and not self.sandbox.reaches_other_terminals):
            return ""
        return self.sandbox.tier

    def adopt(self, walls: WallRules | None) -> None:
        """Build the walls around new commands from other rules. A session without a sandbox stays without one."""
        if self.sandbox is not None and walls is not None:
            self.sandbox.adopt(walls)

    async def end(self) -> None:
        """End the background processes, wait for clean-ups, and end the sandbox."""
        await self.processes.close()
        await self.clean_ups.over()
        if self.sandbox is not None:
            await to_thread.run_sync(self.sandbox.close)

    def web(self, loaded: Loaded, auditor: Auditor | None) -> GuardedWeb:
        """Return the client for public web pages under a configuration."""
        scrape = loaded.settings.tools.scrape
        return GuardedWeb(
            WebLimits(scrape.timeout, scrape.max_body_bytes),
            allowed_domains=scrape.allowed_domains,
            denied_domains=scrape.denied_domains,
            ports=scrape.ports,
            record=recorder(auditor),
        )

    def _local_terminal(self, warn: Callable[[str], None]) -> LocalTerminal:
        shell = self._settings.tools.shell
        try:
            return LocalTerminal(
                shell.env_allow, default_timeout=shell.timeout, watchdog=self._watchdog, sandbox=self.sandbox
            )
        except ConfigError as error:
            warn(str(error))
            return LocalTerminal(default_timeout=shell.timeout, watchdog=self._watchdog, sandbox=self.sandbox)

    def _any_terminal(self, script_folder: Callable[[], str]) -> Terminal:
        acp = self._settings.acp
        keys = [name for each in self._settings.llm.providers for name in each.key_variables]
        reaches = self.sandbox is not None and self.sandbox.reaches_other_terminals
        proxy = self._editor.terminal(
            TerminalSettings(
                form=acp.terminal_form.value,
                script_folder=script_folder,
                shell="bash" if shutil.which("bash") else "sh",
                hidden=hidden_variables(os.environ, self._settings.tools.shell.env_allow, keys),
                timeout=acp.terminal_timeout_secs,
                request_timeout=acp.request_timeout_secs,
                watchdog=self._watchdog,
                redact=self._redact,
                # The editor has the PATH that this process was started with.
                path=os.environ.get("PATH") if acp_agent.path_limited else None,
                contain=self.sandbox.shell_text if self.sandbox is not None and reaches else None,
                contain_now=self.sandbox.shell_text_now if self.sandbox is not None and reaches else None,
                background=self.clean_ups.start,
            )
        )
        if proxy is None or (self._settings.tools.sandbox.strict and not reaches):  # no walls hold there
            return self.programs
        return CompositeTerminal([proxy, self.programs], self._fallen_back)

    async def _fallen_back(self, error: BackendUnavailable) -> None:
        await self._emit(Notice(Severity.WARNING, f"{error}; the agent does it without the editor"))


def seen_variables(settings: Settings) -> Collection[str]:
    """Return the names of the variables that commands see."""
    try:
        return child_environment(os.environ, settings.tools.shell.env_allow).keys()
    except ConfigError:  # the terminal ignores an unusable setting, and the user was told
        return child_environment(os.environ).keys()


async def _unstamped(path: str) -> None:
    del path


def recorder(auditor: Auditor | None) -> Callable[[Egress], None]:
    """Return the function that records requests and connections: in the audit, or else in the log."""
    return auditor.egress if auditor else _log_request


def _log_request(egress: Egress) -> None:
    """Log a web request or a connection that was made or blocked."""
    _log.info(
        "egress",
        tool=egress.caller.tool,
        call_id=egress.caller.call_id,
        url=egress.url,
        host=egress.host,
        hop=egress.hop,
        address=egress.address,
        status=egress.status,
        duration_ms=round(egress.duration * 1000),
        response_bytes=egress.response_bytes,
        blocked=egress.block_reason is not None,
        block_reason=egress.block_reason and egress.block_reason.value,
    )


async def reported_diagnostics(languages: LanguageServers, files: FileSystem) -> str:
    """Return `[LSP Diagnostics]` and a line for each problem in a file that may be read; "" if there is none.

    The lines come from others, so they are fenced and have no control or invisible characters. They are not redacted.
    Raises only cancellation.
    """
    from acp_agent.tools.lsp import Names  # noqa: PLC0415 - few editors share language servers
    from acp_agent.tools.lsp_answer import diagnostics  # noqa: PLC0415 - as above

    try:
        found = diagnostics(await languages.ask("get_diagnostics", {}))
    except ToolError:
        return ""
    names = Names(files)
    lines = [each.line(names.name(each.uri)) for each in found if each.uri and names.path(each.uri) is not None]
    if not lines:
        return ""
    fenced = fence("\n".join(lines[:_MOST_DIAGNOSTICS]), str(uuid4()), external="language servers")
    return f"[LSP Diagnostics]\n{fenced}"


B = TypeVar("B")
T = TypeVar("T")

OnFallback: TypeAlias = Callable[[BackendUnavailable], Awaitable[None]]
"""Called once for each kind of operation that a backend could not do, unless the error is quiet."""


class _Operation(StrEnum):
    READ = "read"
    WRITE = "write"
    RUN = "run"


class _Fallback(Generic[B]):
    """Several backends. Each operation goes to the first that can do it.

    A backend that raises BackendUnavailable is skipped for that call, and for the rest of the session if the error is
    permanent. The errors of the last backend go to the caller.
    """

    def __init__(self, backends: Sequence[B], on_fallback: OnFallback) -> None:
        *self._first, self._last = backends
        self._on_fallback = on_fallback
        self._dropped: set[tuple[_Operation, int]] = set()
        self._told: set[_Operation] = set()

    async def call(self, operation: _Operation, do: Callable[[B], Awaitable[T]]) -> T:
        for number, backend in enumerate(self._first):
            if (operation, number) in self._dropped:
                continue
            try:
                return await do(backend)
            except BackendUnavailable as error:
                if error.permanent:
                    self._dropped.add((operation, number))
                if not error.quiet and operation not in self._told:
                    self._told.add(operation)
                    await self._on_fallback(error)
        return await do(self._last)


class CompositeFileSystem:
    """A FileSystem of several: texts go to the first of `editors` that takes them, everything else is local.

    The local file system always resolves the paths.
    """

    def __init__(self, editors: Sequence[TextFiles], local: FileSystem, on_fallback: OnFallback) -> None:
        self._texts = _Fallback[TextFiles]([*editors, local], on_fallback)
        self.resolve, self.kind, self.read_bytes = local.resolve, local.kind, local.read_bytes
        self.list_directory, self.find, self.grep = local.list_directory, local.find, local.grep
        self.make_directory, self.delete = local.make_directory, local.delete
        self.move, self.copy = local.move, local.copy

    async def read_text(self, path: str) -> str:
        return await self._texts.call(_Operation.READ, lambda files: files.read_text(path))

    async def read_lines(self, path: str, offset: int, limit: int) -> Lines:
        return await self._texts.call(_Operation.READ, lambda files: files.read_lines(path, offset, limit))

    async def write_text(self, path: str, text: str, *, expected: str | None) -> str:
        return await self._texts.call(_Operation.WRITE, lambda files: files.write_text(path, text, expected=expected))


class CompositeTerminal:
    """A Terminal of several. A command that has started stays in its backend."""

    def __init__(self, backends: Sequence[Terminal], on_fallback: OnFallback) -> None:
        self._backends = _Fallback(backends, on_fallback)

    async def start(self, request: CommandRequest) -> RunningCommand:
        return await self._backends.call(_Operation.RUN, lambda terminal: terminal.start(request))
