"""Sessions that are evicted, resumed and loaded while others have them, or while the editor waits for no answer."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

from acp_agent.config.load import Loaded
from acp_agent.config.settings import Settings
from acp_agent.core.events import TextDelta, UserMessage
from acp_agent.core.messages import StopReason, TextPart
from acp_agent.core.secrets import verbatim
from acp_agent.core.session_options import AutoApprove, Freedom, Mode, SessionOptions
from acp_agent.core.sessions import Change, HistoryState, SessionRecord, SessionSnapshot, UsageTotals
from acp_agent.protocol.client import Client
from acp_agent.protocol.editor import Connection
from acp_agent.session.engine import SessionEngine
from acp_agent.session.pool import SessionLock
from acp_agent.session.session import Opening, Session, SessionDependencies, SessionWorkspace, StoredOptions
from acp_agent.session.turn_slot import Answer
from tests.fakes.passing_time import all_tasks_blocked
from tests.fakes.repository import FakeRepository
from tests.fakes.sessions import Choices, Editor, holding, process
from tests.unit.session.test_sessions import INVALID, METHODS, NOT_FOUND, usage

pytestmark = pytest.mark.anyio


async def mode_of(root: Path, session: str) -> Mode:
    async with process(root, locking=False) as elsewhere:
        await elsewhere.ask("resume", session)
        return elsewhere.session(session).options.mode


async def test_a_turn_is_followed_up_behind_its_answer(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        session = await here.new()
        await here.say(session, "one")
        await all_tasks_blocked()
        assert here.engine(session).followed_up == [Answer(StopReason.END_TURN)]


async def test_a_session_whose_configuration_allows_less_than_it_had_chosen_keeps_to_that_when_it_wakes() -> None:
    record, peer = SessionRecord("s", "/work"), cast("Any", Editor())
    saved = SessionSnapshot(record, SessionOptions(Mode.CODE, chosen=("mode",)), UsageTotals(), HistoryState(()))
    needs = SessionDependencies(cast("Any", None), cast("Any", None), verbatim, lambda _: None, lambda: 0)
    editor = Connection(peer, Client()).session("s", "/work")
    options = SessionOptions(Mode.ASK, chosen=("mode",))
    session = Session(needs, Opening(record, SessionWorkspace("/work"), editor, saved), options, Choices("p:one"))
    session.resumed(saved.options)
    assert session.options.mode is Mode.ASK


async def test_nobody_gets_the_engine_before_the_secrets_of_unfinished_messages_are_removed() -> None:
    record, repository = SessionRecord("s", "/work"), FakeRepository()
    made, got = list[SessionEngine](), list[SessionEngine]()

    class Engine:
        def redact(self, text: str) -> str:
            return text.replace("password", "***")

        async def kept(self) -> Change:
            return Change()

    async def make_engine(_session: Session, _saved: SessionSnapshot | None) -> SessionEngine:
        made.append(cast("SessionEngine", Engine()))
        return made[-1]

    cut = (TextDelta("password", "a"),)
    saved = SessionSnapshot(record, SessionOptions(), UsageTotals(), HistoryState(()), unfinished_messages=cut)
    editor = Connection(cast("Any", Editor()), Client()).session("s", "/work")
    opening = Opening(record, SessionWorkspace("/work"), editor, saved)
    repository.held = anyio.Event()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            needs = SessionDependencies(make_engine, cast("Any", None), verbatim, tasks.start_soon, lambda: 0)
            session = Session(needs, opening, SessionOptions(), Choices("p:one"))
            session.transcript.store_in(repository)

            async def get() -> None:
                got.append(await session.engine())

            tasks.start_soon(get)
            await repository.waiting.wait()
            tasks.start_soon(get)
            await all_tasks_blocked()
            assert got == []
            repository.held.set()
        assert await session.engine() is made[0]
    assert got == [made[0], made[0]]
    assert repository.changes == [Change(replacements=(TextDelta("***", "a"),))]


async def test_a_session_that_wakes_obeys_a_choice_of_what_was_stored_anyway() -> None:
    """The configuration here begins in another mode than the one that was stored before somebody chose it."""
    options = SessionOptions(Mode.CODE)
    kept = StoredOptions(options, SessionOptions(Mode.ASK))
    assert kept.merge(options, SessionOptions(Mode.ASK), Choices("p:one")) == ""
    assert (options.mode, options.chosen) == (Mode.CODE, ())
    kept.merge(options, SessionOptions(Mode.ASK, chosen=("mode",)), Choices("p:one"))
    assert (options.mode, options.chosen) == (Mode.ASK, ("mode",))


async def test_of_too_many_sessions_those_are_forgotten_that_were_used_least_recently(tmp_path: Path) -> None:
    """An editor opens sessions for a day, and one of them is the user's."""
    async with process(tmp_path, most=2, known=6) as here:
        users, unused = await here.new(), await here.new()
        await here.say(users, "one")
        for _ in range(8):
            await here.new()
            await here.new()
            await here.say(users, "again")
        assert len(here.sessions.all()) <= 6 + 1
        assert (await here.error("prompt", unused, **METHODS["prompt"])).code == NOT_FOUND
        await here.ask("load", unused)
        await here.say(unused, "one")


