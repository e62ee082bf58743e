"""Sessions are opened, found, evicted, closed and deleted, one thing after another."""

import gc
import sqlite3
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from acp_agent.core.errors import ConfigError, RequestError, StoreUnavailable
from acp_agent.core.events import TextDelta
from acp_agent.core.messages import StopReason
from acp_agent.core.services import Compaction, Summary
from acp_agent.core.session_options import Mode, SessionOptions
from acp_agent.core.sessions import Change, SessionRecord
from acp_agent.session.manager import DeferredRepository
from acp_agent.session.session import SessionWorkspace
from acp_agent.session.slash.commands import ALWAYS, CommandName
from acp_agent.session.turn_slot import Answer
from acp_agent.store.conversations import ConversationSummaries, OverflowStore
from tests.fakes.passing_time import all_tasks_blocked, pass_time
from tests.fakes.sessions import PATIENCE, Process, process
from tests.unit.store.databases import others

pytestmark = pytest.mark.anyio

NOT_FOUND, INVALID, BAD_PARAMS, INTERNAL, CANCELLED = -32002, -32600, -32602, -32603, -32800
IDS = (
    "00000000-0000-4000-8000-000000000000",
    "not one of ours",
    "../../etc/passwd",
    "\ud800",
    "%",
    "x" * 128,
    "x" * 100_000,
    "",
    "\0",
)
METHODS = {
    "load": {},
    "resume": {},
    "fork": {},
    "close": {},
    "prompt": {"prompt": [{"type": "text", "text": "hi"}]},
    "set_mode": {"modeId": "ask"},
    "set_config_option": {"configId": "mode", "value": "ask"},
}


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Process]:
    async with process(tmp_path) as made:
        yield made


@pytest.fixture(params=[True, False], ids=["stored", "unstored"])
async def with_or_without_a_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Process]:
    async with process(tmp_path) as made, anyio.create_task_group() as tasks:
        yield made if request.param else Process(tmp_path, tasks, None, None)
        tasks.cancel_scope.cancel()


def usage(updates: list[Any]) -> list[Any]:
    return [update for update in updates if update["sessionUpdate"] == "usage_update"]


def rows(here: Process, table: str) -> int:
    connection = others(here.root / "agent.db")
    try:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    finally:
        connection.close()


# ------------------------------------------------------------------------------------------- ids


@pytest.mark.parametrize("session", IDS, ids=range(len(IDS)))
async def test_an_id_of_nobodys_is_not_found_by_any_method(here: Process, session: str) -> None:
    for method, params in METHODS.items():
        error = await here.error(method, session, **params)
        assert (error.code, error.message) == (NOT_FOUND, "session not found"), method
        assert len(str(error.data)) < 200, "a long id is not sent back"
    assert await here.ask("delete", session) == {}, "what is not there is gone (ACP Session Delete)"


@pytest.mark.parametrize("session", [None, 1, True, ["a"], {"a": 1}, 1.5])
async def test_an_id_that_is_no_text_is_a_wrong_parameter(here: Process, session: Any) -> None:
    for method, params in [*METHODS.items(), ("delete", {})]:
        error = await here.error(method, sessionId=session, **params)
        assert error.code == BAD_PARAMS, method
        assert "sessionId" in error.message


async def test_a_deleted_session_is_not_found_by_any_method_and_can_be_deleted_again(here: Process) -> None:
    session = await here.new()
    await here.say(session)
    assert await here.ask("delete", session) == {}
    for method, params in METHODS.items():
        assert (await here.error(method, session, **params)).code == NOT_FOUND, method
    assert await here.ask("delete", session) == {}


async def test_a_closed_session_can_be_taken_up_again_and_nothing_else(here: Process) -> None:
    session = await here.new()
    await here.say(session)
    assert await here.ask("close", session) == {}
    for method in METHODS.keys() - {"load", "resume", "fork"}:
        assert (await here.error(method, session, **METHODS[method])).code == NOT_FOUND, method
    assert (await here.ask("load", session))["modes"]
    await here.ask("close", session)
    assert (await here.ask("resume", session))["modes"]


async def test_a_cancel_for_nobodys_session_is_ignored(here: Process) -> None:
    for session in (*IDS, None, 5, []):
        await here.methods.notifications["session/cancel"]({"sessionId": session})


# ------------------------------------------------------------------------------------------ load


async def test_a_load_tells_all_of_it_again_and_the_model_knows_it(here: Process) -> None:
    session = await here.new()
    await here.told(session, "one")
    await here.told(session, "two")
    await here.ask("close", session)
    start = len(here.editor.sent)
    await here.ask("load", session)
    assert here.shown(session, start) == ["one", "one!", "two", "two!"]
    assert await here.told(session, "three") == ["one", "one!", "two", "two!", "three", "three!"]


async def test_a_resume_tells_nothing_and_the_model_knows_it_all(here: Process) -> None:
    session = await here.new()
    await here.told(session, "one")
    await here.ask("close", session)
    start = len(here.editor.sent)
    await here.ask("resume", session)
    assert here.updates(session, start) == []
    assert await here.told(session, "two") == ["one", "one!", "two", "two!"]


