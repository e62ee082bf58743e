"""The front door: what an editor is told about a call, and in which order, on every path."""

import inspect
from collections.abc import Awaitable, Callable
from functools import reduce
from uuid import uuid4

import anyio
import pytest

from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import BackendUnavailable, Refused, ToolError, ToolErrorCategory
from acp_agent.core.events import Event, ToolFinished, ToolProgress, ToolStarted
from acp_agent.core.ports import Backends, Invocation, ToolContext, ToolExecutor
from acp_agent.core.types import Allow, Ask, Deny, Json, ToolCall, ToolKind, ToolResult, ToolSpec, Verdict
from acp_agent.core.wrapper import Gate, WrapperExecutor
from acp_agent.execution.dyn import DynExecutor
from acp_agent.execution.run_tool import RunTool
from tests.fakes.fake_terminal import FakeTerminal
from tests.fakes.fake_web import FakeWeb
from tests.fakes.memory_files import MemoryFileSystem

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

    async def understand(self, call: ToolCall, files: FileSystem) -> Invocation:
        if call.name != self.spec.name:
            raise ToolError(ToolErrorCategory.TOOL_NOT_FOUND, f"no tool {call.name}")
        return Invocation(call, self.spec, title="touch it", run=self.body)


class Stage:
    """A DynExecutor, what it emits, and the order of everything."""

    def __init__(self, body: Body, *gates: Callable[[ToolExecutor], ToolExecutor], spec: ToolSpec = SPEC) -> None:
        self.order: list[str] = []
        self.events: list[Event] = []
        self.executor = DynExecutor(
            Catalogue(body, spec),
            lambda context_for: reduce(lambda wrapped, gate: gate(wrapped), reversed(gates), RunTool(context_for)),
            backends=Backends(MemoryFileSystem(), FakeTerminal({}), FakeTerminal({}), FakeWeb()),
            cwd="/project",
            emit=self.emit,
            offers=lambda spec: True,
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


def answering(verdict: Verdict) -> Callable[[ToolExecutor], ToolExecutor]:
    class Fixed(Gate):
        def check(self, invocation: Invocation) -> Verdict:
            return verdict

    return Fixed


async def test_a_call_shows_once_at_the_start_and_once_at_the_end_with_one_id() -> None:
    stage = Stage(fine)
    result = await stage.run()
    started, finished = stage.events
    assert isinstance(started, ToolStarted)
    assert isinstance(finished, ToolFinished)
    assert (started.call_id, started.title) == (finished.call_id, "touch it")
    assert finished.result == result == ToolResult("fine")


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
    stage = Stage(raising(AssertionError()), answering(Deny("not here")))
    result = await stage.run()
    assert stage.order == ["ToolStarted", "ToolFinished"]
    assert result.text.startswith("[tool_error]\ncategory: policy_blocked\nerror: not here\n")
    assert result.shown == "not here"


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


async def test_the_first_gate_is_the_outermost() -> None:
    seen: list[str] = []

    def noting(name: str, verdict: Verdict) -> Callable[[ToolExecutor], ToolExecutor]:
        class Noting(Gate):
            def check(self, invocation: Invocation) -> Verdict:
                seen.append(name)
                return verdict

        return Noting

    await Stage(fine, noting("first", Allow()), noting("second", Deny("no")), noting("third", Allow())).run()
    assert seen == ["first", "second"]


async def test_questions_of_gates_travel_with_the_call_and_a_confirmed_one_is_still_judged() -> None:
    asked: list[tuple[Ask, ...]] = []

    class Last(WrapperExecutor):
        async def execute(self, invocation: Invocation) -> ToolResult:
            asked.append(invocation.asks)
            return await self.execute_confirmed(invocation)

    stage = Stage(fine, answering(Ask("one")), answering(Ask("two")), Last)
    assert (await stage.run()).text == "fine"
    assert asked == [(Ask("one"), Ask("two"))]
    invocation = Invocation(ToolCall("id", "touch", {}), SPEC, "t", fine)
    denied = Stage(raising(AssertionError()), answering(Deny("never")))
    assert (await denied.executor.execute_confirmed(invocation)).shown == "never"


async def test_only_what_changes_nothing_may_be_repeated() -> None:
    for spec in (SPEC, READER):
        stage = Stage(fine, spec=spec)
        invocation = Invocation(ToolCall("id", spec.name, {}), spec, "t", fine)
        assert stage.executor.is_retryable(invocation) is not spec.mutates


@pytest.mark.parametrize("wrapper", [WrapperExecutor, DynExecutor])
async def test_every_method_of_an_executor_is_delegated(wrapper: type) -> None:
    """A default here would answer for the gates (A33.2, bugs 3649 and 3651 of the seed)."""

    class Recorder:
        def __init__(self) -> None:
            self.calls: list[str] = []

        def __getattr__(self, name: str) -> Callable[[Invocation], object]:
            def method(invocation: Invocation) -> object:
                self.calls.append(name)
                return marker() if inspect.iscoroutinefunction(getattr(ToolExecutor, name)) else marker_value

            async def marker() -> object:
                return marker_value

            marker_value = f"answer of {name}"
            return method

    recorder = Recorder()
    if wrapper is WrapperExecutor:
        executor: object = WrapperExecutor(recorder)  # type: ignore[arg-type]
    else:
        stage = Stage(fine)
        stage.executor._executor = recorder  # type: ignore[assignment]
        executor = stage.executor
    methods = [name for name, _ in inspect.getmembers(ToolExecutor, inspect.isfunction) if not name.startswith("_")]
    assert set(methods) == {"execute", "execute_confirmed", "requires_confirmation", "is_retryable"}
    invocation = Invocation(ToolCall("id", "touch", {}), SPEC, "t", fine)
    for name in methods:
        answer = getattr(executor, name)(invocation)
        assert (await answer if inspect.isawaitable(answer) else answer) == f"answer of {name}"
    assert recorder.calls == methods
