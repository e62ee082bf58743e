"""The board that agents share: who gets a task, what waits for what, and how it is shown."""

from dataclasses import dataclass, field, replace

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.agent.tool_calls import ShownPlan
from acp_agent.core.delegation import RunState
from acp_agent.core.errors import ToolError
from acp_agent.core.events import MAIN, BoardTask, Event, PlanChanged, PlanEntry, PlanPriority, PlanStatus
from acp_agent.gates.selection import ToolChoice
from acp_agent.subagents.board import (
    LONGEST_MESSAGE,
    MOST_TASKS,
    MOST_UNREAD,
    SessionBoard,
    SessionMail,
    SharedReports,
    SharedWork,
    abandoned,
    as_plan,
    is_ready,
    waits_for,
)
from acp_agent.subagents.definitions import Definition, built_in

pytestmark = pytest.mark.anyio

DONE, WORKING, FREE = PlanStatus.COMPLETED, PlanStatus.IN_PROGRESS, PlanStatus.PENDING


@dataclass
class Bench:
    """A board, and all plans that it showed. Each is shown late, as by a slow editor."""

    shown: list[PlanChanged] = field(default_factory=list[PlanChanged])

    def __post_init__(self) -> None:
        self.plan = ShownPlan(self._emit, lambda text: text.replace("hidden-thing", "[REDACTED]"))
        self.board = SessionBoard(self.plan)

    async def _emit(self, event: Event) -> None:
        assert isinstance(event, PlanChanged)
        self.shown.append(event)
        await anyio.lowlevel.checkpoint()

    async def create(self, *drafts: BoardTask) -> None:
        await self.board.create(drafts)

    @property
    def states(self) -> dict[str, tuple[PlanStatus, str]]:
        return {task.id: (task.status, task.owner) for task in self.board.tasks()}


@pytest.fixture
def bench() -> Bench:
    return Bench()


def task(name: str, *after: str, priority: PlanPriority = PlanPriority.MEDIUM) -> BoardTask:
    return BoardTask(name, f"Do {name}", priority=priority, after=after)


async def refused(call: object) -> str:
    with pytest.raises(ToolError) as caught:
        await call  # type: ignore[misc]
    return f"{caught.value} {caught.value.failure.suggestion}"


# ------------------------------------------------------------------------------------------ claims


async def test_of_two_that_claim_at_once_one_gets_it_and_the_other_is_told_who_has_it(bench: Bench):
    await bench.create(task("a"))
    told: list[str] = []

    async def claim(who: str) -> None:
        try:
            await bench.board.claim("a", who)
            told.append(f"{who} has it")
        except ToolError as error:
            told.append(str(error))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(claim, "explore-1")
        tasks.start_soon(claim, "explore-2")
    (owner,) = {task.owner for task in bench.board.tasks()}
    assert sorted(told) == sorted([f"{owner} has it", f"{owner} works on a"])


async def test_the_next_task_is_the_first_of_the_highest_priority_that_is_ready(bench: Bench):
    high = PlanPriority.HIGH
    await bench.create(task("low", priority=PlanPriority.LOW), task("a"), task("b"), task("top", "a", priority=high))
    claimed = [(await bench.board.claim("", "x-1")).changed for _ in range(4)]
    assert [each[0].id for each in claimed[:3]] == ["a", "b", "low"]
    assert claimed[3] == (), "top waits for a"


async def test_claiming_again_what_one_has_changes_nothing(bench: Bench):
    await bench.create(task("a"))
    await bench.board.claim("a", "x-1")
    shown = len(bench.shown)
    assert (await bench.board.claim("a", "x-1")).changed[0].owner == "x-1"
    assert len(bench.shown) == shown


async def test_what_waits_for_others_can_be_neither_claimed_nor_completed(bench: Bench):
    await bench.create(task("a"), task("b", "a"))
    await bench.board.claim("a", "x-1")
    assert "b waits for a (x-1 works on it)" in await refused(bench.board.claim("b", "x-2"))
    assert "b waits for a" in await refused(bench.board.complete("b", MAIN, ""))


async def test_a_task_that_another_one_has_is_no_mistake_in_the_arguments(bench: Bench):
    await bench.create(task("a"))
    await bench.board.claim("a", "x-1")
    with pytest.raises(ToolError) as caught:
        await bench.board.claim("a", "x-2")
    assert not caught.value.failure.category.quality_failure
    with pytest.raises(ToolError) as caught:
        await bench.board.claim("b", "x-2")
    assert caught.value.failure.category.quality_failure


async def test_completing_says_what_became_ready_and_only_that(bench: Bench):
    await bench.create(task("a"), task("b"), task("c", "a"), task("d", "a", "b"), task("e", "c"))
    change = await bench.board.complete("a", "x-1", "42")
    assert [each.id for each in change.ready] == ["c"]
    assert change.changed[0].result == "42"
    assert [each.id for each in (await bench.board.complete("b", "x-1", "")).ready] == ["d"]


