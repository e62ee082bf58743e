"""A session's quota counts batches of tool calls, and an exhausted one answers every call."""

from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.ports import Invocation
from acp_agent.core.types import Allow, CallOrigin, Deny, ToolCall, ToolResult
from acp_agent.gates.facts import CallFacts
from acp_agent.gates.quota import Quota, QuotaGate, QuotaUse
from tests.unit.gates.chain import Judged, Recorder, call

pytestmark = pytest.mark.anyio


def made(number: int, batch: str = "", *, origin: CallOrigin = CallOrigin.MODEL) -> Invocation:
    invocation = call("read", origin=origin, number=number)
    return replace(invocation, call=replace(invocation.call, batch=batch))


class Yielding(Recorder):
    """Lets other calls in before it answers."""

    async def execute(self, facts: CallFacts) -> ToolResult:
        await anyio.lowlevel.checkpoint()
        return await super().execute(facts)


async def test_the_calls_of_one_message_count_once():
    quota = Quota(2)
    gate = Judged(QuotaGate(quota))
    for number, batch in enumerate("aaab"):
        assert (await gate.execute(made(number, batch))).failure is None
    assert quota.use == QuotaUse(batches=2, calls=4, limit=2)


async def test_an_exhausted_quota_answers_every_call_of_a_batch_and_runs_none():
    quota = Quota(1)
    gate = Judged(QuotaGate(quota))
    await gate.execute(made(0, "first"))
    for number in range(1, 4):
        result = await gate.execute(made(number, "second"))
        assert result.failure is not None
        assert result.failure.category is ToolErrorCategory.POLICY_BLOCKED
        assert "error: quota_blocked" in result.text
        assert "retryable: false" in result.text
        assert result.ruling is not None
        assert result.ruling.gate == "quota"
    assert len(gate.recorder.ran) == 1
    assert quota.use == QuotaUse(1, 1, 1)


async def test_a_batch_that_was_let_in_runs_to_its_end():
    gate = Judged(QuotaGate(Quota(1)))
    for number in range(5):
        assert (await gate.execute(made(number, "only"))).failure is None


async def test_calls_without_a_batch_count_each_by_itself():
    quota = Quota(2)
    gate = Judged(QuotaGate(quota))
    failed = [(await gate.execute(made(number))).failure is not None for number in range(4)]
    assert failed == [False, False, True, True]
    assert quota.use.calls == 2


async def test_a_call_that_comes_again_counts_once():
    quota = Quota(1)
    gate = Judged(QuotaGate(quota))
    await gate.execute(made(1))
    assert (await gate.execute(made(1))).failure is None
    assert quota.use == QuotaUse(1, 1, 1)


async def test_what_the_user_types_is_free_and_runs_all_the_same():
    quota = Quota(1)
    gate = Judged(QuotaGate(quota))
    for number in range(3):
        assert (await gate.execute(made(number, origin=CallOrigin.USER))).failure is None
    assert quota.use == QuotaUse(0, 0, 1)
    await gate.execute(made(7))
    assert (await gate.execute(made(8))).failure is not None
    assert (await gate.execute(made(9, origin=CallOrigin.USER))).failure is None


async def test_no_limit_refuses_nothing_and_still_counts():
    quota = Quota()
    gate = Judged(QuotaGate(quota))
    for number in range(200):
        assert (await gate.execute(made(number, f"b{number // 2}"))).failure is None
    assert quota.use == QuotaUse(100, 200, None)


async def test_reset_starts_over():
    quota = Quota(1)
    gate = Judged(QuotaGate(quota))
    await gate.execute(made(1, "a"))
    assert (await gate.execute(made(2, "b"))).failure is not None
    quota.reset()
    assert (await gate.execute(made(3, "b"))).failure is None
    assert quota.use == QuotaUse(1, 1, 1)


async def test_looking_costs_nothing():
    quota = Quota(1)
    gate = Judged(QuotaGate(quota))
    for _ in range(3):
        assert gate.judge(made(1)) == Allow()
    assert quota.use.batches == 0
    await gate.execute(made(1))
    assert isinstance(gate.judge(made(2)), Deny)


async def test_counts_are_exact_when_calls_run_together():
    recorder = Yielding()
    gate = Judged(QuotaGate(Quota(5)), behind=recorder)
    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(gate.execute, made(number))
    assert len(recorder.ran) == 5


@given(st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["", "a", "b", "c"])), max_size=30), st.integers(1, 4))
def test_no_more_batches_run_than_the_limit_and_no_batch_is_torn(calls, limit):
    quota = Quota(limit)
    ran, refused = set(), set()
    for number, batch in calls:
        each = ToolCall(f"{batch}{number}", "read", {}, batch=batch)
        key = batch or each.id
        admitted = quota.admits(each)
        quota.take(each)
        (ran if admitted else refused).add(key)
    assert len(ran) <= limit
    assert ran.isdisjoint(refused)
    assert quota.use.batches == len(ran)
