"""The toolset of a running session, which follows the configuration files on disk.

Before every prompt and every call, each configuration file costs one `stat`. If one has changed, all gates, roots and
backends of the session are built again and replaced in one step, so that one configuration judges and executes a call.
A configuration that is not usable replaces nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Never

from acp_agent.config import Loaded
from acp_agent.config.files import stamp
from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import AgentError, ConfigError, Refused
from acp_agent.core.events import EventSink, Notice, Severity
from acp_agent.core.ports import Backends, Invocation, Toolset
from acp_agent.core.services import WebCaller
from acp_agent.core.types import Access, Deny, ToolCall, ToolResult, ToolSpec, Verdict
from acp_agent.gates.gate import CallFacts, Gate, Gates
from acp_agent.log import Log
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.processes.terminal import LocalTerminal
from acp_agent.workspace.roots import Root, Roots

_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class ToolsetSnapshot:
    """The tools and the backends of a session under one configuration."""

    toolset: Toolset
    backends: Backends


@dataclass(frozen=True, slots=True)
class Builders:
    """The functions that build snapshots.

    reload   reads the configuration again; a file that is broken now keeps its earlier values
    build    builds the snapshot of a configuration, and warns of problems. Raises ConfigError
    closed   builds the snapshot in which nothing runs, for the given reason
    adopt    called with the first usable configuration after an unusable one
    """

    reload: Callable[[Loaded], Loaded]
    build: Callable[[Loaded, Callable[[str], None]], ToolsetSnapshot]
    closed: Callable[[ConfigError], ToolsetSnapshot]
    adopt: Callable[[Loaded], None]


class ReloadingToolset:
    """A Toolset that follows the configuration files.

    loaded   the configuration in force, at first that of the session's start, whose problems the user was told
    look     rereads other files whenever the configuration is checked, and returns their new problems
    """

    def __init__(self, loaded: Loaded, builders: Builders, emit: EventSink, look: Callable[[], Sequence[str]]) -> None:
        self._builders = builders
        self._emit = emit
        self._look = look
        self._problems: list[str] = []
        self._told = {str(problem) for problem in loaded.problems}
        self._open = False
        self.loaded = loaded
        self._seen = loaded
        self._snapshot = self._begin(loaded)

    def specs(self) -> Sequence[ToolSpec]:
        """Return the tools that the model may call now."""
        return self._current().toolset.specs()

    async def run(self, call: ToolCall) -> ToolResult:
        """Run a call under the present configuration."""
        snapshot = self._current()
        await self._tell()
        return await snapshot.toolset.run(call)

    async def refuse(self, call: ToolCall, result: ToolResult) -> None:
        """Show and record a call that does not run."""
        await self._current().toolset.refuse(call, result)

    async def backends(self) -> Backends:
        """Return the backends for reading the links of a prompt, under the present configuration."""
        snapshot = self._current()
        await self._tell()
        return snapshot.backends

    def _current(self) -> ToolsetSnapshot:
        """Return the snapshot in force. There is no await, so that a call never sees half of a change."""
        self._problems += [f"configuration: {problem}" for problem in self._look()]
        if any(stamp(path) != state for path, state in self._seen.stamps.items()):
            self._swap(self._builders.reload(self.loaded))
        return self._snapshot

    def _begin(self, loaded: Loaded) -> ToolsetSnapshot:
        problems: list[str] = []
        try:
            snapshot = self._built(loaded, problems)
        except ConfigError as error:
            snapshot = self._builders.closed(error)
            problems.append(str(error))
        else:
            self._open = True
        self._note(loaded, problems)
        return snapshot

    def _swap(self, loaded: Loaded) -> None:
        """Put a new configuration in force. If it is not usable, the old one stays in force and the user is told."""
        self._seen = loaded
        problems: list[str] = []
        try:
            snapshot = self._built(loaded, problems)
        except ConfigError as error:
            if not self._open:
                self._snapshot = self._builders.closed(error)
            problems.append(f"{error}; the earlier configuration stays in force" if self._open else str(error))
        else:
            if not self._open:
                self._builders.adopt(loaded)
            self._snapshot, self.loaded, self._open = snapshot, loaded, True
            _log.info("configuration reloaded", file=loaded.file)
        self._note(loaded, problems)

    def _built(self, loaded: Loaded, problems: list[str]) -> ToolsetSnapshot:
        if loaded.fault is not None:
            raise loaded.fault
        return self._builders.build(loaded, problems.append)

    def _note(self, loaded: Loaded, problems: Sequence[str]) -> None:
        """Collect the problems for the user. A problem is told once, and again if it returns after a correction."""
        listed = [str(problem) for problem in loaded.problems]
        found = [*(each for each in listed if not any(more.startswith(each) for more in problems)), *problems]
        self._problems += [f"configuration: {problem}" for problem in found if problem not in self._told]
        self._told = {*listed, *problems}

    async def _tell(self) -> None:
        while self._problems:
            await self._emit(Notice(Severity.WARNING, self._problems.pop(0)))


def same_model(reload: Callable[[Loaded], Loaded], before: Loaded) -> Loaded:
    """Return the new configuration with the old models, because a session keeps its model and the tools for it."""
    now = reload(before)
    if before.settings.llm.model is None:
        return now
    return replace(now, settings=now.settings.model_copy(update={"llm": before.settings.llm}))


_ADVICE = "No tool can help here: tell the user what to mend."


class DenyAllToolset:
    """Refuses everything for one reason: the catalogue, the gates, the files and the web of a session in one object."""

    def __init__(self, fault: AgentError) -> None:
        self._reason = f"{fault}. Nothing runs until this is mended; then the change applies at once, without a restart"

    # ---------------------------------------------------------------------------------- the catalogue

    def specs(self) -> Sequence[ToolSpec]:
        """Offer no tool."""
        return ()

    async def understand(self, call: ToolCall, files: FileSystem) -> Invocation:
        """Raise Refused: understanding a call would read files."""
        del call, files
        self._refuse()

    # ------------------------------------------------------------------------------- gates, files, web

    @property
    def gates(self) -> Gates:
        """Return one gate that denies every call."""
        return Gates((_DenyAll(self._reason),))

    def backends(self, cwd: str, open_root: Callable[[str], Root]) -> Backends:
        """Return backends that can neither read nor write. Raises ConfigError if the folder cannot be opened."""
        roots = Roots(cwd, policy=self._why_not, open_root=open_root)
        terminal = LocalTerminal()  # unreachable behind the gate
        return Backends(LocalFileSystem(roots), terminal, programs=terminal, web=self)

    async def get(
        self, url: str, caller: WebCaller, *, redirects: int = 3, leave_site: bool = False, truncate: bool = False
    ) -> Never:
        """Raise Refused."""
        del url, caller, redirects, leave_site, truncate
        self._refuse()

    def _why_not(self, path: str, access: Access) -> str:
        del path, access
        return self._reason

    def _refuse(self) -> Never:
        raise Refused(self._reason, _ADVICE)


class _DenyAll(Gate):
    name = "configuration"

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def allows(self, spec: ToolSpec) -> bool:
        """Offer no tool."""
        del spec
        return False

    def judge(self, facts: CallFacts) -> Verdict:
        del facts
        return Deny(self._reason)
