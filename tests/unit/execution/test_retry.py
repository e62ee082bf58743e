"""Calls that failed for want of a network or a server are tried again, and no others."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import cast

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.errors import ToolError, ToolErrorCategory, ToolFailure
from acp_agent.core.events import Event
from acp_agent.core.ports import Backends, Invocation, ToolContext
from acp_agent.core.types import Access, CallOrigin, CommandSubject, Frame, PathSubject, Subject, ToolResult
from acp_agent.execution.runner import ToolRunner
from acp_agent.execution.wrappers import RetryExecutor, ToolRetries
from acp_agent.gates.gate import CallFacts
from tests.rows import each_row
from tests.unit.gates.chain import call

pytestmark = pytest.mark.anyio

INFRASTRUCTURE = {
    ToolErrorCategory.RATE_LIMITED,
    ToolErrorCategory.SERVER_ERROR,
    ToolErrorCategory.NETWORK_ERROR,
    ToolErrorCategory.TIMEOUT,
}
BLOCKS = {
    ToolErrorCategory.TOOL_NOT_FOUND: "Use one of your tools.",
    ToolErrorCategory.INVALID_PARAMETERS: "Correct the arguments to match the tool's schema.",
    ToolErrorCategory.TYPE_MISMATCH: "Correct the argument types to match the tool's schema.",
    ToolErrorCategory.POLICY_BLOCKED: "Do not try to get around this. Choose another approach or ask the user.",
    ToolErrorCategory.CONFIRMATION_REQUIRED: "Ask the user to allow this.",
    ToolErrorCategory.PERMANENT_FAILURE: "Do not repeat the same call. Check the path or the command.",
    ToolErrorCategory.CANCELLED: "Wait for the user.",
    ToolErrorCategory.RATE_LIMITED: "Go on with other work and try it once more later.",
    ToolErrorCategory.SERVER_ERROR: "Go on without it, or try it once more later.",
    ToolErrorCategory.NETWORK_ERROR: "Check that the network is reachable.",
    ToolErrorCategory.TIMEOUT: "Ask for less at once, or go on without it.",
}


class World:
    """A clock that moves when somebody sleeps or a tool runs, and a tool that fails as it is told."""

    def __init__(self, *outcomes: ToolErrorCategory | None, takes: float = 0.0) -> None:
        self.outcomes = list(outcomes)
        self.takes = takes
        self.now = 1000.0
        self.slept: list[float] = []
        self.runs = 0

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def tool(self, context: ToolContext) -> ToolResult:
        self.runs += 1
        self.now += self.takes
        category = self.outcomes.pop(0) if self.outcomes else None
        if category is not None:
            raise ToolError(category, "no luck")
        return ToolResult("got it")

    def executor(self, retries: ToolRetries | None = None, chance: Callable[[], float] = lambda: 1.0) -> RetryExecutor:
        return RetryExecutor(
            ToolRunner(cast("Backends", None), "/project", unheard),
            retries or ToolRetries(),
            clock=self.clock,
            sleep=self.sleep,
            chance=chance,
        )

    def invocation(self, tool: str = "fetch", subjects: tuple[Subject, ...] = ()) -> Invocation:
        return replace(call(tool, *subjects), run=self.tool)


async def unheard(event: Event) -> None:
    raise AssertionError("no tool here tells anything")


# ------------------------------------------------------------------------------------ the eleven categories


@each_row("category", ToolErrorCategory)
async def test_four_categories_are_tried_again_and_seven_are_not(category):
    world = World(*[category] * 10)
    result = await world.executor().execute(CallFacts(world.invocation()))
    assert world.runs == (3 if category in INFRASTRUCTURE else 1)
    assert result.failure is not None
    assert result.failure.category is category


@each_row("category", ToolErrorCategory)
async def test_the_model_reads_a_line_of_what_happened_and_a_line_of_what_to_do(category):
    world = World(*[category] * 10)
    result = await world.executor().execute(CallFacts(world.invocation()))
    tried = " (tried 3 times)" if category in INFRASTRUCTURE else ""
    assert result.text == f"[error] no luck{tried}\n[advice] {BLOCKS[category]}"


def test_four_categories_are_retryable_three_are_the_models_fault_and_none_is_both():
    assert {each for each in ToolErrorCategory if each.retryable} == INFRASTRUCTURE
    assert {each.value for each in ToolErrorCategory if each.quality_failure} == {
        "tool_not_found",
        "invalid_parameters",
        "type_mismatch",
    }
    assert len(ToolErrorCategory) == 11


# ---------------------------------------------------------------------------------------- what is repeated


async def test_a_call_that_works_at_last_looks_as_if_it_had_worked_at_once():
    world = World(ToolErrorCategory.NETWORK_ERROR, ToolErrorCategory.SERVER_ERROR)
    facts = CallFacts(world.invocation())
    assert await world.executor().execute(facts) == ToolResult("got it")
    assert facts.attempts == 3


async def test_a_failure_of_another_kind_ends_the_repeating():
    world = World(ToolErrorCategory.TIMEOUT, ToolErrorCategory.PERMANENT_FAILURE, ToolErrorCategory.TIMEOUT)
    result = await world.executor().execute(CallFacts(world.invocation()))
    assert world.runs == 2
    assert result.failure == ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, "no luck")


@each_row(
    "tool, subjects",
    [
        ("bash", (CommandSubject("curl example.com"),)),
        ("bash", ()),
        ("write", (PathSubject("a", Access.WRITE),)),
        ("edit", ()),
        ("delete_path", ()),
        ("move_path", ()),
        ("mcp_x_y", ()),
        ("read", (CommandSubject("cargo check"), PathSubject(".", Access.LIST))),  # as diagnostics is
    ],
)
async def test_what_changes_anything_or_runs_a_command_is_never_repeated(tool, subjects):
    world = World(*[ToolErrorCategory.TIMEOUT] * 5)
    facts = CallFacts(world.invocation(tool, subjects=subjects))
    result = await world.executor().execute(facts)
    assert world.runs == facts.attempts == 1
    assert "tried" not in result.text


async def test_no_attempts_means_none():
    world = World(*[ToolErrorCategory.TIMEOUT] * 5)
    await world.executor(ToolRetries(attempts=0)).execute(CallFacts(world.invocation()))
    assert world.runs == 1
    assert not world.slept


async def test_what_a_tool_says_of_its_own_failure_is_kept():
    failure = ToolFailure(ToolErrorCategory.TIMEOUT, "slow")

    async def half(context: ToolContext) -> ToolResult:
        return ToolResult("half of it", failure=failure)

    world = World()
    result = await world.executor().execute(CallFacts(replace(call("fetch"), run=half)))
    assert result.text == "half of it"
    assert result.failure == replace(failure, message="slow (tried 3 times)")


async def test_our_words_around_the_words_of_a_server_say_how_often_it_was_tried():
    failure = ToolFailure(ToolErrorCategory.SERVER_ERROR, "busy")

    async def told(context: ToolContext) -> ToolResult:
        return ToolResult("locked", frame=Frame(head=failure.block(), headline=failure.headline), failure=failure)

    result = await World().executor().execute(CallFacts(replace(call("fetch"), run=told)))
    assert result.frame is not None
    assert "busy (tried 3 times)" in result.frame.head
    assert "busy (tried 3 times)" in result.frame.headline


async def test_what_the_user_typed_is_repeated_as_well():
    world = World(ToolErrorCategory.NETWORK_ERROR)
    invocation = replace(call("fetch", origin=CallOrigin.USER), run=world.tool)
    assert (await world.executor().execute(CallFacts(invocation))).failure is None


async def test_a_crash_is_not_repeated():
    async def crash(context: ToolContext) -> ToolResult:
        world.runs += 1
        raise ZeroDivisionError

    world = World()
    with pytest.raises(ZeroDivisionError):
        await world.executor().execute(CallFacts(replace(call("fetch"), run=crash)))
    assert world.runs == 1


# --------------------------------------------------------------------------------------- waits and the budget


async def test_waits_are_drawn_between_nothing_and_a_bound_that_doubles():
    world = World(*[ToolErrorCategory.TIMEOUT] * 9)
    await world.executor(ToolRetries(attempts=6)).execute(CallFacts(world.invocation()))
    assert world.slept == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    world = World(*[ToolErrorCategory.TIMEOUT] * 9)
    await world.executor(ToolRetries(attempts=6), chance=lambda: 0.0).execute(CallFacts(world.invocation()))
    assert world.slept == [0.0] * 6


@given(
    number=st.integers(0, 10_000),
    chance=st.floats(0, 1),
    base=st.floats(0, 60),
    longest=st.floats(0, 600),
)
def test_no_wait_is_negative_or_longer_than_its_bound(number, chance, base, longest):
    wait = ToolRetries(base=base, longest=longest).wait(number, chance)
    assert 0 <= wait <= longest
    assert wait <= base * 2.0 ** min(number, 64)


@given(st.floats(0, 1), st.integers(0, 8))
def test_a_wait_takes_its_share_of_the_whole_bound(chance, number):
    assert ToolRetries().wait(number, chance) == pytest.approx(chance * min(0.5 * 2**number, 5))


def _played(takes: float, budget: float, attempts: int, chances: Iterable[float]) -> World:
    world, drawn = World(*[ToolErrorCategory.TIMEOUT] * 20, takes=takes), iter(chances)
    retries = ToolRetries(attempts=attempts, budget=budget)
    executor = world.executor(retries, chance=lambda: next(drawn, 1.0))
    anyio.run(executor.execute, CallFacts(world.invocation()))
    return world


@given(
    takes=st.floats(0, 40),
    budget=st.floats(0.001, 60),
    attempts=st.integers(0, 10),
    chances=st.lists(st.floats(0, 1), max_size=10),
)
def test_no_attempt_but_the_first_begins_when_the_budget_is_used_up(takes, budget, attempts, chances):
    world = _played(takes, budget, attempts, chances)
    assert 1 <= world.runs <= attempts + 1
    assert len(world.slept) == world.runs - 1
    last_began = world.now - 1000.0 - takes
    assert world.runs == 1 or last_began < budget + 1e-6


async def test_a_repetition_that_outlasts_the_budget_is_broken_off_and_the_failure_before_it_stands():
    stuck = anyio.Event()

    async def tool(context: ToolContext) -> ToolResult:
        world.runs += 1
        if world.runs == 2:
            stuck.set()
            await anyio.sleep_forever()
        raise ToolError(ToolErrorCategory.NETWORK_ERROR, "no luck")

    world = World()
    executor = world.executor(ToolRetries(base=0.0, budget=0.02))
    result = await executor.execute(CallFacts(replace(call("fetch"), run=tool)))
    assert stuck.is_set()
    assert world.runs == 2
    assert result.failure is not None
    assert result.failure.message == "no luck (tried 2 times)"


async def test_a_first_attempt_may_take_longer_than_the_budget_and_is_not_repeated_then():
    world = World(*[ToolErrorCategory.TIMEOUT] * 3, takes=31.0)
    await world.executor().execute(CallFacts(world.invocation()))
    assert world.runs == 1


async def test_a_cancelled_turn_does_not_wait_for_the_next_attempt():
    asleep = anyio.Event()

    async def sleep(seconds: float) -> None:
        asleep.set()
        await anyio.sleep_forever()

    world = World(*[ToolErrorCategory.TIMEOUT] * 3)
    executor = RetryExecutor(ToolRunner(cast("Backends", None), "/project", unheard), ToolRetries(), sleep=sleep)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(executor.execute, CallFacts(world.invocation()))
        await asleep.wait()
        tasks.cancel_scope.cancel()
    assert world.runs == 1
