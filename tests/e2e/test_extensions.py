"""The extension methods over a running agent, each with what it really does."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.fakes import editor as editors
from tests.fakes import mcp_server
from tests.fakes.editor import FILES_ONLY, ScriptedEditor, from_agent
from tests.fakes.fold import View
from tests.fakes.held import PATIENCE
from tests.fakes.model_script import says, uses

pytestmark = pytest.mark.anyio

editing = partial(editors.editing, serves=__name__)

NOBODY = "00000000-0000-4000-8000-000000000000"


async def ours(editor: ScriptedEditor, method: str, session: str, **params: Any) -> Any:
    return await editor.ask(f"_acp_agent/{method}", {"sessionId": session, **params})


async def refused(editor: ScriptedEditor, method: str, session: str, **params: Any) -> int:
    """The code a request is refused with."""
    return (await editor.error_of(f"_acp_agent/{method}", {"sessionId": session, **params})).code


async def loaded(editor: ScriptedEditor, session: str) -> str:
    """The whole conversation, as an editor draws it when it loads a session."""
    start = len(editor.recording.frames)
    await editor.ask("session/load", {"sessionId": session, "cwd": str(editor.workspace), "mcpServers": []})
    view = View()
    for frame in editor.recording.frames[start:]:
        if (
            from_agent(frame)
            and frame.params.get("sessionId") == session
            and frame.update["sessionUpdate"] != ("available_commands_update")
        ):
            view.take(frame.update)
    return view.seen()


def entry(folder: Path) -> dict[str, Any]:
    """The bare MCP server, as an editor names it."""
    folder.mkdir(exist_ok=True)
    env = [{"name": "TOKEN", "value": "tok-obviously-fake-4711-abcdef"}]
    return {"name": "bare", "command": sys.executable, "args": [mcp_server.__file__, str(folder)], "env": env}


def names(listed: dict[str, Any]) -> set[str]:
    return {tool["name"] for tool in listed["tools"]}


async def test_a_session_is_told_of_kept_copied_and_deleted(tmp_path):
    script = [uses(("read", {"path": "note.txt"}), text="Let me see."), says("It says hello.")]
    async with editing(tmp_path, script, capabilities=FILES_ONLY) as editor:
        (editor.workspace / "note.txt").write_text("hello\n")
        session = await editor.open()
        await editor.say(session, "What does the note say?")

        told = await ours(editor, "session/get", session, limit=2)
        assert told["session"] == {**told["session"], "sessionId": session, "cwd": str(editor.workspace), "prompts": 1}
        assert (len(told["events"]), told["events"][0]["kind"]) == (2, "user")
        rest = await ours(editor, "session/get", session, after=told["next"])
        assert "next" not in rest
        status = await ours(editor, "status", session)
        assert status["busy"] is False
        assert any(line.startswith("Model: scripted:") for line in status["lines"])
        assert status["tally"]["calls"] == 1
        (record,) = (await ours(editor, "audit/tail", session))["records"]
        assert (record["tool"], record["result"], record["caller_id"]) == ("read", {"type": "success"}, session)

        exported = await ours(editor, "session/export", session)
        taken = (await editor.ask("_acp_agent/session/import", {"session": exported["session"]}))["sessionId"]
        assert taken != session
        assert await loaded(editor, taken) == await loaded(editor, session)
        again = await ours(editor, "session/export", taken)
        assert [each["at"] for each in again["session"]["events"]] == [
            each["at"] for each in exported["session"]["events"]
        ]
        assert again["session"]["messages"] == exported["session"]["messages"]

        assert await ours(editor, "session/delete", session) == {"deleted": True}
        assert await ours(editor, "session/delete", session) == {"deleted": False}
        listed = (await editor.ask("session/list", {}))["sessions"]
        assert [each["sessionId"] for each in listed] == [taken]


async def test_servers_come_and_go_while_a_session_runs(tmp_path):
    script = [uses(("mcp_bare_echo", {"text": "it is $TOKEN"})), says("ok")]
    async with editing(tmp_path, script) as editor:
        session = await editor.open()
        assert await ours(editor, "mcp/list", session) == {"servers": []}
        start = len(editor.recording.frames)
        assert await ours(editor, "mcp/add", session, server=entry(tmp_path / "served")) == {"added": True}
        assert "mcp" in json.dumps(await editor.updated("available_commands_update", start))
        assert await refused(editor, "mcp/add", session, server=entry(tmp_path / "served")) == -32600
        with anyio.fail_after(PATIENCE):
            while (await ours(editor, "mcp/list", session))["servers"][0]["state"] != "ready":  # noqa: ASYNC110 - nothing else tells
                await anyio.sleep(0.05)
        (listed,) = (await ours(editor, "mcp/list", session))["servers"]
        assert (listed["name"], listed["origin"], listed["tools"][0]) == ("bare", "editor", "mcp_bare_echo")
        assert "mcp_bare_echo" in names(await ours(editor, "tools", session))
        await editor.say(session, "echo")
        assert editor.call.status == "completed", editor.call.text
        assert "it is [REDACTED" in editor.call.text
        assert await ours(editor, "mcp/remove", session, name="bare") == {"removed": True}
        assert await ours(editor, "mcp/remove", session, name="bare") == {"removed": False}
        assert "mcp_bare_echo" not in names(await ours(editor, "tools", session))
        await editor.say(session, "echo")
        assert [call.status for call in editor.calls] == ["completed", "failed"]
        assert "tok-obviously-fake" not in json.dumps([f.message for f in editor.recording.frames if from_agent(f)])


async def test_a_session_moves_to_another_folder(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "note.txt").write_text("of the other folder")
    old = tmp_path / "work" / "note.txt"
    script = {
        "relative": [uses(("read", {"path": "note.txt"})), says("ok")],
        "absolute": [uses(("read", {"path": str(old)})), says("ok")],
    }
    async with editing(tmp_path, script, config="[acp]\nauto_approve = 'full-auto'\n") as editor:
        old.write_text("of the first folder")
        session = await editor.open()
        await editor.say(session, "relative")
        assert await ours(editor, "working_dir/update", session, cwd=str(other)) == {"updated": True}
        assert (await ours(editor, "policy/check", session, path=str(old)))["verdict"] != "allow"
        assert (await ours(editor, "policy/check", session, path="note.txt"))["verdict"] == "allow"
        assert (await ours(editor, "policy/check", session, command="rm -rf /"))["verdict"] == "blocked"
        assert (await ours(editor, "policy/check", session, path="new", write=True))["verdict"] == "allow"
        await editor.ask("session/set_mode", {"sessionId": session, "modeId": "ask"})
        assert (await ours(editor, "policy/check", session, path="new", write=True))["verdict"] == "deny"
        assert "write" not in names(await ours(editor, "tools", session))
        await editor.say(session, "relative")
        await editor.say(session, "absolute")
        first, moved, outside = editor.calls
        assert ("of the first folder" in first.text, "of the other folder" in moved.text) == (True, True)
        assert outside.status == "failed"
        assert (await ours(editor, "session/get", session))["session"]["cwd"] == str(other)


async def test_what_cannot_be_done_now_is_refused_and_says_why(tmp_path):
    methods = {
        "session/get": {},
        "session/export": {},
        "status": {},
        "tools": {},
        "audit/tail": {},
        "mcp/list": {},
        "mcp/add": {"server": entry(tmp_path / "served")},
        "mcp/remove": {"name": "x"},
        "policy/check": {"command": "ls"},
        "working_dir/update": {"cwd": str(tmp_path)},
    }
    script = [uses(("bash", {"command": "echo begun > begun; cat held"})), says("ok")]
    async with editing(tmp_path, script, config="[acp]\nmax_sessions = 1\n", capabilities=FILES_ONLY) as editor:
        begun, held = editor.fifo("begun"), editor.fifo("held")
        session = await editor.open()
        for method, params in methods.items():
            assert await refused(editor, method, NOBODY, **params) == -32002, method
        async with editor.prompting(session):
            await begun.line()
            assert await refused(editor, "working_dir/update", session, cwd=str(tmp_path)) == -32600
            assert (await ours(editor, "status", session))["busy"] is True
            assert (await ours(editor, "session/get", session))["session"]["prompts"] == 1
            held.write_line()
            await editor.cancel(session)
        resting = session
        session = await editor.ask("session/new", {"cwd": str(editor.workspace), "mcpServers": []})
        assert (await ours(editor, "session/get", resting))["session"]["prompts"] == 1
        assert "bash" in names(await ours(editor, "tools", resting))
        assert await ours(editor, "working_dir/update", session["sessionId"], cwd=str(tmp_path)) == {"updated": True}
        await editor.ask("session/close", {"sessionId": resting})
        assert await refused(editor, "tools", resting) == -32600
        await ours(editor, "session/delete", resting)
        for method, params in methods.items():
            assert await refused(editor, method, resting, **params) == -32002, method
