"""The turn of a scheduled prompt, and a prompt of the user that comes while it ends."""

from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from acp_agent.core.errors import AgentError, ToolError, ToolErrorCategory
from acp_agent.core.events import Event, ToolFinished
from acp_agent.core.messages import StopReason, TextPart
from acp_agent.core.sessions import DuePrompt
from acp_agent.session.slash.schedule import _LAST_FLUSH, ScheduledTurns
from acp_agent.session.turn_slot import Answer, TurnSlot
from tests.fakes.passing_time import all_tasks_blocked

pytestmark = pytest.mark.anyio


class FakeSession:
    """A session whose engine answers at once, and whose store takes until `stored` to flush a turn."""

    def __init__(self) -> None:
        self.turns = TurnSlot()
        self.stored = anyio.Event()
        self.card_closed = anyio.Event()
        self.transcript = SimpleNamespace(flush=self._flush)
        self.resident = True
        self.editor = SimpleNamespace(shows_turns=False)
        self.card, self.failed = "", False
        self.did: list[str] = []
        self.concluded: list[bool] = []
        self.events: list[Event] = []
        self.flushes: list[object] = []
        self.answer: Answer | AgentError = Answer(StopReason.END_TURN)
        self.unmade: AgentError | None = None
        self.calls = 0
        self.makes = 0

    async def ready(self) -> None:
        self.did.append("ready")

    def activate_options(self) -> None:
        self.did.append("options")

    def answered(self, answer: Answer) -> None:
        assert not self.turns.busy
        self.did.append(f"answered {answer.reason}")

    def redact(self, text: str) -> str:
        return text.replace("hunter2", "[REDACTED]")

    async def engine(self) -> Any:
        if self.unmade is not None:
            raise self.unmade
        return self

    async def carry_out(self, due: DuePrompt) -> Answer:
        self.did.append(f"carried out {due.id}")
        self.calls += self.makes
        if isinstance(self.answer, AgentError):
            raise self.answer
        if self.answer.reason is StopReason.CANCELLED:
            await anyio.sleep_forever()
        return self.answer

    async def emit(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, ToolFinished):
            self.failed = event.result.failure is not None
            self.card = event.result.shown
            self.card_closed.set()

    async def _flush(self, **options: object) -> None:
        self.flushes.append(options)
        await self.stored.wait()


DUE = DuePrompt("d1", "Run the tests.", "run the tests", "Scheduled.", {"id": 7})


async def carried_out(session: Any, due: DuePrompt | None = DUE) -> list[bool]:
    concluded = session.concluded

    async def claim() -> DuePrompt | None:
        session.did.append("claimed")
        return due

    async def conclude(done: bool) -> None:
        concluded.append(done)

    session.stored.set()
    with anyio.fail_after(10):
        await ScheduledTurns(session).carry_out(claim, conclude)
    return concluded


async def test_a_scheduled_turn_is_shown_as_one_on_a_card_and_answered_as_every_turn():
    session: Any = FakeSession()
    assert await carried_out(session) == [True]
    assert session.did == ["ready", "claimed", "options", "carried out d1", "answered end_turn"]
    said, started, finished = session.events
    assert (said.message_id, said.parts, said.scheduled) == ("d1", (TextPart("Run the tests."),), True)
    assert (started.call_id, started.title, started.raw_input) == ("d1", "Scheduled: run the tests", {"id": 7})
    assert (finished.call_id, session.card, session.failed) == ("d1", "Scheduled.", False)
    assert session.flushes == [{"within": None, "touch": True}]


async def test_nothing_is_shown_if_the_prompt_is_not_due_any_more():
    session: Any = FakeSession()
    assert await carried_out(session, None) == [True]
    assert session.did == ["ready", "claimed"]
    assert session.events == []


async def test_the_card_says_how_a_turn_failed_without_secrets():
    for answer, unmade, card, answered in (
        (Answer(StopReason.MAX_TOKENS), None, "", True),
        (Answer(StopReason.END_TURN, ToolError(ToolErrorCategory.TIMEOUT, "no hunter2")), None, "no [REDACTED]", True),
        (Answer(StopReason.END_TURN), ToolError(ToolErrorCategory.TIMEOUT, "no hunter2"), "no [REDACTED]", False),
    ):
        session: Any = FakeSession()
        session.answer, session.unmade = answer, unmade
        assert await carried_out(session) == [True]
        assert session.failed, (answer, unmade)
        assert session.card.startswith("Scheduled. ")
        assert card in session.card
        assert any(each.startswith("answered") for each in session.did) is answered


async def test_a_turn_that_gave_way_runs_again_unless_it_had_made_a_call():
    for makes, ends, told, done in (
        (0, False, "Your prompt goes first. It will run again.", False),
        (1, False, "Your prompt goes first. It will not run again by itself.", True),
        (0, True, "The session was closed or loaded again. It will run again.", False),
        (1, True, "The session was closed or loaded again. It will not run again by itself.", True),
    ):
        session: Any = FakeSession()
        session.answer, session.makes = Answer(StopReason.CANCELLED), makes

        async def settle(_cancelled: bool) -> None:
            await checkpoint()

        async def prompt(session: Any = session) -> None:
            async with session.turns.turn(settle):
                session.did.append("the user's turn")

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(carried_out, session)
                await all_tasks_blocked()
                await (session.turns.close() if ends else prompt())
        assert session.card == f"Scheduled. {told}", (makes, ends)
        assert session.failed
        assert session.flushes == [{"within": _LAST_FLUSH, "touch": True}]
        assert session.concluded == [done]
        assert not any(each.startswith("answered") for each in session.did)


async def test_the_schedule_sees_whether_the_session_rests_and_waits_for_its_turn():
    session: Any = FakeSession()
    turns = ScheduledTurns(session)
    assert (turns.is_resident, turns.is_busy, turns.shows_turns) == (True, False, False)
    session.resident, session.editor.shows_turns = False, True
    assert (turns.is_resident, turns.shows_turns) == (False, True)
    ended, over = anyio.Event(), list[bool]()

    async def settle(_cancelled: bool) -> None:
        await checkpoint()

    async def turn() -> None:
        async with session.turns.turn(settle):
            await ended.wait()

    async def wait() -> None:
        await turns.turn_over()
        over.append(session.turns.busy)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn)
            await all_tasks_blocked()
            assert turns.is_busy
            tasks.start_soon(wait)
            await all_tasks_blocked()
            assert over == []
            ended.set()
    assert over == [False]
    assert turns.unused_seconds >= 0


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
            await all_tasks_blocked()
            assert session.turns.gave_way
            session.stored.set()
    assert session.card == "Scheduled."
    assert happened == [True, "the user's turn"]


def test_a_reminder_is_a_notice_of_the_session():
    told: list[str] = []
    session: Any = SimpleNamespace(notices=SimpleNamespace(warn=told.append))
    ScheduledTurns(session).remind("a scheduled prompt is due")
    assert told == ["a scheduled prompt is due"]
