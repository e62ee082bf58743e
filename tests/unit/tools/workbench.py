"""Everything a tool needs to run, in memory."""

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from acp_agent.core.events import ToolProgress
from acp_agent.core.ports import Backends, Invocation, ToolContext
from acp_agent.core.types import CallingAgent, JsonObject, ToolCall, ToolResult
from acp_agent.tools.registry import Registry, default_tools
from acp_agent.tools.tool import Tool
from tests.fakes.fake_terminal import FakeTerminal, Script
from tests.fakes.fake_web import FakeWeb
from tests.fakes.memory_files import MemoryFileSystem


class Workbench:
    """A registry (the default tools, unless told otherwise) over a memory file system and a fake terminal.

    progress  what running tools told the user's side, in order
    agent     who makes the calls; None for the session's own agent
    """

    def __init__(
        self, files: Mapping[str, str | bytes] | None = None, *, tools: Sequence[Tool[Any]] | None = None
    ) -> None:
        self.files = MemoryFileSystem(files)
        self.terminal = FakeTerminal()
        self.programs = FakeTerminal()
        self.web = FakeWeb()
        self.registry = Registry(default_tools() if tools is None else tools)
        self.progress: list[ToolProgress] = []
        self.deferred: list[Callable[[], Awaitable[None]]] = []
        self.agent: CallingAgent | None = None

    def command(self, line: str, script: Script) -> None:
        self.terminal.on(line, script)

    async def understand(self, name: str, **arguments: object) -> Invocation:
        return await self.registry.understand(replace(call(name, arguments), agent=self.agent), self.files)

    async def execute(self, invocation: Invocation) -> ToolResult:
        return await invocation.run(self.context(invocation))

    async def run(self, name: str, **arguments: object) -> ToolResult:
        """Understand and run at once, as the chain does when nobody is asked."""
        return await self.execute(await self.understand(name, **arguments))

    def context(self, invocation: Invocation) -> ToolContext:
        return ToolContext(
            call_id=invocation.call.id,
            cwd=self.files.root,
            previewed=invocation.diffs,
            backends=Backends(self.files, self.terminal, self.programs, self.web),
            progress=self._progressed,
            defer=self.deferred.append,
            agent=self.agent,
        )

    async def finish(self) -> None:
        """What happens after the final update: deferred clean-ups run, last first."""
        while self.deferred:
            await self.deferred.pop()()

    async def _progressed(self, event: ToolProgress) -> None:
        self.progress.append(event)


def call(name: str, arguments: Mapping[str, object] | None, raw: str = "") -> ToolCall:
    """A call as the loop makes it."""
    typed: JsonObject | None = None if arguments is None else dict(arguments)  # pyright: ignore[reportAssignmentType]
    return ToolCall(str(uuid.uuid4()), name, typed, raw)
