"""The MCP servers of a session, and the question to the user before they start.

Servers of the user's own configuration and of their editor start without a question; the gates judge each call of
their tools. A project's configuration comes with the repository, so its servers start only after the user has approved
exactly these entries.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from acp_agent.config.files import PROJECT_FILE
from acp_agent.config.load import Loaded
from acp_agent.config.mcp_settings import MOST_OF_A_PROJECT, McpServerSettings
from acp_agent.config.section import holds_secret, is_everyday
from acp_agent.config.settings import Settings
from acp_agent.core.errors import ConfigError, ToolError
from acp_agent.core.mcp import McpOrigin, McpServer, StdioServer
from acp_agent.core.ports import Approver, Elicitor
from acp_agent.core.secrets import Redact
from acp_agent.core.session_options import AutoApprove
from acp_agent.gates.rules.policy_rules import TrustLevel
from acp_agent.gates.trust import workspace_trust
from acp_agent.session.mcp_connections import McpConnections
from acp_agent.session.toolset.sandboxing import is_contained, server_sandbox
from acp_agent.store.decisions import TrustedFolders
from acp_agent.workspace.sandbox.walls import WallRules

if TYPE_CHECKING:
    from acp_agent.mcp.connection import ServerConnection
    from acp_agent.session.processes import ProcessServices
    from acp_agent.session.session import Session

_LONGEST_ENTRY = 1000
"""The most characters of an entry. A question shows the whole entry, so that nothing in it stays hidden."""


class SessionMcpServers:
    """The MCP servers of one session.

    connections   the connections to the servers
    cwd           the session's folder, links resolved
    redact        removes secrets from texts
    answered      called with the user's answer about the folder
    elicitor      asks the user a server's questions; None if the editor cannot ask
    """

    def __init__(
        self,
        process: "ProcessServices",
        session: "Session",
        approver: Approver,
        cwd: str,
        redact: Redact,
        answered: Callable[[TrustLevel], None],
        elicitor: Elicitor | None,
    ) -> None:
        self._process = process
        self._session = session
        self._approver = approver
        self._cwd = cwd
        self._redact = redact
        self._answered = answered
        self._started = False
        self._wanted: tuple[McpServerSettings, ...] = ()
        self._elicitor = elicitor
        self._settings: Settings | None = None
        self._walls: WallRules | None = None
        self.connections = McpConnections(
            process.pins, process.background, session.notices.add, self._connection, process.mcp_definitions
        )

    def start(self, loaded: Loaded) -> None:
        """Start the servers that need no question, at the first call. Start none if the user's rules cannot be read."""
        if self._started or loaded.fault is not None or not loaded.settings.mcp.enabled:
            return
        try:
            self._note_walls(loaded)
        except ConfigError:  # the user's rules cannot be read; the toolset reports it
            return
        self._started = True
        ended = self._session.workspace.ended
        own = [each for each in loaded.settings.mcp.servers if each.enabled and each.name not in ended]
        self._wanted = tuple(each for each in loaded.servers if each.enabled and each.name not in ended)
        self._process.secrets.add(secrets_of(own, os.environ))
        self.connections.start([*self._named(own, McpOrigin.CONFIG), *map(_at_home, self._session.workspace.servers)])

    async def ready(self) -> None:
        """Prepare for a turn: ask once about the project's servers, and wait a few seconds for starting servers."""
        if self._wanted:
            wanted = tuple(self._showable(self._wanted))
            trusted = await self._trusted(wanted) if wanted else False
            left, self._wanted = self._wanted, ()
            if trusted:
                agreed = [each for each in wanted if each in left]  # `remove` may have dropped one meanwhile
                self._process.secrets.add(_hidden(value for each in agreed for value in each.referred(os.environ)))
                self.connections.start(self._named(agreed, McpOrigin.PROJECT))
        await self.connections.settled()

    def add(self, server: McpServer, loaded: Loaded) -> str:
        """Start one more server of the editor. Return why it is not started, or ""."""
        if loaded.fault is not None or not loaded.settings.mcp.enabled:
            return "MCP servers are switched off: [mcp] enabled"
        pairs = server.reach.env if isinstance(server.reach, StdioServer) else server.reach.headers
        self._process.secrets.add(_hidden(value for name, value in pairs if holds_secret(name)))
        try:
            self._note_walls(loaded)
        except ConfigError as error:
            return str(error)
        return self.connections.add(_at_home(server))

    def remove(self, name: str) -> bool:
        """End a server, or drop one that was not asked about yet. Return False if no server has this name."""
        left = tuple(each for each in self._wanted if each.name != name)
        wanted, self._wanted = self._wanted, left
        return self.connections.remove(name) or len(left) < len(wanted)

    async def _trusted(self, wanted: Sequence[McpServerSettings]) -> bool:
        approver = None if self._session.active.auto_approve is AutoApprove.FULL_AUTO else self._approver
        names = ", ".join(each.name for each in wanted)
        try:
            level = await project_trust(self._cwd, wanted, self._process.trusted_folders, approver)
        except ToolError as error:  # the user did not answer in time
            self._warn(f"the MCP servers of this folder ({names}) are not started: {error}")
            return False
        if level is not None:
            self._answered(level)
        trusted = level is not None and level.counts
        if not trusted:
            why = "nobody is asked at this approval level" if level is None else "you have not agreed to them"
            self._warn(f"the MCP servers of this folder ({names}) are not started: {why}")
        return trusted

    def _named(self, entries: Sequence[McpServerSettings], origin: McpOrigin) -> Iterator[McpServer]:
        folder = self._cwd if origin is McpOrigin.PROJECT else _home()
        for entry in entries:
            try:
                yield entry.server(origin, os.environ, folder)
            except ConfigError as error:
                self._warn(f"{error}; the server is not started")

    def _showable(self, entries: Sequence[McpServerSettings]) -> Iterator[McpServerSettings]:
        for at, entry in enumerate(entries):
            described = _described(entry)
            where = f"the MCP server {entry.name!r} of this folder is not started"
            if at >= MOST_OF_A_PROJECT or len(described) > _LONGEST_ENTRY:
                self._warn(f"{where}: too much for one question")
            elif self._redact(described) != described:  # redaction could hide a command within what looks like a key
                self._warn(f"{where}: it holds what looks like a secret, and you could not see it whole; use ${{NAME}}")
            else:
                yield entry

    def _note_walls(self, loaded: Loaded) -> None:
        """Note the sandbox rules for the programs of the servers that start next. Raises ConfigError."""
        self._settings = loaded.settings
        self._walls = self._process.rules(loaded, self._session.workspace.folders).walls()

    def _connection(self, server: McpServer, changed: Callable[[], None]) -> "ServerConnection":
        from acp_agent.mcp.connection import ServerConnection  # noqa: PLC0415 - only sessions with servers need it
        from acp_agent.workspace.processes.program import ProgramStart  # noqa: PLC0415 - likewise

        contain, settings, walls = None, self._settings, self._walls
        if settings is not None and walls is not None and is_contained(server, settings):
            contain = partial(server_sandbox, server, walls, settings, self._process.data_file("servers"))
        start = ProgramStart(os.environ, contain)
        return ServerConnection(server, changed=changed, start=start, elicitor=self._elicitor)

    def _warn(self, problem: str) -> None:
        self._session.notices.warn(problem)