async def test_a_session_that_is_open_here_is_loaded_anew_in_the_place_the_editor_names(here: Process) -> None:
    session = await here.new()
    await here.told(session, "one")
    before = here.engine(session)
    for name in ("other", "more"):
        (here.root / name).mkdir()
    start = len(here.editor.sent)
    server = {"name": "s", "command": "/bin/true", "args": [], "env": []}
    there, more = str(here.root / "other"), str(here.root / "more")
    await here.ask("load", session, cwd=there, additionalDirectories=[more], mcpServers=[server])
    assert here.shown(session, start) == ["one", "one!"]
    assert before.closed
    place = here.session(session).workspace
    assert (place.cwd, place.additional, [each.name for each in place.servers]) == (there, (more,), ["s"])
    assert here.session(session).transcript.record.additional == (more,)
    assert await here.told(session, "two") == ["one", "one!", "two", "two!"]
    await here.ask("close", session)
    (listed,) = (await here.ask("list", cwd=there))["sessions"]
    assert (listed["cwd"], listed["additionalDirectories"]) == (there, [more])


async def test_a_load_while_a_prompt_runs_is_refused_and_the_turn_goes_on(with_or_without_a_store: Process) -> None:
    here = with_or_without_a_store
    session = await here.new()
    async with here.prompting(session) as turn:
        for method in ("load", "resume"):
            error = await here.error(method, session)
            assert error.code == INVALID
            assert "cancel it first" in error.message
    assert turn.result == {"stopReason": "end_turn"}
    assert here.engine(session).said == ["wait", "wait!"]


@pytest.mark.parametrize("method", ["load", "resume"])
async def test_a_load_ends_a_scheduled_turn_which_may_wait_for_the_user_for_ever(
    with_or_without_a_store: Process, method: str
) -> None:
    here = with_or_without_a_store
    session = await here.new()
    await here.say(session, "one")
    turns, began, ended = here.session(session).turns, anyio.Event(), list[bool]()

    async def settle(cancelled: bool) -> None:
        ended.append(cancelled and turns.session_ended and not turns.gave_way)

    async def scheduled() -> None:
        async with turns.turn(settle, scheduled=True):
            began.set()
            await anyio.sleep_forever()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scheduled)
            await began.wait()
            await here.ask(method, session)
    assert ended == [True]
    assert (await here.told(session, "last"))[:2] == ["one", "one!"]


async def test_a_prompt_that_comes_just_behind_a_load_is_never_broken_off_by_it(here: Process) -> None:
    """Either the load is refused, or the prompt runs in what was loaded, or finds nothing; and it is answered so."""
    session = await here.new()
    await here.say(session, "one")
    async with here.doing("load", session) as load, here.doing("prompt", session, **METHODS["prompt"]) as prompt:
        pass
    assert prompt.error is None or prompt.error.code == NOT_FOUND
    assert prompt.result in (None, {"stopReason": "end_turn"})
    if load.error is not None:
        assert (load.error.code, prompt.result) == (INVALID, {"stopReason": "end_turn"})
    assert (await here.told(session, "last"))[:2] == ["one", "one!"]


async def test_a_prompt_while_a_load_tells_the_past_waits_until_it_is_told(here: Process) -> None:
    session = await here.new()
    await here.say(session, "one")
    await here.ask("close", session)
    start = len(here.editor.sent)
    here.editor.slow = anyio.Event()
    async with here.doing("load", session) as load:
        await here.editor.waiting.wait()
        async with here.doing("prompt", session, prompt=[{"type": "text", "text": "two"}]) as prompt:
            await all_tasks_blocked()
            assert not load.done.is_set()
            here.editor.slow.set()
    assert prompt.result == {"stopReason": "end_turn"}
    assert load.number < prompt.number
    assert here.shown(session, start) == ["one", "one!", "two!"]
    assert here.engine(session).said == ["one", "one!", "two", "two!"]


async def test_a_prompt_that_waits_for_a_load_can_be_cancelled(here: Process) -> None:
    session = await here.new()
    await here.say(session, "one")
    await here.ask("close", session)
    here.editor.slow = anyio.Event()
    async with here.doing("load", session):
        await here.editor.waiting.wait()
        async with here.doing("prompt", session, prompt=[{"type": "text", "text": "two"}]) as prompt:
            await here.methods.notifications["session/cancel"]({"sessionId": session})
            await prompt.done.wait()
            assert prompt.result == {"stopReason": "cancelled"}
        here.editor.slow.set()
    assert await here.told(session, "three") == ["one", "one!", "three", "three!"]


async def test_two_loads_at_once_tell_the_past_one_after_the_other(here: Process) -> None:
    session = await here.new()
    for number in range(4):
        await here.say(session, f"{number}")
    await here.ask("close", session)
    start = len(here.editor.sent)
    here.editor.slow = anyio.Event()
    async with here.doing("load", session) as one, here.doing("load", session) as two:
        await here.editor.waiting.wait()
        here.editor.slow.set()
    assert one.error is two.error is None
    once = [text for number in range(4) for text in (f"{number}", f"{number}!")]
    assert here.shown(session, start) == once * 2
    assert await here.told(session, "x") == [*once, "x", "x!"]


