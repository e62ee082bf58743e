"""The plan the user sees, and when the loop takes it away."""

import pytest

from acp_agent.agent.tool_calls import ShownPlan
from acp_agent.core.events import Event, PlanChanged, PlanEntry

pytestmark = pytest.mark.anyio
STEPS = (PlanEntry("Read hidden-thing"), PlanEntry("Write"))


async def test_a_plan_is_told_once_without_secrets_and_gone_when_the_conversation_begins_anew() -> None:
    told: list[Event] = []

    async def emit(event: Event) -> None:
        told.append(event)

    plan = ShownPlan(emit, lambda text: text.replace("hidden-thing", "[REDACTED]"))
    await plan.clear()  # there is none
    await plan.show(STEPS)
    await plan.show(STEPS)
    await plan.clear()
    await plan.clear()

    assert told == [PlanChanged((PlanEntry("Read [REDACTED]"), PlanEntry("Write"))), PlanChanged(())]


async def test_a_plan_from_before_a_restart_can_be_taken_away() -> None:
    told: list[Event] = []

    async def emit(event: Event) -> None:
        told.append(event)

    await ShownPlan(emit, entries=STEPS).clear()

    assert told == [PlanChanged(())]
