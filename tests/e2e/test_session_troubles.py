"""Real agents whose database is locked, damaged, of a newer version, in the way or gone: the work goes on."""

import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from tests.e2e.aided import DATABASE, aided, told
from tests.e2e.test_sessions import listed, place, shown
from tests.fakes.editor import editing
from tests.fakes.model_script import says

pytestmark = pytest.mark.anyio


def database(folder: Path) -> Path:
    return folder / "home" / "data" / DATABASE


async def test_a_session_begins_and_works_while_another_program_locks_the_database_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    async with editing(tmp_path, [says("before")]) as editor:
        await editor.say(await editor.open(), "long ago")
    async with editing(tmp_path, [says("answer")], short_waits=True) as editor:
        await editor.initialize()
        with closing(sqlite3.connect(database(tmp_path), isolation_level=None)) as blocker:
            blocker.execute("BEGIN IMMEDIATE")
            session = await editor.new_session(str(editor.workspace))
            async with editor.prompting(session, "one") as turn:
                await editor.updated("agent_message_chunk")
                blocker.execute("ROLLBACK")
            assert turn.stop_reason == "end_turn"
            blocker.execute("BEGIN IMMEDIATE")
            start = len(editor.recording.frames)
            async with editor.prompting(session, "two"):
                await editor.updated("agent_message_chunk", start)
                blocker.execute("ROLLBACK")
        assert await editor.say(session, "three") == "end_turn"
    async with editing(tmp_path, [says("x")]) as editor:
        await editor.initialize()
        await editor.ask("session/load", place(editor, session))
        assert shown(editor) == ["one", "answer", "two", "answer", "three", "answer"]


@pytest.mark.parametrize("trouble", ["damaged", "newer", "in the way"])
async def test_with_a_database_nobody_can_use_sessions_work_rest_and_go_on_and_the_user_is_told(
    tmp_path: Path, trouble: str
) -> None:
    file = database(tmp_path)
    file.parent.parent.mkdir()
    match trouble:
        case "damaged":
            file.parent.mkdir()
            file.write_bytes(b"no database at all " * 500)
        case "newer":
            file.parent.mkdir()
            with closing(sqlite3.connect(file)) as newer:
                newer.execute("PRAGMA user_version = 999")
        case _:
            file.mkdir(parents=True)
    before = file.read_bytes() if trouble == "newer" else b""
    config = "[acp]\nmax_sessions = 1\n"
    async with aided(tmp_path, "first answer", "other answer", "second answer", config=config) as (agent, model, _):
        editor = agent.editor
        text = await agent.say("the word is xyzzy")
        other = await editor.new_session(str(editor.workspace))  # the first one rests
        text += await agent.editor.say(other, "something else")
        text += await agent.say("second prompt")
        told_user = editor.told
        assert {"damaged": "set aside", "newer": "newer version", "in the way": "not stored"}[trouble] in told_user
        assert "xyzzy" in told(model.requests[2])
        assert "first answer" in told(model.requests[2])
        assert set(await listed(editor)) >= {other}
        assert await editor.ask("session/close", {"sessionId": other}) == {}
    if trouble == "newer":
        assert file.read_bytes() == before
    if trouble == "damaged":
        assert list(file.parent.glob(f"{DATABASE}.corrupt-*"))


async def test_a_database_that_is_removed_in_use_costs_no_turn_and_all_is_kept_from_there_on(tmp_path: Path) -> None:
    async with editing(tmp_path, [says("answer")]) as editor:
        old = await editor.open()
        await editor.say(old, "one")
        for name in ("", "-wal", "-shm"):
            Path(f"{database(tmp_path)}{name}").unlink(missing_ok=True)
        with anyio.fail_after(20):
            assert await editor.say(old, "two") == "end_turn"
            assert await editor.say(old, "three") == "end_turn"
        new = await editor.new_session(str(editor.workspace))
        assert await editor.say(new, "one") == "end_turn"
        assert editor.told.count("was removed while it was in use") == 1
        assert "not stored for now" not in editor.told
    async with editing(tmp_path, [says("x")]) as editor:
        await editor.initialize()
        assert new in await listed(editor)
        await editor.ask("session/load", place(editor, new))
        assert shown(editor)[0] == "one"
        start = len(editor.recording.frames)
        await editor.ask("session/load", place(editor, old))
        assert shown(editor, start) == ["two", "answer", "three", "answer"]


def in_the_way(data: Path) -> str:
    data.write_text("no folder")
    return str(data)


def not_writable(data: Path) -> str:
    del data
    return "/proc/acp-agent-data"  # where root, too, can make nothing


@pytest.mark.parametrize("unusable", [in_the_way, not_writable])
async def test_without_a_usable_data_folder_prompts_are_answered_and_the_user_is_told(tmp_path: Path, unusable) -> None:
    data = unusable(tmp_path / "data")
    async with editing(tmp_path, [says("an answer")], environment={"ACP_AGENT_DATA_DIR": data}) as editor:
        session = await editor.open()
        assert await editor.say(session, "one") == "end_turn"
        assert "an answer" in editor.text
        assert editor.told.count(f"expected a folder for data: {data}") == 1
        for method in ("session/load", "session/resume"):
            start = len(editor.recording.frames)
            await editor.ask(method, place(editor, session))
            assert shown(editor, start) == (["one", "an answer"] if method == "session/load" else [])
        assert await editor.say(session, "two") == "end_turn"
