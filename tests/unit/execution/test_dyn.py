"""The front door: what an editor is told about a call, and in which order, on every path."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import anyio
import anyio.lowlevel
import pytest

from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import BackendUnavailable, Refused, ToolError, ToolErrorCategory
from acp_agent.core.events import Event, ToolFinished, ToolProgress, ToolStarted
from acp_agent.core.ports import Backends, Invocation, ToolContext
from acp_agent.core.session_options import Mode
from acp_agent.core.types import (
    Access,
    Allow,
    ApprovedBy,
    Ask,
    CallingAgent,
    CommandSubject,
    Deny,
    Json,
    McpSubject,
    PathSubject,
    Ruling,
    ToolCall,
    ToolKind,
    ToolResult,
    ToolSpec,
    Touches,
    UrlSubject,
    Verdict,
)
from acp_agent.execution.runner import DynExecutor, GatedExecutor, ToolRunner
from acp_agent.gates.gate import CallFacts, Gate, Gates
from acp_agent.gates.permission import Approved
from tests.fakes.fake_terminal import FakeTerminal
from tests.fakes.fake_web import FakeWeb
from tests.fakes.memory_files import MemoryFileSystem
from tests.rows import each_row

pytestmark = pytest.mark.anyio

Body = Callable[[ToolContext], Awaitable[ToolResult]]
SPEC = ToolSpec("touch", "Touches.", {"type": "object"}, ToolKind.OTHER, mutates=True)
READER = ToolSpec("look", "Looks.", {"type": "object"}, ToolKind.READ, mutates=False)


class Catalogue:
    """One tool, with whatever body a test gives it."""

    def __init__(self, body: Body, spec: ToolSpec = SPEC) -> None:
        self.body = body
        self.spec = spec

    def specs(self) -> list[ToolSpec]:
        return [self.spec]

    def is_starting(self, name: str) -> bool:
        return False

    async def wait_for(self, name: str) -> None:
        pass

    async def understand(self, call: ToolCall, files: FileSystem) -> Invocation:
        if call.name != self.spec.name:
            raise ToolError(ToolErrorCategory.TOOL_NOT_FOUND, f"no tool {call.name}")
        return Invocation(call, self.spec, title="touch it", run=self.body)


class Stage:
    """A DynExecutor, what it emits, and the order of everything."""

    def __init__(self, body: Body, *in_order: Gate, spec: ToolSpec = SPEC, catalogue: "Known | None" = None) -> None:
        self.order: list[str] = []
        self.events: list[Event] = []
        backends, gates = Backends(MemoryFileSystem(), FakeTerminal({}), FakeTerminal({}), FakeWeb()), Gates(in_order)
        self.runner = ToolRunner(backends, "/project", self.emit)
        executor = GatedExecutor(gates, self.runner)
        self.executor = DynExecutor(
            catalogue or Catalogue(body, spec), executor, gates, files=backends.files, emit=self.emit
        )

    async def emit(self, event: Event) -> None:
        self.events.append(event)
        self.order.append(type(event).__name__)

    async def run(self, name: str = "", arguments: dict[str, Json] | None = None) -> ToolResult:
        return await self.executor.run(ToolCall(str(uuid4()), name or self.executor.specs()[0].name, arguments or {}))


async def fine(context: ToolContext) -> ToolResult:
    return ToolResult("fine")


def raising(error: Exception) -> Body:
    async def body(context: ToolContext) -> ToolResult:
        raise error

    return body


class Fixed(Gate):
    """Gives one verdict, and remembers that it was asked and which results it saw."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.judged: list[CallFacts] = []
        self.concluded: list[ToolResult] = []

    def judge(self, facts: CallFacts) -> Verdict:
        self.judged.append(facts)
        return self.verdict

    async def conclude(self, facts: CallFacts, result: ToolResult) -> ToolResult:
        self.concluded.append(result)
        return result


class Faulty(Gate):
    """Has a bug."""

    def judge(self, facts: CallFacts) -> Verdict:
        raise KeyError("bug")


async def test_a_call_shows_once_at_the_start_and_once_at_the_end_with_one_id() -> None:
    stage = Stage(fine)
    result = await stage.run()
    started, finished = stage.events
    assert isinstance(started, ToolStarted)
    assert isinstance(finished, ToolFinished)
    assert (started.call_id, started.title) == (finished.call_id, "touch it")
    assert finished.result == result == ToolResult("fine", ruling=Ruling(approved_by=ApprovedBy.AUTO))


async def test_a_terminal_is_given_back_after_the_last_update_only() -> None:
    async def body(context: ToolContext) -> ToolResult:
        async def give_back() -> None:
            stage.order.append("given back")

        context.defer(give_back)
        await context.progress(ToolProgress(context.call_id, terminal_id="t"))
        return ToolResult("ran")

    stage = Stage(body)
    await stage.run()
    assert stage.order == ["ToolStarted", "ToolProgress", "ToolFinished", "given back"]