async def test_a_load_waits_until_the_loop_of_before_is_gone(here: Process) -> None:
    session = await here.new()
    here.stubborn = anyio.Event()
    async with (
        here.prompting(session) as turn,
        here.doing("close", session) as close,
        here.doing("load", session) as load,
    ):
        await all_tasks_blocked()
        assert not load.done.is_set()
        assert not close.done.is_set()
        here.stubborn.set()
    assert turn.result == {"stopReason": "cancelled"}
    assert close.result == {}
    assert load.error is None
    assert turn.number < close.number < load.number
    here.stubborn = None
    assert (await here.told(session, "two"))[-2:] == ["two", "two!"]


async def test_a_load_that_was_cancelled_leaves_the_session_free_for_others(here: Process, tmp_path: Path) -> None:
    session = await here.new()
    await here.say(session, "one")
    await here.ask("close", session)
    here.editor.slow = anyio.Event()
    async with here.doing("load", session) as load:
        await here.editor.waiting.wait()
        here.asked[-1].cancel()
    assert load.error is not None
    assert load.error.code == CANCELLED
    assert here.resident == set()
    here.editor.slow = None
    async with process(tmp_path, locking=False) as elsewhere:
        await elsewhere.ask("load", session)
        await elsewhere.say(session, "there")
    await here.ask("load", session)
    assert await here.told(session, "two") == ["one", "one!", "there", "there!", "two", "two!"]


async def test_what_waits_for_a_session_can_be_cancelled(here: Process) -> None:
    session = await here.new()
    here.stubborn = anyio.Event()
    async with here.prompting(session), here.doing("close", session):
        for method in ("load", "resume", "delete", "fork"):
            async with here.doing(method, session) as waiting:
                here.asked[-1].cancel()
            assert waiting.error is not None, method
            assert waiting.error.code == CANCELLED
        here.stubborn.set()
    assert (await here.ask("load", session))["modes"]


async def test_a_list_can_be_cancelled(here: Process) -> None:
    await here.say(await here.new())
    async with here.doing("list") as listing:
        here.asked[-1].cancel()
    assert listing.error is None or listing.error.code == CANCELLED


@pytest.mark.parametrize("trouble", ["AgentError", "cancelled"])
async def test_a_session_whose_engine_could_not_be_made_at_first_goes_on_with_all_of_it(
    here: Process, trouble: str
) -> None:
    session = await here.new()
    await here.say(session, "one")
    await here.ask("close", session)
    await here.ask("load", session)
    if trouble == "cancelled":
        here.making, here.being_made = anyio.Event(), anyio.Event()
        async with here.doing("prompt", session, **METHODS["prompt"]) as prompt:
            await here.being_made.wait()
            await here.methods.notifications["session/cancel"]({"sessionId": session})
        assert prompt.result == {"stopReason": "cancelled"}
        here.making = None
    else:
        here.unmade = ConfigError("config.toml", "llm.model", "x", "another")
        assert await here.say(session) == "end_turn"
        here.unmade = None
    assert await here.told(session, "two") == ["one", "one!", "two", "two!"]


# ----------------------------------------------------------------------------------------- turns


async def test_a_second_prompt_while_one_runs_is_refused_and_the_first_goes_on(here: Process) -> None:
    session = await here.new()
    async with here.prompting(session) as turn:
        error = await here.error("prompt", session, **METHODS["prompt"])
        assert (error.code, error.message) == (INVALID, "prompt already in progress")
        assert not turn.done.is_set()
    assert turn.result == {"stopReason": "end_turn"}
    assert here.engine(session).said == ["wait", "wait!"]


async def test_two_prompts_at_once_in_a_session_at_rest_wake_it_once(here: Process) -> None:
    session = await here.new()
    await here.say(session, "one")
    await here.sessions.evict_all()
    async with here.doing("prompt", session, **METHODS["prompt"]) as one:
        error = await here.error("prompt", session, **METHODS["prompt"])
    assert error.code == INVALID
    assert one.result == {"stopReason": "end_turn"}
    assert here.engine(session).said == ["one", "one!", "hi", "hi!"]


async def test_a_prompt_while_the_session_is_closed_is_answered(here: Process) -> None:
    session = await here.new()
    here.stubborn = anyio.Event()
    async with here.prompting(session), here.doing("close", session):
        error = await here.error("prompt", session, **METHODS["prompt"])
        assert error.code in (NOT_FOUND, INVALID)
        here.stubborn.set()


async def test_a_close_answers_the_prompt_first_and_says_what_all_of_it_took(here: Process) -> None:
    session = await here.new()
    await here.say(session, "one")
    start = len(here.editor.sent)
    async with here.prompting(session) as turn, here.doing("close", session) as close:
        pass
    assert turn.result == {"stopReason": "cancelled"}
    assert close.result == {}
    assert turn.number < close.number
    last = here.updates(session, start)[-1]
    assert last == {
        "sessionUpdate": "usage_update",
        "used": 3,
        "size": 1000,
        "cost": {"amount": 0.01, "currency": "USD"},
    }
    assert here.engine(session).closed


async def test_nothing_is_told_of_what_a_session_took_that_did_nothing(here: Process) -> None:
    session = await here.new()
    await here.ask("close", session)
    assert usage(here.updates(session)) == []


