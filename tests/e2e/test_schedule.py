"""Scheduled prompts on the wire: a card that is a turn of its own, the user who goes first, kills, and the tool."""

import json
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from acp_agent.cli.agent_process import AgentGone, text_at
from tests.e2e.killed_view import loaded
from tests.e2e.test_agents import FULL_AUTO, agent, messages
from tests.fakes.answers import Call
from tests.fakes.editor import NOTHING, ScriptedEditor, editing
from tests.fakes.held import Held, processes_ended
from tests.fakes.model_script import Script, says, uses

pytestmark = pytest.mark.anyio

TOOL = "[scheduler]\ntool = true\n"
HANGS = {"hang": True}


@asynccontextmanager
async def scheduling(folder: Path, script: Script, **options: Any) -> AsyncGenerator[ScriptedEditor]:
    """An editor that shows what comes while no prompt runs, and offers nothing."""
    async with editing(folder, script, capabilities=NOTHING, short_waits=True, **options) as editor:
        editor.name = "toad"
        yield editor


async def card(editor: ScriptedEditor, start: int = 0) -> dict[str, Any]:
    """The next card of a scheduled prompt."""
    found = await editor.seen(lambda f: f.update.get("name") == "schedule", start)
    return found.update


async def ended(editor: ScriptedEditor, opened: dict[str, Any]) -> tuple[str, str]:
    """How a card ends: its status and its text."""
    found = await editor.seen(
        lambda f: f.update.get("toolCallId") == opened["toolCallId"] and f.update.get("status") != "in_progress"
    )
    return text_at(found.update, "status"), text_at(found.update, "rawOutput", "output")


async def test_a_prompt_fires_on_a_card_is_audited_as_the_schedules_and_told_again_by_a_load(tmp_path: Path):
    script: Script = {"run the tests": [uses(("read", {"path": "a.txt"})), says("All green.")], "": [says("hello")]}
    async with scheduling(tmp_path, script) as editor:
        (editor.workspace / "a.txt").write_text("x")
        session = await editor.open()
        await editor.say(session, "/schedule in 1 second: run the tests")
        opened = await card(editor)
        status, why = await ended(editor, opened)
        assert (opened["title"], opened["rawInput"]["when"]) == ("Scheduled: run the tests", "in 1 second")
        assert status == "completed"
        assert why.startswith("Scheduled for ")
        assert editor.text.endswith("All green.")
        await editor.say(session, "/schedule")
        assert "Nothing is scheduled in this session." in editor.text
        seen = await loaded(editor, session)
        (file,) = Path(editor.home.data).rglob("audit.jsonl")
        records = [json.loads(line) for line in file.read_text().splitlines()]
    assert {each["tool"]: each["caller_id"] for each in records if "tool" in each} == {
        "read": f"{session}/schedule",
        "schedule": f"{session}/schedule",
    }
    assert "run the tests" not in "".join(seen.texts("user")).replace("/schedule in 1 second: run the tests", "")
    assert [call.first["title"] for call in editor.calls[-2:]] == ["Scheduled: run the tests", "read a.txt"]


async def test_the_users_prompt_goes_first_and_what_had_done_nothing_fires_again(tmp_path: Path):
    script: Script = {
        "(?s)broke off|cancelled this turn.*tests": [says("Done.")],
        "tests": [HANGS],
        "": [says("hello")],
    }
    async with scheduling(tmp_path, script) as editor:
        session = await editor.open()
        await editor.say(session, "/schedule in 1 second: tests")
        first = await card(editor)
        assert await editor.say(session, "good morning") == "end_turn"
        assert await ended(editor, first) == ("failed", text_of(editor, first))
        assert text_of(editor, first).endswith("Your prompt goes first. It will run again.")
        second = await card(editor, editor.index(lambda f: f.update.get("toolCallId") == first["toolCallId"]) + 1)
        assert second["toolCallId"] != first["toolCallId"]
        await editor.cancel(session)
        assert (await ended(editor, second))[1].endswith("It was cancelled.")
        await editor.say(session, "/schedule")
        assert "Nothing is scheduled" in editor.text
    assert "hello" in editor.text


def text_of(editor: ScriptedEditor, opened: dict[str, Any]) -> str:
    """The text with which a card ended."""
    (call,) = [each for each in editor.calls if each.id == opened["toolCallId"]]
    return call.text


