"""The toolset of a running session, which follows the configuration on disk.

Before every prompt and every call, each configuration file is checked with one `stat`. If one has changed, the gates,
roots, tools, files and web of the session are built again and replaced in one step, so that a call is judged and
executed by the same configuration. An unusable configuration replaces nothing. The terminals stay the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from acp_agent.config.files import stamp
from acp_agent.config.load import Loaded
from acp_agent.core.errors import ConfigError
from acp_agent.core.events import EventSink, Notice, Severity
from acp_agent.core.ports import Backends
from acp_agent.core.types import ToolCall, ToolResult, ToolSpec, Touches
from acp_agent.log import Log
from acp_agent.session.toolset.toolset import SessionTools, ToolsetSnapshot

_log = Log(__name__)


class ReloadingToolset:
    """A Toolset that follows the configuration files.

    loaded   the configuration in force; at first that of the session's start, whose problems were already shown
    tools    builds the snapshots
    reload   reads the configuration again; a file that is broken now keeps its earlier values
    adopt    called with the first usable configuration if the session's first one was unusable
    """

    def __init__(
        self,
        loaded: Loaded,
        tools: SessionTools,
        reload: Callable[[Loaded], Loaded],
        adopt: Callable[[Loaded], None],
        emit: EventSink,
    ) -> None:
        self._tools = tools
        self._reload = reload
        self._adopt = adopt
        self._emit = emit
        self._problems: list[str] = []
        self._told = {str(problem) for problem in loaded.problems}
        self._open = False
        self.loaded = loaded
        self._seen = loaded
        self._snapshot = self._begin(loaded)

    def specs(self) -> Sequence[ToolSpec]:
        """Return the tools that the model may call now."""
        return self._current().toolset.specs()

    async def announce(self, call: ToolCall) -> Touches:
        """Show the start of a call. It will run later, under the configuration that is then in force."""
        snapshot = self._current()
        if self._problems:
            await self._tell()
        return await snapshot.toolset.announce(call)

    async def run(self, call: ToolCall, *, announced: bool = False) -> ToolResult:
        """Run a call under the current configuration."""
        snapshot = self._current()
        if self._problems and not announced:  # `_tell` may be cancelled, but the end of an announced call must be shown
            await self._tell()
        return await snapshot.toolset.run(call, announced=announced)

    async def refuse(self, call: ToolCall, result: ToolResult, *, announced: bool = False) -> None:
        """Show and record a call that does not run."""
        await self._current().toolset.refuse(call, result, announced=announced)

    async def backends(self) -> Backends:
        """Return the backends for reading the links of a prompt, under the current configuration."""
        snapshot = self._current()
        if lost := self._tools.lost_folder():
            self._problems.append(lost)
        await self._tell()
        return snapshot.backends

    def _current(self) -> ToolsetSnapshot:
        """Return the snapshot in force. It does not await, so that no call sees a half-applied change."""
        for problem in self._tools.look():
            self._problems.append(f"configuration: {problem}")
        for path, state in self._seen.stamps.items():
            if stamp(path) != state:
                self._swap(self._reload(self.loaded))
                break
        if self._open and self._tools.is_outdated:
            self._swap(self.loaded)
        return self._snapshot

    def _begin(self, loaded: Loaded) -> ToolsetSnapshot:
        problems: list[str] = []
        try:
            snapshot = self._built(loaded, problems)
        except ConfigError as error:
            snapshot = self._tools.closed(error)
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
                self._snapshot = self._tools.closed(error)
            problems.append(f"{error}; the earlier configuration stays in force" if self._open else str(error))
        else:
            if not self._open:
                self._adopt(loaded)
            if loaded is not self.loaded:
                _log.info("configuration reloaded", file=loaded.file)
            self._snapshot, self.loaded, self._open = snapshot, loaded, True
        self._note(loaded, problems)

    def _built(self, loaded: Loaded, problems: list[str]) -> ToolsetSnapshot:
        if loaded.fault is not None:
            raise loaded.fault
        return self._tools.snapshot(loaded, problems.append)

    def _note(self, loaded: Loaded, problems: Sequence[str]) -> None:
        """Collect the problems for the user. A problem is shown once, and again if it returns after a correction."""
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
