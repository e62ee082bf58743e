"""File descriptors: given back with the session that needed them, and what happens when there are no more."""

import os
import sys

import pytest

from tests.fakes.editor import NOTHING, editing
from tests.fakes.model_script import says, uses

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
    async with editing(
        tmp_path, WORK, config=config, capabilities=NOTHING, cold=True, agent=UNCOLLECTED, lawful=False
    ) as editor:
        await editor.initialize()
        folder = str(editor.workspace)
        counts = []
        for _ in range(6):
            for _ in range(3):
                session = await editor.new_session(folder)
                assert await editor.say(session, "go") == "end_turn"
                (editor.home.config).write_text(editor.home.config.read_text() + "\n")
                assert await editor.say(session, "go") == "end_turn"
                if how != "rest":
                    await editor.ask(how, {"sessionId": session})
            counts.append(len(descriptors(editor)))
        assert counts[-1] == counts[1], descriptors(editor)