async def test_a_cancelled_call_is_finished_and_cleaned_up_before_the_cancellation_goes_on() -> None:
    async def body(context: ToolContext) -> ToolResult:
        async def give_back() -> None:
            await anyio.lowlevel.checkpoint()
            stage.order.append("given back")

        context.defer(give_back)
        running.set()
        await anyio.sleep_forever()
        raise AssertionError

    stage, running = Stage(body), anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.run)
        await running.wait()
        tasks.cancel_scope.cancel()
    assert stage.order == ["ToolStarted", "ToolFinished", "given back"]
    finished = stage.events[-1]
    assert isinstance(finished, ToolFinished)
    assert finished.result.failure is not None
    assert finished.result.failure.category is ToolErrorCategory.CANCELLED


@pytest.mark.parametrize("arguments", [{"a": 1}, None])
async def test_a_call_nobody_understands_shows_too(arguments: dict[str, Json] | None) -> None:
    stage = Stage(fine)
    result = await stage.executor.run(ToolCall("id", "no_such_tool", arguments, raw_arguments="{broken"))
    started, finished = stage.events
    assert isinstance(started, ToolStarted)
    assert started.raw_input == (arguments or {"arguments": "{broken"})
    assert isinstance(finished, ToolFinished)
    assert result.failure is not None
    assert result.failure.category is ToolErrorCategory.TOOL_NOT_FOUND


async def test_a_refused_call_shows_too_and_nothing_runs() -> None:
    stage = Stage(raising(AssertionError()), Fixed(Deny("not here")))
    result = await stage.run()
    assert stage.order == ["ToolStarted", "ToolFinished"]
    assert result.text.startswith("[error] not here\n")
    assert result.shown == "not here"


async def test_a_call_that_the_loop_refuses_is_shown_whole_and_recorded() -> None:
    recorded: list[tuple[ToolCall, ToolResult]] = []
    for announced in (False, True):
        stage = Stage(raising(AssertionError()))
        stage.executor._misunderstood = lambda call, result, seconds: recorded.append((call, result))
        call, result = (
            ToolCall("c1", "touch", {"a": 1}, agent=CallingAgent("x-1", "x", "p1", Mode.CODE)),
            ToolResult("too many calls"),
        )
        await stage.executor.refuse(call, result, announced=announced)
        *started, finished = stage.events
        assert [(each.raw_input, each.parent) for each in started if isinstance(each, ToolStarted)] == (
            [] if announced else [({"a": 1}, "p1")]
        )
        assert isinstance(finished, ToolFinished)
        assert (finished.call_id, finished.result) == ("c1", result)
        assert recorded.pop() == (call, result)


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (ToolError(ToolErrorCategory.TIMEOUT, "late"), ToolErrorCategory.TIMEOUT),
        (Refused("outside"), ToolErrorCategory.POLICY_BLOCKED),
        (BackendUnavailable("editor terminal", "broke"), ToolErrorCategory.PERMANENT_FAILURE),
        (KeyError("bug"), ToolErrorCategory.PERMANENT_FAILURE),
    ],
)
async def test_whatever_a_tool_raises_becomes_a_result(error: Exception, category: ToolErrorCategory) -> None:
    result = await Stage(raising(error)).run()
    assert result.failure is not None
    assert result.failure.category is category


async def test_the_first_refusal_ends_a_call_and_no_later_gate_judges_it() -> None:
    first, second, third = Fixed(Allow()), Fixed(Deny("no")), Fixed(Allow())
    result = await Stage(raising(AssertionError()), first, second, third).run()
    assert [len(gate.judged) for gate in (first, second, third)] == [1, 1, 0]
    assert [gate.concluded for gate in (first, second, third)] == [[result], [], []]


async def test_every_gate_reads_the_same_facts_of_a_call_and_is_asked_once() -> None:
    gates = [Fixed(Allow()), Fixed(Ask("one")), Fixed(Ask("two")), Fixed(Approved(ApprovedBy.USER))]
    result = await Stage(fine, *gates).run()
    [facts] = gates[0].judged
    assert all(gate.judged == [facts] for gate in gates)
    assert facts.asks == [Ask("one"), Ask("two")]
    assert result == ToolResult("fine", ruling=Ruling(approved_by=ApprovedBy.USER))


async def test_every_gate_that_did_not_end_the_call_hears_of_its_result_the_last_one_first() -> None:
    class Telling(Fixed):
        async def conclude(self, facts: CallFacts, result: ToolResult) -> ToolResult:
            heard.append(self)
            return await super().conclude(facts, result)

    heard: list[Gate] = []
    gates = [Telling(Allow()), Telling(Ask("one")), Telling(Approved(ApprovedBy.USER))]
    result = await Stage(fine, *gates).run()
    assert heard == [*reversed(gates)]
    assert [gate.concluded for gate in gates] == [[result]] * 3