async def project_trust(
    folder: str, wanted: Sequence[McpServerSettings], store: TrustedFolders, approver: Approver | None
) -> TrustLevel | None:
    """Ask whether the user trusts a folder that would start these servers. Return None if they were not asked.

    Raises ToolError if the user does not answer in time.
    """
    described = [_described(entry) for entry in wanted]
    contents = {PROJECT_FILE: json.dumps(described).encode()}
    return await workspace_trust(folder, contents, store, approver, described)


def secrets_of(entries: Sequence[McpServerSettings], environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the secrets in the user's own entries: values with a secret's name, and the values of `${NAME}`.

    In a project's entries only the values of `${NAME}` are secrets, and only after the user has agreed. Otherwise
    redaction would hide parts of the command in the question.
    """
    for entry in entries:
        pairs = (*entry.env.items(), *entry.headers.items())
        yield from _hidden((*(text for name, text in pairs if holds_secret(name)), *entry.referred(environ)))


def _hidden(values: Iterable[str]) -> Iterator[str]:
    """Yield the values, and the texts that follow a word such as Bearer."""
    for value in values:
        if not is_everyday(value):
            yield from (value, *value.split(maxsplit=1)[1:])


def _described(entry: McpServerSettings) -> str:
    """Return a whole entry as one line, for the question."""
    does = f"start the program {entry.command}" if entry.command else f"reach {entry.url}"
    table = entry.model_dump(exclude_defaults=True)
    return f"{entry.name} would {does}: {json.dumps(table, sort_keys=True)}"


def _home() -> str:
    """Return the working folder of servers that name none. In a project, `npx` and `python -m` would load its files."""
    return os.path.expanduser("~")


def _at_home(server: McpServer) -> McpServer:
    reach = server.reach
    return replace(server, reach=replace(reach, cwd=reach.cwd or _home())) if isinstance(reach, StdioServer) else server
