"""A swap of the configuration is one step, costs nothing when nothing changed, and is told once."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.config.load import Flags, Loaded, load
from acp_agent.core.errors import ConfigError
from acp_agent.core.events import Event, Notice
from acp_agent.core.ports import Backends
from acp_agent.core.types import ToolCall, ToolResult, ToolSpec, Touches
from acp_agent.session.toolset.reloading import ReloadingToolset
from acp_agent.session.toolset.toolset import ToolsetSnapshot
from tests.fakes.fake_terminal import FakeTerminal
from tests.fakes.fake_web import FakeWeb
from tests.fakes.memory_files import MemoryFileSystem

pytestmark = pytest.mark.anyio

CALL = ToolCall("1", "bash", {})


@dataclass
class Tools:
    """The tools of one configuration: says which that was."""

    name: str
    gate: anyio.Event | None = None

    def specs(self) -> Sequence[ToolSpec]:
        return ()

    async def announce(self, call: ToolCall) -> Touches:
        return Touches()

    async def run(self, call: ToolCall, *, announced: bool = False) -> ToolResult:
        if self.gate is not None:
            await self.gate.wait()
        return ToolResult(self.name)

    async def refuse(self, call: ToolCall, result: ToolResult, *, announced: bool = False) -> None:
        """Nothing is refused here."""


@dataclass
class Live:
    """A ReloadingToolset over one file; a stage is named after what the file blocks."""

    root: Path
    emitted: list[str] = field(default_factory=list)
    built: list[str] = field(default_factory=list)
    adopted: int = 0
    loads: int = 0
    gate: anyio.Event | None = None
    refuse: str = ""
    looks: int = 0
    is_outdated: bool = False

    def __post_init__(self) -> None:
        self.file = self.root / "config.toml"

    def begin(self, blocked: str) -> ReloadingToolset:
        self.block(blocked)
        read = partial(load, Flags(config=str(self.file)), {})

        def reload(before: Loaded) -> Loaded:
            self.loads += 1
            return read(before=before)

        tools: Any = self
        self.tools = ReloadingToolset(read(), tools, reload, self.adopt, self.emit)
        return self.tools

    def block(self, word: str) -> None:
        self.file.write_text(f"[tools.shell]\nblocked_commands = ['{word}']\n")

    def snapshot(self, loaded: Loaded, warn: Callable[[str], None]) -> ToolsetSnapshot:
        (word,) = loaded.settings.tools.shell.blocked_commands
        if word == "odd":
            warn("an odd word")
        if word == self.refuse:
            raise ConfigError("here", "key", word, "another word")
        self.built.append(word)
        return self.stage(word)

    def closed(self, error: ConfigError) -> ToolsetSnapshot:
        return self.stage(f"closed: {error}")

    def stage(self, name: str) -> ToolsetSnapshot:
        backends = Backends(MemoryFileSystem(), FakeTerminal({}), programs=FakeTerminal({}), web=FakeWeb())
        return ToolsetSnapshot(Tools(name, self.gate), backends)

    def lost_folder(self) -> str:
        return ""

    def look(self) -> Sequence[str]:
        self.looks += 1
        return ()

    def adopt(self, loaded: Loaded) -> None:
        self.adopted += 1

    async def emit(self, event: Event) -> None:
        assert isinstance(event, Notice)
        self.emitted.append(event.text)

    async def now(self) -> str:
        return (await self.tools.run(CALL)).text

    def settle(self) -> None:
        """Make the file look as if it had been written a while ago."""
        past = time.time_ns() - 10**10
        os.utime(self.file, ns=(past, past))


@pytest.fixture
def live(tmp_path: Path) -> Live:
    return Live(tmp_path)


async def test_a_problem_is_told_once_before_whatever_comes_first(live: Live):
    async def announced(tools: ReloadingToolset) -> None:
        await tools.announce(CALL)

    async def run(tools: ReloadingToolset) -> None:
        await tools.run(CALL)

    async def links(tools: ReloadingToolset) -> None:
        await tools.backends()

    for come in (announced, run, links):
        live.emitted.clear()
        tools = live.begin("odd")
        for _ in range(2):
            await come(tools)
            assert live.emitted == ["configuration: an odd word"], come
    live.emitted.clear()
    await live.begin("odd").run(CALL, announced=True)
    assert live.emitted == [], "the end of an announced call comes first"


async def test_a_call_under_way_stays_with_the_configuration_it_met(live: Live):
    live.gate = anyio.Event()
    live.begin("old")
    texts: list[str] = []

    async def call() -> None:
        texts.append(await live.now())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await anyio.lowlevel.checkpoint()
        live.block("new")
        tasks.start_soon(call)
        await anyio.lowlevel.checkpoint()
        assert live.built[-1] == "new"
        live.gate.set()
    assert sorted(texts) == ["new", "old"]


async def test_two_writes_in_one_tick_of_the_clock_and_of_one_length_are_both_seen(live: Live):
    live.begin("aa")
    for word in ("bb", "cc", "dd"):
        live.block(word)
        assert await live.now() == word


async def test_a_file_that_changed_a_while_ago_is_read_once_and_then_only_looked_at(
    live: Live, monkeypatch: pytest.MonkeyPatch
):
    live.begin("old")
    monkeypatch.setattr("acp_agent.config.files._TICK", 0)  # as if a moment had passed since
    await live.now()
    before = live.loads
    for _ in range(5):
        await live.now()
    assert live.loads == before
    live.settle()
    await live.now()
    await live.now()
    assert live.loads == before + 1


async def test_a_problem_is_told_once_and_again_when_it_comes_back(live: Live):
    live.begin("old")
    for word in ("odd", "odd", "plain", "odd"):
        live.block(word)
        await live.now()
        await live.now()
    assert [text for text in live.emitted if "odd" in text] == ["configuration: an odd word"] * 2


async def test_a_configuration_that_cannot_be_built_takes_nobodys_place(live: Live):
    live.begin("old")
    live.refuse = "wrong"
    for word in ("wrong", "wrong"):
        live.block(word)
        assert await live.now() == "old"
    assert live.emitted == [
        "configuration: here: key = wrong: expected another word; the earlier configuration stays in force"
    ]
    live.block("new")
    assert await live.now() == "new"
    assert live.adopted == 0


async def test_one_that_cannot_be_built_at_the_start_closes_until_one_can(live: Live):
    live.refuse = "wrong"
    live.begin("wrong")
    assert (await live.now()).startswith("closed: here: key = wrong")
    assert len(live.emitted) == 1
    live.refuse = "worse"
    live.block("worse")
    assert (await live.now()).startswith("closed: here: key = worse")
    live.block("good")
    assert await live.now() == "good"
    assert live.adopted == 1
    live.block("better")
    assert await live.now() == "better"
    assert live.adopted == 1


async def test_what_the_user_was_told_when_the_session_began_is_not_told_again(live: Live):
    live.block("x")
    text = "[agent]\nmax_tool_iterations = -1\n[tools.shell]\nblocked_commands = ['{}']\n"
    live.begin("old")
    live.file.write_text(text.format("a"))
    await live.now()
    live.file.write_text(text.format("b"))
    assert await live.now() == "b"
    assert len(live.emitted) == 1


async def test_other_files_are_looked_at_at_the_same_moments(live: Live):
    tools = live.begin("x")
    tools.specs()
    await tools.backends()
    await tools.run(CALL)
    assert live.looks == 3


async def test_a_problem_is_not_told_between_the_start_and_the_end_of_a_call(live: Live):
    live.begin("plain")
    live.block("odd")
    assert (await live.tools.run(CALL, announced=True)).text == "odd"
    assert not live.emitted, "a cancellation would leave the card of the call open"
    await live.now()
    assert live.emitted == ["configuration: an odd word"]