async def test_cancel_ends_the_commands_of_a_scheduled_turn_and_it_does_not_fire_again(tmp_path: Path):
    script: Script = {"tests": [uses(("bash", {"command": Held.COMMAND})), says("never")]}
    async with scheduling(tmp_path, script, config=FULL_AUTO) as editor:
        held = Held(editor)
        session = await editor.open()
        await editor.say(session, "/schedule in 1 second: tests")
        pids = await held.pids()
        await editor.cancel(session)
        await processes_ended(pids)
        assert await ended(editor, await card(editor)) == ("failed", text_of(editor, await card(editor)))
        assert [call.status for call in editor.calls] == ["failed", "failed"]
        await editor.say(session, "/schedule")
    assert "Nothing is scheduled" in editor.text


async def test_nothing_is_tried_again_while_the_agent_ends(tmp_path: Path):
    async with scheduling(tmp_path, {"tests": [HANGS]}) as editor:
        session = await editor.open()
        await editor.say(session, "/schedule in 1 second: tests")
        opened = await card(editor)
    assert text_of(editor, opened).endswith("The session was closed or loaded again. It will run again.")
    assert "not carried out" not in editor.log


async def test_a_prompt_that_a_kill_has_cut_off_is_told_and_not_run_again(tmp_path: Path):
    script: Script = {"tests": [HANGS], "": [says("hello")]}
    session = ""
    with suppress(AgentGone):
        async with scheduling(tmp_path, script, lawful=False) as editor:
            session = await editor.open()
            await editor.say(session, "/schedule in 1 second: tests")
            await card(editor)
            os.kill(editor.agent.pid, signal.SIGKILL)
            await editor.say(session, "too late")
    async with scheduling(tmp_path, script) as editor:
        await editor.initialize()
        await loaded(editor, session)
        assert (await ended(editor, await card(editor)))[1] == "interrupted"
        await editor.say(session, "hi")
        assert "was cut off when the agent ended, and is not run again by itself: tests" in messages(editor)
        await editor.say(session, "/schedule")
        assert "Nothing is scheduled" in editor.text
        assert len(editor.calls) == 1


async def test_what_came_due_while_the_session_was_closed_fires_at_the_next_open(tmp_path: Path):
    script: Script = {"tests": [says("All green.")], "": [says("hello")]}
    async with scheduling(tmp_path, script) as editor:
        session = await editor.open()
        await editor.say(session, "/schedule in 6 seconds: tests")
        await editor.ask("session/close", {"sessionId": session})
        start = len(editor.recording.frames)
        await loaded(editor, session)
        assert (await ended(editor, await card(editor, start)))[0] == "completed"


def scheduler(**arguments: Any) -> tuple[str, dict[str, Any]]:
    return "scheduler", arguments


async def test_the_model_asks_for_each_new_prompt_at_every_level_and_lists_without_a_question(tmp_path: Path):
    script: Script = {
        "go": [
            uses(scheduler(when="every weekday at 9", prompt="say https://example.com/")),
            uses(scheduler(op="list")),
            uses(scheduler(when="soon", prompt="x")),
            uses(agent(op="run", agent="general", task="find")),
            says("done"),
        ],
        "^find": [uses(scheduler(when="at 9", prompt="x")), says("no")],
    }
    asked: list[dict[str, Any]] = []

    async def look(call: Call) -> None:
        asked.append(call.params)
        await call.serve()

    async with scheduling(tmp_path, script, config=FULL_AUTO + TOOL) as editor:
        editor.overrides["session/request_permission"] = look
        session = await editor.open()
        await editor.say(session, "go")
        await editor.say(session, "/schedule")
    (question,) = asked
    assert "run this prompt later, every weekday at 9, first on " in json.dumps(question)
    assert "this runs later, and you may not be there then" in json.dumps(question)
    assert {option["kind"] for option in question["options"]} == {"allow_once", "reject_once"}
    added, listed, wrong, _, forbidden = editor.calls
    assert added.status == listed.status == "completed"
    assert "made by the model: say https://example.com/" in listed.text
    assert 'when = "soon" (expected "in 20 minutes"' in wrong.text
    assert "general has no tool 'scheduler'" in forbidden.text
    assert "every weekday at 9" in editor.text


async def test_the_model_has_no_such_tool_where_it_is_not_configured(tmp_path: Path):
    script: Script = {"go": [uses(scheduler(op="list")), says("done")]}
    async with scheduling(tmp_path, script) as editor:
        await editor.say(await editor.open(), "go")
    assert "there is no tool" in editor.call.text
