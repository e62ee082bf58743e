"""Where files, commands and pages of a session are: with the editor where it offers them, else on this machine.

Its roots and protected paths come from the configuration. A pattern of the user's own file that cannot be understood
means that nothing runs. The file of a project comes with the repository: its author could take every tool away with one
odd pattern. Such a pattern only adds to what the user forbids, so it is left out and the user is told.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias, cast
from uuid import uuid4

from acp_agent.config import Loaded, Settings, data_path
from acp_agent.config.files import credentials_file, database_file, session_locks_file
from acp_agent.config.section import Section
from acp_agent.config.tool_settings import ReadRule
from acp_agent.core.backends import FileSystem, Terminal
from acp_agent.core.editor import LanguageServers, TerminalSettings
from acp_agent.core.errors import BackendUnavailable, ConfigError, ToolError
from acp_agent.core.events import EventSink, Notice, Severity
from acp_agent.core.services import Egress
from acp_agent.execution.audit import Auditor
from acp_agent.execution.cache import Stamp
from acp_agent.log import Log
from acp_agent.net.web import GuardedWeb, WebLimits
from acp_agent.output.sanitize import fence
from acp_agent.session.session import Session
from acp_agent.workspace.composite import CompositeFileSystem, CompositeTerminal
from acp_agent.workspace.local_files import LocalFileSystem, file_stamp
from acp_agent.workspace.processes.environment import hidden_variables
from acp_agent.workspace.processes.terminal import LocalTerminal
from acp_agent.workspace.processes.tree import CommandWatchdog
from acp_agent.workspace.protected_paths import ProtectedPaths
from acp_agent.workspace.read_policy import OwnFiles, ReadPolicy, all_of
from acp_agent.workspace.roots import Root, Roots

_log = Log(__name__)
_MOST_DIAGNOSTICS = 100
"""The most diagnostics in one prompt."""


class SessionBackends:
    """The backends of one session. Terminals stay the same; files and web are made again for each configuration.

    settings        the settings at the session's start
    script_folder   returns the folder for scripts that the editor's terminal runs
    warn            shows the user a problem
    watchdog        ends local commands if this process dies
    terminal        the terminal for the model's and the user's commands
    programs        the local terminal for programs whose output only a tool reads
    """

    def __init__(
        self,
        session: Session,
        settings: Settings,
        script_folder: Callable[[], str],
        emit: EventSink,
        warn: Callable[[str], None],
        watchdog: CommandWatchdog,
    ) -> None:
        self._editor = session.editor
        self._settings = settings
        self._emit = emit
        self._watchdog = watchdog
        self.programs = self._local_terminal(warn)
        self.terminal = self._any_terminal(script_folder)

    def files(self, roots: Roots) -> FileSystem:
        """Return the files below these roots."""
        local = LocalFileSystem(roots)
        proxy = self._editor.files(local, self._settings.acp.request_timeout_secs)
        return local if proxy is None else CompositeFileSystem([proxy], local, self._fallen_back)

    def stamp(self, roots: Roots) -> Stamp:
        """Return the function that stamps a state of a file. With an editor's files there are no stamps.

        The editor may have unsaved changes, which no stamp shows.
        """
        return _unstamped if self._editor.owns_buffers else partial(file_stamp, roots)

    def web(self, loaded: Loaded, auditor: Auditor | None) -> GuardedWeb:
        """Return the client for public web pages under a configuration."""
        scrape = loaded.settings.tools.scrape
        return GuardedWeb(
            WebLimits(scrape.timeout, scrape.max_body_bytes),
            allowed_domains=scrape.allowed_domains,
            denied_domains=scrape.denied_domains,
            ports=scrape.ports,
            record=auditor.egress if auditor else _log_request,
        )

    def _local_terminal(self, warn: Callable[[str], None]) -> LocalTerminal:
        shell = self._settings.tools.shell
        try:
            return LocalTerminal(shell.env_allow, default_timeout=shell.timeout, watchdog=self._watchdog)
        except ConfigError as error:
            warn(str(error))
            return LocalTerminal(default_timeout=shell.timeout, watchdog=self._watchdog)

    def _any_terminal(self, script_folder: Callable[[], str]) -> Terminal:
        acp = self._settings.acp
        keys = [name for each in self._settings.llm.providers for name in each.key_variables]
        proxy = self._editor.terminal(
            TerminalSettings(
                form=acp.terminal_form.value,
                script_folder=script_folder,
                shell="bash" if shutil.which("bash") else "sh",
                hidden=hidden_variables(os.environ, self._settings.tools.shell.env_allow, keys),
                timeout=acp.terminal_timeout_secs,
                request_timeout=acp.request_timeout_secs,
            )
        )
        return self.programs if proxy is None else CompositeTerminal([proxy, self.programs], self._fallen_back)

    async def _fallen_back(self, error: BackendUnavailable) -> None:
        await self._emit(Notice(Severity.WARNING, f"{error}; done without the editor instead"))


async def _unstamped(path: str) -> None:
    del path


def _log_request(egress: Egress) -> None:
    """Log a web request that was made or blocked."""
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


_Words: TypeAlias = tuple[str, ...]

_BUILD: Mapping[str, Callable[[Sequence[str], Sequence[str]], object]] = {
    "tools.file.deny_read": lambda patterns, folders: ReadPolicy(patterns, folders=folders),
    "tools.protection.protected_paths": lambda patterns, _: ProtectedPaths(patterns),
}
"""Compiles the patterns of a setting to which a project may add. Raises ConfigError."""


def without_faulty_patterns(loaded: Loaded, folders: Sequence[str]) -> tuple[Loaded, tuple[ConfigError, ...]]:
    """Return the configuration without the project's unusable patterns, and their problems.

    An unusable pattern of the user stays and raises ConfigError where it is used.
    """
    faults: list[ConfigError] = []
    for key in (key for key in _BUILD if key in loaded.untightened):
        _, section, field = key.split(".")
        tools = loaded.settings.tools
        settings = cast("Section", getattr(tools, section))
        patterns = cast("_Words", getattr(settings, field))
        users = cast("_Words", loaded.untightened[key])
        kept = _usable(key, patterns, users, folders, faults)
        if kept != patterns:
            tools = tools.model_copy(update={section: settings.model_copy(update={field: kept})})
            loaded = replace(loaded, settings=loaded.settings.model_copy(update={"tools": tools}))
    origins = loaded.origins
    told = (ConfigError(origins[each.key], each.key, each.value, f"{each.expected} (ignored)") for each in faults)
    return replace(loaded, untightened={}), tuple(told)


def _usable(key: str, patterns: _Words, users: _Words, folders: Sequence[str], faults: list[ConfigError]) -> _Words:
    """Return all usable patterns, or only the user's if even those cannot be compiled together."""
    build = _BUILD[key]
    try:
        build(patterns, folders)
    except ConfigError as error:
        too_much = error
    else:
        return patterns
    try:
        build(users, folders)
    except ConfigError:
        return patterns

    def good() -> Iterator[str]:
        for pattern in patterns:
            try:
                build((pattern,), folders)
            except ConfigError as error:
                faults.append(error)
            else:
                yield pattern

    kept = tuple(good())
    try:
        build(kept, folders)
    except ConfigError:
        faults.append(too_much)
        return users
    return kept