async def test_a_question_that_no_gate_settles_refuses_the_call() -> None:
    result = await Stage(raising(AssertionError()), Fixed(Ask("outside the workspace")), Fixed(Allow())).run()
    assert result.failure is not None
    assert result.failure.category is ToolErrorCategory.CONFIRMATION_REQUIRED
    assert "outside the workspace" in result.failure.message


async def test_an_approval_lifts_no_refusal_wherever_it_stands() -> None:
    for gates in ((Approved(ApprovedBy.USER), Deny("never")), (Deny("never"), Approved(ApprovedBy.USER))):
        result = await Stage(raising(AssertionError()), *map(Fixed, gates)).run()
        assert result.shown == "never"


async def test_gates_hear_of_a_crash_as_of_any_result() -> None:
    gate = Fixed(Allow())
    result = await Stage(raising(KeyError("bug")), gate).run()
    assert gate.concluded == [result]
    assert result.crashed


async def test_a_fault_in_a_gate_costs_the_call_and_the_gates_before_it_hear_of_it() -> None:
    before, behind = Fixed(Allow()), Fixed(Allow())
    stage = Stage(raising(AssertionError()), before, Faulty(), behind)
    result = await stage.run()
    assert result.crashed
    assert result.text == before.concluded[0].text
    assert "internal error: KeyError('bug')" in result.text
    assert not behind.judged
    assert stage.order == ["ToolStarted", "ToolFinished"]


# -------------------------------------------------------------------------------------------- announced calls


class Known:
    """Tools with subjects: `name` is a word of TOOLS."""

    def specs(self) -> list[ToolSpec]:
        return []

    def is_starting(self, name: str) -> bool:
        return False

    async def understand(self, call: ToolCall, files: FileSystem) -> Invocation:
        mutates, *subjects = TOOLS[call.name]
        server = next((each.server for each in subjects if isinstance(each, McpSubject)), "")
        spec = ToolSpec(call.name, "", {}, ToolKind.OTHER, mutates, server=server, asks=call.name == "question")
        spec = replace(spec, queue="lines" if call.name == "queued" else "", delegates="agent" in call.name)
        spec = replace(spec, alone=call.name == "only agent")
        return Invocation(call, spec, call.name, fine, tuple(subjects))


TOOLS: dict[str, tuple[Any, ...]] = {
    "read": (False, PathSubject("a", Access.READ)),
    "search": (False, PathSubject("src", Access.LIST)),
    "write": (True, PathSubject("a", Access.WRITE)),
    "copy": (True, PathSubject("a", Access.READ), PathSubject("b", Access.WRITE)),
    "cat": (True, CommandSubject("cat a | head -n 3")),
    "make": (True, CommandSubject("make")),
    "check": (False, CommandSubject("make check")),
    "pipe": (True, CommandSubject("cat a | sh")),
    "fetch": (False, UrlSubject("https://example.com/")),
    "save": (True,),
    "poll": (False,),
    "question": (False,),
    "queued": (False, PathSubject("a", Access.READ)),
    "outside": (False, PathSubject("/etc/x", Access.READ), PathSubject("a", Access.READ)),
    "agent": (True, CommandSubject("make")),
    "only agent": (True,),
    "mcp reads": (False, McpSubject("srv", "get")),
    "mcp": (True, McpSubject("srv", "put")),
}
ALONE = Touches(alone=True)


@each_row(
    "name, touched",
    [
        ("read", Touches(reads=frozenset({"/project/a"}))),
        ("search", Touches(reads=frozenset({"/project/src"}))),
        ("write", Touches(changes=frozenset({"/project/a"}))),
        ("copy", Touches(reads=frozenset({"/project/a"}), changes=frozenset({"/project/b"}))),
        ("cat", Touches(reads=frozenset({"/"}))),
        ("make", ALONE),
        ("check", ALONE),
        ("pipe", ALONE),
        ("fetch", Touches()),
        ("save", ALONE),
        ("poll", Touches(queues=frozenset({"poll"}))),
        ("question", Touches(queues=frozenset({"question", "questions"}))),
        ("queued", Touches(reads=frozenset({"/project/a"}), queues=frozenset({"lines"}))),
        ("outside", Touches(reads=frozenset({"/project/a"}))),
        ("agent", Touches()),
        ("only agent", ALONE),
        ("mcp reads", Touches()),
        ("mcp", Touches(server="srv")),
    ],
)
async def test_what_a_call_touches_is_told_when_its_start_is_shown(name: str, touched: Touches) -> None:
    stage = Stage(fine, catalogue=Known())
    assert await stage.executor.announce(ToolCall("1", name, {})) == touched
    assert stage.order == ["ToolStarted"]


