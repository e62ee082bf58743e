"""kill -9 of the agent in the middle of a turn: nothing it started is left."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import anyio
import psutil
import pytest

from tests.fakes.answers import never
from tests.fakes.editor import NOTHING, editing
from tests.fakes.held import PATIENCE, processes_ended
from tests.fakes.model_script import says, uses

pytestmark = pytest.mark.anyio

# Seconds. The promise is two; a test must also pass on a machine under load.
WITHIN = 6.0
# A child, a grandchild in the background, a daemon, one that forked twice, one without an environment; none of them
# heeds the polite signal.
HOLD = """
trap '' TERM INT HUP
sleep 1000 & child=$!
sh -c 'sleep 1000 & echo $! > grandchild; wait' &
setsid sh -c 'echo $$ > daemon; exec sleep 1000' </dev/null >/dev/null 2>&1 &
(setsid sh -c 'sleep 1000 & echo $! > orphan' &) </dev/null >/dev/null 2>&1
(env -i PATH="$PATH" setsid sh -c 'sleep 1000 & echo $! > bare' </dev/null >/dev/null 2>&1 &)
until [ -s grandchild ] && [ -s daemon ] && [ -s orphan ] && [ -s bare ]; do sleep 0.01; done
echo $$ $child $(cat grandchild daemon orphan bare) > alive
wait
"""
SCRIPT = [uses(("bash", {"command": "echo first"})), uses(("bash", {"command": "sh hold.sh"})), says("never said")]


@pytest.fixture
def stranger():
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as process:
        yield process
        process.kill()


async def test_all_that_a_command_started_is_gone_and_nothing_else(tmp_path, stranger):
    async with editing(tmp_path, SCRIPT, capabilities=NOTHING, lawful=False) as editor:
        (editor.workspace / "hold.sh").write_text(HOLD)
        alive = editor.fifo("alive")
        session = await editor.open()
        prompt = editor.prompt_params(session, "go")
        await editor.send_line({"jsonrpc": "2.0", "id": "p", "method": "session/prompt", "params": prompt})
        pids = [int(word) for word in (await alive.line()).split()]
        below = psutil.Process(editor.agent.pid).children(recursive=True)
        try:
            assert len(pids) == 6
            assert set(pids) < {each.pid for each in below}, "the watchdog is there too, and ends with them"
            os.kill(editor.agent.pid, signal.SIGKILL)
            await processes_ended([each.pid for each in below], within=WITHIN)
            assert stranger.poll() is None
        finally:
            for each in below:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()


async def test_an_agent_that_ends_as_it_should_takes_its_watchdog_with_it(tmp_path):
    async with editing(tmp_path, [SCRIPT[0], says("done")], capabilities=NOTHING) as editor:
        await editor.say(await editor.open(), "go")
        (watchdog,) = psutil.Process(editor.agent.pid).children(recursive=True)
        await editor.agent.close_stdin()
        with anyio.fail_after(PATIENCE):
            assert await editor.agent.wait() == 0
        await processes_ended([watchdog.pid], within=WITHIN)


async def test_scripts_that_a_killed_agent_left_for_a_terminal_of_the_editor_go_with_the_next(tmp_path):
    (temporary := tmp_path / "tmp").mkdir()
    script = [uses(("bash", {"command": "echo first"})), says("never said")]
    where = {"TMPDIR": str(temporary)}
    async with editing(tmp_path, script, environment=where, lawful=False) as editor:
        editor.overrides["terminal/create"] = never
        session = await editor.open()
        prompt = editor.prompt_params(session, "go")
        await editor.send_line({"jsonrpc": "2.0", "id": "p", "method": "session/prompt", "params": prompt})
        left, _title = (await editor.requested("terminal/create")).params["args"]
        os.kill(editor.agent.pid, signal.SIGKILL)
        await editor.agent.wait()
    assert "echo first" in Path(left).read_text()
    async with editing(tmp_path, script, environment=where) as editor:
        await editor.open()
        with anyio.fail_after(PATIENCE):
            while True:
                if not any(temporary.iterdir()):
                    break
                await anyio.sleep(0.01)  # nothing tells


async def test_what_a_killed_agent_was_writing_is_removed_when_the_session_is_opened_again(tmp_path):
    left = ".acp-agent-0123456789abcdef.tmp"
    async with editing(tmp_path, SCRIPT, capabilities=NOTHING, lawful=False) as editor:
        (editor.workspace / left).write_text("half")
        await editor.open()
        with anyio.fail_after(PATIENCE):
            while True:
                if not (editor.workspace / left).exists():
                    break
                await anyio.sleep(0.01)  # nothing tells