async def test_a_session_that_is_being_loaded_is_not_forgotten(tmp_path: Path) -> None:
    async with process(tmp_path, known=2) as here:
        session = await here.new()
        await here.say(session, "one")
        await here.sessions.evict_all()
        assert here.store is not None
        find, reached, go_on = here.store.find, anyio.Event(), anyio.Event()

        async def found(session_id: str) -> SessionRecord | None:
            reached.set()
            await go_on.wait()
            return await find(session_id)

        cast("Any", here.store).find = found
        async with here.doing("load", session) as outcome:
            await reached.wait()
            for _ in range(3):
                await here.new()
            go_on.set()
        assert outcome.error is None
        assert await here.told(session, "two") == ["one", "one!", "two", "two!"]


async def test_no_session_in_memory_is_forgotten_however_few_may_be_known(tmp_path: Path) -> None:
    async with process(tmp_path, known=1) as here:
        sessions = [await here.new() for _ in range(3)]
        assert [each.id for each in here.sessions.all()] == sessions
        for session in sessions:
            await here.say(session, "one")


@pytest.mark.parametrize(
    ("method", "params"),
    [("set_mode", {"modeId": "ask"}), ("set_config_option", {"configId": "mode", "value": "ask"})],
)
async def test_an_option_that_is_set_already_is_told_to_the_editor_even_if_it_cancels_the_request(
    tmp_path: Path, method: str, params: dict[str, str]
) -> None:
    async with process(tmp_path) as here:
        session = await here.new()
        await here.say(session, "one")
        await here.sessions.evict_all()
        start = len(here.editor.sent)
        async with AsyncExitStack() as asking:
            held = AsyncExitStack()
            await held.enter_async_context(here.sessions._acts.hold(session))  # as while it is loaded or moved
            outcome = await asking.enter_async_context(here.doing(method, session, **params))
            await anyio.wait_all_tasks_blocked()
            here.asked[-1].cancel()
            await anyio.wait_all_tasks_blocked()
            await held.aclose()
        assert outcome.error is None
        assert {"sessionUpdate": "current_mode_update", "currentModeId": "ask"} in here.updates(session, start)
    assert await mode_of(tmp_path, session) is Mode.ASK