async def test_a_call_that_will_ask_waits_for_the_questions_before_it() -> None:
    stage = Stage(fine, Fixed(Ask("is it fine?")), catalogue=Known())
    assert "questions" in (await stage.executor.announce(ToolCall("1", "read", {}))).queues
    stage = Stage(fine, Fixed(Deny("no")), catalogue=Known())
    assert not (await stage.executor.announce(ToolCall("1", "read", {}))).queues


async def test_an_announced_call_shows_only_its_end_when_it_runs() -> None:
    stage = Stage(fine)
    call = ToolCall("1", "touch", {})
    await stage.executor.announce(call)
    await stage.executor.run(call, announced=True)
    assert stage.order == ["ToolStarted", "ToolFinished"]


async def test_an_announced_call_that_nobody_understands_touches_nothing_and_ends_when_it_runs() -> None:
    stage = Stage(fine)
    call = ToolCall("1", "nonsense", {})
    assert await stage.executor.announce(call) == Touches()
    assert (await stage.executor.run(call, announced=True)).failure is not None
    assert stage.order == ["ToolStarted", "ToolFinished"]


async def test_a_fault_of_a_gate_costs_an_announced_call_and_not_the_turn() -> None:
    stage = Stage(fine, Faulty(), spec=READER)
    call = ToolCall("1", "look", {})
    assert await stage.executor.announce(call) == ALONE
    assert (await stage.executor.run(call, announced=True)).crashed
    assert stage.order == ["ToolStarted", "ToolFinished"]


async def test_a_fault_while_a_call_is_understood_costs_the_call_and_not_the_turn() -> None:
    class Broken(Known):
        async def understand(self, call: ToolCall, files: FileSystem) -> Invocation:
            raise KeyError("bug")

    stage, call = Stage(fine, catalogue=Broken()), ToolCall("1", "read", {})
    assert await stage.executor.announce(call) == ALONE
    assert (await stage.executor.run(call, announced=True)).crashed
    assert stage.order == ["ToolStarted", "ToolFinished"]


async def test_an_announced_call_that_is_cancelled_while_it_is_read_again_shows_its_end() -> None:
    class Slow(Known):
        async def understand(self, call: ToolCall, files: FileSystem) -> Invocation:
            scope.cancel()
            await anyio.sleep_forever()
            raise AssertionError

    stage = Stage(fine, catalogue=Slow())
    with anyio.CancelScope() as scope:
        await stage.executor.run(ToolCall("1", "read", {}), announced=True)
    assert scope.cancelled_caught
    assert stage.order == ["ToolFinished"]


@pytest.mark.parametrize("name", ["touch", "nonsense"])
async def test_a_call_that_is_cancelled_while_its_start_is_shown_shows_its_end(name: str) -> None:
    stage = Stage(fine)

    async def slow(event: Event) -> None:
        await stage.emit(event)
        if isinstance(event, ToolStarted):
            scope.cancel()
            await anyio.sleep_forever()

    executor = DynExecutor(Catalogue(fine), stage.runner, Gates(), files=MemoryFileSystem(), emit=slow)
    with anyio.CancelScope() as scope:
        await executor.run(ToolCall("1", name, {}))
    assert (stage.order, scope.cancelled_caught) == (["ToolStarted", "ToolFinished"], True)


async def test_a_cancellation_while_a_start_is_shown_comes_after_the_caller_knows_of_it() -> None:
    stage, known = Stage(fine), list[Touches]()
    emit = stage.emit

    async def cancelled_meanwhile(event: Event) -> None:
        scope.cancel()
        await anyio.lowlevel.checkpoint()
        await emit(event)

    executor = DynExecutor(Known(), stage.runner, Gates(), files=MemoryFileSystem(), emit=cancelled_meanwhile)
    with anyio.CancelScope() as scope:
        known.append(await executor.announce(ToolCall("1", "fetch", {})))
        await anyio.lowlevel.checkpoint()
    assert (known, stage.order, scope.cancelled_caught) == ([Touches()], ["ToolStarted"], True)


class Starting(Catalogue):
    """A tool of a server that is starting, which is known when somebody has waited for it."""

    def __init__(self, stage: list[str]) -> None:
        super().__init__(fine)
        self.stage = stage

    def is_starting(self, name: str) -> bool:
        return True

    async def wait_for(self, name: str) -> None:
        self.stage.append("waited")


async def test_a_call_that_waits_for_its_server_is_shown_meanwhile_and_once() -> None:
    for announced in (False, True):
        stage = Stage(fine)
        stage.executor._catalogue = Starting(stage.order)
        call = ToolCall("1", "touch", {})
        if announced:
            await stage.executor.announce(call)
        assert (await stage.executor.run(call, announced=announced)).failure is None
        assert stage.order == ["ToolStarted", "waited", "ToolFinished"]
