"""Whole conversations, message for message, as they were when somebody last looked at them.

`ACP_AGENT_GOLDEN=write pytest tests/wire` writes them anew; read the difference before it is committed.
"""

import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from acp_agent.cli.agent_process import Direction, RecordedFrame, Recording
from tests.fakes.answers import never, rejecting
from tests.fakes.editor import NOTHING, ScriptedEditor, editing
from tests.fakes.model_script import says, uses
from tests.wire import normal, schema

GOLDEN = Path(__file__).parent / "golden"
EDIT = {"path": "poem.txt", "old_string": "violets are red", "new_string": "violets are blue"}


async def open_session(editor: ScriptedEditor) -> str:
    """A session whose commands are told in full: the first update of them does without what has to be found out."""
    session = await editor.open()
    await editor.seen(lambda frame: any(c["name"] == "memory" for c in frame.update.get("availableCommands", ())))
    return session


async def text(editor: ScriptedEditor) -> None:
    await editor.say(await open_session(editor), "hello")


async def edit(editor: ScriptedEditor) -> None:
    (editor.workspace / "poem.txt").write_text("roses are red\nviolets are red\n")
    await editor.say(await open_session(editor), "mend the poem")


async def terminal(editor: ScriptedEditor) -> None:
    await editor.say(await open_session(editor), "run it")
    await editor.requested("terminal/release")


async def local(editor: ScriptedEditor) -> None:
    (editor.workspace / "poem.txt").write_text("roses are red\nviolets are red\n")
    await editor.say(await open_session(editor), "look around")


async def refused(editor: ScriptedEditor) -> None:
    await editor.say(await open_session(editor), "try it")


async def cancelled(editor: ScriptedEditor) -> None:
    editor.overrides["session/request_permission"] = never
    session = await open_session(editor)
    async with editor.prompting(session, "write it"):
        await editor.requested("session/request_permission")
        await editor.cancel(session)


async def settings(editor: ScriptedEditor) -> None:
    session = await open_session(editor)
    await editor.ask("authenticate", {"methodId": editor.auth_method})
    await editor.ask("session/set_mode", {"sessionId": session, "modeId": "ask"})
    await editor.updated("config_option_update")
    params = {"sessionId": session, "configId": "auto_approve", "value": "full-auto"}
    await editor.ask("session/set_config_option", params)
    await editor.error_of("session/set_mode", {"sessionId": session, "modeId": "yolo"})
    await editor.error_of("session/set_config_option", {"sessionId": session, "configId": "x", "value": "y"})
    await editor.error_of("session/new", {"cwd": "relative", "mcpServers": []})
    await editor.error_of("session/prompt", editor.prompt_params("nobody", "hello"))
    await editor.error_of("session/prompt", {"sessionId": session, "prompt": "hello"})
    await editor.error_of("session/teleport", {})


async def no_model(editor: ScriptedEditor) -> None:
    session = await open_session(editor)
    await editor.say(session, "hello")
    await editor.say(session, "/run echo by hand")


CONVERSATIONS: dict[str, tuple[Callable[[ScriptedEditor], Awaitable[None]], Any, dict[str, Any]]] = {
    "text": (text, [{"thought": ["A greeting. ", "Be kind."], "text": ["Good ", "day."]}], {}),
    "edit": (edit, [uses(("read", {"path": "poem.txt"})), uses(("edit", EDIT)), says("Mended.")], {}),
    "terminal": (terminal, [uses(("bash", {"command": "echo out; exit 3"}), text="Running."), says("It failed.")], {}),
    "local": (
        local,
        [
            uses(("list_directory", {"path": "."})),
            uses(("grep", {"pattern": "violets"})),
            uses(("find_path", {"path": ".", "pattern": "*.txt"})),
            uses(("bash", {"command": "cat poem.txt; echo oops >&2; wait"})),
            says("Seen."),
        ],
        {"capabilities": NOTHING},
    ),
    "refused": (
        refused,
        [
            uses(("write", {"path": "a.txt", "content": "a\n"})),
            uses(("bash", {"command": "sudo reboot"})),
            uses(("teleport", {"to": "Mars"})),
            uses(("read", {"path": 7})),
            uses(("read", {"path": "../outside.txt"})),
            says("Nothing worked."),
        ],
        {"decide": rejecting},
    ),
    "cancelled": (cancelled, [uses(("write", {"path": "a.txt", "content": "a\n"})), says("never said")], {}),
    "settings": (settings, [says("hi")], {}),
    "no_model": (no_model, None, {}),
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_the_conversation_is_the_one_on_file(tmp_path, name):
    play, script, options = CONVERSATIONS[name]
    async with editing(tmp_path, script, **options) as editor:
        await play(editor)
    places = {str(editor.workspace): "<work>", str(editor.home.root): "<home>"}
    now = normal.conversation(editor.recording.frames, places)
    file = GOLDEN / f"{name}.jsonl"
    if os.environ.get("ACP_AGENT_GOLDEN") == "write":
        GOLDEN.mkdir(exist_ok=True)
        file.write_text(normal.lines(now), encoding="utf-8")
    on_file = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert str(tmp_path) not in normal.lines(now)
    for who in ("agent", "editor"):
        assert normal.said_by(who, now) == normal.said_by(who, on_file)


@pytest.mark.skipif(not schema.available(), reason="the protocol's schema is not beside this checkout")
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_every_message_of_the_agent_on_file_is_valid_by_the_protocols_schema(name):
    recording = Recording()
    for line in (GOLDEN / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        sender = Direction.FROM_AGENT if entry["from"] == "agent" else Direction.TO_AGENT
        recording.add(RecordedFrame(sender, entry["message"], 0.0))
    assert len(recording.frames) > 5
    assert schema.violations(recording) == []


def test_no_conversation_is_left_on_file_that_nobody_plays():
    assert {file.stem for file in GOLDEN.glob("*.jsonl")} == set(CONVERSATIONS)