def session_roots(
    loaded: Loaded,
    cwd: str,
    additional: Sequence[str] = (),
    *,
    for_shell: bool = False,
    open_root: Callable[[str], Root] | None = None,
) -> Roots:
    """Return the roots of a session, with the paths below them that file tools and commands may use.

    Raises ConfigError if a folder cannot be opened, or if a pattern for denied paths is malformed.
    """
    if loaded.fault is not None:
        raise loaded.fault
    tools = loaded.settings.tools
    allowed = tools.shell.allowed_paths if for_shell else tools.file.allowed_paths
    folders = (cwd, *additional, *filter(os.path.isdir, allowed))
    loaded, _ = without_faulty_patterns(loaded, folders)
    own = OwnFiles(_own_files(loaded, cwd), _closed_files())
    reading = _read_policy(loaded, folders, for_shell=for_shell)
    return Roots(cwd, folders[1:], policy=all_of(own, protected_paths(loaded, cwd), reading), open_root=open_root)


def protected_paths(loaded: Loaded, cwd: str) -> ProtectedPaths:
    """Return the protected paths: those that must not be changed without the user's knowledge. Raises ConfigError."""
    loaded, _ = without_faulty_patterns(loaded, (cwd,))
    protection = loaded.settings.tools.protection
    own, obeyed = _own_files(loaded, cwd), loaded.settings.agent.instructions.files
    return ProtectedPaths(protection.protected_paths, protection.unprotected_paths, own, obeyed)


def _own_files(loaded: Loaded, cwd: str) -> tuple[str, ...]:
    return data_path(os.environ), loaded.file, *_placed_elsewhere(loaded, cwd)


def _closed_files() -> tuple[str, ...]:
    """Return the policy for our own files: tools may neither read the credentials nor delete the locks."""
    return credentials_file(os.environ), database_file(os.environ), session_locks_file(os.environ)


def _placed_elsewhere(loaded: Loaded, cwd: str) -> Iterator[str]:
    """Yield our own files that the user keeps outside the data folder."""
    settings = loaded.settings
    if settings.acp.permission_file:
        yield settings.acp.permission_file
    if settings.audit.file:
        yield from (settings.audit.file, f"{settings.audit.file}.head")
    if settings.tools.policy.policy_file:
        yield os.path.join(cwd, settings.tools.policy.policy_file)


def _read_policy(loaded: Loaded, folders: Sequence[str], *, for_shell: bool) -> ReadPolicy:
    """Return the policy for reading. Raises ConfigError for a malformed pattern, because it may be meant to deny."""
    file = loaded.settings.tools.file
    carve_out = file.read_policy is ReadRule.CARVE_OUT
    # Any word of a command may be a path, so a list of allowed files would make every command ask.
    allow = file.allow_read if carve_out or not for_shell else ()
    try:
        return ReadPolicy(file.deny_read, allow, carve_out=carve_out, folders=folders)
    except ConfigError as error:
        where = loaded.origins.get(error.key, error.where)
        raise ConfigError(where, error.key, error.value, error.expected) from error
