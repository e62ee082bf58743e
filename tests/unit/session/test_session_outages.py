"""Sessions while the store cannot be used, and while others have them open: the work goes on, and nothing is lost."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from acp_agent.core.errors import RequestError
from acp_agent.protocol.client import Client
from acp_agent.session.manager import SessionLimits
from acp_agent.session.pool import SessionLock
from acp_agent.store.session_locks import SessionLocks
from acp_agent.store.sessions import SessionStore
from tests.fakes.passing_time import all_tasks_blocked, pass_time
from tests.fakes.sessions import Process, holding, process
from tests.unit.session.test_sessions import INTERNAL, INVALID, METHODS, NOT_FOUND
from tests.unit.store.databases import opened, others

pytestmark = pytest.mark.anyio

NOT_NOW = "the sessions stored on this machine cannot be read now: the database "


def locked(root: Path) -> Callable[[], None]:
    """Another program writes, and does not end; gives what ends it."""
    blocker = others(root / "agent.db")
    blocker.execute("BEGIN IMMEDIATE")
    return blocker.close


async def stored(root: Path) -> None:
    """A database is there."""
    async with process(root, locking=False) as before:
        await before.say(await before.new(), "long ago")


async def kept(root: Path, session: str) -> list[str]:
    """What another process finds in a session."""
    async with process(root, locking=False) as elsewhere:
        await elsewhere.ask("load", session)
        return elsewhere.shown(session)


# ---------------------------------------------------------------------------------------- outages


async def test_a_session_begins_while_the_database_is_locked_and_is_written_when_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stored(tmp_path)
    monkeypatch.setattr("acp_agent.session.manager._PATIENCE", 0.05)
    async with process(tmp_path, patience=20) as here:
        unlock = locked(tmp_path)
        with anyio.fail_after(10):  # it is not waited for the database as long as other writes wait
            session = await here.new()
        unlock()
        await here.session(session).transcript.flush()
        assert here.session(session).transcript.stored, "nobody had to prompt it first"
        await here.say(session, "one")
        assert await kept(tmp_path, session) == ["one", "one!"]
        assert not any("not stored for now" in text for text in here.shown(session))


async def test_a_session_that_was_never_written_and_rests_is_written_all_the_same(tmp_path: Path) -> None:
    await stored(tmp_path)
    async with process(tmp_path, patience=0.05) as here:
        unlock = locked(tmp_path)
        session = await here.new()
        await here.session(session).transcript.flush()
        await here.sessions.evict_all()
        unlock()
        assert await here.told(session, "one") == ["one", "one!"]
        assert await kept(tmp_path, session) == ["one", "one!"]


async def test_a_session_that_is_closed_in_an_outage_waits_for_its_end_and_loses_neither_words_nor_choices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acp_agent.session.transcript_writer._PATIENCE", 0.05)
    async with process(tmp_path, patience=5) as here:
        session = await here.new()
        await here.say(session, "one")
        unlock = locked(tmp_path)
        await here.say(session, "two")
        await here.ask("set_mode", session, modeId="ask")
        async with here.doing("close", session) as closing:
            await all_tasks_blocked()
            assert not closing.done.is_set()
            unlock()
        assert closing.result == {}
        assert await kept(tmp_path, session) == ["one", "one!", "two", "two!"]
        assert (await here.ask("load", session))["modes"]["currentModeId"] == "ask"


async def test_a_session_that_rests_in_an_outage_is_kept_whole_afterwards_and_open_to_others(tmp_path: Path) -> None:
    async with process(tmp_path, patience=0.05) as here:
        session = await here.new()
        await here.say(session, "one")
        unlock = locked(tmp_path)
        await here.say(session, "two")
        await here.sessions.evict_all()
        assert not here.session(session).transcript.stored
        unlock()
        with anyio.fail_after(10):
            while not here.session(session).transcript.stored:
                await anyio.lowlevel.checkpoint()
        assert not SessionLock(here.locks).is_free(session)
        here.sessions.share_evicted()
        assert SessionLock(here.locks).is_free(session)
        async with process(tmp_path, locking=False) as elsewhere:
            await elsewhere.ask("load", session)
            await elsewhere.say(session, "three")
            assert elsewhere.engine(session).said == ["one", "one!", "two", "two!", "three", "three!"]
        await here.say(session, "four")
        assert here.engine(session).said[4:] == ["three", "three!", "four", "four!"], "what others did meanwhile"


async def test_of_too_many_sessions_none_is_forgotten_that_is_not_stored_yet(tmp_path: Path) -> None:
    async with process(tmp_path, patience=0.05, known=1) as here:
        session = await here.new()
        await here.say(session, "one")
        unlock = locked(tmp_path)
        await here.say(session, "two")
        await here.sessions.evict_all()
        assert not here.session(session).transcript.stored
        await here.new()
        unlock()
        assert await here.told(session, "three") == ["one", "one!", "two", "two!", "three", "three!"]


async def test_a_session_whose_end_cannot_be_kept_says_so_when_it_is_closed(tmp_path: Path) -> None:
    async with process(tmp_path, patience=0.05) as here:
        here.client = Client(notices=True)
        session = await here.new()
        await here.say(session, "one")
        unlock = locked(tmp_path)
        await here.say(session, "two")
        start = len(here.editor.sent)
        assert await here.ask("close", session) == {}
        (told,) = [each for each in here.updates(session, start) if each["sessionUpdate"] == "notice"]
        assert "the end of this conversation is not stored" in told["title"]
        unlock()


async def test_a_turn_goes_on_through_an_outage_the_user_hears_of_it_once_and_nothing_is_lost(tmp_path: Path) -> None:
    async with process(tmp_path, patience=0.05) as here:
        session = await here.new()
        await here.say(session, "one")
        unlock = locked(tmp_path)
        for text in ("two", "three", "four"):
            assert await here.say(session, text) == "end_turn"
        unlock()
        for text in ("five", "six"):
            await here.say(session, text)
        shown = here.shown(session)
        assert sum("not stored for now" in text for text in shown) == 1
        assert sum("stored again" in text for text in shown) == 1
        said = [each for text in ("one", "two", "three", "four", "five", "six") for each in (text, f"{text}!")]
        assert await kept(tmp_path, session) == said
        assert here.engine(session).said == said


async def test_a_cancelled_turn_is_answered_at_once_while_the_database_is_locked(tmp_path: Path) -> None:
    async with process(tmp_path, patience=30) as here:
        session = await here.new()
        await here.say(session, "one")
        async with here.prompting(session) as turn:
            unlock = locked(tmp_path)
            here.session(session).turns.cancel()
            with anyio.fail_after(15):  # half of the patience with the database
                await turn.done.wait()
            unlock()
        assert turn.result == {"stopReason": "cancelled"}
        assert await here.told(session, "two") == ["one", "one!", "wait", "two", "two!"]


async def test_a_turn_that_is_cancelled_while_its_last_words_are_sent_is_answered_as_cancelled(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        session = await here.new()
        here.editor.slow = anyio.Event()
        async with here.doing("prompt", session, prompt=[{"type": "text", "text": "one"}]) as turn:
            await here.editor.waiting.wait()
            await all_tasks_blocked()
            here.session(session).turns.cancel()
            here.editor.slow.set()
        assert turn.result == {"stopReason": "cancelled"}


async def test_a_fork_has_what_an_outage_held_back(tmp_path: Path) -> None:
    async with process(tmp_path, patience=0.05) as here:
        session = await here.new()
        await here.say(session, "one")
        unlock = locked(tmp_path)
        await here.say(session, "two")
        unlock()
        fork = (await here.ask("fork", session))["sessionId"]
        assert await here.told(fork, "three") == ["one", "one!", "two", "two!", "three", "three!"]


async def test_what_an_outage_held_back_does_not_come_back_once_the_conversation_was_forgotten(tmp_path: Path) -> None:
    async with process(tmp_path, patience=0.05) as here:
        session = await here.new()
        await here.say(session, "one")
        unlock = locked(tmp_path)
        await here.say(session, "two")
        unlock()
        await here.session(session).forget()
        await here.session(session).transcript.flush()
        assert await kept(tmp_path, session) == []


async def test_a_session_that_rests_during_an_outage_forgets_nothing(tmp_path: Path) -> None:
    async with process(tmp_path, patience=0.05) as here:
        session = await here.new()
        await here.say(session, "one")
        unlock = locked(tmp_path)
        await here.say(session, "two")
        await here.sessions.evict_all()
        assert here.engine(session).closed
        assert here.locks is not None
        assert here.locks.holds(session), "nobody else may go on without what is only here"
        assert await here.told(session, "three") == ["one", "one!", "two", "two!", "three", "three!"]
        assert here.engine(session).calls == 3
        await here.sessions.evict_all()
        unlock()
        said = await here.told(session, "four")
        assert said[-4:] == ["three", "three!", "four", "four!"]
        assert await kept(tmp_path, session) == said
        await here.sessions.evict_all()
        assert not here.locks.holds(session)


async def test_a_load_never_throws_away_what_could_not_be_kept_yet(tmp_path: Path) -> None:
    async with process(tmp_path, patience=0.05) as here:
        session = await here.new()
        await here.say(session, "one")
        unlock = locked(tmp_path)
        await here.say(session, "two")
        start = len(here.editor.sent)
        await here.ask("load", session)
        assert here.shown(session, start) == ["one", "one!", "two", "two!"]
        assert (await here.told(session, "three"))[-4:] == ["two", "two!", "three", "three!"]
        unlock()
        await here.ask("load", session)
        said = await here.told(session, "four")
        assert said[:4] == ["one", "one!", "two", "two!"]


async def test_a_session_at_rest_is_not_written_over_while_it_cannot_be_read(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        session = await here.new()
        await here.say(session, "one")
        await here.sessions.evict_all()
        file = tmp_path / "agent.db"
        for name in ("-wal", "-shm"):
            (tmp_path / f"agent.db{name}").unlink(missing_ok=True)
        file.rename(tmp_path / "away")
        file.symlink_to(tmp_path / "away")
        error = await here.error("prompt", session, **METHODS["prompt"])
        assert (error.code, error.message.startswith(NOT_NOW)) == (INTERNAL, True)
        file.unlink()
        (tmp_path / "away").rename(file)
        assert await here.told(session, "two") == ["one", "one!", "two", "two!"]


@pytest.mark.parametrize("method", ["load", "resume"])
@pytest.mark.parametrize("silent", [True, False])
async def test_a_session_that_began_while_nothing_could_be_kept_is_taken_up_from_memory_and_kept_later(
    tmp_path: Path, method: str, silent: bool
) -> None:
    await stored(tmp_path)
    (tmp_path / "other").mkdir()
    async with process(tmp_path, patience=0.05) as here:
        unlock = locked(tmp_path)
        session = await here.new()
        said = [] if silent else ["one", "one!"]
        if not silent:
            await here.say(session, "one")
        for _ in range(2):
            start = len(here.editor.sent)
            await here.ask(method, session, cwd=str(tmp_path / "other"))
            assert here.shown(session, start) == (said if method == "load" else [])
            assert here.session(session).workspace.cwd == str(tmp_path / "other")
        assert await here.told(session, "two") == [*said, "two", "two!"]
        unlock()
        await here.ask(method, session)
        assert await here.told(session, "three") == [*said, "two", "two!", "three", "three!"]
        assert await kept(tmp_path, session) == [*said, "two", "two!", "three", "three!"]


# --------------------------------------------------------------------------- no store, a strange one


async def test_without_a_store_sessions_work_and_rest_and_the_user_is_told_that_nothing_is_kept(tmp_path: Path) -> None:
    async with anyio.create_task_group() as tasks:
        here = Process(tmp_path, tasks, None, None, SessionLimits(2), "there is no data folder")
        first, second, third = [await here.new() for _ in range(3)]
        assert await here.told(first, "one") == ["one", "one!"]
        assert "this conversation is not stored: there is no data folder" in here.shown(first)[0]
        await here.say(second)
        await here.say(third)
        assert first not in here.resident
        assert await here.told(first, "two") == ["one", "one!", "two", "two!"]
        await here.ask("resume", first)
        await here.ask("load", first)
        await here.sessions.evict_all()
        assert await here.told(first, "three") == ["one", "one!", "two", "two!", "three", "three!"]
        assert sorted(await here.listed()) == sorted([first, second, third])
        assert (await here.error("load", "other")).code == NOT_FOUND
        assert (await here.error("fork", "other")).code == NOT_FOUND
        error = await here.error("fork", first)
        assert (error.code, "it is not stored" in error.message) == (INVALID, True)
        await here.ask("close", first)
        assert (await here.error("load", first)).code == NOT_FOUND
        assert await here.ask("delete", second) == {}
        assert await here.listed() == [third]


async def test_with_a_database_of_a_newer_version_sessions_work_unkept_and_the_user_hears_why(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "agent.db") as newer:
        newer.execute("PRAGMA user_version = 999")
    newer.close()
    before = (tmp_path / "agent.db").read_bytes()
    async with process(tmp_path, most=1) as here:
        session = await here.new()
        assert await here.told(session, "one") == ["one", "one!"]
        other = await here.new()
        await here.say(other)
        assert await here.told(session, "two") == ["one", "one!", "two", "two!"]
        assert any("written by a newer version" in text for text in here.shown(session))
        assert set(await here.listed()) == {session, other}
        for method in ("load", "resume", "fork", "delete"):
            error = await here.error(method, "somebody's")
            assert (error.code, error.message.startswith(NOT_NOW)) == (INTERNAL, True), method
            assert "written by a newer version" in error.message
        start = len(here.editor.sent)
        await here.ask("load", session)
        assert here.shown(session, start) == ["one", "one!", "two", "two!"]
        assert await here.ask("close", session) == {}
        assert (await here.error("load", session)).code == INTERNAL
    assert (tmp_path / "agent.db").read_bytes() == before


async def test_with_a_damaged_database_a_new_one_is_made_and_sessions_are_kept_there(tmp_path: Path) -> None:
    await stored(tmp_path)
    (tmp_path / "agent.db").write_bytes(b"this was a database once" * 1000)
    async with process(tmp_path) as here:
        session = await here.new()
        await here.say(session, "one")
        assert await here.listed() == [session]
        assert await kept(tmp_path, session) == ["one", "one!"]
    assert list(tmp_path.glob("agent.db.corrupt-*"))


async def test_a_folder_that_cannot_be_written_costs_only_the_keeping(tmp_path: Path) -> None:
    """A file stands where the folder should be: root, too, can make nothing there."""
    (tmp_path / "file").write_text("")
    async with opened(tmp_path / "file" / "agent.db") as database, anyio.create_task_group() as tasks:
        locks = SessionLocks(str(tmp_path / "file" / "locks"))
        here = Process(tmp_path, tasks, SessionStore(database), locks, SessionLimits(1))
        session = await here.new()
        assert await here.told(session, "one") == ["one", "one!"]
        other = await here.new()
        assert here.resident == {other}
        assert await here.told(session, "two") == ["one", "one!", "two", "two!"]
        assert session in await here.listed()
        assert await here.ask("close", session) == {}
        tasks.cancel_scope.cancel()


async def test_a_database_that_is_removed_in_use_costs_what_was_told_and_all_is_kept_from_there_on(
    tmp_path: Path,
) -> None:
    async with process(tmp_path) as here:
        old, silent = await here.new(), await here.new()
        await here.say(old, "one")
        for name in ("agent.db", "agent.db-wal", "agent.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        assert await here.told(old, "two") == ["one", "one!", "two", "two!"]
        await here.say(old, "three")
        await here.say(silent, "first")
        assert not any("not in the database" in text for text in here.shown(old) + here.shown(silent))
        assert await kept(tmp_path, old) == ["two", "two!", "three", "three!"]
        assert await kept(tmp_path, silent) == ["first", "first!"]
        new = await here.new()
        await here.say(new, "one")
        assert await kept(tmp_path, new) == ["one", "one!"]


# ------------------------------------------------------------------------------- several processes


async def test_a_session_another_process_has_open_is_refused_whatever_is_wanted_with_it(tmp_path: Path) -> None:
    async with process(tmp_path, lock_seconds=0.3) as here:
        known, rested, unknown, stored = [await here.new() for _ in range(4)]
        for session in (known, rested, unknown, stored):
            await here.say(session, "one")
        for session in (unknown, stored):
            await here.ask("close", session)
        await here.sessions.evict_all()
        async with holding(tmp_path, known, rested, unknown, stored) as other:
            errors: list[tuple[int, bool]] = []

            async def refused(method: str, session: str) -> None:
                error = await here.error(method, session, **METHODS.get(method, {}))
                errors.append((error.code, "open in another process" in error.message))

            async def hurry() -> None:
                await all_tasks_blocked()
                pass_time(0.3)

            async with anyio.create_task_group() as tasks:
                for method, session in (("load", unknown), ("delete", stored), ("prompt", known), ("delete", rested)):
                    tasks.start_soon(refused, method, session)
                tasks.start_soon(hurry)
            assert errors == [(INVALID, True)] * 4
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hurry)
                with pytest.raises(RequestError, match="open in another process"):
                    await here.sessions.move(rested, str(tmp_path))
            assert not here.sessions._pool._opening
            assert set(await here.listed()) == {known, rested, unknown, stored}
            fork = (await here.ask("fork", unknown))["sessionId"]  # only reads it
            assert await here.told(fork, "two") == ["one", "one!", "two", "two!"]
            async with here.doing("load", unknown) as load:  # it waits a moment for who is just ending
                await all_tasks_blocked()
                other.kill()
            assert load.error is None
        for session in (known, rested):
            assert await here.told(session, "two") == ["one", "one!", "two", "two!"], "a refusal took nothing away"


async def test_asking_whether_a_session_is_in_use_never_gives_it_away(tmp_path: Path) -> None:
    locks = SessionLocks(str(tmp_path / "sessions.lock"))
    hold = SessionLock(locks)
    await hold.take("ours")
    assert not hold.is_free("ours")
    assert locks.holds("ours")
    assert hold.is_free("nobody's")
    assert not locks.holds("nobody's")
    async with holding(tmp_path, "theirs"):
        assert not hold.is_free("theirs")
    hold.release("ours")
    assert hold.is_free("ours")
    locks.close()


async def test_sessions_that_were_never_prompted_go_when_they_are_old_and_nobody_has_them_open(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        assert here.store is not None
        used, mine, theirs, nobodys = [await here.new() for _ in range(4)]
        await here.say(used)
        for session in (used, theirs, nobodys):
            await here.ask("close", session)
        database = others(tmp_path / "agent.db")
        database.execute("UPDATE conversations SET updated_at = 1, created_at = 1")
        database.close()
        async with holding(tmp_path, theirs):
            assert await here.store.purge_unused(7, here.sessions.in_use) == 1
        for session in (used, mine, theirs):
            assert await here.store.find(session) is not None
        assert await here.store.find(nobodys) is None


async def test_locks_and_rows_are_gone_with_a_session_that_nobody_waited_for(tmp_path: Path) -> None:
    await stored(tmp_path)
    async with process(tmp_path) as here:
        unlock = locked(tmp_path)
        async with here.doing("new") as new:
            await all_tasks_blocked()
            here.asked[-1].cancel()
        unlock()
        assert new.error is not None
        assert here.locks is not None
        assert here.locks._held == set()
        assert here.sessions.all() == ()
        assert not here.sessions._pool._opening


# ------------------------------------------------------------------------------------------- many


async def test_among_ten_thousand_sessions_any_is_listed_and_loaded(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        await here.ask("list")  # the tables are there
        assert here.store is not None
        session = await here.new()
        await here.say(session, "one")
        await here.ask("close", session)
        database = others(tmp_path / "agent.db")
        database.execute("BEGIN")
        database.executemany(
            "INSERT INTO conversations (id, cwd, created_at, updated_at, prompts) VALUES (?, '/', 1, ?, 1)",
            ((f"s{number:05}", number) for number in range(10_000)),
        )
        database.execute("UPDATE conversations SET updated_at = 5000 WHERE id = ?", (session,))
        database.execute("COMMIT")
        database.close()
        seen: list[str] = []
        cursor = None
        while True:
            answer = await here.ask("list", **({} if cursor is None else {"cursor": cursor}))
            seen += [each["sessionId"] for each in answer["sessions"]]
            if not (cursor := answer.get("nextCursor")):
                break
        assert len(seen) == len(set(seen)) == 10_001
        assert session in seen
        await here.ask("load", session)
        assert here.shown(session)[-2:] == ["one", "one!"]
