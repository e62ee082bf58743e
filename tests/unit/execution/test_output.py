"""What is too much for the event loop is done in a thread, or while a command runs."""

import asyncio
import threading
from dataclasses import replace
from typing import Any

import anyio
import pytest

from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.ports import Invocation
from acp_agent.core.types import Json, McpSubject, ToolResult, UrlSubject
from acp_agent.execution.wrappers import OutputExecutor, _result_source
from acp_agent.gates.gate import CallFacts
from acp_agent.output.filters.engine import FilterEngine
from acp_agent.output.pipeline import Fitted, Pipeline, ResultSource, Sizes
from acp_agent.output.redaction.redactor import Redactor
from tests.rows import each_row
from tests.unit.gates.chain import call, command

pytestmark = pytest.mark.anyio


class Noting(Pipeline):
    """A pipeline that notes where it worked."""

    def __init__(self) -> None:
        super().__init__(Sizes(), Redactor())
        self.threads: list[int] = []

    def apply(self, result: ToolResult, speaker: ResultSource) -> Fitted:
        self.threads.append(threading.get_ident())
        return super().apply(replace(result, envelope=None), speaker)


class Saying:
    def __init__(self, structured: Json) -> None:
        self.structured = structured

    async def execute(self, facts: CallFacts) -> ToolResult:
        return ToolResult("short", envelope={"structuredContent": self.structured})


DEEP: Json = "x" * 20_000
for _ in range(500):
    DEEP = [DEEP]


@each_row(
    "structured, inline",
    [
        ({"a": ["short", 1, None]}, True),
        ({"a": [{"b": "x" * 20_000}]}, False),
        ([{"key": "x" * 20} for _ in range(2000)], False),
        (list(range(20_000)), False),
        ({"k" * 20_000: 1}, False),
        ({str(number): number for number in range(20_000)}, False),
        (DEEP, False),
    ],
)
async def test_much_nested_in_an_envelope_is_no_work_for_the_loop(structured: Json, inline: bool):
    pipeline = Noting()
    await OutputExecutor(Saying(structured), pipeline).execute(CallFacts(call("read")))
    assert [ident == threading.get_ident() for ident in pipeline.threads] == [inline]


class Kept:
    """A store of whole outputs, or one that cannot be written."""

    def __init__(self, trouble: str = "") -> None:
        self.trouble = trouble
        self.texts: list[str] = []

    async def put(self, text: str) -> str:
        if self.trouble:
            raise StoreUnavailable(self.trouble)
        self.texts.append(text)
        return "overflow:1"


class Long:
    """A tool with so many lines of output."""

    def __init__(self, lines: int) -> None:
        self.lines = lines

    async def execute(self, facts: CallFacts) -> ToolResult:
        return ToolResult("line\n" * self.lines)


async def test_what_is_left_out_is_kept_and_summed_up_only_where_it_is_long():
    asked: list[str] = []

    async def summarize(text: str) -> str:
        asked.append(text)
        return "in short"

    stores = ("", True), ("", False), ("the disk is full", True), (None, False)
    for count, long in ((10, False), (40_000, True)):
        for trouble, sums_up in stores:
            asked.clear()
            store = None if trouble is None else Kept(trouble)
            overflow: Any = store
            summary = summarize if sums_up else None
            executor = OutputExecutor(Long(count), Pipeline(Sizes(), Redactor()), overflow, summary)
            result = await executor.execute(CallFacts(call("read")))
            stored = long and trouble == ""
            assert (store is not None and len(store.texts) == 1) is stored
            ending = "" if result.frame is None else f"{result.frame.head}{result.frame.headline}{result.frame.ending}"
            assert ("overflow:1" in f"{ending}{result.text}") is stored
            told = "the whole output was not stored: the disk is full" in f"{ending}{result.text}"
            assert told is (long and bool(trouble))
            assert bool(asked) is (stored and sums_up)
            assert ("in short" in result.text) is bool(asked)


def test_the_source_of_a_result_is_the_last_site_server_or_agent_and_the_command_that_ran():
    def source(invocation: Invocation, **envelope: Json) -> ResultSource:
        return _result_source(CallFacts(invocation), ToolResult("x", envelope=envelope))

    assert source(call("read")).source is source(command("ls")).run is None
    assert source(call("fetch", UrlSubject("https://a/"))).source == "https://a/"
    assert source(call("fetch", UrlSubject("https://a/")), url="https://b/").source == "https://b/"
    assert source(call("fetch", UrlSubject("https://a/")), url=5).source == "https://a/"
    assert source(call("mcp_x_y", McpSubject("x", "y"))).source == "x"
    for code, told in ((0, 0), (None, None), ("killed", None)):
        run = source(command("ls -l"), exit_code=code).run
        assert run is not None
        assert (run.command, run.printing, run.exit_code) == ("ls -l", ("ls -l",), told)
    assert source(call("read"), exit_code=0).run is None


class Loading(Pipeline):
    """A pipeline whose filters take a while to load."""

    def __init__(self) -> None:
        super().__init__(Sizes(), Redactor(), FilterEngine())
        self.ident = 0
        self.begun = threading.Event()

    def load(self) -> None:
        self.ident = threading.get_ident()
        self.begun.set()


class Running:
    """A command that ends when the filters load, or at once."""

    def __init__(self, begun: threading.Event | None) -> None:
        self.begun = begun

    async def execute(self, facts: CallFacts) -> ToolResult:
        if self.begun is not None:
            assert await anyio.to_thread.run_sync(self.begun.wait, 10), "the filters load while the command runs"
        return ToolResult("done", envelope={"exit_code": 0})


@pytest.mark.parametrize("name", ["bash", "read"])
async def test_filters_are_loaded_while_a_command_runs_that_takes_long(name: str):
    pipeline = Loading()
    runs = name == "bash"
    facts = CallFacts(command("make") if runs else call(name))
    await OutputExecutor(Running(pipeline.begun if runs else None), pipeline).execute(facts)
    assert (pipeline.ident != 0) is runs
    assert pipeline.ident != threading.get_ident()


async def test_filters_are_not_loaded_for_a_command_that_ends_at_once():
    pipeline = Loading()
    await OutputExecutor(Running(None), pipeline).execute(CallFacts(command("true")))
    later = asyncio.Event()
    asyncio.get_running_loop().call_later(0.02, later.set)  # the loading would have begun before
    await later.wait()
    assert not pipeline.begun.is_set()