async def test_what_is_chosen_for_a_session_at_rest_outlasts_the_process(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        session = await here.new()
        await here.say(session, "one")
        await here.sessions.evict_all()
        await here.ask("set_mode", session, modeId="ask")
        await here.ask("set_config_option", session, configId="model", value="p:two")
        await here.session(session).set_title("a late title")
        assert here.resident == set()
        assert here.locks is not None
        assert not here.locks.holds(session), "others may have it still"
        (listed,) = (await here.ask("list"))["sessions"]
        assert "title" not in listed
        async with process(tmp_path, locking=False) as elsewhere:
            await elsewhere.ask("resume", session)
            conduct = elsewhere.session(session).options
            assert (conduct.mode, conduct.model, conduct.chosen) == (Mode.ASK, "p:two", ("mode",))
        assert await here.told(session, "two") == ["one", "one!", "two", "two!"]
        assert here.session(session).active.mode is Mode.ASK


async def test_what_is_chosen_at_rest_waits_for_the_wake_while_another_process_has_the_session(
    tmp_path: Path,
) -> None:
    async with process(tmp_path) as here:
        session = await here.new()
        await here.say(session, "one")
        await here.sessions.evict_all()
        async with holding(tmp_path, session):
            await here.ask("set_mode", session, modeId="ask")
            assert await mode_of(tmp_path, session) is Mode.CODE
        await here.say(session, "two")
        assert here.session(session).active.mode is Mode.ASK
        assert await mode_of(tmp_path, session) is Mode.ASK


async def test_who_chooses_at_rest_hears_at_once_what_was_chosen_elsewhere(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        session = await here.new()
        await here.say(session, "one")
        await here.sessions.evict_all()
        async with process(tmp_path, locking=False) as elsewhere:
            await elsewhere.ask("resume", session)
            await elsewhere.ask("set_mode", session, modeId="architect")
            await elsewhere.ask("close", session)
        start = len(here.editor.sent)
        answer = await here.ask("set_config_option", session, configId="model", value="p:two")
        values = {each["id"]: each["currentValue"] for each in answer["configOptions"]}
        assert (values["mode"], values["model"]) == ("architect", "p:two")
        told = [each for each in here.updates(session, start) if each["sessionUpdate"] == "current_mode_update"]
        assert [each["currentModeId"] for each in told] == ["architect"]
        assert await mode_of(tmp_path, session) is Mode.ARCHITECT


async def test_what_is_chosen_at_rest_waits_for_the_wake_where_the_store_cannot_be_read(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        session = await here.new()
        await here.say(session, "one")
        await here.sessions.evict_all()
        assert here.locks is not None
        lock, aside = tmp_path / "sessions.lock", tmp_path / "aside"
        lock.rename(aside)
        lock.mkdir()
        assert await here.ask("set_mode", session, modeId="ask") == {}
        lock.rmdir()
        aside.rename(lock)
        await here.say(session, "two")
        assert await mode_of(tmp_path, session) is Mode.ASK


async def test_a_session_that_wakes_obeys_what_was_chosen_elsewhere_but_for_what_was_chosen_here(
    tmp_path: Path,
) -> None:
    async with process(tmp_path) as here:
        session = await here.new()
        await here.say(session, "one")
        await here.sessions.evict_all()
        async with process(tmp_path, locking=False) as elsewhere:
            await elsewhere.ask("load", session)
            await elsewhere.ask("set_mode", session, modeId="ask")
            await elsewhere.ask("set_config_option", session, configId="model", value="p:two")
            await elsewhere.ask("close", session)
        start = len(here.editor.sent)
        await here.ask("set_config_option", session, configId="auto_approve", value="full-auto")
        await here.ask("set_config_option", session, configId="model", value="p:two")
        await here.ask("set_config_option", session, configId="model", value="p:one")
        await here.say(session, "two")
        active = here.session(session).active
        assert (active.mode, active.auto_approve, active.model) == (Mode.ASK, "full-auto", "p:one")
        assert active.chosen == ("mode", "auto_approve")
        kinds = [each["sessionUpdate"] for each in here.updates(session, start)]
        assert {"current_mode_update", "config_option_update"} <= set(kinds)
        assert await mode_of(tmp_path, session) is Mode.ASK


async def test_a_level_that_another_process_only_lent_to_a_session_is_not_taken_over(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        session = await here.new()
        await here.say(session, "one")
        await here.sessions.evict_all()
        async with process(tmp_path, locking=False) as elsewhere:
            await elsewhere.ask("resume", session)
            elsewhere.session(session).options.auto_approve = AutoApprove.FULL_AUTO  # as a flag does it
            await elsewhere.ask("set_mode", session, modeId="ask")
            await elsewhere.ask("close", session)
        await here.say(session, "two")
        active = here.session(session).active
        assert (active.mode, active.auto_approve, active.chosen) == (Mode.ASK, AutoApprove.SUGGEST, ("mode",))


async def test_a_load_of_a_session_that_was_cut_off_leaves_nothing_behind_when_it_is_cancelled(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        session = await here.new()
        await here.say(session, "one")
        await here.ask("close", session)
        cut = Change(
            events=(UserMessage((TextPart("two"),), "u9"), TextDelta("ha", "a9")), usage=UsageTotals(under_way=True)
        )
        assert here.store is not None
        await here.store.of(session).write(cut)
        for method in ("load", "fork"):
            here.making, here.being_made = anyio.Event(), anyio.Event()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(here.ask, method, session)
                await here.being_made.wait()
                tasks.cancel_scope.cancel()
            here.making = None
            assert here.sessions.all() == ()
            assert await here.listed() == [session]
            assert SessionLock(here.locks).is_free(session)


async def test_a_turn_that_reads_only_does_so_whatever_is_chosen_or_configured_meanwhile(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        session = here.session(await here.new())
        with session.reading_only():
            assert session.active.mode is Mode.ASK
            session.options.choose(auto_approve=AutoApprove.FULL_AUTO, model="p:two")
            session.activate_options()
            active = session.active
            assert (active.mode, active.auto_approve, active.model) == (Mode.ASK, AutoApprove.SUGGEST, "p:two")
        assert session.active == session.options
        assert (session.active.auto_approve, session.active.mode) == (AutoApprove.FULL_AUTO, Mode.CODE)


MODE_OPTION = {"configId": "mode", "value": "ask"}


def configured(**tables: Any) -> Loaded:
    return Loaded(Settings.model_validate(tables), (), {}, "config.toml")


def flushing(session: Session) -> Callable[[bool], Awaitable[None]]:
    async def flush(_cancelled: bool) -> None:
        await session.transcript.flush()

    return flush


async def test_limits_that_change_in_a_turn_put_no_choice_of_the_user_in_force_that_is_looser(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        session = here.session(await here.new())
        async with session.turns.turn(flushing(session)):
            session.activate_options()
            session.narrow(Mode.ASK, None)
            session.options.choose(auto_approve=AutoApprove.FULL_AUTO)
            await session.apply_choice()
            session.narrow(Mode.CODE, None)
            assert session.active.freedom is Freedom.SUGGEST
            session.options.choose(mode=Mode.ARCHITECT)
            await session.apply_choice()
            session.options.choose(mode=Mode.CODE)
            with session.reading_only():
                assert session.active.freedom is Freedom.READ_ONLY
            session.narrow(Mode.CODE, None)
            assert session.active.freedom is Freedom.PLAN, "it stays as strict as it was in the turn"
            session.narrow(Mode.ASK, None)
        session.narrow(Mode.CODE, None)
        assert session.active.freedom is Freedom.FULL_AUTO


async def test_a_configuration_that_changes_in_a_turn_puts_no_looser_choice_in_force_and_a_stricter_limit_at_once(
    tmp_path: Path,
) -> None:
    async with process(tmp_path) as here:
        session = here.session(await here.new())
        async with session.turns.turn(flushing(session)):
            session.activate_options()
            session.options.choose(auto_approve=AutoApprove.FULL_AUTO)
            await session.apply_choice()
            session.apply_config(configured(acp={"mode": "architect"}))
            assert session.options.freedom is Freedom.PLAN
            assert session.active.freedom is Freedom.PLAN, "the configuration holds at once"
            session.apply_config(configured())
            assert session.options.freedom is Freedom.FULL_AUTO
            assert session.active.freedom is Freedom.SUGGEST, "the choice waits for the next prompt"
            session.apply_config(configured(tools={"autonomy_level": "readonly"}))
            assert session.active.freedom is Freedom.READ_ONLY
            session.narrow(Mode.ASK, None)
            session.narrow(Mode.CODE, None)
            assert session.active.freedom is Freedom.READ_ONLY
        session.activate_options()
        assert session.active == session.options


@pytest.mark.parametrize(("method", "params"), [("set_mode", {"modeId": "ask"}), ("set_config_option", MODE_OPTION)])
async def test_a_stricter_mode_is_in_force_before_it_is_stored_which_may_wait_for_the_database(
    tmp_path: Path, method: str, params: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with process(tmp_path) as here:
        session = here.session(await here.new())
        stored = list[Freedom]()
        save = session.transcript.save

        async def seen() -> None:
            stored.append(session.active.freedom)
            await save()

        monkeypatch.setattr(session.transcript, "save", seen)
        async with session.turns.turn(flushing(session)):
            session.activate_options()
            await here.ask(method, session.id, **params)
        assert set(stored) == {Freedom.READ_ONLY}


async def test_the_user_is_promised_no_mode_that_the_agent_of_the_session_does_not_allow(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        session = here.session(await here.new())
        told: list[object] = []

        async def hear(event: object) -> None:
            told.append(event)

        session.emit = hear
        for limit, promised in ((Mode.ASK, 0), (Mode.CODE, 1)):
            session.options.choose(auto_approve=AutoApprove.SUGGEST)
            session.narrow(limit, None)
            async with session.turns.turn(flushing(session)):
                session.activate_options()
                session.options.choose(auto_approve=AutoApprove.FULL_AUTO)
                await session.apply_choice()
            assert str(told).count("Full counts from your next prompt on") == len(told) == promised


async def test_a_choice_before_the_turn_has_begun_counts_for_it_and_nothing_is_told(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        session = here.session(await here.new())
        told: list[object] = []

        async def hear(event: object) -> None:
            told.append(event)

        session.emit = hear
        for level in (AutoApprove.AUTO_EDIT, AutoApprove.FULL_AUTO):
            async with session.turns.turn(flushing(session)):
                await session.ready()
                session.options.choose(auto_approve=level)
                await session.apply_choice()
                session.activate_options()
                assert session.active.auto_approve is level
        assert told == []


async def test_what_was_chosen_at_rest_outlasts_a_load(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        session = await here.new()
        await here.say(session, "one")
        await here.sessions.evict_all()
        await here.ask("set_mode", session, modeId="ask")
        assert (await here.ask("load", session))["modes"]["currentModeId"] == "ask"


async def test_sessions_that_are_just_opening_make_room_for_each_other(tmp_path: Path) -> None:
    for most in (1, 4):
        async with process(tmp_path, most=most) as here:
            made: list[str] = []

            async def one(process: Any, made: list[str]) -> None:
                made.append(await process.new())

            with anyio.fail_after(10):
                async with anyio.create_task_group() as tasks:
                    for _ in range(9):
                        tasks.start_soon(one, here, made)
            assert len(made) == 9
            assert len(here.resident) == most


async def test_a_session_that_waits_for_room_does_nothing_until_a_lock_is_released(tmp_path: Path) -> None:
    async with process(tmp_path, most=1) as here:
        resident = await here.new()
        async with AsyncExitStack() as lock:
            await lock.enter_async_context(here.sessions._acts.hold(resident))
            async with here.doing("new") as opening:
                await all_tasks_blocked()
                assert not opening.done.is_set()
                assert here.resident == {resident}
                await lock.aclose()
        assert here.resident == {opening.result["sessionId"]}


@pytest.mark.parametrize("request_", ["load of another", "move"])
async def test_an_eviction_is_not_left_half_done_when_its_request_is_cancelled(tmp_path: Path, request_: str) -> None:
    async with process(tmp_path, most=1) as here:
        one, two = await here.new(), await here.new()
        await here.say(two)
        engine = here.engine(two)
        closing, go_on, scope = anyio.Event(), anyio.Event(), anyio.CancelScope()

        async def close() -> None:
            closing.set()
            await go_on.wait()
            engine.closed = True

        async def ask() -> None:
            with scope:
                await (
                    here.sessions.move(two, str(tmp_path / "there")) if request_ == "move" else here.ask("load", one)
                )

        engine.close = close
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await closing.wait()
                scope.cancel()
                await anyio.wait_all_tasks_blocked()
                go_on.set()
        assert engine.closed
        assert here.locks is not None
        assert not here.locks.holds(two), "another process may open it"
        assert await here.told(two, "more") == ["hello", "hello!", "more", "more!"]
        assert here.engine(two) is not engine


async def test_forks_that_wait_for_each_other_are_answered(tmp_path: Path) -> None:
    async with process(tmp_path, most=2) as here:
        one, two = await here.new(), await here.new()
        for session in (one, two):
            await here.say(session)
        async with here.doing("fork", one) as first, here.doing("fork", two) as second:
            pass
        assert first.error is None or second.error is None


@pytest.mark.parametrize("method", ["load", "resume"])
@pytest.mark.parametrize("known", [True, False])
async def test_what_is_sent_right_behind_a_load_waits_for_it(tmp_path: Path, method: str, known: bool) -> None:
    async with process(tmp_path) as here:
        session = await here.new()
        await here.say(session, "one")
        if not known:
            await here.ask("close", session)
        async with (
            here.doing(method, session) as load,
            here.doing("set_mode", session, modeId="ask") as chosen,
            here.doing("prompt", session, **METHODS["prompt"]) as prompt,
        ):
            pass
        assert load.error is chosen.error is None
        assert prompt.result == {"stopReason": "end_turn"}
        assert load.number < prompt.number
        assert here.engine(session).said == ["one", "one!", "hi", "hi!"]
        assert here.session(session).active.mode is Mode.ASK


async def test_a_prompt_that_waits_for_a_cold_load_is_cancelled_and_finds_nothing_where_that_fails(
    tmp_path: Path,
) -> None:
    async with process(tmp_path) as here:
        session = await here.new()
        await here.say(session, "one")
        await here.ask("close", session)
        async with here.doing("load", session), here.doing("prompt", session, **METHODS["prompt"]) as prompt:
            await here.methods.notifications["session/cancel"]({"sessionId": session})
        assert prompt.result == {"stopReason": "cancelled"}
        async with here.doing("load", "nobody's") as load, here.doing("prompt", "nobody's", **METHODS["prompt"]) as no:
            pass
        assert load.error is not None
        assert no.error is not None
        assert load.error.code == no.error.code == NOT_FOUND
        assert not here.sessions.loads._loading
        assert not here.sessions.loads._waiting


async def test_a_load_behind_a_prompt_is_refused_and_the_prompt_goes_on(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        session = await here.new()
        await here.say(session, "one")
        async with here.doing("prompt", session, **METHODS["prompt"]) as prompt, here.doing("load", session) as load:
            pass
        assert load.error is not None
        assert load.error.code == INVALID
        assert prompt.result == {"stopReason": "end_turn"}


async def test_a_close_right_behind_a_cold_load_closes_what_was_loaded(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        session = await here.new()
        await here.say(session, "one")
        await here.ask("close", session)
        async with here.doing("load", session) as load, here.doing("close", session) as close:
            pass
        assert load.error is None
        assert close.result == {}
        assert here.sessions.all() == ()
        assert here.locks is not None
        assert not here.locks.holds(session)


async def test_a_session_that_is_closed_at_rest_says_what_it_took(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        session = await here.new()
        await here.say(session, "one")
        await here.sessions.evict_all()
        start = len(here.editor.sent)
        await here.ask("close", session)
        (told,) = usage(here.updates(session, start))
        assert (told["used"], told["cost"]["amount"]) == (2, 0.01)


async def test_nothing_is_told_of_commands_once_the_session_was_closed(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        session = await here.new()
        announced = here.session(session)
        await here.ask("close", session)
        await announced.announce()
        assert here.updates(session) == []
        assert here.engines == [], "none is made for a session that is over"


async def test_a_cleared_session_stays_listed_and_is_never_taken_for_an_unused_one(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        session = await here.new()
        await here.say(session, "one")
        await here.session(session).set_title("A name")
        await here.session(session).forget()
        await here.ask("close", session)
        assert await here.listed() == [session]
        assert here.store is not None
        assert await here.store.purge_unused(0, lambda _: False) == 0


async def test_a_load_does_not_say_that_the_session_was_used_just_now(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        session = await here.new()
        await here.say(session, "one")
        await here.session(session).set_title("A name")
        await here.ask("close", session)
        (listed,) = (await here.ask("list"))["sessions"]
        start = len(here.editor.sent)
        await here.ask("load", session)
        (told,) = [each for each in here.updates(session, start) if each["sessionUpdate"] == "session_info_update"]
        assert told["updatedAt"] == listed["updatedAt"]
