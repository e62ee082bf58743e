"""One conversation in which as many words of the protocol are used as one agent can use."""

import base64
import json
import sys
from pathlib import Path
from typing import Any

from acp_agent.cli.agent_process import Direction, RecordedFrame
from tests.fakes import asking_server
from tests.fakes.answers import answering, choosing, never
from tests.fakes.editor import ScriptedEditor, from_agent
from tests.fakes.model_script import Script, says, uses, write_script
from tests.mcp.stage import HOSTILE

EVERYTHING = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "auth": {"terminal": True},
    "session": {"configOptions": {"boolean": {}}, "notices": {}, "compaction": {}},
    "elicitation": {"form": {}, "url": {}},
}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
UNUSABLE = {"type": "http", "name": "unusable", "url": "gopher://127.0.0.1/", "headers": []}
CONFIG = """
[[llm.models]]
id = "anthropic:claude-opus-4-6"
context_window = 100000
[[llm.models]]
id = "local:qwen3:8b"
context_window = 100000
[[llm.providers]]
name = "local"
type = "ollama"
base_url = "http://127.0.0.1:9"
thinking = true
[acp]
rich_kinds = true
[agent]
max_tool_iterations = 3
compress_provider = "{chores}"
"""
KEYS = {"ANTHROPIC_API_KEY": "obviously-fake-key"}
FIELDS = {
    "email": {"type": "string", "format": "email"},
    "uri": {"type": "string", "format": "uri"},
    "day": {"type": "string", "format": "date"},
    "moment": {"type": "string", "format": "date-time"},
    "seats": {"type": "integer"},
    "weight": {"type": "number"},
    "window": {"type": "boolean"},
    "days": {"type": "array", "items": {"type": "string", "enum": ["Mon", "Tue"]}},
}
FORM = {"mode": "form", "message": "Who travels?", "requestedSchema": {"type": "object", "properties": FIELDS}}
FILLED_IN = {
    "email": "ada@example.com",
    "uri": "https://example.com/",
    "day": "2026-11-22",
    "moment": "2026-11-22T10:00:00Z",
    "seats": 2,
    "weight": 70.5,
    "window": True,
    "days": ["Mon"],
}
PLAN = [
    {"content": "look", "status": "completed", "priority": "high"},
    {"content": "mend", "status": "in_progress", "priority": "medium"},
    {"content": "check", "status": "pending", "priority": "low"},
]
QUESTION = {"question": "Which?", "multiple": True, "options": [{"label": "this"}, {"label": "that"}]}
SCRIPT: Script = {
    "do: everything": [{"thought": "Hm. ", "text": "I see.", "stop": "max_tokens"}],
    "do: look": [uses(("read", {"path": "dot.png"}), ("grep", {"pattern": "violets"})), says("Seen.")],
    "do: change": [
        uses(("edit", {"path": "poem.txt", "old_string": "red", "new_string": "blue"})),
        uses(("move_path", {"source": "poem.txt", "destination": "ode.txt"}), ("delete_path", {"path": "ode.txt"})),
        says("Changed."),
    ],
    "do: rounds": [uses(("list_directory", {"path": path})) for path in (".", "..", "/", "~")],
    "do: run": [uses(("bash", {"command": "exit 3"}), ("fetch", {"url": "https://127.0.0.1/"})), says("It fails.")],
    "do: plan": [uses(("update_plan", {"entries": PLAN})), says("Planned.")],
    "do: ask": [uses(("ask_user", {"questions": [QUESTION]})), says("Thank you.")],
    "do: form": [uses(("mcp_hostile_echo", {"x": json.dumps([FORM])})), says("Booked.")],
    "do: sign in": [uses(("mcp_asking_sign_in", {})), says("Signed in.")],
    "do: wait": [uses(("bash", {"command": "sleep 60; wait"})), says("never said")],
    "do: refuse": [{"text": "No.", "stop": "refusal"}],
    "do: fail": [{"error": {"kind": "auth", "message": "no"}}],
}
CHORES: Script = {
    "keep it": [says("It was about birds.")],
    "break": [{"error": {"kind": "invalid_request", "message": "too long"}}],
    "never end": [{"hang": True}],
}


