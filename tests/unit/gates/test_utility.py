"""The utility gate skips what promises too little, never what changes anything or the user typed, and never loops."""

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.agent.turn import DoomLoop, Repetition
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.messages import ToolUsePart
from acp_agent.core.ports import Invocation
from acp_agent.core.types import Allow, CallOrigin, JsonObject, Phase, ToolCall, ToolKind, ToolResult, ToolSpec
from acp_agent.execution.runner import ToolExecutor
from acp_agent.gates.gate import CallFacts
from acp_agent.gates.utility import Prospect, TurnCalls, UtilityGate
from tests.rows import each_row
from tests.unit.gates.chain import SPECS, Judged, Recorder, call

pytestmark = pytest.mark.anyio


class Turn:
    """A gate before a recorder, and a turn of calls with ids of their own."""

    def __init__(self, threshold: float = 0.0, exempt: tuple[str, ...] = (), worth: float | None = None) -> None:
        self.calls = TurnCalls()
        self.recorder = Recorder()
        weigh = {} if worth is None else {"weigh": lambda invocation, turn: worth}
        self.judged = Judged(UtilityGate(self.calls, threshold, exempt, **weigh), behind=self)
        self.behind: ToolExecutor = self.recorder
        self.number = 0

    async def execute(self, facts: CallFacts) -> ToolResult:
        return await self.behind.execute(facts)

    def made(self, tool: str = "read", arguments: JsonObject | None = None, **changes) -> Invocation:
        self.number += 1
        invocation = call(tool, arguments=arguments, number=self.number)
        return replace(invocation, call=replace(invocation.call, **changes))

    async def run(self, tool: str = "read", arguments: JsonObject | None = None, **changes) -> ToolResult:
        return await self.judged.execute(self.made(tool, arguments, **changes))

    async def skips(self, tool: str = "read", arguments: JsonObject | None = None, **changes) -> bool:
        return (await self.run(tool, arguments, **changes)).failure is not None


# ----------------------------------------------------------------------------------------------- the worth


@pytest.mark.parametrize(
    ("tool", "first"),
    [("read", 0.75), ("grep", 0.85), ("fetch", 0.7), ("list_directory", 0.7)],
)
async def test_a_first_call_is_worth_its_gain_and_its_novelty(tool, first):
    assert not await Turn(first - 0.001).skips(tool)
    assert await Turn(first + 0.001).skips(tool)


async def test_a_tool_of_a_server_gains_what_any_other_does_whatever_it_is_called():
    spec = ToolSpec("memory_search", "", {}, ToolKind.OTHER, mutates=False, server="x")
    invocation = Invocation(ToolCall("1", "memory_search", {}), spec, "", call("read").run)
    assert (await Judged(UtilityGate(TurnCalls(), 0.71)).execute(invocation)).failure is not None
    own = replace(invocation, spec=replace(spec, server=""))
    assert (await Judged(UtilityGate(TurnCalls(), 0.71)).execute(own)).failure is None


async def test_novelty_is_used_up_by_ten_calls():
    turn = Turn(0.549)  # read: 0.55 without any
    for number in range(12):
        assert not await turn.skips("read", {"path": str(number)})
    assert await Turn(0.549).skips("fetch", {"url": "x"}) is False
    turn.judged = Judged(UtilityGate(turn.calls, 0.551))
    assert await turn.skips("read", {"path": "new"})


async def test_a_full_window_makes_every_call_cost_more():
    turn = Turn(0.3)
    turn.calls.measured(50_000, 100_000)
    assert not await turn.skips("read", {"path": "a"})
    turn.calls.measured(95_000, 100_000)
    assert await turn.skips("read", {"path": "b"})


async def test_the_same_call_again_is_worth_less_until_something_changes_or_a_turn_begins():
    turn = Turn(0.5)
    assert not await turn.skips("read", {"path": "a", "limit": 3})
    again = await turn.run("read", {"limit": 3, "path": "a"})
    assert again.failure is not None
    assert again.failure.message.startswith("skipped: the same call was made")
    assert not await turn.skips("read", {"path": "b"})
    assert not await turn.skips("write", {"path": "a"})
    assert not await turn.skips("read", {"path": "a", "limit": 3})
    turn.calls.turn_began()
    assert not await turn.skips("read", {"path": "a", "limit": 3})


async def test_a_change_counts_from_its_beginning():
    turn = Turn(0.5)
    assert not await turn.skips("read", {"path": "a"})

    class Reading:
        """Makes the same call again while the change runs."""

        async def execute(self, facts: CallFacts) -> ToolResult:
            turn.behind = turn.recorder
            assert not await turn.skips("read", {"path": "a"})
            return ToolResult("written")

    turn.behind = Reading()
    assert not await turn.skips("write", {"path": "a"})


async def test_a_call_that_was_skipped_in_another_turn_is_not_repeated():
    turn = Turn(2.0)
    for _ in range(2):
        made = turn.made("read", {"path": "a"})
        assert not turn.calls.insists(made.call)
        assert (await turn.judged.execute(made)).failure is not None
        turn.calls.turn_began()


@given(*[st.floats(0, 1)] * 4)
def test_a_worth_lies_between_its_bounds_and_less_cost_is_never_worth_less(gain, cost, repetition, novelty):
    worth = Prospect(gain, cost, repetition, novelty).worth
    assert -0.8 <= worth <= 1.2
    assert Prospect(gain, cost / 2, repetition, novelty).worth >= worth


@given(st.lists(st.floats(), min_size=4, max_size=4))
def test_figures_that_are_none_give_no_worth(parts):
    worth = Prospect(*parts).worth
    assert math.isnan(worth) != all(0 <= part <= 1 for part in parts)