async def test_only_who_has_a_task_completes_it_and_nobody_does_twice(bench: Bench):
    await bench.create(task("a"))
    await bench.board.claim("a", "x-1")
    assert "x-1 works on a" in await refused(bench.board.complete("a", "x-2", ""))
    assert "release a first" in await refused(bench.board.complete("a", MAIN, ""))
    await bench.board.complete("a", "x-1", "")
    assert "a is done by x-1 already" in await refused(bench.board.complete("a", "x-1", ""))
    assert "a is done by x-1 already" in await refused(bench.board.claim("a", "x-2"))


async def test_a_task_is_given_back_by_its_owner_or_by_the_main_agent_and_says_why(bench: Bench):
    await bench.create(task("a"))
    assert "nobody works on a: it is free" in await refused(bench.board.release("a", MAIN, ""))
    await bench.board.claim("a", "x-1")
    assert "a is not yours: x-1 works on it" in await refused(bench.board.release("a", "x-2", ""))
    await bench.board.release("a", MAIN, "it takes too long")
    (now,) = bench.board.tasks()
    assert (now.status, now.owner, now.note) == (FREE, "", "given back by x-1: it takes too long")
    assert bench.shown[-1].entries == (PlanEntry("a: Do a (given back by x-1: it takes too long)"),)


async def test_nothing_waits_for_a_task_that_was_cancelled(bench: Bench):
    await bench.create(task("a"), task("b", "a"))
    await bench.board.claim("a", "x-1")
    assert "a is not yours: x-1 works on it" in await refused(bench.board.cancel("a", "x-2"))
    change = await bench.board.cancel("a", MAIN)
    assert [each.id for each in change.ready] == ["b"]
    assert bench.states == {"b": (FREE, "")}


# ---------------------------------------------------------------------------------------- creating


@pytest.mark.parametrize(
    ("drafts", "told"),
    [
        ((task("a", "zzz"),), "a cannot wait for 'zzz': there is no task 'zzz' Tasks: old."),
        ((task("a", "a"),), "these tasks wait for each other: a -> a"),
        ((task("a", "c"), task("b", "a"), task("c", "b")), "these tasks wait for each other: a -> c -> b -> a"),
        ((task("old"),), "there is a task old already"),
        ((task("a"), task("a")), "there is a task a already"),
        ((task("a b"),), "'a b' is no id"),
        ((task("x" * 41),), "is no id"),
        (tuple(task("") for _ in range(MOST_TASKS)), f"room for {MOST_TASKS} tasks and holds 1"),
    ],
)
async def test_tasks_that_cannot_be_are_refused_by_name_and_none_is_created(
    bench: Bench, drafts: tuple[BoardTask, ...], told: str
):
    await bench.create(task("old"))
    assert told in await refused(bench.board.create(drafts))
    assert list(bench.states) == ["old"]


async def test_a_task_may_wait_for_one_that_comes_later_in_the_list_and_a_number_is_its_id_by_default(bench: Bench):
    await bench.create(task("last", "1"), task(""), task("2"), task(""))
    assert [each.id for each in bench.board.tasks()] == ["last", "1", "2", "3"]


async def test_the_plan_says_who_works_on_what_and_what_it_waits_for_in_the_order_of_priorities(bench: Bench):
    await bench.create(task("a"), task("b", "a"), task("top", priority=PlanPriority.HIGH))
    await bench.board.claim("a", "x-1")
    assert bench.shown[-1].entries == (
        PlanEntry("top: Do top", FREE, PlanPriority.HIGH),
        PlanEntry("a: Do a (x-1)", WORKING),
        PlanEntry("b: Do b (waits for a)", FREE),
    )


async def test_no_secret_gets_on_the_board(bench: Bench):
    secret = "the hidden-thing"
    await bench.create(BoardTask("a", secret, secret))
    await bench.board.claim("a", "x-1")
    await bench.board.release("a", "x-1", secret)
    await bench.board.complete("a", "x-1", secret)
    assert "hidden-thing" not in repr(bench.shown) + repr(bench.board.tasks())
    assert "[REDACTED]" in bench.board.tasks()[0].result


# ----------------------------------------------------------------------------------------- endings


async def test_a_long_reason_is_a_short_remark_on_one_line_of_the_plan(bench: Bench):
    await bench.create(task("a"))
    await bench.board.claim("a", "x-1")
    await bench.board.release("a", "x-1", "one\ntwo \u202e" + "x" * 4000)
    content = bench.shown[-1].entries[0].content
    assert "given back by x-1: one" in content
    assert content.isprintable()
    assert len(content) < 150
    assert bench.board.tasks()[0].note.endswith("x" * 4000)


