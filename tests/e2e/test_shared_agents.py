"""An agent that serves a module of tests: the next test finds it as if it were new, or another one."""

import os
import signal
from functools import partial

import pytest

from tests.fakes import editor as editors
from tests.fakes.answers import never
from tests.fakes.forked_agent import CAN_FORK
from tests.fakes.model_script import says, uses

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not CAN_FORK, reason="each agent is started anew")]

editing = partial(editors.editing, serves=__name__)
TOUCH = [uses(("bash", {"command": "touch touched"})), says("ok")]


async def pid_of_next(tmp_path) -> int:
    """The agent that the next test gets, which works and has nothing of the last one."""
    folder = tmp_path / "next"
    folder.mkdir(exist_ok=True)
    async with editing(folder, [says("fresh")]) as editor:
        assert await editor.say(await editor.open(), "hi") == "end_turn"
        assert editor.text == "fresh"
        assert editor.calls == []
        # A configuration that was written a moment ago is read twice, which is logged.
        assert [line for line in editor.log.splitlines() if "configuration reloaded" not in line] == []
        return editor.agent.pid


async def test_it_serves_the_next_test_also_when_a_turn_was_left_open(tmp_path):
    async with editing(tmp_path, TOUCH) as editor:
        editor.overrides["session/request_permission"] = never
        session = await editor.open()
        params = editor.prompt_params(session, "go")
        await editor.agent.send({"jsonrpc": "2.0", "id": "p", "method": "session/prompt", "params": params})
        await editor.requested("session/request_permission")
        pid = editor.agent.pid
    assert await pid_of_next(tmp_path) == pid
    assert await pid_of_next(tmp_path) == pid
    assert not (editor.workspace / "touched").exists()


async def test_the_audit_of_a_test_is_its_own(tmp_path):
    for _ in range(2):
        async with editing(tmp_path, TOUCH) as editor:
            await editor.say(await editor.open(), "go")
            assert ["touch touched" in line for line in editor.audit()].count(True) == 1
            whole = (editor.home.data / "audit.jsonl").read_text().splitlines()
    assert len(whole) > len(editor.audit())


async def test_one_whose_test_failed_serves_no_other_and_the_failure_shows_its_log(tmp_path, capsys):
    pids = []

    async def fail() -> None:
        async with editing(tmp_path, [says("hi")]) as editor:
            await editor.open()
            pids.append(editor.agent.pid)
            editor.agent.take_log(b"what the agent logged")
            raise AssertionError("a failure")

    with pytest.raises(AssertionError, match="a failure"):
        await fail()
    assert "what the agent logged" in capsys.readouterr().err
    assert await pid_of_next(tmp_path) != pids[0]
    assert not os.path.exists(f"/proc/{pids[0]}")


async def test_one_that_was_killed_serves_no_other(tmp_path):
    async with editing(tmp_path, [says("hi")], lawful=False) as editor:
        await editor.open()
        pid = editor.agent.pid
        os.kill(pid, signal.SIGKILL)
    assert await pid_of_next(tmp_path) != pid


async def test_one_that_is_configured_otherwise_takes_that_up_and_one_of_another_editor_is_another(tmp_path):
    pid = await pid_of_next(tmp_path)
    async with editing(tmp_path, [says("hi")], config="[acp]\nmax_sessions = 1\nmode = 'ask'\n") as editor:
        assert editor.agent.pid == pid
        session = await editor.open()
        assert await editor.say(session, "/status") == "end_turn"
        assert "ask" in editor.text
    async with editing(tmp_path, [says("hi")], capabilities={}) as editor:
        assert editor.agent.pid != pid
