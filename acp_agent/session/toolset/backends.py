"""Where a session's files, commands and pages are: with the editor where it offers that, else here (A21-A23, A33)."""

import os
import shutil
from collections.abc import Callable
from functools import partial

from acp_agent.config import Loaded, Settings
from acp_agent.config.settings import QuestionSettings
from acp_agent.core.backends import FileSystem, Terminal
from acp_agent.core.errors import BackendUnavailable, ConfigError
from acp_agent.core.events import EventSink, Notice, Severity
from acp_agent.core.ports import Elicitor
from acp_agent.core.redaction import Redact
from acp_agent.core.services import Egress
from acp_agent.execution.audit import Auditor
from acp_agent.execution.cache import Stamp
from acp_agent.log import Log
from acp_agent.net.web import GuardedWeb, WebLimits
from acp_agent.protocol.client_files import ProxyFileSystem
from acp_agent.protocol.client_terminal import ProxyTerminal, TerminalCommands
from acp_agent.protocol.peer import Peer
from acp_agent.session.session import Session
from acp_agent.workspace.composite import CompositeFileSystem, CompositeTerminal
from acp_agent.workspace.local_files import LocalFileSystem, file_stamp
from acp_agent.workspace.processes.environment import hidden_variables
from acp_agent.workspace.processes.terminal import LocalTerminal
from acp_agent.workspace.processes.watchdog import CommandWatchdog
from acp_agent.workspace.roots import Roots

_log = Log(__name__)


def log_egress(egress: Egress) -> None:
    """Note a request that was made, or kept from being made (T5.11)."""
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


class SessionBackends:
    """Builds them. The terminals are the session's; files and web go by the configuration of the moment.

    settings        what the session began with
    script_folder   gives the folder for scripts the editor's terminal runs
    warn            told what the user should mend
    watchdog        ends local commands when this process is gone
    terminal        where the user's commands run
    programs        where a tool runs a program for its own reading
    """

    def __init__(
        self,
        peer: Peer,
        session: Session,
        settings: Settings,
        script_folder: Callable[[], str],
        emit: EventSink,
        warn: Callable[[str], None],
        watchdog: CommandWatchdog,
    ) -> None:
        self._peer = peer
        self._session = session
        self._settings = settings
        self._emit = emit
        self._watchdog = watchdog
        self.programs = self._local_terminal(warn)
        self.terminal = self._any_terminal(script_folder)

    def files(self, roots: Roots) -> FileSystem:
        """The files below these roots."""
        local = LocalFileSystem(roots)
        client = self._session.client
        if not (client.read_text_file or client.write_text_file):
            return local
        timeout = self._settings.acp.request_timeout_secs
        proxy = ProxyFileSystem(self._peer, self._session.id, client, local, self._session.paths, timeout)
        return CompositeFileSystem([proxy], local, self._fallen_back)

    def stamp(self, roots: Roots) -> Stamp:
        """What tells states of a file apart. Where the editor owns the buffers nobody can: they need not be saved."""
        return _unstamped if self._session.client.read_text_file else partial(file_stamp, roots)

    def web(self, loaded: Loaded, auditor: Auditor | None) -> GuardedWeb:
        """The public web, by a configuration."""
        scrape = loaded.settings.tools.scrape
        return GuardedWeb(
            WebLimits(scrape.timeout, scrape.max_body_bytes),
            allowed_domains=scrape.allowed_domains,
            denied_domains=scrape.denied_domains,
            ports=scrape.ports,
            record=auditor.egress if auditor else log_egress,
        )

    def _local_terminal(self, warn: Callable[[str], None]) -> LocalTerminal:
        shell = self._settings.tools.shell
        try:
            return LocalTerminal(shell.env_allow, default_timeout=shell.timeout, watchdog=self._watchdog)
        except ConfigError as error:
            warn(str(error))
            return LocalTerminal(default_timeout=shell.timeout, watchdog=self._watchdog)

    def _any_terminal(self, script_folder: Callable[[], str]) -> Terminal:
        if not self._session.client.terminal:
            return self.programs
        acp = self._settings.acp
        keys = [name for each in self._settings.llm.providers for name in each.key_variables]
        proxy = ProxyTerminal(
            self._peer,
            self._session.id,
            self._session.paths,
            TerminalCommands(
                form=acp.terminal_form.value,
                folder=script_folder,
                shell="bash" if shutil.which("bash") else "sh",
                hidden=hidden_variables(os.environ, self._settings.tools.shell.env_allow, keys),
            ),
            timeout=acp.terminal_timeout_secs,
            request_timeout=acp.request_timeout_secs,
        )
        return CompositeTerminal([proxy, self.programs], self._fallen_back)

    async def _fallen_back(self, error: BackendUnavailable) -> None:
        await self._emit(Notice(Severity.WARNING, f"{error}; done without the editor instead"))


async def _unstamped(path: str) -> None:
    del path


def session_elicitor(peer: Peer, session: Session, redact: Redact, settings: QuestionSettings) -> Elicitor | None:
    """One for a session, since only one question is shown at a time; None where it is off or the editor has no way."""
    client = session.client
    if not settings.elicitation or not (client.elicit_forms or client.elicit_urls):
        return None
    from acp_agent.protocol.elicitation import EditorElicitor  # noqa: PLC0415 - only sessions that can ask pay for it

    patience = settings.elicitation_timeout_secs
    return EditorElicitor(peer, session.id, client, redact, patience, wanted=lambda: session.turns.going_on)
