"""One chain for every way in: the same hostile calls are refused with the same words, whoever brings them."""

from dataclasses import dataclass, field

import pytest

from acp_agent.core.conduct import AutoApprove, Conduct
from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.events import Event, ToolFinished, ToolStarted
from acp_agent.core.ports import Backends, ToolExecutor
from acp_agent.core.types import CallOrigin, ToolCall, ToolResult
from acp_agent.execution.dyn import DynExecutor
from acp_agent.execution.run_tool import RunTool
from acp_agent.tools.bash import Bash
from acp_agent.tools.registry import Registry
from tests.fakes.fake_terminal import FakeTerminal, Script
from tests.fakes.fake_web import FakeWeb
from tests.fakes.memory_files import MemoryFileSystem
from tests.unit.gates import hostile
from tests.unit.gates.chain import Chain, rules

pytestmark = pytest.mark.anyio

COMMANDS = (*hostile.U[::6], "cat ../../../etc/passwd", "cd src/../../.. && ls", "cp a ../../b", "git -C ../../x log")


class McpRun(Bash):
    """A server's tool that runs commands: another name, the same kind of subject."""

    name = "mcp_server_run"


class Editor(FakeTerminal):
    """The editor's terminal; runs whatever reaches it."""

    def __init__(self) -> None:
        super().__init__({text: Script(terminal_id="term-1") for text in COMMANDS})


@dataclass
class Session:
    """A front door over the gates, with everything allowed that can be allowed."""

    root: str
    terminal: FakeTerminal
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.registry = Registry([Bash(), McpRun()])
        self.files = MemoryFileSystem()
        self.door = DynExecutor(
            self.registry,
            self._chain,
            backends=Backends(self.files, self.terminal, FakeTerminal(), FakeWeb()),
            cwd=self.root,
            emit=self._emit,
            offers=lambda _: True,
        )

    def _chain(self, context_for) -> ToolExecutor:
        self.chain = Chain(self.root, f"{self.root}/grants", rules("*"), Conduct(auto_approve=AutoApprove.FULL_AUTO))
        self.chain.permission.wrapped = RunTool(context_for)
        return self.chain.blocklist

    async def _emit(self, event: Event) -> None:
        self.events.append(event)

    def call(self, text: str, tool: str, origin: CallOrigin) -> ToolCall:
        return ToolCall("call-1", tool, {"command": text}, origin=origin)

    async def run(self, text: str, tool: str = "bash", origin: CallOrigin = CallOrigin.MODEL) -> ToolResult:
        return await self.door.run(self.call(text, tool, origin))

    async def confirmed(self, text: str) -> ToolResult:
        invocation = await self.registry.understand(self.call(text, "bash", CallOrigin.MODEL), self.files)
        return await self.door.execute_confirmed(invocation)


def test_there_are_thirty_of_them():
    assert len(COMMANDS) >= 30


@pytest.mark.parametrize("text", COMMANDS, ids=lambda text: text[:50])
async def test_a_hostile_call_is_refused_alike_on_every_path(tmp_path, text: str):
    editor, local = Session(str(tmp_path), Editor()), Session(str(tmp_path), FakeTerminal())
    results = {
        "the editor's terminal": await editor.run(text),
        "the local shell": await local.run(text),
        "/run": await editor.run(text, origin=CallOrigin.USER),
        "the confirmed path": await editor.confirmed(text),
        "the confirmed path, locally": await local.confirmed(text),
        "a server's tool": await editor.run(text, "mcp_server_run"),
        "a server's tool, called by the user": await local.run(text, "mcp_server_run", CallOrigin.USER),
    }
    first = results["the editor's terminal"]
    assert first.failure is not None
    assert first.failure.category is ToolErrorCategory.POLICY_BLOCKED
    for way, result in results.items():
        assert (result.text, result.shown, result.failure, result.ruling) == (
            first.text,
            first.shown,
            first.failure,
            first.ruling,
        ), way
    for session in (editor, local):
        assert session.terminal.started == []
        assert session.chain.approver is not None
        assert session.chain.approver.questions == []
        shown = [event for event in session.events if isinstance(event, ToolStarted | ToolFinished)]
        assert len(shown) == len(session.events) > 0


async def test_a_harmless_call_runs_on_every_one_of_these_paths(tmp_path):
    """So that the refusals above are the gates' doing."""
    terminal = FakeTerminal({"git status": Script("clean\n")})
    session = Session(str(tmp_path), terminal)
    for result in (
        await session.run("git status"),
        await session.run("git status", origin=CallOrigin.USER),
        await session.confirmed("git status"),
        await session.run("git status", "mcp_server_run"),
    ):
        assert (result.text, result.failure) == ("clean", None)
    assert len(terminal.started) == 4
