"""One turn at a time, and whatever becomes of it, there is room for the next."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
import anyio.lowlevel
import pytest

from acp_agent.core.errors import ConfigError, RequestError
from acp_agent.core.messages import StopReason
from acp_agent.protocol.jsonrpc import RpcError, invalid_params
from acp_agent.session import turn_slot
from acp_agent.session.turn_slot import Answer, IdleWaiter, TurnSlot
from tests.fakes.passing_time import all_tasks_blocked

pytestmark = pytest.mark.anyio

DONE = Answer(StopReason.END_TURN)
CANCELLED = Answer(StopReason.CANCELLED)


class Settling:
    """Notes what the end of a turn was told, and whether it still counted as running."""

    def __init__(self, slot: TurnSlot) -> None:
        self.slot = slot
        self.told: list[bool] = []
        self.busy: list[bool] = []
        self.failure: Exception | None = None

    async def __call__(self, cancelled: bool) -> None:
        await anyio.lowlevel.checkpoint()
        self.told.append(cancelled)
        self.busy.append(self.slot.busy)
        if self.failure is not None:
            raise self.failure


async def ran(
    slot: TurnSlot, turn: Callable[[], Awaitable[Answer]], settling: Callable[[bool], Awaitable[None]]
) -> Answer:
    """A turn as a session runs it."""
    answer = CANCELLED
    async with slot.turn(settling) as scope:
        answer = await turn()
    return CANCELLED if scope.cancel_called else answer


async def done() -> Answer:
    return DONE


async def for_ever() -> Answer:
    await anyio.sleep_forever()
    return DONE


def failing(error: Exception) -> Callable[[], Awaitable[Answer]]:
    async def turn() -> Answer:
        raise error

    return turn


def failing_when_cancelled(error: Exception) -> Callable[[], Awaitable[Answer]]:
    async def turn() -> Answer:
        try:
            await anyio.sleep_forever()
        finally:
            raise error

    return turn


async def test_a_turn_counts_as_running_until_all_of_it_was_sent() -> None:
    slot = TurnSlot()
    settling = Settling(slot)
    assert await ran(slot, done, settling) == DONE
    assert (settling.told, settling.busy, slot.busy) == ([False], [True], False)


@pytest.mark.parametrize(
    ("error", "code"),
    [(invalid_params("prompt", "x"), -32602), (ValueError("a bug"), -32603), (ConfigError("", "", "", "x"), -32603)],
)
async def test_however_a_turn_fails_there_is_room_for_the_next(error: Exception, code: int) -> None:
    slot = TurnSlot()
    settling = Settling(slot)
    with pytest.raises(RequestError) as caught:
        await ran(slot, failing(error), settling)
    assert RpcError.of(caught.value).code == code
    assert "bug" not in str(caught.value)
    assert settling.told == [False]
    assert not slot.busy
    assert await ran(slot, done, settling) == DONE


@pytest.mark.parametrize("error", [None, invalid_params("prompt", "x"), ValueError("broken by the abort")])
async def test_what_a_cancelled_turn_raises_is_cancelled(error: Exception | None) -> None:
    slot = TurnSlot()
    settling = Settling(slot)
    answers: list[Answer] = []

    async def run() -> None:
        answers.append(await ran(slot, for_ever if error is None else failing_when_cancelled(error), settling))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await anyio.lowlevel.checkpoint()
        slot.cancel()
        slot.cancel()
    assert (answers, settling.told, slot.busy) == ([CANCELLED], [True], False)


async def test_a_late_cancel_does_not_hit_the_next_turn() -> None:
    slot = TurnSlot()
    settling = Settling(slot)
    slot.cancel()
    assert await ran(slot, done, settling) == DONE
    slot.cancel()
    assert await ran(slot, done, settling) == DONE


async def test_a_turn_goes_on_until_it_is_cancelled() -> None:
    slot = TurnSlot()
    seen = [slot.going_on]

    async def turn() -> Answer:
        seen.append(slot.going_on)
        slot.cancel()
        seen.append(slot.going_on)
        return DONE

    assert await ran(slot, turn, Settling(slot)) == CANCELLED
    assert [*seen, slot.going_on] == [False, True, False, False]


async def test_a_turn_that_ends_with_its_task_leaves_room() -> None:
    slot = TurnSlot()
    settling = Settling(slot)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ran, slot, for_ever, settling)
        await anyio.lowlevel.checkpoint()
        assert slot.busy
        tasks.cancel_scope.cancel()
    assert not slot.busy
    assert await ran(slot, done, settling) == DONE


async def test_a_turn_whose_end_could_not_be_settled_leaves_room() -> None:
    slot = TurnSlot()
    settling = Settling(slot)
    settling.failure = OSError("no way")
    with pytest.raises(OSError, match="no way"):
        await ran(slot, done, settling)
    assert not slot.busy


async def test_a_second_turn_is_refused_and_the_first_goes_on() -> None:
    slot = TurnSlot()
    settling = Settling(slot)
    go_on, answers = anyio.Event(), list[Answer]()

    async def first() -> Answer:
        await go_on.wait()
        return DONE

    async def run() -> None:
        answers.append(await ran(slot, first, settling))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await anyio.lowlevel.checkpoint()
        with pytest.raises(RequestError, match="prompt already in progress"):
            await ran(slot, done, settling)
        assert settling.told == []
        go_on.set()
    assert answers == [DONE]


async def test_closing_cancels_the_turn_waits_for_it_and_lets_none_begin() -> None:
    slot = TurnSlot()
    settling = Settling(slot)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ran, slot, for_ever, settling)
        await anyio.lowlevel.checkpoint()
        await slot.close(5)
        assert settling.told == [True]
        assert not slot.busy
    assert slot.closed
    with pytest.raises(RequestError, match="being closed"):
        await ran(slot, done, settling)
    await slot.close(5)


async def test_closing_waits_no_longer_than_it_may() -> None:
    slot = TurnSlot()
    go_on = anyio.Event()

    async def stubborn() -> Answer:
        with anyio.CancelScope(shield=True):
            await go_on.wait()
        return DONE

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ran, slot, stubborn, Settling(slot))
        await anyio.lowlevel.checkpoint()
        await slot.close(0.01)
        assert slot.busy
        go_on.set()
    assert not slot.busy


async def test_the_time_of_the_last_use_is_that_of_a_beginning_or_an_end() -> None:
    slot = TurnSlot()
    slot.used_at = 0
    began: list[float] = []

    async def turn() -> Answer:
        began.append(slot.used_at)
        slot.used_at = 0
        return DONE

    await ran(slot, turn, Settling(slot))
    assert 0 < began[0] <= slot.used_at


async def test_who_ended_a_turn_is_known() -> None:
    slot = TurnSlot()
    settling = Settling(slot)
    for end, abandoned in ((slot.cancel, False), (slot.end_with_session, True), (slot.cancel, False)):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ran, slot, for_ever, settling)
            await all_tasks_blocked()
            end()
            slot.end_with_session() if end == slot.cancel else slot.cancel()  # too late to be why
            assert slot.session_ended is abandoned
    slot.end_with_session()
    assert not slot.session_ended, "none ran"


async def test_a_turn_that_is_closed_is_abandoned() -> None:
    slot = TurnSlot()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ran, slot, for_ever, Settling(slot))
        await all_tasks_blocked()
        await slot.close(5)
    assert slot.session_ended


async def test_a_scheduled_turn_gives_way_to_a_prompt_and_no_prompt_to_a_scheduled_turn():
    slot, ended = TurnSlot(), anyio.Event()

    async def scheduled() -> None:
        async with slot.turn(Settling(slot), scheduled=True):
            await anyio.sleep_forever()
        assert slot.gave_way
        ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scheduled)
        await all_tasks_blocked()
        async with slot.turn(Settling(slot)):
            assert ended.is_set()
            assert not slot.scheduled
            assert not slot.gave_way
            with pytest.raises(RequestError, match="already in progress"):
                async with slot.turn(Settling(slot), scheduled=True):
                    pass


async def test_a_cancel_reaches_the_prompt_that_waits_for_a_scheduled_turn_to_end():
    slot, may_end = TurnSlot(), anyio.Event()
    prompt = Settling(slot)

    async def slowly(cancelled: bool) -> None:
        del cancelled
        with anyio.CancelScope(shield=True):
            await may_end.wait()

    async def scheduled() -> None:
        async with slot.turn(slowly, scheduled=True):
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scheduled)
        await all_tasks_blocked()

        async def arrives() -> None:
            assert await ran(slot, for_ever, prompt) == CANCELLED

        tasks.start_soon(arrives)
        await all_tasks_blocked()
        slot.cancel()
        may_end.set()
    assert prompt.told == [True]


async def test_what_can_wait_waits_for_a_turn_that_follows_at_once():
    slot, over = TurnSlot(), list[bool]()

    async def wait() -> None:
        await IdleWaiter(lambda: [slot], patience=60)()
        over.append(slot.busy)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await all_tasks_blocked()
        assert over == []
        async with slot.turn(Settling(slot)):
            await all_tasks_blocked()
    assert over == [False]


async def test_what_can_wait_waits_for_all_turns_and_not_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(turn_slot, "_PAUSE", 0.0)
    slots, over = [TurnSlot(), TurnSlot(), TurnSlot()], list[bool]()

    async def wait(quiet: IdleWaiter) -> None:
        await quiet()
        over.append(any(slot.busy for slot in slots))

    looks = list[None]()

    def every() -> list[TurnSlot]:
        looks.append(None)
        return slots

    async with anyio.create_task_group() as tasks, slots[2].turn(Settling(slots[2])):
        async with slots[0].turn(Settling(slots[0])):
            for _ in range(2):
                tasks.start_soon(wait, IdleWaiter(every, patience=60))
            for _ in range(3):
                await all_tasks_blocked()
            assert len(looks) == 2, "they look again when the turn that they found has ended"
        await all_tasks_blocked()
        assert over == []
    assert over == [False, False]
    async with slots[1].turn(Settling(slots[1])):
        await IdleWaiter(lambda: slots, patience=0.01)()


async def test_what_can_wait_also_waits_a_moment_after_a_turn_for_the_next_prompt(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(turn_slot, "_PAUSE", 0.0)
    slot, over = TurnSlot(), list[bool]()

    async def wait() -> None:
        await IdleWaiter(lambda: [slot], patience=60)()
        over.append(slot.busy)

    async with anyio.create_task_group() as tasks:
        async with slot.turn(Settling(slot)):
            tasks.start_soon(wait)
            await all_tasks_blocked()
            monkeypatch.setattr(turn_slot, "_PAUSE", 60.0)
        await all_tasks_blocked()
        assert over == []
        tasks.cancel_scope.cancel()


async def test_only_the_end_of_a_turn_that_was_cancelled_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(turn_slot, "_ENDING", 60.0)
    slot, may_end, waited = TurnSlot(), anyio.Event(), list[str]()

    async def slowly(cancelled: bool) -> None:
        del cancelled
        with anyio.CancelScope(shield=True):
            await may_end.wait()

    async def wait(when: str) -> None:
        await slot.cancelled_over()
        waited.append(when)

    async with anyio.create_task_group() as tasks:
        await wait("none ran")
        tasks.start_soon(ran, slot, for_ever, slowly)
        await all_tasks_blocked()
        await wait("one ran")
        slot.cancel()
        tasks.start_soon(wait, "cancelled")
        await all_tasks_blocked()
        assert waited == ["none ran", "one ran"]
        may_end.set()
    assert waited == ["none ran", "one ran", "cancelled"]


async def test_the_end_of_a_cancelled_turn_is_waited_for_only_for_a_moment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(turn_slot, "_ENDING", 0.0)
    slot, may_end = TurnSlot(), anyio.Event()

    async def stubborn() -> Answer:
        with anyio.CancelScope(shield=True):
            await may_end.wait()
        return DONE

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ran, slot, stubborn, Settling(slot))
        await all_tasks_blocked()
        slot.cancel()
        await slot.cancelled_over()
        assert slot.busy
        may_end.set()


async def test_a_scheduled_turn_has_given_way_also_when_a_second_prompt_arrives_before_it_ends():
    slot, may_end, gave_way = TurnSlot(), anyio.Event(), list[bool]()

    async def slowly(cancelled: bool) -> None:
        assert cancelled
        with anyio.CancelScope(shield=True):
            await may_end.wait()
        gave_way.append(slot.gave_way)

    async def scheduled() -> None:
        async with slot.turn(slowly, scheduled=True):
            await anyio.sleep_forever()

    async def arrives() -> None:
        with suppress(RequestError):  # there is room for one of them
            await ran(slot, done, Settling(slot))

    async with anyio.create_task_group() as tasks:
        for each in (scheduled, arrives, arrives):
            tasks.start_soon(each)
            await all_tasks_blocked()
        may_end.set()
    assert (gave_way, slot._arriving) == ([True], set())