async def test_a_close_ends_the_turn_at_once_though_something_else_is_under_way_with_the_session(here: Process) -> None:
    session = await here.new()
    for method in ("close", "delete"):
        async with here.prompting(session) as turn, AsyncExitStack() as stack:
            await stack.enter_async_context(here.sessions._acts.hold(session))
            async with here.doing(method, session) as ending:
                with anyio.fail_after(PATIENCE):
                    await turn.done.wait()
                assert not ending.done.is_set()
                await stack.aclose()
        assert turn.result == {"stopReason": "cancelled"}
        assert ending.result == {}
        session = await here.new()


async def test_what_a_turn_says_when_its_session_is_closed_is_not_shown_any_more(here: Process) -> None:
    session = await here.new()
    here.stubborn = anyio.Event()
    running = here.session(session)
    async with here.prompting(session):
        async with here.doing("close", session) as close:
            await anyio.wait_all_tasks_blocked()
            pass_time(6)  # the turn does not end in time
        assert close.result == {}
        start = len(here.editor.sent)
        await running.emit(TextDelta("late", "a9"))
        await running.transcript.flush()
        here.stubborn.set()
        assert here.updates(session, start) == []


async def test_a_close_is_done_to_its_end_though_the_request_is_cancelled(here: Process, tmp_path: Path) -> None:
    session = await here.new()
    await here.say(session, "one")
    here.stubborn = anyio.Event()
    running = here.session(session)
    async with here.prompting(session), here.doing("close", session):
        await all_tasks_blocked()
        here.asked[-1].cancel()
        await all_tasks_blocked()
        here.stubborn.set()
    assert here.engine(session).closed
    await running.transcript.set_title("a title of a session that another process may have")
    running.transcript.store(Change(cwd="/elsewhere"))
    await running.transcript.flush()
    async with process(tmp_path, locking=False) as elsewhere:
        await elsewhere.ask("load", session)
        assert elsewhere.shown(session)[:3] == ["one", "one!", "wait"]
        assert elsewhere.session(session).transcript.record.title == ""


async def test_nothing_is_written_once_a_session_was_closed(here: Process) -> None:
    session = await here.new()
    await here.say(session, "one")
    running = here.session(session)
    await here.ask("close", session)
    await running.transcript.set_title("a title of a session that another process may have")
    assert here.store is not None
    record = await here.store.find(session)
    assert record is not None
    assert record.title == ""


async def test_a_load_that_meets_a_turn_leaves_the_session_as_it_is(here: Process) -> None:
    session = await here.new()
    await here.say(session, "one")
    before = here.session(session)

    async def settle(cancelled: bool) -> None:
        del cancelled

    async with before.turns.turn(settle) as turn:
        with pytest.raises(RequestError, match="a prompt in progress"):
            await here.sessions._pool.replace(before)
        assert not turn.cancel_called
    assert here.session(session) is before
    assert await here.told(session, "two") == ["one", "one!", "two", "two!"]


async def test_of_two_closes_at_once_one_finds_nothing(here: Process) -> None:
    session = await here.new()
    await here.say(session)
    async with here.doing("close", session) as one, here.doing("close", session) as two:
        pass
    assert one.result == {}
    assert two.error is not None
    assert two.error.code == NOT_FOUND


# ---------------------------------------------------------------------------------------- delete


async def test_a_session_can_be_deleted_in_the_middle_of_a_turn_and_nothing_comes_back(
    here: Process, tmp_path: Path
) -> None:
    session = await here.new()
    await here.say(session, "one")
    assert here.store is not None
    database = here.store._database
    overflow = OverflowStore(database, max_bytes=0, conversation_bytes=0).of(session)
    summaries = ConversationSummaries(database, session)
    await overflow.put("a whole output")
    await summaries.add(Summary("a summary", Compaction.MANUAL, 1, 2))
    async with here.prompting(session) as turn:
        running = here.session(session)
        start = len(here.editor.sent)
        assert await here.ask("delete", session) == {}
    assert turn.result == {"stopReason": "cancelled"}
    assert usage(here.updates(session, start)) == [], "nothing is told of what it took"
    await running.set_title("a late title")
    running.store_options()
    with pytest.raises(StoreUnavailable, match="deleted"):
        await overflow.put("late")
    with pytest.raises(StoreUnavailable, match="deleted"):
        await summaries.add(Summary("late", Compaction.MANUAL, 1, 2))
    await running.transcript.flush()
    for table in ("conversations", "told", "messages", "tool_overflow", "summaries"):
        assert rows(here, table) == 0, table
    assert await here.listed() == []
    async with process(tmp_path, locking=False) as elsewhere:
        assert (await elsewhere.error("load", session)).code == NOT_FOUND


async def test_deletes_at_once_are_all_answered(here: Process) -> None:
    session = await here.new()
    await here.say(session)
    async with (
        here.doing("delete", session) as one,
        here.doing("delete", session) as two,
        here.doing("load", session) as load,
    ):
        pass
    assert one.result == two.result == {}
    assert load.error is not None
    assert load.error.code == NOT_FOUND


async def test_a_session_that_is_only_in_the_store_can_be_deleted(here: Process) -> None:
    session = await here.new()
    await here.say(session)
    await here.ask("close", session)
    assert await here.ask("delete", session) == {}
    assert rows(here, "told") == 0