# --------------------------------------------------------------------------------------------- fail closed


@pytest.mark.parametrize("worth", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("tool", ["read", "write", "bash"])
async def test_where_no_worth_can_be_told_nothing_runs(worth, tool):
    turn = Turn(worth=worth)
    result = await turn.judged.execute(turn.made(tool))
    assert result.failure is not None
    assert result.failure.category is ToolErrorCategory.POLICY_BLOCKED
    assert result.ruling is not None
    assert result.ruling.gate == "utility"
    assert not turn.recorder.ran


@pytest.mark.parametrize("figures", [(math.nan, 10), (1, math.nan), (math.inf, math.inf), (-1, 10)])
async def test_a_window_of_no_size_anybody_knows_is_no_worth_either(figures):
    turn = Turn()
    turn.calls.measured(*figures)
    assert await turn.skips("read")


async def test_a_threshold_that_is_no_number_lets_nothing_through():
    assert await Turn(math.nan).skips("read")


async def test_a_window_nobody_has_measured_costs_nothing():
    turn = Turn(0.7)
    turn.calls.measured(500, 0)
    assert not await turn.skips("read")


# ----------------------------------------------------------------------------------------- who is not weighed


@each_row("tool", sorted(name for name, spec in SPECS.items() if spec.mutates))
async def test_what_changes_anything_is_never_skipped_for_its_worth(tool):
    turn = Turn(worth=-1.0)
    assert [await turn.skips(tool) for _ in range(5)] == [False] * 5


async def test_what_the_user_typed_and_what_the_agent_does_itself_is_not_weighed():
    turn = Turn(worth=math.nan)
    assert not await turn.skips(origin=CallOrigin.USER)
    for phase in (Phase.PLANNER, Phase.VERIFIER, Phase.AUTONOMOUS):
        assert not await turn.skips(phase=phase)
    assert await turn.skips(phase=Phase.EXECUTOR)


async def test_exempt_tools_run():
    for exempt in ((), ("read",)):
        turn = Turn(exempt=exempt, worth=-1.0)
        assert await turn.skips("read") == (exempt == ())
        assert await turn.skips("grep")


# -------------------------------------------------------------------------------------------------- no loops


async def test_insisting_on_a_skipped_call_is_a_loop_and_never_runs_it():
    turn, doom = Turn(worth=-1.0), DoomLoop()
    for rounds in range(1, 10):
        use = ToolUsePart(f"use-{rounds}", "read", {"path": "a"})
        result = await turn.run("read", {"path": "a"})
        assert result.failure is not None
        if doom.watch([(use, result)]) is Repetition.TOLD:
            break
    assert rounds == 4
    assert "skipped again" in result.text
    assert not turn.recorder.ran
    assert turn.calls.status(0.5, ["read"]) == (
        "Utility gate: 4 calls worth less than 0.5 skipped; never skipped: read",
    )


async def test_two_skipped_calls_in_turns_are_one_as_well():
    turn, doom = Turn(worth=-1.0), DoomLoop()
    for rounds in range(1, 20):
        path = "ab"[rounds % 2]
        result = await turn.run("read", {"path": path})
        if doom.watch([(ToolUsePart(f"use-{rounds}", "read", {"path": path}), result)]) is Repetition.TOLD:
            break
    assert rounds == 5


async def test_judging_a_call_does_not_count_it():
    turn = Turn(0.5)
    invocation = turn.made("read", {"path": "a"})
    for _ in range(20):
        assert turn.judged.judge(invocation) == Allow()
    assert (await turn.judged.execute(invocation)).failure is None
    assert (await turn.judged.execute(invocation)).failure is None  # the same call again


# ------------------------------------------------------------------------------------- what has no answer


async def test_a_call_that_failed_has_given_no_answer_to_use_and_may_be_made_again():
    turn = Turn(0.5)
    slow = ToolResult.failed(ToolFailure(ToolErrorCategory.TIMEOUT, "slow"))

    async def times_out(_: CallFacts) -> ToolResult:
        return slow

    turn.behind = During(times_out)
    assert (await turn.run("read", {"path": "a"})).failure is slow.failure
    turn.behind = turn.recorder
    assert not await turn.skips("read", {"path": "a"})
    again = await turn.run("read", {"path": "a"})
    assert again.failure is not None
    assert "use its answer" in again.failure.message


async def test_an_answer_from_before_a_change_that_ended_meanwhile_is_not_to_be_used():
    turn = Turn(0.5)

    async def changed_meanwhile(facts: CallFacts) -> ToolResult:
        turn.behind = turn.recorder
        await turn.run("write", {"path": "a"})
        return await turn.recorder.execute(facts)

    turn.behind = During(changed_meanwhile)
    assert not await turn.skips("read", {"path": "a"})
    assert not await turn.skips("read", {"path": "a"})


class During:
    """Runs a call as a test says."""

    def __init__(self, run: Callable[[CallFacts], Awaitable[ToolResult]]) -> None:
        self.execute = run


async def test_a_call_of_an_earlier_turn_takes_nothing_from_the_novelty_of_the_next():
    turn = Turn()
    calls = [turn.made(arguments={"path": name}).call for name in "abc"]
    assert [turn.calls.novelty(each) for each in calls] == [1.0, 1.0, 1.0]
    turn.calls.began(calls[0])
    turn.calls.skipped(calls[1])
    assert turn.calls.novelty(calls[2]) < turn.calls.novelty(calls[0]) < 1.0
    turn.calls.turn_began()
    assert turn.calls.novelty(calls[2]) == 1.0