@pytest.mark.parametrize(
    ("state", "how"), [(RunState.DONE, "ended"), (RunState.FAILED, "failed"), (RunState.CANCELLED, "was cancelled")]
)
async def test_a_run_that_ends_gives_back_what_it_has_and_keeps_what_it_did(bench: Bench, state: RunState, how: str):
    await bench.create(task("a"), task("b"), task("c"), task("d"))
    for name, who in (("a", "x-1"), ("b", "x-1"), ("c", "x-2")):
        await bench.board.claim(name, who)
    await bench.board.complete("a", "x-1", "")
    await SharedWork(bench.board, SessionMail(lambda: None)).ended("x-1", state)
    assert bench.states == {"a": (DONE, "x-1"), "b": (FREE, ""), "c": (WORKING, "x-2"), "d": (FREE, "")}
    assert bench.shown[-1].entries[1].content == f"b: Do b (given back by x-1, which {how})"
    await bench.board.claim("b", "x-2")
    assert bench.shown[-1].entries[1].content == "b: Do b (x-2)"


async def test_after_a_restart_only_the_main_agent_still_has_its_tasks(bench: Bench):
    await bench.create(task("a"), task("b"), task("c"))
    await bench.board.claim("a", MAIN)
    await bench.board.claim("b", "x-1")
    tasks = abandoned(bench.plan.tasks)
    assert [(each.status, each.owner) for each in tasks] == [(WORKING, MAIN), (FREE, ""), (FREE, "")]
    assert "given back by x-1, which ended with the agent's process" in as_plan(tasks)[1].content
    assert abandoned(tasks) == tasks


async def test_a_turn_begins_with_an_empty_board_if_all_is_done_and_the_user_sees_it_until_there_is_more(bench: Bench):
    await bench.create(task("a"), task("b"))
    await bench.board.complete("a", MAIN, "")
    bench.plan.turn_began()
    assert list(bench.states) == ["a", "b"]
    await bench.board.complete("b", MAIN, "")
    shown = len(bench.shown)
    bench.plan.turn_began()
    assert (bench.states, len(bench.shown)) == ({}, shown)
    await bench.create(task("a"))
    assert bench.shown[-1].entries == (PlanEntry("a: Do a"),)


async def test_a_new_conversation_has_no_tasks(bench: Bench):
    await bench.create(task("a"))
    await bench.plan.clear()
    assert (bench.states, bench.shown[-1]) == ({}, PlanChanged(()))


async def test_a_plan_of_the_models_own_leaves_the_board_as_it_is(bench: Bench):
    await bench.create(task("a"))
    await bench.plan.show((PlanEntry("mine"),))
    assert bench.shown[-1] == PlanChanged((PlanEntry("mine"),), bench.plan.tasks)


def test_only_one_whose_definition_lets_it_read_messages_gets_any(bench: Bench):
    work = SharedWork(bench.board, SessionMail(lambda: None))
    explore, plain = built_in()[0], Definition("plain", "x", "y", "z", tools=ToolChoice(allow=("read",)))
    work.began("explore-1", explore)
    work.began("plain-1", plain)
    assert work.mail.names(MAIN) == ["explore-1"]


async def test_a_sub_agent_that_wants_to_end_is_told_of_what_it_has_not_read_and_once_of_what_it_has_not_done(
    bench: Bench,
):
    work = SharedWork(bench.board, SessionMail(lambda: None))
    work.began("explore-1", built_in()[0])
    reports = SharedReports(work, "explore-1")
    assert (reports.news(), await reports.wait()) == ("", "")
    work.mail.send(MAIN, "explore-1", "x")
    assert "1 unread message from main" in await reports.wait()
    assert (reports.news(), await reports.wait()) == ("", "")
    await bench.create(task("a"), task("b"))
    await bench.board.claim("a", "explore-1")
    assert await reports.wait() == "[You still have a: complete or release it, then give your report once more]"
    assert await reports.wait() == ""


# ------------------------------------------------------------------------------------ any interleaving

NAMES = ("a", "b", "c", "d", "e")
WHO = (MAIN, "x-1", "x-2", "x-3")
STEP = st.tuples(
    st.sampled_from(("create", "claim", "next", "complete", "release", "cancel", "end")),
    st.sampled_from(NAMES),
    st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
)


async def carry_out(board: SessionBoard, who: str, steps: list[tuple[str, str, list[str]]]) -> None:
    for action, name, after in steps:
        try:
            match action:
                case "create":
                    await board.create([task(name, *after)])
                case "claim" | "next":
                    got = await board.claim(name if action == "claim" else "", who)
                    assert all(each.owner == who for each in got.changed)
                case "complete":
                    await board.complete(name, who, "done")
                case "release":
                    await board.release(name, who, "")
                case "cancel":
                    await board.cancel(name, who)
                case _:
                    await board.give_back(who, "which ended")
        except ToolError:
            pass