async def test_a_delete_the_store_did_not_do_says_so_and_can_be_done_again(tmp_path: Path) -> None:
    async with process(tmp_path, patience=0.1) as here:
        session = await here.new()
        await here.say(session)
        blocker = others(tmp_path / "agent.db")
        blocker.execute("BEGIN IMMEDIATE")
        error = await here.error("delete", session)
        assert (error.code, error.message) == (INTERNAL, "session deletion not persisted")
        blocker.close()
        assert await here.ask("delete", session) == {}
        assert (await here.error("load", session)).code == NOT_FOUND


# ------------------------------------------------------------------------------------ race of all


async def test_whatever_is_asked_at_once_each_is_answered_and_the_session_is_sound(here: Process) -> None:
    """Any two requests about one session, the second at different moments of the first, awake or at rest."""
    for number, (one, two) in enumerate([(one, two) for one in METHODS for two in (*METHODS, "delete")]):
        session = await here.new()
        await here.say(session, "one")
        if number % 3 == 0:
            await here.sessions.evict_all()
        async with here.doing(one, session, **METHODS[one]) as first:
            for _ in range(number % 5 * 2):
                await anyio.lowlevel.checkpoint()
            async with here.doing(two, session, **METHODS.get(two, {})) as second, here.doing("list") as listing:
                pass
        for outcome in (first, second):
            assert outcome.error is None or outcome.error.code in (INVALID, NOT_FOUND), (one, two, outcome.error)
        assert listing.error is None
        if two == "delete":
            assert (await here.error("load", session)).code == NOT_FOUND
        else:
            await here.ask("load", session)
            said = await here.told(session, "last")
            assert said[:2] == ["one", "one!"], (one, two)
            assert said[-2:] == ["last", "last!"]
        assert here.sessions._pool._opening == 0
        for each in here.sessions.all():
            await here.ask("close", each.id)
        assert here.locks is not None
        assert here.locks._held == set(), (one, two)


# ------------------------------------------------------------------------------------------- room


async def test_the_session_that_was_not_used_for_the_longest_time_makes_room(tmp_path: Path) -> None:
    async with process(tmp_path, most=3) as here:
        first, second, third = [await here.new() for _ in range(3)]
        for session in (first, second, third):
            await here.say(session, "one")
        here.age(second, third, first)
        fourth = await here.new()
        assert here.resident == {first, third, fourth}
        assert here.engine(second).closed
        assert second in await here.listed()
        assert await here.told(second, "two") == ["one", "one!", "two", "two!"]
        assert here.resident == {first, second, fourth}


async def test_a_bug_in_what_follows_a_turn_costs_no_session(here: Process) -> None:
    async def broken(answer: Answer) -> None:
        raise KeyError("bug")

    session = await here.new()
    await here.say(session, "one")
    here.engine(session).answered = broken
    here.session(session).answered(Answer(StopReason.END_TURN))
    await all_tasks_blocked()
    assert await here.told(session, "two") == ["one", "one!", "two", "two!"]


async def test_a_session_in_which_something_runs_makes_room_last(tmp_path: Path) -> None:
    async with process(tmp_path, most=2) as here:
        serving, other = [await here.new() for _ in range(2)]
        for session in (serving, other):
            await here.say(session, "one")
        here.age(serving, other)
        here.engine(serving).serving = True
        third = await here.new()
        assert here.resident == {serving, third}


async def test_a_session_was_used_last_when_its_turn_ended(here: Process) -> None:
    def used(session: str) -> int:
        return here.session(session).transcript.record.updated_at

    first, second = await here.new(), await here.new()
    async with here.prompting(first):
        await here.say(second, "one")
        assert used(second) > used(first)
    assert used(first) > used(second)


async def test_only_prompts_count_as_use(tmp_path: Path) -> None:
    async with process(tmp_path, most=2) as here:
        first, second = await here.new(), await here.new()
        here.age(first, second)
        await here.ask("set_mode", first, modeId="ask")
        await here.ask("list")
        await here.new()
        assert first not in here.resident


async def test_a_busy_session_is_never_put_to_rest_and_when_all_are_the_next_opens_and_its_prompt_waits(
    tmp_path: Path,
) -> None:
    async with process(tmp_path, most=2) as here:
        first, second, stored = [await here.new() for _ in range(3)]
        await here.say(stored, "before")
        await here.ask("close", stored)
        async with here.prompting(first) as one:
            here.age(first, second)
            third = await here.new()
            assert here.resident == {first, third}
            await here.ask("close", second)
            async with here.prompting(third) as two:
                fourth = await here.new()
                assert here.resident == {first, third}
                assert (await here.ask("load", stored))["modes"]
                assert (await here.ask("resume", stored))["modes"]
                fork = (await here.ask("fork", stored))["sessionId"]
                assert here.resident == {first, third}
                words = [{"type": "text", "text": "go on"}]
                async with here.doing("prompt", fourth, prompt=words) as cancelled:
                    await all_tasks_blocked()
                    assert here.resident == {first, third}
                    here.session(fourth).turns.cancel()
                assert cancelled.result == {"stopReason": "cancelled"}
                async with here.doing("prompt", fourth, prompt=words) as waiting:
                    await all_tasks_blocked()
                    assert not waiting.done.is_set()
                    here.session(third).turns.cancel()
                assert waiting.result == {"stopReason": "end_turn"}
                assert fourth in here.resident
        assert two.result == {"stopReason": "cancelled"}
        assert one.result == {"stopReason": "end_turn"}
        for session in (fourth, stored, fork):
            await here.say(session, "go on")
            assert len(here.resident) <= 2


