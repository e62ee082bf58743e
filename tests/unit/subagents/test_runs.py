"""The runs of sub-agents: their places, their ends, and what the model is told of them."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import anyio
import pytest
from anyio.abc import TaskGroup

from acp_agent.core.delegation import ParentCall, RunSlots, RunState
from acp_agent.core.errors import StoreUnavailable, ToolError
from acp_agent.core.events import Event, ToolFinished, ToolProgress, ToolStarted
from acp_agent.core.session_options import Mode
from acp_agent.core.types import CallingAgent
from acp_agent.subagents.definitions import Definition, built_in
from acp_agent.subagents.runs import RunDependencies, RunLimits, SubAgentRuns
from acp_agent.subagents.worker import Progress, WorkOutcome
from tests.fakes.passing_time import all_tasks_blocked, pass_time

pytestmark = pytest.mark.anyio


@dataclass
class Puppet:
    """A worker that says its words back. "hold" takes it for ever, and "deaf" until `let_go`, also if cancelled."""

    calls: int = 0
    said: list[str] = field(default_factory=list[str])
    begun: anyio.Event = field(default_factory=anyio.Event)
    let_go: anyio.Event = field(default_factory=anyio.Event)

    async def work(self, words: str, caller: CallingAgent, progress: Progress) -> WorkOutcome:
        self.said.append(words)
        self.begun.set()
        await progress(ToolProgress(caller.card, output=f"I begin {words}"))
        if words == "hold":
            await anyio.sleep_forever()
        if words == "deaf":
            with anyio.CancelScope(shield=True):
                await self.let_go.wait()
        if words == "break":
            raise RuntimeError(words)
        return WorkOutcome(" then ".join(self.said), "it gave up" if words == "give up" else "")

    def conversation(self) -> str:
        return "\n".join(self.said)


class Bench:
    """The runs of one session, with all that they show."""

    def __init__(self, tasks: TaskGroup, limits: RunLimits, slots: RunSlots) -> None:
        self.events: list[Event] = []
        self.kept: list[str] = []
        self.limits, self.slots = limits, slots
        self.full = self.stuck = False
        self.slow: anyio.Event | None = None
        self.puppet = Puppet()
        self.highest_ids: dict[str, int] = {}
        self.known = {each.name: each for each in built_in()}
        self.runs = SubAgentRuns(
            RunDependencies(
                lambda: self.known,
                self._worker,
                self.emit,
                tasks.start_soon,
                self._keep,
                self._readable,
                lambda: self.limits,
                slots,
                highest_id=lambda prefix: self.highest_ids.get(prefix, 0),
            )
        )
        self.parent = ParentCall("card", self.emit)

    def _worker(self, definition: Definition) -> Puppet:
        del definition
        return self.puppet

    async def emit(self, event: Event) -> None:
        if self.stuck:
            await anyio.sleep_forever()
        if self.slow is not None and isinstance(event, ToolFinished):
            await self.slow.wait()
        self.events.append(event)

    async def _keep(self, text: str) -> str:
        if self.full:
            raise StoreUnavailable("full")
        self.kept.append(text)
        return "overflow:1"

    async def _readable(self, report: str) -> str:
        if "unreadable" in report:
            raise RuntimeError(report)
        if "slow to read" in report:
            await anyio.sleep_forever()
        return report.replace("secret", "[REDACTED]")

    @property
    def cards(self) -> list[str]:
        """Each start and end of a card in a word."""
        shown: list[str] = []
        titles: dict[str, str] = {}
        for event in self.events:
            match event:
                case ToolStarted(call_id, title=title):
                    titles[call_id] = title
                    shown.append(f"+{title}")
                case ToolFinished(call_id):
                    shown.append(f"-{titles[call_id]}")
                case _:
                    pass
        return shown


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with anyio.create_task_group() as tasks:
        yield Bench(tasks, RunLimits(), RunSlots())
        tasks.cancel_scope.cancel()


async def test_a_run_is_shown_on_its_parents_card_and_gives_back_its_place(bench: Bench):
    run = await bench.runs.run("explore", "look", bench.parent)
    assert (run.id, run.state, run.report, run.conversation) == ("explore-1", RunState.DONE, "look", "overflow:1")
    assert bench.events == [ToolProgress("card", output="I begin look")]
    assert bench.kept == ["# explore-1: look\n\nlook\n"]
    assert bench.slots.taken == 0
    assert bench.runs.news() == "", "the model has the result"


async def test_the_number_of_a_run_follows_those_that_the_conversation_knows(bench: Bench):
    bench.highest_ids = {"explore-": 7}
    runs = [await bench.runs.run(agent, "look", bench.parent) for agent in ("explore", "explore", "general")]
    assert [run.id for run in runs] == ["explore-8", "explore-9", "general-1"]


async def test_a_conversation_that_cannot_be_stored_costs_only_its_reference(bench: Bench):
    bench.full = True
    assert (await bench.runs.run("explore", "look", bench.parent)).conversation == ""


async def test_a_run_that_gave_up_reports_what_it_has_and_why(bench: Bench):
    run = await bench.runs.run("explore", "give up", bench.parent)
    assert (run.state, run.report) == (RunState.DONE, "give up\n\n[it gave up]")


async def test_cancelling_the_call_ends_its_run(bench: Bench):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.runs.run, "explore", "hold", bench.parent)
        await bench.puppet.begun.wait()
        tasks.cancel_scope.cancel()
    assert [run.state for run in bench.runs.runs()] == [RunState.CANCELLED]
    assert bench.slots.taken == 0
    told = bench.runs.news()
    assert told.startswith("[explore-1: cancelled, 0 tool calls in ")
    assert told.endswith("; its conversation: overflow:1]"), "so that the next turn can say what was found"
    assert bench.runs.news() == ""


async def test_reports_that_come_together_are_told_together_and_once(bench: Bench):
    for _ in range(2):
        await bench.runs.spawn("explore", "look")
    with anyio.fail_after(10):
        told = await bench.runs.wait()
    assert "[explore-1: done" in told
    assert "[explore-2: done" in told
    assert told.count("<tool-output") == 2
    assert (bench.runs.news(), await bench.runs.wait()) == ("", "")
    assert [card for card in bench.cards if "1" in card] == ["+explore-1: look", "-explore-1: look"]
    assert len(bench.cards) == 4


async def test_the_report_of_a_spawned_run_is_made_readable_for_its_card_and_the_model(bench: Bench):
    await bench.runs.spawn("explore", "a secret")
    with anyio.fail_after(10):
        told = await bench.runs.wait()
    (finished,) = [event for event in bench.events if isinstance(event, ToolFinished)]
    for text in (told, finished.result.text):
        assert "a [REDACTED]" in text
        assert "secret" not in text


async def test_a_fault_in_a_spawned_run_closes_its_card_and_is_told(bench: Bench):
    await bench.runs.spawn("explore", "break")
    with anyio.fail_after(10):
        told = await bench.runs.wait()
    assert "explore-1: failed" in told
    assert bench.cards == ["+explore-1: break", "-explore-1: break"]
    assert bench.slots.taken == 0


async def test_a_fault_while_a_report_is_made_readable_ends_the_run_without_its_report(bench: Bench):
    """The turn waited for ever, and the card stayed open."""
    await bench.runs.spawn("explore", "unreadable")
    with anyio.fail_after(10):
        told = await bench.runs.wait()
    assert "explore-1: done" in told
    assert "cannot be shown" in told
    assert bench.cards == ["+explore-1: unreadable", "-explore-1: unreadable"]


async def test_a_report_that_takes_too_long_leaves_no_card_open(bench: Bench):
    await bench.runs.spawn("explore", "slow to read")
    await all_tasks_blocked()
    pass_time(6)
    with anyio.fail_after(10):
        assert "cannot be shown" in await bench.runs.wait()
    assert bench.cards == ["+explore-1: slow to read", "-explore-1: slow to read"]


async def test_the_end_of_a_turn_ends_spawned_runs_and_closes_their_cards(bench: Bench):
    await bench.runs.spawn("explore", "hold")
    await bench.runs.spawn("general", "hold")
    told = await bench.runs.end()  # the second one may not even have begun
    assert [run.state for run in bench.runs.runs()] == [RunState.CANCELLED] * 2
    assert len(bench.cards) == 4
    assert [line.partition(",")[0] for line in told.split("\n\n")] == [
        "[explore-1: cancelled",
        "[general-1: cancelled",
    ]
    assert (bench.runs.news(), await bench.runs.end()) == ("", "")


async def test_a_session_that_closes_while_a_card_is_begun_gives_the_place_back():
    slots = RunSlots()
    async with anyio.create_task_group() as tasks:
        bench = Bench(tasks, RunLimits(), slots)
        bench.stuck = True
        await bench.runs.spawn("explore", "look")
        await all_tasks_blocked()
        tasks.cancel_scope.cancel()
        bench.stuck = False
    assert slots.taken == 0


async def test_steering_goes_on_with_the_same_worker_under_the_same_id(bench: Bench):
    await bench.runs.spawn("explore", "hold")
    await bench.puppet.begun.wait()
    run = await bench.runs.steer("explore-1", "look")
    assert (run.id, run.task) == ("explore-1", "look")
    with anyio.fail_after(10):
        assert "hold then look" in await bench.runs.wait()
    assert [each.id for each in bench.runs.runs()] == ["explore-1"]
    with anyio.fail_after(10):
        await bench.runs.steer("explore-1", "once more")
        assert "hold then look then once more" in await bench.runs.wait()


async def test_a_run_that_does_not_end_is_not_begun_a_second_time(bench: Bench):
    await bench.runs.spawn("explore", "deaf")
    await bench.puppet.begun.wait()
    async with anyio.create_task_group() as tasks:

        async def steer() -> None:
            with pytest.raises(ToolError, match="explore-1 was cancelled, but has not ended yet"):
                await bench.runs.steer("explore-1", "look")
            bench.puppet.let_go.set()

        tasks.start_soon(steer)
        await all_tasks_blocked()
        pass_time(10)
    await all_tasks_blocked()
    run = await bench.runs.steer("explore-1", "look")
    assert (run.task, bench.puppet.said) == ("look", ["deaf"])


async def test_of_two_calls_that_steer_a_run_at_once_one_is_refused(bench: Bench):
    await bench.runs.spawn("explore", "hold")
    await bench.puppet.begun.wait()
    refused: list[str] = []

    async def steer(words: str) -> None:
        try:
            await bench.runs.steer("explore-1", words)
        except ToolError as error:
            refused.append(str(error))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(steer, "one")
            tasks.start_soon(steer, "two")
    await anyio.wait_all_tasks_blocked()
    assert bench.puppet.said == ["hold", "one"]
    assert [each.partition(".")[0] for each in refused] == ["another call has steered explore-1 meanwhile"]


async def test_a_run_is_steered_only_when_its_card_is_closed(bench: Bench):
    await bench.runs.spawn("explore", "deaf")
    await bench.puppet.begun.wait()
    bench.slow = anyio.Event()
    bench.puppet.let_go.set()
    await anyio.wait_all_tasks_blocked()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.runs.steer, "explore-1", "look")
            await anyio.wait_all_tasks_blocked()
            bench.slow.set()
    await anyio.wait_all_tasks_blocked()
    assert bench.cards == ["+explore-1: deaf", "-explore-1: deaf", "+explore-1: look", "-explore-1: look"]


async def test_a_run_of_an_agent_that_was_changed_or_taken_away_since_is_not_steered(bench: Bench):
    await bench.runs.run("explore", "look", bench.parent)
    explore = bench.known.pop("explore")
    others = replace(explore, mode=Mode.CODE), replace(explore, identity="another program")
    for changed in ({}, *({"explore": each} for each in others)):
        bench.known.update(changed)
        with pytest.raises(ToolError, match="explore was changed or taken away since explore-1 began"):
            await bench.runs.steer("explore-1", "look again")
    assert bench.puppet.said == ["look"]


async def test_last_all_and_ids_are_cancelled_and_unknown_ids_named(bench: Bench):
    for _ in range(3):
        await bench.runs.spawn("explore", "hold")
    assert [run.id for run in await bench.runs.cancel("last")] == ["explore-3"]
    assert [run.id for run in await bench.runs.cancel("explore-1")] == ["explore-1"]
    assert [run.id for run in await bench.runs.cancel("all")] == ["explore-2"]
    assert await bench.runs.cancel("all") == []
    with pytest.raises(ToolError, match="there is no run 'explore-9'"):
        await bench.runs.cancel("explore-9")
    with pytest.raises(ToolError, match="there is no sub-agent 'explorer'"):
        await bench.runs.spawn("explorer", "look")


async def test_an_agent_takes_no_more_tasks_at_once_than_it_and_its_session_may_have(bench: Bench):
    bench.known["explore"] = replace(bench.known["explore"], max_running=2)
    bench.known["review"] = replace(bench.known["review"], max_running=2, max_per_session=1)
    for name in ("explore", "explore", "review"):
        await bench.runs.spawn(name, "hold")
    with pytest.raises(ToolError, match=r"Agent at capacity \(2/2\): explore cannot take another task now"):
        await bench.runs.spawn("explore", "hold")
    with pytest.raises(ToolError, match=r"Agent at capacity \(1/1 of this session\): review cannot take"):
        await bench.runs.spawn("review", "hold")
    await bench.runs.cancel("all")
    assert (await bench.runs.run("review", "look", bench.parent)).report == "hold then hold then hold then look"


async def test_there_are_places_in_the_session_and_in_the_process(bench: Bench):
    bench.limits = RunLimits(in_process=2, in_session=1)
    await bench.runs.spawn("explore", "hold")
    with pytest.raises(ToolError, match="capacity \\(1/1 of this session\\): explore-1"):
        await bench.runs.run("explore", "look", bench.parent)
    bench.limits = replace(bench.limits, in_session=5)
    bench.slots.take("explore")  # another session
    with pytest.raises(ToolError, match="capacity \\(2/2 in all\\)"):
        await bench.runs.spawn("explore", "look")


async def test_a_judge_needs_no_place_because_those_whose_work_it_judges_have_one_and_wait(bench: Bench):
    bench.limits = RunLimits(in_process=1, in_session=1)
    await bench.runs.spawn("general", "hold")
    await bench.puppet.begun.wait()
    assert (await bench.runs.run("review", "judge", bench.parent, judges=True)).report == "hold then judge"
    with pytest.raises(ToolError, match="capacity"):
        await bench.runs.run("review", "look", bench.parent)
    await bench.runs.end()
    assert bench.slots.taken == 0


async def test_runs_that_ended_long_ago_are_forgotten(bench: Bench):
    await bench.runs.run("explore", "look", bench.parent)
    assert len(bench.runs.runs()) == 1
    bench.limits = replace(bench.limits, archive_minutes=0)
    assert bench.runs.runs() == []
    assert (await bench.runs.run("explore", "look", bench.parent)).id == "explore-2", "a number is given once"
