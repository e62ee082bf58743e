"""How it ends: whatever the editor does, the agent is gone soon and leaves nothing running."""

import json
import os
import signal
import subprocess

import anyio
import pytest

from tests.e2e.model_servers import stalling_model
from tests.fakes.answers import never
from tests.fakes.editor import AGENT, AGENT_CWD, NOTHING, editing
from tests.fakes.forked_agent import CAN_FORK
from tests.fakes.forked_command import ForkedCommand
from tests.fakes.held import Held, processes_ended
from tests.fakes.home import Home
from tests.fakes.model_script import says, uses

pytestmark = pytest.mark.anyio

# Seconds. The promise is two, and the bench measures it; a test must also pass on a machine under load.
WITHIN = 6.0
HOLD = [uses(("bash", {"command": Held.COMMAND})), says("never said")]
SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
INITIALIZE = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'


async def leaves(editor, how) -> int:
    """End the agent by a signal, or by closing its stdin; its return code, within what is promised."""
    if how == "EOF":
        await editor.agent.close_stdin()
    else:
        os.kill(editor.agent.pid, how)
    with anyio.fail_after(WITHIN):
        return await editor.agent.wait()


HOW = pytest.mark.parametrize("how", ["EOF", *SIGNALS], ids=lambda how: how if isinstance(how, str) else how.name)


@HOW
async def test_an_idle_agent_goes_at_once(tmp_path, how):
    async with editing(tmp_path, [says("hi")], cold=how == signal.SIGINT) as editor:  # python has a handler of its own
        await editor.open()
        await editor.updated("available_commands_update")
        code = await leaves(editor, how)
    assert code == 0 or how != "EOF"


@HOW
async def test_an_agent_that_was_just_started_goes_too(tmp_path, how):
    async with editing(tmp_path, [says("hi")], cold=True) as editor:
        await editor.initialize()
        await leaves(editor, how)


@HOW
async def test_a_local_command_dies_with_the_agent_and_so_does_its_child(tmp_path, how):
    async with editing(tmp_path, HOLD, capabilities=NOTHING, lawful=False) as editor:
        held = Held(editor)
        session = await editor.open()
        await editor.send_line(prompt(editor, session))
        pids = await held.pids()
        await leaves(editor, how)
        await processes_ended(pids, within=WITHIN)


@HOW
async def test_a_command_in_the_editors_terminal_is_ended_too(tmp_path, how):
    async with editing(tmp_path, HOLD, lawful=False) as editor:
        held = Held(editor)
        session = await editor.open()
        await editor.send_line(prompt(editor, session))
        pids = await held.pids()
        await editor.requested("terminal/wait_for_exit")
        await leaves(editor, how)
        if how != "EOF":  # nobody answers after EOF, but the editor still hears
            await editor.requested("terminal/release")
            await processes_ended(pids)


@HOW
async def test_an_open_question_does_not_hold_the_agent(tmp_path, how):
    async with editing(tmp_path, HOLD, lawful=False) as editor:
        editor.overrides["session/request_permission"] = never
        session = await editor.open()
        await editor.send_line(prompt(editor, session))
        await editor.requested("session/request_permission")
        await leaves(editor, how)


@HOW
async def test_a_model_that_streams_does_not_hold_the_agent(tmp_path, how):
    async with stalling_model("Thinking") as model, editing(tmp_path, None, lawful=False, **model.options) as editor:
        session = await editor.open()
        await editor.send_line(prompt(editor, session))
        await editor.updated("agent_message_chunk")
        await leaves(editor, how)


@HOW
async def test_a_turn_is_not_answered_with_an_error_because_the_agent_ends(tmp_path, how):
    async with editing(tmp_path, HOLD, capabilities=NOTHING, lawful=False) as editor:
        held = Held(editor)
        session = await editor.open()
        await editor.send_line(prompt(editor, session))
        await held.pids()
        await leaves(editor, how)
        with anyio.fail_after(WITHIN):
            await editor.agent.gone.wait()
    answers = [frame.message for frame in editor.recording.frames if frame.message.get("id") == "p"]
    assert [answer.get("result") for answer in answers] in ([], [{"stopReason": "cancelled"}])


def prompt(editor, session):
    return {"jsonrpc": "2.0", "id": "p", "method": "session/prompt", "params": editor.prompt_params(session, "go")}


def raw(tmp_path, **pipes) -> "subprocess.Popen[bytes] | ForkedCommand":
    home = Home(tmp_path / "home")
    home.config.write_text("")
    if CAN_FORK:
        return ForkedCommand([], home.environment(), AGENT_CWD, **pipes)
    return subprocess.Popen(AGENT, env=home.environment(), cwd=AGENT_CWD, **pipes)


def test_with_dev_null_as_stdin_it_ends_quietly(tmp_path):
    with raw(tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as agent:
        out, _ = agent.communicate(timeout=20)
    assert (agent.returncode, out) == (0, b"")


def test_what_was_asked_just_before_the_end_of_stdin_is_still_answered(tmp_path):
    new = {"jsonrpc": "2.0", "id": 2, "method": "session/new", "params": {"cwd": str(tmp_path), "mcpServers": []}}
    with raw(tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as agent:
        out, _ = agent.communicate(INITIALIZE + json.dumps(new).encode(), timeout=20)  # no newline at the very end
    answers = {message["id"]: message for message in map(json.loads, out.splitlines()) if "id" in message}
    assert answers[1]["result"]["protocolVersion"] == 1
    assert answers[2]["result"]["sessionId"]
    assert agent.returncode == 0


def test_stdin_and_stdout_may_be_files(tmp_path):
    (tmp_path / "in").write_bytes(INITIALIZE)
    with (
        open(tmp_path / "in", "rb") as source,
        open(tmp_path / "out", "wb") as target,
        raw(tmp_path, stdin=source.fileno(), stdout=target.fileno(), stderr=subprocess.PIPE) as agent,
    ):
        _, log = agent.communicate(timeout=20)
    assert agent.returncode == 0, log
    (line,) = (tmp_path / "out").read_text().splitlines()
    assert json.loads(line)["result"]["protocolVersion"] == 1


def test_an_editor_that_stopped_reading_does_not_keep_the_agent_alive(tmp_path):
    home = Home(tmp_path / "home")
    home.config.write_text("")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(AGENT, env=home.environment(), cwd=AGENT_CWD, **pipes) as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        agent.stdin.write(INITIALIZE)
        agent.stdin.flush()
        agent.stdout.readline()
        agent.stdout.close()
        again = INITIALIZE.replace(b'"id":1', b'"id":2')
        agent.stdin.write(again)
        agent.stdin.flush()
        assert agent.wait(timeout=20) == 0
