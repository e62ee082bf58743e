"""update_plan: what the user is shown, and what the model is told."""

from dataclasses import replace

import pytest

from acp_agent.core.errors import ToolError
from acp_agent.core.events import PlanEntry, PlanPriority, PlanStatus
from acp_agent.core.types import ToolKind
from acp_agent.tools.conversation import UpdatePlan
from tests.unit.tools.workbench import Workbench

pytestmark = pytest.mark.anyio


def step(content: str, status: str = "pending", **more: object) -> dict[str, object]:
    return {"content": content, "status": status, **more}


async def shown(*entries: object) -> tuple[str, list[tuple[PlanEntry, ...]], str]:
    """The answer for the model, the plans the user saw, and the call's title."""
    plans: list[tuple[PlanEntry, ...]] = []

    async def show(plan: tuple[PlanEntry, ...]) -> None:
        plans.append(plan)

    bench = Workbench(tools=[UpdatePlan()])
    invocation = await bench.understand("update_plan", entries=list(entries))
    context = bench.context(invocation)
    result = await invocation.run(replace(context, backends=replace(context.backends, show_plan=show)))
    return result.text, plans, invocation.title


async def test_the_whole_plan_is_shown_and_the_model_is_told_how_far_it_is() -> None:
    text, plans, title = await shown(
        step("Read", "completed"), step("Write", "in_progress", priority="high"), step("Test", priority=None)
    )

    assert text == "Plan: 1 of 3 done; in progress: Write"
    assert title == "Plan: 1 of 3 done"
    assert plans == [
        (
            PlanEntry("Read", PlanStatus.COMPLETED),
            PlanEntry("Write", PlanStatus.IN_PROGRESS, PlanPriority.HIGH),
            PlanEntry("Test", PlanStatus.PENDING),
        )
    ]


async def test_two_steps_at_once_are_taken_with_advice() -> None:
    text, plans, _ = await shown(step("A", "in_progress"), step("B", "in_progress"))

    assert "better one at a time" in text
    assert len(plans[0]) == 2


async def test_an_empty_plan_takes_the_old_one_away() -> None:
    text, plans, _ = await shown()

    assert (text, plans) == ("Plan: empty", [()])


async def test_a_step_is_one_line_with_nothing_hidden_in_it() -> None:
    _, plans, _ = await shown(step("one\n two\u202e\x1b[8m"))

    assert plans[0][0].content == "one two\\u202e\\u001b[8m"


async def test_where_nobody_is_shown_plans_the_model_may_go_on() -> None:
    bench = Workbench(tools=[UpdatePlan()])

    assert (await bench.run("update_plan", entries=[step("A")])).text == "Plan: 0 of 1 done"


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (step("A", "done"), 'entries.0.status = "done" (expected one of pending, in_progress, completed)'),
        ({"status": "pending"}, "entries.0.content is missing (expected a non-empty string of at most 500"),
        (step("x" * 501), "of at most 500 characters"),
        (step("A", state="x"), 'unknown key "entries.0.state" (known keys: content, status, priority)'),
        ("A", 'entries.0 = "A" (expected object)'),
    ],
)
async def test_a_step_that_is_none_is_refused_with_its_place(entry: object, told: str) -> None:
    with pytest.raises(ToolError) as caught:
        await shown(entry)
    assert told in str(caught.value)


async def test_a_plan_without_an_end_is_refused() -> None:
    with pytest.raises(ToolError, match="a list of 0 to 50"):
        await shown(*[step("A")] * 51)


def test_it_is_no_thought_changes_nothing_and_is_never_answered_from_the_cache() -> None:
    spec = UpdatePlan().spec()
    assert (spec.kind, spec.mutates, spec.cacheable) == (ToolKind.OTHER, False, False)