async def test_a_session_that_is_open_can_be_loaded_again_though_all_others_are_busy(tmp_path: Path) -> None:
    async with process(tmp_path, most=1) as here:
        session = await here.new()
        await here.say(session, "one")
        await here.ask("load", session)
        await here.ask("resume", session)
        assert await here.told(session, "two") == ["one", "one!", "two", "two!"]
        assert here.resident == {session}


async def test_a_session_that_is_loaded_is_not_the_one_that_makes_room(tmp_path: Path) -> None:
    async with process(tmp_path, most=2) as here:
        first, second = await here.new(), await here.new()
        await here.say(first, "one")
        here.age(first, second)
        await here.ask("load", first)
        assert here.resident == {first, second}


async def test_places_of_sessions_that_could_not_be_opened_are_given_back(tmp_path: Path) -> None:
    async with process(tmp_path, most=2) as here:
        for _ in range(5):
            assert (await here.error("load", IDS[0])).code == NOT_FOUND
            assert (await here.error("fork", IDS[0])).code == NOT_FOUND
        first, second = await here.new(), await here.new()
        assert here.resident == {first, second}


async def test_many_at_once_never_keep_more_awake_than_there_may_be(tmp_path: Path) -> None:
    async with process(tmp_path, most=3) as here:
        opened: list[str] = []

        async def open_one() -> None:
            opened.append(await here.new())
            await here.say(opened[-1], "one")

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(open_one)
        for _ in range(4):
            await open_one()
        assert len(here.resident) == 3
        for session in opened:
            assert await here.told(session, "two") == ["one", "one!", "two", "two!"]
            assert len(here.resident) == 3


# ------------------------------------------------------------------------------------------- rest


async def test_a_session_in_which_something_runs_gives_its_place_only_to_another(here: Process) -> None:
    session = await here.new()
    await here.say(session, "one")
    here.engine(session).serving = True
    here.session(session).turns.used_at -= 100
    await here.sessions.evict_idle(99)
    assert here.resident == {session}
    await here.sessions.evict_all()
    assert not here.resident


async def test_sessions_nobody_used_for_long_rest_and_wake_with_all_of_it(here: Process) -> None:
    session, busy = await here.new(), await here.new()
    await here.say(session, "one")
    await here.ask("set_mode", session, modeId="architect")
    await here.ask("set_config_option", session, configId="model", value="p:two")
    here.session(session).turns.used_at -= 100
    async with here.prompting(busy):
        here.session(busy).turns.used_at -= 100
        await here.sessions.evict_idle(101)
        assert here.resident == {session, busy}
        await here.sessions.evict_idle(99)
        assert here.resident == {busy}
    assert here.engine(session).closed
    assert await here.told(session, "two") == ["one", "one!", "two", "two!"]
    engine, conduct = here.engine(session), here.session(session).active
    assert engine.calls == 2, "the quota goes on counting"
    assert (conduct.mode, conduct.model) == (Mode.ARCHITECT, "p:two")


async def test_a_session_at_rest_holds_its_conversation_in_no_memory(
    here: Process, collect_new: Callable[[], int]
) -> None:
    session = await here.new()
    await here.say(session, "one")
    engine = weakref.ref(here.engines[0])
    message = here.engines[0].messages[0]
    here.engines.clear()
    here.asked.clear()
    await here.sessions.evict_all()
    collect_new()
    assert engine() is None
    tuples = [each for each in gc.get_objects(0) + gc.get_objects(1) if isinstance(each, tuple)]
    holders = [each for each in tuples if any(held is message for held in each)]
    assert holders == [], "nothing holds the tuple of messages"


async def test_a_session_that_another_process_went_on_with_goes_on_as_it_left_it(here: Process, tmp_path: Path) -> None:
    session = await here.new()
    await here.say(session, "one")
    await here.sessions.evict_all()
    async with process(tmp_path, locking=False) as elsewhere:
        await elsewhere.ask("load", session)
        assert await elsewhere.told(session, "there") == ["one", "one!", "there", "there!"]
        await elsewhere.ask("close", session)
    assert await here.told(session, "two") == ["one", "one!", "there", "there!", "two", "two!"]
    assert here.engine(session).calls == 3
    await here.ask("close", session)
    start = len(here.editor.sent)
    await here.ask("load", session)
    assert here.shown(session, start) == ["one", "one!", "there", "there!", "two", "two!"]


async def test_the_list_names_the_model_of_now_though_another_process_used_another_meanwhile(
    here: Process, tmp_path: Path
) -> None:
    session = await here.new()
    await here.say(session, "one")
    await here.sessions.evict_all()
    async with process(tmp_path, locking=False) as elsewhere:
        await elsewhere.ask("load", session)
        await elsewhere.ask("set_config_option", session, configId="model", value="p:two")
        await elsewhere.say(session, "there")
        await elsewhere.ask("set_config_option", session, configId="model", value="p:one")
        await elsewhere.ask("close", session)
    await here.say(session, "two")
    (listed,) = (await here.ask("list"))["sessions"]
    assert listed["_meta"]["acp_agent"]["model"] == "p:one"