def config(folder: Path) -> str:
    """The configuration; the model that sums up has a script of its own in a folder of its own."""
    folder.mkdir()
    return CONFIG.replace("{chores}", write_script(folder, CHORES))


async def whole_story(editor: ScriptedEditor) -> None:
    """Needs an editor that offers EVERYTHING, SCRIPT, `config` and KEYS."""
    (editor.workspace / "poem.txt").write_text("roses are red\n")
    (editor.workspace / "dot.png").write_bytes(base64.b64decode(PIXEL))
    await editor.initialize()
    await _authentication(editor)
    session = await _opening(editor)
    await _settings(editor, session)
    await _turns(editor, session)
    await _questions(editor, session)
    await _ends(editor, session)
    await _compactions(editor, session)
    await _taken_up(editor, session)
    await _refusals(editor, session)


def place(editor: ScriptedEditor, **more: Any) -> dict[str, Any]:
    return {"cwd": str(editor.workspace), "mcpServers": [], **more}


async def _authentication(editor: ScriptedEditor) -> None:
    await editor.ask("logout", {})
    assert (await editor.error_of("session/new", place(editor))).code == -32000
    await editor.ask("authenticate", {"methodId": editor.auth_method})


async def _opening(editor: ScriptedEditor) -> str:
    python = {"command": sys.executable, "env": []}
    hostile = {"name": "hostile", "args": ["-I", "-S", "-B", HOSTILE, "elicits"], **python}
    asking = {"name": "asking", "args": [asking_server.__file__], **python}
    servers = [hostile, asking, UNUSABLE]
    session = (await editor.ask("session/new", place(editor, mcpServers=servers)))["sessionId"]
    await editor.updated("available_commands_update")
    return session


async def _settings(editor: ScriptedEditor, session: str) -> None:
    start = len(editor.recording.frames)
    await editor.ask("session/set_mode", {"sessionId": session, "modeId": "ask"})
    await editor.updated("current_mode_update", start)
    await editor.updated("config_option_update", start)

    async def choose(option: str, value: object, **more: str) -> list[dict[str, Any]]:
        params = {"sessionId": session, "configId": option, "value": value, **more}
        return (await editor.ask("session/set_config_option", params))["configOptions"]

    await choose("mode", "code")
    ours = next(each for each in await choose("auto_approve", "full-auto") if each["id"] == "model")["currentValue"]
    await choose("auto_approve", "suggest")
    await choose("model", "anthropic:claude-opus-4-6")
    await choose("model", "local:qwen3:8b")
    await choose("thinking", False, type="boolean")
    await choose("model", ours)


async def _turns(editor: ScriptedEditor, session: str) -> None:
    resource = {"uri": "file:///notes.md", "mimeType": "text/markdown", "text": "# embedded"}
    prompt = [
        {"type": "text", "text": "do: everything", "annotations": {"audience": ["user", "assistant"]}},
        {"type": "image", "data": PIXEL, "mimeType": "image/png"},
        {"type": "resource", "resource": resource},
        {"type": "resource", "resource": {"uri": "file:///dot.bin", "blob": "AAEC"}},
        {"type": "resource_link", "uri": (editor.workspace / "poem.txt").as_uri(), "name": "poem.txt"},
    ]
    await editor.ask("session/prompt", {"sessionId": session, "prompt": prompt})
    for word in ("look", "change", "run", "plan"):
        await editor.say(session, f"do: {word}")
    editor.decide = choosing("reject_once")
    await editor.say(session, "do: run")
    await editor.updated("session_info_update")


