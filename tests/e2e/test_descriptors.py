"""File descriptors: given back with the session that needed them, and what happens when there are no more."""

import os
import sys
from typing import Any

import anyio
import pytest

from tests.e2e.test_endings import WITHIN, leaves, prompt
from tests.fakes.editor import NOTHING, editing
from tests.fakes.held import processes_ended
from tests.fakes.limited_agent import VARIABLE
from tests.fakes.model_script import says, uses
from tests.fakes.plain_editor import JsonRpcError

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts in /proc")]

UNCOLLECTED = [sys.executable, "-m", "tests.fakes.uncollected_agent"]
WORK = [
    uses(("bash", {"command": "echo hi"})),
    uses(("grep", {"pattern": "x"})),
    uses(("write", {"path": "a.txt", "content": "x\n"})),
    says("ok"),
]


def descriptors(editor) -> dict[str, str]:
    """What the agent has open, by number."""
    folder = f"/proc/{editor.agent.pid}/fd"
    found = {}
    for number in os.listdir(folder):
        try:
            found[number] = os.readlink(f"{folder}/{number}")
        except FileNotFoundError:
            continue
    return found


@pytest.mark.parametrize("how", ["session/close", "session/delete", "rest"])
async def test_a_session_that_ends_gives_back_every_descriptor(tmp_path, how):
    config = '[acp]\nmax_sessions = 2\nauto_approve = "full-auto"\n'
    async with editing(tmp_path, WORK, config=config, capabilities=NOTHING, agent=UNCOLLECTED, lawful=False) as editor:
        await editor.initialize()
        folder = str(editor.workspace)
        counts = []
        for _ in range(3):
            for _ in range(2):
                session = await editor.new_session(folder)
                assert await editor.say(session, "go") == "end_turn"
                (editor.home.config).write_text(editor.home.config.read_text() + "\n")
                assert await editor.say(session, "go") == "end_turn"
                if how != "rest":
                    await editor.ask(how, {"sessionId": session})
            counts.append(len(descriptors(editor)))
        assert counts[-1] == counts[1], descriptors(editor)


def limited(soft: int, hard: int, *, cold: bool = False) -> dict[str, Any]:
    """The options of an agent that may open so many files; a cold one also needs some to load its modules."""
    agent = [sys.executable, "-m", "tests.fakes.limited_agent"]
    return {"agent": agent, "environment": {VARIABLE: f"{soft} {hard}"}, "cold": cold, "lawful": False}


@pytest.mark.parametrize("limit", [20, *(pytest.param(each, marks=pytest.mark.soak) for each in (24, 48, 80)), 32, 64])
async def test_out_of_descriptors_every_request_is_answered_and_the_end_of_stdin_ends_it(tmp_path, limit):
    async with editing(tmp_path, WORK, capabilities=NOTHING, **limited(limit, limit, cold=limit == 20)) as editor:
        await editor.initialize()
        for number in range(40):
            request = {"jsonrpc": "2.0", "id": f"new {number}", "method": "session/new"}
            await editor.send_line({**request, "params": {"cwd": str(editor.workspace), "mcpServers": []}})
        for number in range(40):
            await editor.answer_to(f"new {number}")
        await editor.send_line({"jsonrpc": "2.0", "id": "list", "method": "session/list", "params": {}})
        listed = await editor.answer_to("list")
        for session in [each["sessionId"] for each in listed.get("result", {"sessions": []})["sessions"][:5]]:
            await editor.send_line({**prompt(editor, session), "id": session})
            await editor.answer_to(session)
        assert await leaves(editor, "EOF") == 0


async def test_a_session_too_many_is_refused_with_the_reason_and_all_commands_end_with_the_agent(tmp_path):
    script = [uses(("bash", {"command": "echo $$ > alive; exec sleep 60"})), says("never said")]
    async with editing(tmp_path, script, capabilities=NOTHING, **limited(96, 96)) as editor:
        alive = editor.fifo("alive")
        await editor.initialize()
        pids: list[int] = []
        for _ in range(40):
            try:
                session = await editor.new_session(str(editor.workspace))
            except JsonRpcError as error:
                refusal = str(error)
                break
            await editor.send_line({**prompt(editor, session), "id": session})
            pids.append(int(await alive.line()))
        assert len(pids) > 2
        assert "too many files are open" in refusal
        assert await leaves(editor, "EOF") == 0
        await processes_ended(pids, within=WITHIN)


async def test_the_agent_raises_its_limit_and_its_commands_keep_the_former_one(tmp_path):
    script = [uses(("bash", {"command": "ulimit -S -n; (ulimit -S -n)"})), says("ok")]
    async with editing(tmp_path, script, capabilities=NOTHING, **limited(128, 512)) as editor:
        session = await editor.open()
        assert await editor.say(session, "go") == "end_turn"
        assert "128\n128" in editor.call.text
        limits = await anyio.Path(f"/proc/{editor.agent.pid}/limits").read_text()
    (line,) = (line for line in limits.splitlines() if line.startswith("Max open files"))
    assert line.split()[3:5] == ["512", "512"]
