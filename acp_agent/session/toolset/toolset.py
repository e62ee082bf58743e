"""The tools of a running session, by the configuration as it is on disk now (requirements T2.15).

Before every prompt and every call the files the configuration was read from are looked at: a `stat` each. When one has
changed, all of a session's gates, roots and backends are built anew and put in the place of the old ones in one step:
a call is judged, and runs, wholly by what it met. A configuration that cannot be understood takes nobody's place.
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
from acp_agent.gates.facts import CallFacts
from acp_agent.gates.gate import Gate, Gates
from acp_agent.log import Log
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.processes.terminal import LocalTerminal
from acp_agent.workspace.roots import Root, Roots

_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class Stage:
    """What one configuration makes of a session's tools."""

    toolset: Toolset
    backends: Backends


@dataclass(frozen=True, slots=True)
class Builders:
    """How stages come about.

    reload   reads all sources again; a file that is broken now says what it said in the configuration given
    build    the stage of a configuration; tells of what the user should mend. Raises ConfigError
    closed   the stage in which nothing runs, and why
    adopt    told of the first configuration that can be used after a time in which none could
    """

    reload: Callable[[Loaded], Loaded]
    build: Callable[[Loaded, Callable[[str], None]], Stage]
    closed: Callable[[ConfigError], Stage]
    adopt: Callable[[Loaded], None]


class LiveToolset:
    """A Toolset that follows the configuration files.

    loaded    what the session began with; the user has been told of its problems
    look      looks for changes of files that are no configuration, at the same moments; gives what is wrong with them
              and was not before
    """

    def __init__(self, loaded: Loaded, builders: Builders, emit: EventSink, look: Callable[[], Sequence[str]]) -> None:
        self._builders = builders
        self._emit = emit
        self._look = look
        self._news: list[str] = []
        self._told = {str(problem) for problem in loaded.problems}
        self._open = False
        self.loaded = loaded
        self._seen = loaded
        self._stage = self._begin(loaded)

    def specs(self) -> Sequence[ToolSpec]:
        """What the model may call now."""
        return self._current().toolset.specs()

    async def run(self, call: ToolCall) -> ToolResult:
        """One call, wholly by the configuration of this moment."""
        stage = self._current()
        await self._tell()
        return await stage.toolset.run(call)

    async def refuse(self, call: ToolCall, result: ToolResult) -> None:
        """One call that does not run."""
        await self._current().toolset.refuse(call, result)

    async def backends(self) -> Backends:
        """What a prompt of this moment may be read with."""
        stage = self._current()
        await self._tell()
        return stage.backends

    def _current(self) -> Stage:
        """The stage in force. Awaits nothing, so that nobody meets half of a swap."""
        self._news += [f"configuration: {problem}" for problem in self._look()]
        if any(stamp(path) != state for path, state in self._seen.stamps.items()):
            self._swap(self._builders.reload(self.loaded))
        return self._stage

    def _begin(self, loaded: Loaded) -> Stage:
        problems: list[str] = []
        try:
            stage = self._built(loaded, problems)
        except ConfigError as error:
            stage = self._builders.closed(error)
            problems.append(str(error))
        else:
            self._open = True
        self._note(loaded, problems)
        return stage

    def _swap(self, loaded: Loaded) -> None:
        """Put a new configuration in force. One that cannot be used leaves everything as it was, and is told."""
        self._seen = loaded
        problems: list[str] = []
        try:
            stage = self._built(loaded, problems)
        except ConfigError as error:
            if not self._open:
                self._stage = self._builders.closed(error)
            problems.append(f"{error}; what held before this change holds on" if self._open else str(error))
        else:
            if not self._open:
                self._builders.adopt(loaded)
            self._stage, self.loaded, self._open = stage, loaded, True
            _log.info("configuration taken up again", file=loaded.file)
        self._note(loaded, problems)

    def _built(self, loaded: Loaded, problems: list[str]) -> Stage:
        if loaded.fault is not None:
            raise loaded.fault
        return self._builders.build(loaded, problems.append)

    def _note(self, loaded: Loaded, problems: Sequence[str]) -> None:
        """Keep what has to be told: each problem once, until it was mended and comes back."""
        listed = [str(problem) for problem in loaded.problems]
        found = [*(each for each in listed if not any(more.startswith(each) for more in problems)), *problems]
        self._news += [f"configuration: {problem}" for problem in found if problem not in self._told]
        self._told = {*listed, *problems}

    async def _tell(self) -> None:
        while self._news:
            await self._emit(Notice(Severity.WARNING, self._news.pop(0)))


def same_model(reload: Callable[[Loaded], Loaded], before: Loaded) -> Loaded:
    """The configuration as it is now; but a session keeps its model, and so the choice of tools for it."""
    now = reload(before)
    if before.settings.llm.model is None:
        return now
    return replace(now, settings=now.settings.model_copy(update={"llm": before.settings.llm}))


_ADVICE = "No tool can help here: tell the user what to mend."


class Closed:
    """Refuses everything with one reason. Stands for the catalogue, the gates, the files and the web of a session."""

    def __init__(self, fault: AgentError) -> None:
        self._reason = f"{fault}. Nothing runs until this is mended; then it is taken up at once, without a restart"

    # ---------------------------------------------------------------------------------- the catalogue

    def specs(self) -> Sequence[ToolSpec]:
        """No tool is offered."""
        return ()

    async def understand(self, call: ToolCall, files: FileSystem) -> Invocation:
        """Raises Refused: a call is not even looked at, since that would read files."""
        del call, files
        self._refuse()

    # ------------------------------------------------------------------------------- gates, files, web

    @property
    def gates(self) -> Gates:
        """One gate that denies every call that was understood elsewhere."""
        return Gates((_ClosedGate(self._reason),))

    def backends(self, cwd: str, open_root: Callable[[str], Root]) -> Backends:
        """Nothing of the folder can be read or written, and no page. Raises ConfigError when it cannot be opened."""
        roots = Roots(cwd, policy=self._why_not, open_root=open_root)
        terminal = LocalTerminal()  # behind the gate, where nobody gets
        return Backends(LocalFileSystem(roots), terminal, programs=terminal, web=self)

    async def get(
        self, url: str, caller: WebCaller, *, redirects: int = 3, leave_site: bool = False, truncate: bool = False
    ) -> Never:
        """Raises Refused."""
        del url, caller, redirects, leave_site, truncate
        self._refuse()

    def _why_not(self, path: str, access: Access) -> str:
        del path, access
        return self._reason

    def _refuse(self) -> Never:
        raise Refused(self._reason, _ADVICE)


class _ClosedGate(Gate):
    name = "configuration"

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def allows(self, spec: ToolSpec) -> bool:
        """No tool belongs in the catalogue."""
        del spec
        return False

    def judge(self, facts: CallFacts) -> Verdict:
        del facts
        return Deny(self._reason)