async def _questions(editor: ScriptedEditor, session: str) -> None:
    editor.decide = choosing("allow_once")
    for answer in ({"action": "accept", "content": {"q1": ["this"]}}, {"action": "decline"}, {"action": "cancel"}):
        editor.overrides["elicitation/create"] = answering(answer)
        await editor.say(session, "do: ask")
    editor.overrides["elicitation/create"] = answering({"action": "accept", "content": FILLED_IN})
    await editor.say(session, "do: form")
    editor.overrides["elicitation/create"] = answering({"action": "accept"})
    await editor.say(session, "do: sign in")


async def _ends(editor: ScriptedEditor, session: str) -> None:
    for word in ("refuse", "fail"):
        await editor.say(session, f"do: {word}")
    start = len(editor.recording.frames)
    async with editor.prompting(session, "do: wait") as turn:
        await editor.requested("terminal/wait_for_exit", start)
        await editor.cancel(session)
    assert turn.stop_reason == "cancelled"
    await editor.say(session, "and?")  # the script takes a prompt behind results of tools for a part of the turn before
    editor.overrides["elicitation/create"] = never
    start = len(editor.recording.frames)
    async with editor.prompting(session, "do: ask"):
        await editor.requested("elicitation/create", start)
        await editor.cancel(session)
        await editor.requested("$/cancel_request", start)
    await editor.say(session, "and?")
    editor.overrides["session/request_permission"] = answering({"outcome": {"outcome": "cancelled"}})
    await editor.say(session, "do: wait")
    del editor.overrides["session/request_permission"]


async def _compactions(editor: ScriptedEditor, session: str) -> None:
    await editor.say(session, "/compact break")
    start = len(editor.recording.frames)
    async with editor.prompting(session, "/compact never end"):
        await editor.updated("compaction_update", start)
        await editor.cancel(session)
    await editor.say(session, "/compact keep it")


async def _taken_up(editor: ScriptedEditor, session: str) -> None:
    await editor.ask("session/list", {"cwd": str(editor.workspace)})
    await editor.ask("session/close", {"sessionId": session})
    await editor.ask("session/load", {"sessionId": session, **place(editor)})
    await editor.ask("session/resume", {"sessionId": session, "cwd": str(editor.workspace)})
    for number in ("one", 9000):
        start = len(editor.recording.frames)
        params = editor.prompt_params(session, "do: wait")
        await editor.agent.send({"jsonrpc": "2.0", "id": number, "method": "session/prompt", "params": params})
        await editor.requested("terminal/wait_for_exit", start)
        await editor.agent.notify("$/cancel_request", {"requestId": number})
        assert (await editor.answer_to(number, start))["result"]["stopReason"] == "cancelled"
        await editor.say(session, "and?")
    load = {"jsonrpc": "2.0", "id": "load", "method": "session/load", "params": {"sessionId": session, **place(editor)}}
    gone = {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": "load"}}
    start = len(editor.recording.frames)
    for message in (load, gone):
        editor.recording.add(RecordedFrame(Direction.TO_AGENT, message, 0.0))
    await editor.send_lines(load, gone)
    assert (await editor.answer_to("load", start))["error"]["code"] == -32800
    await editor.agent.notify("$/cancel_request", {"requestId": None})
    await editor.ask("session/delete", {"sessionId": session})


async def _refusals(editor: ScriptedEditor, session: str) -> None:
    assert (await editor.error_of("session/load", {"sessionId": session, **place(editor)})).code == -32002
    assert (await editor.error_of("session/new", {"cwd": "here", "mcpServers": []})).code == -32602
    assert (await editor.error_of("session/teleport", {})).code == -32601
    other = await editor.new_session(str(editor.workspace))
    assert (await editor.error_of("session/set_mode", {"sessionId": other, "modeId": "yolo"})).code == -32600
    assert await editor.say(other, "do: rounds") == "max_turn_requests"
    start = len(editor.recording.frames)
    await editor.send_line(b"{")
    await editor.seen(lambda frame: from_agent(frame) and at_code(frame) == -32700, start)


def at_code(frame: Any) -> int | None:
    error = frame.message.get("error")
    return error.get("code") if frame.direction is Direction.FROM_AGENT and isinstance(error, dict) else None
