"""Scheduled prompts over a real database, with a clock and a session that a test moves."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from uuid import uuid4
from zoneinfo import ZoneInfo

import anyio
import pytest

from acp_agent.config.call_settings import SchedulerSettings
from acp_agent.core.errors import StoreUnavailable, ToolError
from acp_agent.core.events import ToolFinished, ToolStarted, UserMessage
from acp_agent.core.messages import TextPart
from acp_agent.core.session_options import SessionOptions
from acp_agent.core.sessions import Change, DuePrompt, SessionRecord
from acp_agent.core.types import ToolKind, ToolResult
from acp_agent.extend.schedule import Claim, Conclude, SessionSchedule
from acp_agent.store.conversations import Firing, StoredSchedule
from acp_agent.store.sessions import SessionStore
from tests.unit.store.databases import opened

pytestmark = pytest.mark.anyio

BERLIN = ZoneInfo("Europe/Berlin")
MONDAY = datetime(2026, 11, 23, 8, 15, tzinfo=BERLIN)
MINUTE = 60_000


@dataclass
class FakeSession:
    """Notes what was carried out. `gives_way` says that nothing came of it, and `takes` passes the time of a turn."""

    is_resident: bool = True
    is_busy: bool = False
    unused_seconds: float = 1000.0
    shows_turns: bool = True
    gives_way: bool = False
    takes: Callable[[], None] = lambda: None
    told: list[str] = field(default_factory=list)
    carried_out: list[DuePrompt] = field(default_factory=list)
    ended: anyio.Event = field(default_factory=anyio.Event)

    async def turn_over(self) -> None:
        await self.ended.wait()

    def remind(self, text: str) -> None:
        self.told.append(text)

    async def carry_out(self, claim: Claim, conclude: Conclude) -> None:
        due = await claim()
        if due is not None:
            self.carried_out.append(due)
            self.takes()
        await conclude(not self.gives_way)

    @property
    def prompts(self) -> list[str]:
        return [due.prompt for due in self.carried_out]


class Scheduled:
    """A schedule, its clock and its session. `reopened` is the same session in a new process."""

    def __init__(self, stored: StoredSchedule, store: SessionStore) -> None:
        self.stored = stored
        self.store = store
        self.now = round(MONDAY.timestamp() * 1000)
        self.settings = SchedulerSettings(timezone="Europe/Berlin", max_entries=3, max_prompt_chars=50)
        self.begun: list[object] = []
        self.reopened()

    def reopened(self) -> None:
        self.session = FakeSession()
        self.schedule = SessionSchedule(
            self.stored,
            self.session,
            lambda: self.settings,
            lambda: self.now,
            self.begun.append,
            lambda text: text.replace("ghp_fake", "***"),
        )

    def at(self, hour: int, minute: int = 0, day: int = 23) -> None:
        self.now = round(datetime(2026, 11, day, hour, minute, tzinfo=BERLIN).timestamp() * 1000)

    async def due(self) -> list[str]:
        """The next time of each prompt, local."""
        found = [each.due for each in await self.stored.all()]
        return [datetime.fromtimestamp(due / 1000, BERLIN).strftime("%d. %H:%M") if due else "-" for due in found]

    async def run(self) -> float | None:
        """Step until there is nothing to do now."""
        while (wait := await self.schedule.step()) == 0:
            pass
        return wait


@asynccontextmanager
async def scheduled(folder: Path) -> AsyncGenerator[Scheduled]:
    async with opened(folder / "acp-agent.db") as database:
        store = SessionStore(database)
        await store.create(SessionRecord("s", "/work"), SessionOptions())
        yield Scheduled(StoredSchedule(database, "s"), store)


async def test_prompts_fire_in_the_order_of_their_times_once_and_again(tmp_path: Path):
    async with scheduled(tmp_path) as its:
        await its.schedule.command("every 10 minutes: look")
        await its.schedule.command("in 5 minutes: tests")
        assert await its.run() == 30.0, "the clock is looked at again before long"
        its.now += 10 * MINUTE
        await its.run()
        assert its.session.prompts == ["tests", "look"]
        assert await its.due() == ["23. 08:35"]
        its.now += 10 * MINUTE
        await its.run()
        assert its.session.prompts == ["tests", "look", "look"]
        told = its.session.carried_out[-1]
        assert told.why == (
            "Scheduled for Mon 23 Nov 2026, 08:35 CET (every 10 minutes). Next: Mon 23 Nov 2026, 08:45 CET."
        )
        assert told.text == (
            "[Scheduled prompt, every 10 minutes; the user made it, on Mon 23 Nov 2026, 08:15 CET. "
            "The user may not be there to answer.]\n\nlook"
        )


class LockedOnce(StoredSchedule):
    """Cannot be written when the first turn ends."""

    locked = True

    async def settle(self, number: int, firing: str) -> None:
        if self.locked:
            self.locked = False
            raise StoreUnavailable("the database is locked")
        await super().settle(number, firing)


async def test_a_prompt_fires_again_although_the_end_of_its_turn_could_not_be_stored_at_once(tmp_path: Path):
    async with opened(tmp_path / "acp-agent.db") as database:
        store = SessionStore(database)
        await store.create(SessionRecord("s", "/work"), SessionOptions())
        its = Scheduled(LockedOnce(database, "s"), store)
        await its.schedule.command("every 10 minutes: look")
        its.now += 10 * MINUTE
        with pytest.raises(StoreUnavailable):
            await its.run()
        await its.run()
        its.now += 10 * MINUTE
        await its.run()
        assert its.session.prompts == ["look", "look"]


async def test_a_prompt_waits_for_the_running_turn_and_for_quiet_and_is_not_missed_by_that(tmp_path: Path):
    async with scheduled(tmp_path) as its:
        await its.schedule.command("in 1 minute, skip if missed: tests")
        its.now += MINUTE
        its.session.is_busy = True
        its.session.ended.set()
        assert await its.schedule.step() == 0.0
        its.now += 60 * MINUTE
        its.session.is_busy, its.session.unused_seconds = False, 0.5
        assert await its.schedule.step() == 1.5
        assert its.session.prompts == []
        its.session.unused_seconds = 3.0
        await its.run()
        assert its.session.prompts == ["tests"]
        assert its.session.told == []


async def test_a_time_that_comes_while_another_scheduled_prompt_runs_is_not_missed(tmp_path: Path):
    async with scheduled(tmp_path) as its:

        def pass_time() -> None:
            its.now += 5 * MINUTE

        await its.schedule.command("in 1 minute: long")
        await its.schedule.command("in 2 minutes, skip if missed: tests")
        its.session.takes = pass_time
        its.now += MINUTE
        await its.run()
        assert its.session.prompts == ["long", "tests"]
        assert its.session.told == []
        assert "late" not in its.session.carried_out[-1].text
        await its.schedule.command("in 2 minutes, skip if missed: more")
        its.now += 4 * MINUTE
        await its.run()
        assert its.session.prompts == ["long", "tests"], "the machine slept, long after the last turn"


async def test_a_missed_time_fires_once_when_the_session_is_open_again_or_is_told(tmp_path: Path):
    async with scheduled(tmp_path) as its:
        await its.schedule.command("every weekday at 9: report")
        await its.schedule.command("every weekday at 9, skip if missed: greet")
        its.at(12, day=26)
        its.reopened()
        await its.run()
        assert its.session.prompts == ["report"]
        assert "It comes late, at Thu 26 Nov 2026, 12:00 CET" in its.session.carried_out[0].why
        assert "It comes late" in its.session.carried_out[0].text
        (told,) = its.session.told
        assert told.startswith("A scheduled prompt was missed on Mon 23 Nov 2026, 09:00 CET and is skipped: every")
        assert await its.due() == ["27. 09:00", "27. 09:00"]


async def test_a_machine_that_slept_fires_a_period_once_and_goes_on_in_its_rhythm(tmp_path: Path):
    async with scheduled(tmp_path) as its:
        await its.schedule.command("every 10 minutes: look")
        await its.run()
        its.at(17, 3)
        await its.run()
        assert its.session.prompts == ["look"]
        assert await its.due() == ["23. 17:05"]


async def test_a_clock_that_is_set_back_fires_no_time_of_day_twice_and_lengthens_no_period(tmp_path: Path):
    async with scheduled(tmp_path) as its:
        await its.schedule.command("every day at 9: report")
        await its.schedule.command("every 10 minutes: look")
        await its.schedule.command("in 20 minutes: once")
        its.at(9, 0)
        await its.run()
        assert sorted(its.session.prompts) == ["look", "once", "report"]
        its.at(7, 0)
        await its.run()
        assert await its.due() == ["24. 09:00", "23. 07:10"]
        its.at(9, 0)
        await its.run()
        assert sorted(its.session.prompts) == ["look", "look", "once", "report"]


async def test_what_gave_way_to_the_user_before_it_did_anything_fires_again(tmp_path: Path):
    async with scheduled(tmp_path) as its:
        await its.schedule.command("in 1 minute, skip if missed: tests")
        its.now += MINUTE
        its.session.gives_way = True
        await its.schedule.step()
        its.now += 30 * MINUTE
        its.session.gives_way = False
        await its.run()
        assert its.session.prompts == ["tests", "tests"]
        assert await its.due() == []


async def test_another_process_that_was_faster_carries_it_out_alone(tmp_path: Path):
    async with scheduled(tmp_path) as its:
        await its.schedule.command("in 1 minute: tests")
        (other,) = await its.stored.all()
        its.now += MINUTE
        assert await its.stored.claim(other, "theirs", None)
        assert not await its.stored.claim(other, "ours", None)
        assert await its.schedule.step() is None
        assert its.session.prompts == []


@pytest.mark.parametrize(
    ("reached", "prompts", "told"),
    [(Firing.NEVER_BEGAN, ["tests"], 0), (Firing.BEGAN, [], 1), (Firing.ENDED, [], 0)],
)
async def test_a_kill_neither_loses_a_prompt_nor_carries_it_out_twice(
    tmp_path: Path, reached: Firing, prompts: list[str], told: int
):
    async with scheduled(tmp_path) as its:
        await its.schedule.command("in 1 minute: tests")
        (each,) = await its.stored.all()
        firing = str(uuid4())
        assert await its.stored.claim(each, firing, None)
        begun = UserMessage((TextPart("tests"),), firing, scheduled=True)
        card = ToolStarted(firing, "schedule", "Scheduled: tests", ToolKind.OTHER, {})
        ended = ToolFinished(firing, "schedule", ToolResult("done"), 1.0)
        events = {Firing.NEVER_BEGAN: [], Firing.BEGAN: [begun, card], Firing.ENDED: [begun, card, ended]}
        await its.store.of("s").write(Change(events=events[reached]))
        assert await its.stored.reached(firing) is reached
        its.now += 10 * MINUTE
        its.reopened()
        await its.schedule.recover()
        await its.run()
        assert its.session.prompts == prompts
        assert len(its.session.told) == told
        assert await its.due() == []


async def test_an_editor_that_shows_nothing_outside_of_prompts_gets_a_reminder(tmp_path: Path):
    async with scheduled(tmp_path) as its:
        await its.schedule.command("every day at 9: report")
        its.at(9)
        its.session.shows_turns = False
        await its.schedule.step()
        await its.schedule.step()
        (told,) = its.session.told
        assert "`/schedule run 1` runs it" in told
        assert (await its.schedule.now("1")).endswith("\n\nreport")
        assert its.session.prompts == []
        assert await its.due() == ["24. 09:00"]


async def test_run_now_leaves_the_next_time_and_ends_a_prompt_that_fires_once(tmp_path: Path):
    async with scheduled(tmp_path) as its:
        await its.schedule.command("every day at 9: report")
        await its.schedule.command("tomorrow 9: tests")
        await its.schedule.now("1")
        await its.schedule.now("2")
        assert await its.due() == ["23. 09:00"]


async def test_run_now_works_after_the_time_zone_changed_to_one_where_the_time_is_over(tmp_path: Path):
    async with scheduled(tmp_path) as its:
        await its.schedule.command("today 9: tests")
        its.settings = SchedulerSettings(timezone="Asia/Tokyo")
        assert (await its.schedule.now("1")).endswith("\n\ntests")
        assert await its.due() == []


async def test_each_refusal_names_the_key_the_value_and_what_was_expected(tmp_path: Path):
    async with scheduled(tmp_path) as its:

        async def refused(text: str) -> str:
            with pytest.raises(ToolError) as error:
                await its.schedule.command(text)
            return str(error.value)

        assert 'when = "soon" (expected "in 20 minutes", ' in await refused("soon: tests")
        assert 'when = "every 5 seconds" (expected a period of at least 60' in await refused("every 5 seconds: tests")
        assert "prompt = 51 characters (expected 1 to 50, which is scheduler.max_prompt_chars)" in await refused(
            f"at 9: {'x' * 51}"
        )
        assert "Usage: `/schedule WHEN: PROMPT`" in await refused("at 9 tests")
        for _ in range(3):
            await its.schedule.command("at 9: tests")
        assert "scheduler.max_entries = 3 (expected fewer" in await refused("at 9: tests")
        assert 'number = "7" (expected one of 1, 2, 3)' in await refused("cancel 7")
        its.settings = SchedulerSettings(enabled=False)
        assert "Scheduled prompts are switched off (scheduler.enabled)" in await refused("at 9: tests")
        its.at(9)
        await its.schedule.step()
        assert its.session.prompts == []


async def test_the_list_says_when_in_local_time_and_hides_secrets(tmp_path: Path):
    async with scheduled(tmp_path) as its:
        assert (await its.schedule.command("")).startswith("Nothing is scheduled in this session.\n\nUsage: ")
        with pytest.raises(ToolError, match=r"^Nothing is scheduled in this session\.$"):
            await its.schedule.command("cancel 2")
        assert (await its.schedule.command("0 9 * * 1-5: x")).startswith("Scheduled: 1. `0 9 * * 1-5`: x ")
        await its.schedule.command("cancel 1")
        told = await its.schedule.command("every weekday at 9, skip if missed: push with ghp_fake\nand tell me")
        assert told == (
            "Scheduled: 1. **every weekday at 9**, skipped if missed: push with *** and tell me "
            "(next Mon 23 Nov 2026, 09:00 CET)"
        )
        assert told.removeprefix("Scheduled: ") in await its.schedule.command("")
        assert (await its.schedule.command("cancel all")).startswith("Cancelled:\n\n1. **every weekday at 9**")
        assert len(its.begun) == 1


async def test_every_example_of_the_page_is_understood(tmp_path: Path):
    page = (Path(__file__).parents[3] / "docs" / "schedule.md").read_text(encoding="utf-8")
    examples = [line.removeprefix("/schedule ") for line in page.splitlines() if line.startswith("/schedule ")]
    async with scheduled(tmp_path) as its:
        its.settings = SchedulerSettings(timezone="Europe/Berlin")
        assert len(examples) == 7
        for example in examples:
            assert (await its.schedule.command(example)).startswith("Scheduled: ")