async def test_a_session_another_process_deleted_while_it_rested_is_not_found(here: Process, tmp_path: Path) -> None:
    session = await here.new()
    await here.say(session, "one")
    await here.sessions.evict_all()
    async with process(tmp_path, locking=False) as elsewhere:
        await elsewhere.ask("delete", session)
    assert (await here.error("prompt", session, **METHODS["prompt"])).code == NOT_FOUND
    assert (await here.error("load", session)).code == NOT_FOUND
    assert await here.ask("delete", session) == {}
    assert await here.listed() == []


async def test_an_engine_is_made_ready_ahead_and_never_for_a_session_at_rest(here: Process) -> None:
    session = await here.new()
    await here.session(session).announce()
    assert len(here.engines) == 1
    await here.sessions.evict_all()
    await here.session(session).announce()
    assert len(here.engines) == 1
    assert [each["sessionUpdate"] for each in here.updates(session)].count("available_commands_update") == 1


async def test_no_engine_is_made_ready_while_another_session_is_being_opened(here: Process) -> None:
    session = here.session(await here.new())
    with sqlite3.connect(here.root / "agent.db") as other:
        other.execute("BEGIN IMMEDIATE")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(here.new)
            await all_tasks_blocked()
            tasks.start_soon(session.announce, here.sessions.all_opened)
            await all_tasks_blocked()
            assert here.engines == []
            other.execute("ROLLBACK")
    other.close()
    assert len(here.engines) == 1


async def test_an_editor_is_told_of_commands_when_they_change_and_not_before(here: Process) -> None:
    session = await here.new()
    await here.session(session).announce()
    await here.session(session).tell_commands()
    for available in (ALWAYS | {CommandName.MCP}, ALWAYS):
        here.engine(session).available = available
        await here.session(session).tell_commands()
    told = [each for each in here.updates(session) if each["sessionUpdate"] == "available_commands_update"]
    assert [any(one["name"] == "mcp" for one in each["availableCommands"]) for each in told] == [False, True, False]


async def test_a_session_that_is_put_to_rest_while_its_engine_is_made_gives_it_back(here: Process) -> None:
    session = await here.new()
    here.making = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(here.session(session).announce)
        await here.being_made.wait()
        tasks.start_soon(here.sessions.evict_all)
        await all_tasks_blocked()
        here.making.set()
    assert here.engines[0].closed
    assert await here.told(session) == ["hello", "hello!"]
    assert len(here.engines) == 2


async def test_a_session_moves_to_another_folder_between_turns_only(here: Process) -> None:
    session = await here.new()
    await here.say(session, "one")
    (here.root / "other").mkdir()
    async with here.prompting(session):
        with pytest.raises(RequestError, match="cancel it first"):
            await here.sessions.move(session, str(here.root / "other"))
    await here.sessions.move(session, str(here.root / "other"))
    assert (await here.told(session, "two"))[-2:] == ["two", "two!"]
    assert here.session(session).workspace == SessionWorkspace(str(here.root / "other"))
    assert here.session(session).editor._paths.spell("a.py") == str(here.root / "other" / "a.py")
    assert here.session(session).take_moved_from() == str(here.root)
    assert here.session(session).take_moved_from() == ""
    await here.sessions.move(session, str(here.root))
    here.session(session).move(str(here.root))  # as a load does
    assert here.session(session).take_moved_from() == str(here.root / "other")
    await here.sessions.move(session, str(here.root / "other"))
    assert await here.listed(cwd=str(here.root / "other")) == [session]


async def test_the_first_write_makes_the_session_with_the_patience_and_the_care_of_every_write() -> None:
    wrote: list[tuple[Any, ...]] = []

    class Store:
        """A store that notes how it is written."""

        def of(self, _: str) -> "Store":
            return self

        async def create(self, record: SessionRecord, _: object, *, patience: float | None) -> "Store":
            wrote.append((record.id, patience))
            return self

        async def write(self, change: Change, *, durable: bool, patience: float | None) -> None:
            wrote.append((change.title, durable, patience))

    store: Any = Store()
    repository = DeferredRepository(store, SessionRecord("s", "/work"), SessionOptions())
    await repository.write(Change(title="a"), durable=False, patience=2)
    await repository.write(Change(title="b"))
    assert wrote == [("s", 2), ("a", False, 2), ("b", True, None)]


# ------------------------------------------------------------------------------------------- fork


async def test_a_fork_goes_its_own_way_and_leaves_the_source_as_it_was(here: Process) -> None:
    source = await here.new()
    await here.say(source, "one")
    await here.ask("set_mode", source, modeId="ask")
    (here.root / "more").mkdir()
    fork = await here.ask("fork", source, additionalDirectories=[str(here.root / "more")])
    assert fork["sessionId"] != source
    assert fork["modes"]["currentModeId"] == "ask", "chosen, and not the default"
    record = here.session(fork["sessionId"]).transcript.record
    assert record.additional == (str(here.root / "more"),)
    assert record.updated_at == record.created_at
    assert await here.told(fork["sessionId"], "fork") == ["one", "one!", "fork", "fork!"]
    assert await here.told(source, "source") == ["one", "one!", "source", "source!"]
    for session, said in ((source, "source"), (fork["sessionId"], "fork")):
        start = len(here.editor.sent)
        await here.ask("load", session)
        assert here.shown(session, start) == ["one", "one!", said, f"{said}!"]


