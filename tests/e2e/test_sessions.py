"""The lives of sessions in real processes: two that want one, one that is killed, one whose editor is gone."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.cli.agent_process import text_at
from tests.e2e.aided import aided, told
from tests.fakes.answers import Call
from tests.fakes.editor import NOTHING, ScriptedEditor, editing, from_agent
from tests.fakes.held import PATIENCE, Held, processes_ended
from tests.fakes.model_script import Script, says, uses

pytestmark = pytest.mark.anyio

INVALID, NOT_FOUND, NO_METHOD, CANCELLED = -32600, -32002, -32601, -32800
FORK = {"ACP_AGENT_ACP_FORK": "1"}


def place(editor: ScriptedEditor, session: str) -> dict[str, Any]:
    return {"sessionId": session, "cwd": str(editor.workspace), "mcpServers": []}


def shown(editor: ScriptedEditor, start: int = 0) -> list[str]:
    """The messages of both sides from a frame on."""
    updates = [frame.update for frame in editor.recording.frames[start:]]
    return [
        text_at(each, "content", "text")
        for each in updates
        if each.get("sessionUpdate") in ("user_message_chunk", "agent_message_chunk")
    ]


async def listed(editor: ScriptedEditor) -> list[str]:
    return [each["sessionId"] for each in (await editor.ask("session/list", {}))["sessions"]]


async def test_a_session_is_one_processs_at_a_time_and_goes_on_when_that_one_was_killed(tmp_path: Path) -> None:
    async with editing(tmp_path, [says("answer")], lawful=False) as first:
        session = await first.open()
        await first.say(session, "one")
        async with editing(tmp_path, [says("there")], environment=FORK, lawful=False, short_waits=True) as second:
            await second.initialize()
            assert await listed(second) == [session]
            for method in ("session/load", "session/resume"):
                error = await second.error_of(method, place(second, session))
                assert (error.code, "open in another process" in str(error)) == (INVALID, True)
            assert (await second.error_of("session/prompt", second.prompt_params(session, "x"))).code == NOT_FOUND
            fork = (await second.ask("session/fork", place(second, session)))["sessionId"]
            assert await second.say(fork, "go another way") == "end_turn"
            assert await first.say(session, "two") == "end_turn", "the first goes on undisturbed"
            os.kill(first.agent.pid, signal.SIGKILL)
            await processes_ended([first.agent.pid])
            start = len(second.recording.frames)
            await second.ask("session/load", place(second, session))
            assert shown(second, start) == ["one", "answer", "two", "answer"]
            assert await second.say(session, "three") == "end_turn"
            start = len(second.recording.frames)
            await second.ask("session/load", place(second, fork))
            assert shown(second, start) == ["one", "answer", "go another way", "there"]
            assert set(await listed(second)) == {session, fork}


async def test_a_fork_is_not_served_where_nobody_asked_for_it(tmp_path: Path) -> None:
    async with editing(tmp_path, [says("x")]) as editor:
        session = await editor.open()
        assert (await editor.error_of("session/fork", place(editor, session))).code == NO_METHOD


async def test_the_model_knows_the_conversation_after_a_rest_a_load_and_in_another_process(tmp_path: Path) -> None:
    config = "[acp]\nmax_sessions = 1\n"
    async with aided(tmp_path, "first answer", "second answer", "third answer", config=config) as (agent, model, _):
        editor = agent.editor
        await agent.say("the word is xyzzy")
        await editor.ask("session/new", {"cwd": str(editor.workspace), "mcpServers": []})  # the other one rests
        await agent.say("second prompt")
        (session,) = [each for each in await listed(editor) if each == agent._session]
        await editor.ask("session/load", place(editor, session))
        await agent.say("third prompt")
        for request in model.requests[1:]:
            assert "xyzzy" in told(request)
            assert "first answer" in told(request)
        assert "second answer" in told(model.requests[2])
    async with aided(tmp_path, "fourth answer", config=config) as (agent, model, _):
        await agent.editor.initialize()
        await agent.editor.ask("session/resume", place(agent.editor, session))
        assert await agent.editor.say(session, "fourth prompt") == "end_turn"
        conversation = told(model.requests[0])
        words = ("xyzzy", "first answer", "second prompt", "second answer", "third prompt", "third answer", "fourth")
        assert [word for word in words if word not in conversation] == []


async def test_a_question_that_is_open_when_the_session_is_closed_is_cancelled_and_late_answers_hurt_nobody(
    tmp_path: Path,
) -> None:
    calls: list[Call] = []

    async def remember(call: Call) -> None:
        calls.append(call)

    script: Script = {"go on": [says("and on")], "": [uses(("bash", {"command": "touch never"})), says("unsaid")]}
    async with editing(tmp_path, script, capabilities=NOTHING, lawful=False) as editor:
        editor.overrides["session/request_permission"] = remember
        session = await editor.open()
        async with editor.prompting(session) as turn:
            await editor.requested("session/request_permission")
            assert await editor.ask("session/close", {"sessionId": session}) == {}
        assert turn.stop_reason == "cancelled"
        answers = [f.message for f in editor.recording.frames if from_agent(f) and not f.method]
        assert [answer["result"] for answer in answers[-2:]] == [{"stopReason": "cancelled"}, {}]
        selected = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
        for answer in (selected, selected, {"outcome": 7}, "what?", None, [], {"outcome": {"outcome": "selected"}}):
            await calls[0].reply(answer)
        await calls[0].refuse(-32603, "cannot")
        start = len(editor.recording.frames)
        await editor.ask("session/load", place(editor, session))
        ends = [f.update["status"] for f in editor.recording.frames[start:] if f.update.get("toolCallId")]
        assert ends[-1] == "failed"
        assert await editor.say(session, "go on") == "end_turn"
        assert not (editor.workspace / "never").exists()
        async with anyio.create_task_group() as tasks:  # and all of it once more, at once
            tasks.start_soon(editor.ask, "session/delete", {"sessionId": session})
            tasks.start_soon(editor.ask, "session/delete", {"sessionId": session})
        await calls[0].reply(selected)
        assert await listed(editor) == []
        assert (await editor.error_of("session/load", place(editor, session))).code == NOT_FOUND


async def test_a_session_is_deleted_in_the_middle_of_a_command_which_ends_with_it(tmp_path: Path) -> None:
    script = [uses(("bash", {"command": Held.COMMAND})), says("unsaid")]
    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        held = Held(editor)
        session = await editor.open()
        async with editor.prompting(session) as turn:
            pids = await held.pids()
            assert await editor.ask("session/delete", {"sessionId": session}) == {}
        assert turn.stop_reason == "cancelled"
        await processes_ended(pids)
        assert await listed(editor) == []


async def test_an_editor_that_goes_in_the_middle_of_a_load_leaves_a_session_that_can_be_loaded(
    tmp_path: Path,
) -> None:
    """The agent is told to end while it tells the past to an editor that does not read."""
    long = "x" * 30_000
    async with editing(tmp_path, [says(long)]) as editor:
        session = await editor.open()
        for number in range(4):
            await editor.say(session, f"{number}")
    async with editing(tmp_path, [says("on")], lawful=False) as editor:
        await editor.initialize()
        request = {"jsonrpc": "2.0", "id": "l", "method": "session/load", "params": place(editor, session)}
        await editor.send_line(request)
        await editor.updated("agent_message_chunk")
        pid = editor.agent.pid
        os.kill(pid, signal.SIGTERM)
        await processes_ended([pid])
    async with editing(tmp_path, [says("on")]) as editor:
        await editor.initialize()
        await editor.ask("session/load", place(editor, session))
        assert len([text for text in shown(editor) if text == long]) == 4
        assert await editor.say(session, "go on") == "end_turn"


async def test_loads_and_lists_can_be_cancelled_and_are_answered_either_way(tmp_path: Path) -> None:
    async with editing(tmp_path, [says("y" * 200_000)], lawful=False) as editor:
        session = await editor.open()
        for number in range(5):
            await editor.say(session, f"{number}")
        await editor.ask("session/close", {"sessionId": session})
        for number, method in enumerate(("session/load", "session/list") * 4):
            params = place(editor, session) if method == "session/load" else {}
            await editor.send_lines(
                {"jsonrpc": "2.0", "id": f"r{number}", "method": method, "params": params},
                {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": f"r{number}"}},
            )
            answer = await editor.answer_to(f"r{number}")
            assert "result" in answer or answer["error"]["code"] == CANCELLED, json.dumps(answer)[:200]
        with anyio.fail_after(PATIENCE):
            await editor.ask("session/load", place(editor, session))
        assert await editor.say(session, "go on") == "end_turn"
