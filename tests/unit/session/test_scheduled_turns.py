"""The turn of a scheduled prompt, and a prompt of the user that comes while it ends."""

from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from acp_agent.core.events import Event, ToolFinished
from acp_agent.core.messages import StopReason
from acp_agent.core.sessions import DuePrompt
from acp_agent.session.slash.schedule import ScheduledTurns
from acp_agent.session.turn_slot import Answer, TurnSlot

pytestmark = pytest.mark.anyio


class FakeSession:
    """A session whose engine answers at once, and whose store takes until `stored` to flush a turn."""

    def __init__(self) -> None:
        self.turns = TurnSlot()
        self.stored = anyio.Event()
        self.card_closed = anyio.Event()
        self.transcript = SimpleNamespace(flush=self._flush)
        self.card = ""

    async def ready(self) -> None:
        """Be ready."""

    def activate_options(self) -> None:
        """Have none."""

    def answered(self, answer: Answer) -> None:
        """Have nothing to do after an answer."""

    async def engine(self) -> Any:
        return SimpleNamespace(calls=0, carry_out=self._carry_out)

    async def _carry_out(self, _due: DuePrompt) -> Answer:
        return Answer(StopReason.END_TURN)

    async def emit(self, event: Event) -> None:
        if isinstance(event, ToolFinished):
            self.card = event.result.text
            self.card_closed.set()

    async def _flush(self, **_options: object) -> None:
        await self.stored.wait()


async def test_a_prompt_that_comes_after_the_card_was_closed_finds_the_scheduled_one_concluded_and_does_not_repeat_it():
    session: Any = FakeSession()
    happened: list[object] = []

    async def claim() -> DuePrompt:
        return DuePrompt("1", "run the tests", "run the tests", "Scheduled.", {})

    async def conclude(done: bool) -> None:
        await checkpoint()
        happened.append(done)

    async def settle(_cancelled: bool) -> None:
        await checkpoint()

    async def prompt() -> None:
        async with session.turns.turn(settle):
            happened.append("the user's turn")

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ScheduledTurns(session).carry_out, claim, conclude)
            await session.card_closed.wait()
            tasks.start_soon(prompt)
            await anyio.wait_all_tasks_blocked()
            assert session.turns.gave_way
            session.stored.set()
    assert session.card == "Scheduled."
    assert happened == [True, "the user's turn"]


def test_a_reminder_is_a_notice_of_the_session():
    told: list[str] = []
    session: Any = SimpleNamespace(notices=SimpleNamespace(warn=told.append))
    ScheduledTurns(session).remind("a scheduled prompt is due")
    assert told == ["a scheduled prompt is due"]
