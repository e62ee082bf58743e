"""A bug that nobody foresaw: the process ends with all it started, and what was kept stays kept."""

import json
import sys

import anyio
import pytest

from tests.e2e.test_endings import HOLD, WITHIN, prompt
from tests.fakes.editor import NOTHING, editing
from tests.fakes.held import Held, processes_ended

pytestmark = pytest.mark.anyio

FAULTY = [sys.executable, "-m", "tests.fakes.faulty_agent"]
FAULTS = ["task", "exit", "stubborn", "blocked", "unreported", "request", "reader"]


def faulty(tmp_path, fault, script=HOLD):
    return editing(tmp_path, script, capabilities=NOTHING, environment={"FAULT": fault}, lawful=False, agent=FAULTY)


async def meet_the_fault(editor, session, fault) -> int:
    """Have the agent meet its fault; its return code."""
    request = {"jsonrpc": "2.0", "id": "fault", "method": "session/set_mode", "params": {"sessionId": session}}
    await editor.send_line(request)
    if fault == "reader":  # it meets its fault at the next line
        await editor.answer_to("fault")
        await editor.send_line(request)
    with anyio.fail_after(WITHIN):
        return await editor.agent.wait()


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_crash_ends_the_process_and_its_commands_with_an_error(tmp_path, fault):
    async with faulty(tmp_path, fault) as editor:
        held = Held(editor)
        session = await editor.open()
        await editor.send_line(prompt(editor, session))
        pids = await held.pids()
        code = await meet_the_fault(editor, session, fault)
        await processes_ended(pids, within=WITHIN)
        with anyio.fail_after(WITHIN):
            await editor.agent.gone.wait()
    assert code == 1
    assert ("acp-agent has crashed" in editor.log) is (fault != "unreported")


@pytest.mark.parametrize("fault", ["task", "unreported", "request", "reader"])
async def test_what_was_told_before_a_crash_is_kept(tmp_path, fault):
    async with faulty(tmp_path, fault) as editor:
        held = Held(editor)
        session = await editor.open()
        await editor.send_line(prompt(editor, session))
        await held.pids()
        await meet_the_fault(editor, session, fault)
    async with editing(tmp_path, HOLD) as second:
        await second.initialize()
        params = {"sessionId": session, "cwd": str(second.workspace), "mcpServers": []}
        await second.ask("session/load", params)
        kinds = [update["sessionUpdate"] for update in second.recording.updates()]
        cards = [update for update in second.recording.updates() if update.get("toolCallId")]
    assert "user_message_chunk" in kinds
    assert cards[-1]["status"] in ("failed", "completed")
    audit = [json.loads(line) for line in (second.home.data / "audit.jsonl").read_text().splitlines()]
    assert any("hold.sh" in json.dumps(line) for line in audit)