async def test_the_outputs_the_source_refers_to_can_be_read_in_the_fork(here: Process) -> None:
    source = await here.new()
    await here.say(source, "one")
    assert here.store is not None
    outputs = OverflowStore(here.store._database, max_bytes=0, conversation_bytes=0)
    reference = await outputs.of(source).put("a whole output")
    fork = (await here.ask("fork", source))["sessionId"]
    await here.ask("delete", source)
    assert await outputs.of(fork).get(reference) == "a whole output"
    assert await outputs.of(source).get(reference) is None


async def test_the_source_of_a_fork_never_makes_room_for_it(tmp_path: Path) -> None:
    async with process(tmp_path, most=2) as here:
        source, other = await here.new(), await here.new()
        await here.say(source, "one")
        here.age(source, other)
        fork = (await here.ask("fork", source))["sessionId"]
        assert here.resident == {source, fork}


async def test_a_session_can_be_forked_in_the_middle_of_a_turn(here: Process) -> None:
    source = await here.new()
    await here.say(source, "one")
    async with here.prompting(source) as turn:
        fork = (await here.ask("fork", source))["sessionId"]
    assert turn.result == {"stopReason": "end_turn"}
    assert (await here.told(fork, "two"))[:2] == ["one", "one!"]
    assert here.engine(source).said == ["one", "one!", "wait", "wait!"]


async def test_a_fork_that_was_cancelled_leaves_no_session_nobody_asked_for(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        source = await here.new()
        await here.say(source, "one")
        for ticks in range(12):
            async with here.doing("fork", source) as fork:
                for _ in range(ticks):
                    await anyio.lowlevel.checkpoint()
                here.asked[-1].cancel()
            if fork.error is not None:
                assert fork.error.code == CANCELLED
                assert await here.listed() == [source]
                assert {each.id for each in here.sessions.all()} == {source}
            else:
                await here.ask("delete", fork.result["sessionId"])
        assert here.sessions._pool._opening == 0


# --------------------------------------------------------------------------------- what is chosen


async def test_what_was_chosen_last_is_found_by_whoever_takes_the_session_up(here: Process, tmp_path: Path) -> None:
    session = await here.new()
    await here.say(session, "one")
    await here.ask("set_mode", session, modeId="ask")
    await here.ask("set_config_option", session, configId="model", value="p:two")
    await here.ask("set_config_option", session, configId="thought_level", value="high")
    async with process(tmp_path, locking=False) as elsewhere:
        answer = await elsewhere.ask("resume", session)
        chosen = {each["id"]: each["currentValue"] for each in answer["configOptions"]}
        assert (chosen["mode"], chosen["model"], chosen["thought_level"]) == ("ask", "p:two", "high")
    await here.ask("resume", session)
    assert here.session(session).options.mode is Mode.ASK


async def test_a_model_that_is_gone_gives_way_to_the_initial_one_and_the_user_hears_of_it(
    here: Process, tmp_path: Path
) -> None:
    session = await here.new()
    await here.ask("set_config_option", session, configId="model", value="p:two")
    await here.say(session, "one")
    async with process(tmp_path, locking=False) as elsewhere:
        elsewhere.choices = type(elsewhere.choices)("p:one")
        answer = await elsewhere.ask("load", session)
        chosen = {each["id"]: each["currentValue"] for each in answer["configOptions"]}
        assert chosen["model"] == "p:one"
        start = len(elsewhere.editor.sent)
        await elsewhere.say(session, "two")
        assert any("p:two, is no longer available; p:one answers" in text for text in elsewhere.shown(session, start))


async def test_a_session_without_a_prompt_can_be_taken_up_by_another_process(here: Process, tmp_path: Path) -> None:
    session = await here.new()
    await here.ask("close", session)
    async with process(tmp_path, locking=False) as elsewhere:
        await elsewhere.ask("load", session)
        assert await elsewhere.told(session, "one") == ["one", "one!"]


async def test_a_store_that_is_damaged_in_the_middle_of_a_replay_shortens_it_and_the_user_hears_of_it(
    here: Process,
) -> None:
    session = await here.new()
    await here.ask("close", session)
    assert here.store is not None
    told = [TextDelta(f"{number}", f"m{number}") for number in range(600)]
    await here.store.of(session).write(Change(told))
    here.editor.slow = anyio.Event()
    start = len(here.editor.sent)
    async with here.doing("load", session) as load:
        await here.editor.waiting.wait()
        for name in ("agent.db", "agent.db-wal", "agent.db-shm"):
            (here.root / name).unlink(missing_ok=True)
        with sqlite3.connect(here.root / "agent.db") as newer:
            newer.execute("PRAGMA user_version = 999")
        newer.close()
        here.editor.slow.set()
    assert load.error is None
    assert 0 < len(here.shown(session, start)) < 600
    with anyio.fail_after(PATIENCE):
        await here.say(session, "last")
    assert any("cannot be shown in full" in text for text in here.shown(session, start))