def check(before: PlanChanged, now: PlanChanged) -> None:
    """Each board that was shown keeps the invariants, and follows from the one before by one change."""
    tasks, earlier = now.tasks, {each.id: each for each in before.tasks}
    ids = [each.id for each in tasks]
    assert len(set(ids)) == len(ids)
    assert now.entries == as_plan(tasks)
    for each in tasks:
        assert set(each.after) <= set(ids)
        assert (each.status is FREE) == (each.owner == "")
        assert each.status is FREE or not waits_for(each, tasks)
        old = earlier.get(each.id)
        if old is None:
            continue
        assert old.status is not DONE or replace(each, after=old.after) == old, "what is done stays done"
        if each.owner and old.owner:
            assert each.owner == old.owner, "a task goes from one to another only over being free"
        if each.owner and not old.owner:
            assert is_ready(old, before.tasks)


@settings(max_examples=settings.default.max_examples * 3)
@given(st.tuples(*(st.lists(STEP, max_size=8) for _ in WHO)))
def test_whatever_agents_do_at_the_same_time_each_board_that_is_shown_keeps_the_rules(
    plays: tuple[list[tuple[str, str, list[str]]], ...],
):
    async def play() -> Bench:
        bench = Bench()
        await bench.create(task("a"), task("b", "a"))
        async with anyio.create_task_group() as tasks:
            for who, steps in zip(WHO, plays, strict=True):
                tasks.start_soon(carry_out, bench.board, who, steps)
        return bench

    bench = anyio.run(play)
    for before, now in zip((PlanChanged(()), *bench.shown), bench.shown, strict=False):
        check(before, now)
    assert bench.shown[-1].tasks == bench.plan.tasks, "what was shown last is what there is"


# ---------------------------------------------------------------------------------------- messages


def mail(*names: str) -> tuple[SessionMail, list[str]]:
    """The mail of a session whose sub-agents have these names, and how often the main agent was woken."""
    woken: list[str] = []
    box = SessionMail(lambda: woken.append(MAIN))
    for name in names:
        box.open(name)
    return box, woken


async def test_a_message_is_announced_once_and_read_once():
    box, woken = mail("x-1", "x-2")
    box.send("x-1", "x-2", "hello")
    box.send(MAIN, "x-2", "hurry")
    told = "[2 unread messages from x-1, main (it gave you your task): read with the tool messages]"
    assert (box.announcement("x-2"), box.announcement("x-2"), woken) == (told, "", [])
    assert [*await box.read("x-2", 0)] == [("x-1", "hello"), (MAIN, "hurry")]
    assert [*await box.read("x-2", 0)] == []
    box.send("x-2", MAIN, "ready")
    assert woken == [MAIN]
    assert box.announcement(MAIN) == "[1 unread message from x-2: read with the tool messages]"


async def test_one_that_waits_reads_a_message_as_soon_as_it_comes():
    box, _ = mail("x-1")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.lowlevel.checkpoint)
        tasks.start_soon(lambda: later(box))
        with anyio.fail_after(10):
            assert [each.text for each in await box.read(MAIN, 60)] == ["now"]


async def test_nobody_waits_for_one_that_has_ended():
    box, _ = mail("x-1", "x-2")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: ending(box))
        with anyio.fail_after(10):
            assert [*await box.read("x-2", 60)] == []
            box.close("x-2")
            assert [*await box.read(MAIN, 60)] == [], "there is nobody left to write"


async def ending(box: SessionMail) -> None:
    await anyio.lowlevel.checkpoint()
    box.close("x-1")


async def later(box: SessionMail) -> None:
    await anyio.lowlevel.checkpoint()
    box.send("x-1", MAIN, "now")


def test_there_is_a_limit_for_the_number_and_the_size_of_messages():
    box, _ = mail("x-1")
    for _ in range(MOST_UNREAD):
        box.send(MAIN, "x-1", "x")
    with pytest.raises(ToolError, match="x-1 has 20 unread messages, and gets no more"):
        box.send(MAIN, "x-1", "x")
    with pytest.raises(ToolError, match=r"a message of 4,001 characters \(at most 4,000\)"):
        box.send("x-1", MAIN, "x" * (LONGEST_MESSAGE + 1))


def test_nobody_writes_to_themselves_to_a_stranger_or_to_one_that_has_ended():
    box, _ = mail("x-1", "x-2")
    box.close("x-2")
    for to in ("x-1", "x-2", "y"):
        told = "x-2 has ended" if to == "x-2" else f"nobody here is called '{to}'"
        with pytest.raises(ToolError, match=told) as caught:
            box.send("x-1", to, "x")
        assert caught.value.failure.suggestion == "You can write to: main."
