"""Sub-agents on the wire: whose card shows what, what the model gets of them, and that nothing is left of them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from acp_agent.cli.agent_process import RecordedFrame, SeenCall
from tests.e2e.model_servers import meeting_model
from tests.fakes.answers import Call
from tests.fakes.editor import NOTHING, ScriptedEditor, editing
from tests.fakes.model_script import Script, says, uses

pytestmark = pytest.mark.anyio


def agent(**arguments: str) -> tuple[str, dict[str, Any]]:
    return "agent", arguments


def run(name: str, task: str) -> tuple[str, dict[str, Any]]:
    return agent(op="run", agent=name, task=task)


def parent_of(update: dict[str, Any]) -> str:
    return update.get("_meta", {}).get("claudeCode", {}).get("parentToolUseId", "")


def nested(editor: ScriptedEditor) -> dict[str, list[SeenCall]]:
    """The calls of sub-agents by the title of the card that they stand under."""
    titles = {call.id: call.first["title"] for call in editor.calls}
    found: dict[str, list[SeenCall]] = {}
    for call in editor.calls:
        if parent := parent_of(call.first):
            found.setdefault(titles[parent], []).append(call)
            assert parent_of(call.final) == parent
    return found


def assert_no_card_is_open(editor: ScriptedEditor) -> None:
    assert [call.first["title"] for call in editor.calls if call.status not in ("completed", "failed")] == []


def messages(editor: ScriptedEditor) -> str:
    frames: Sequence[RecordedFrame] = editor.recording.frames
    chunks = [frame.update for frame in frames if frame.update.get("sessionUpdate") == "agent_message_chunk"]
    return "".join(chunk["content"]["text"] for chunk in chunks)


async def test_a_sub_agent_reads_under_the_card_of_its_call_and_only_its_report_comes_back(tmp_path: Path):
    script: Script = {
        "^find": [uses(("read", {"path": "a.txt"}), text="I look into a.txt."), says("a.txt:1 holds one.")],
        "^go": [uses(run("explore", "find the number")), says("It is one.")],
    }
    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        (editor.workspace / "a.txt").write_text("one\n")
        assert await editor.say(await editor.open(), "go") == "end_turn"
    (reading,) = nested(editor)["explore: find the number"]
    assert reading.status == "completed"
    card = editor.calls[0]
    assert card.first["kind"] == "think"
    assert card.final["content"][0]["content"]["text"] == "a.txt:1 holds one."
    assert card.final["rawOutput"]["run"] == "explore-1"
    assert card.final["rawOutput"]["conversation"].startswith("overflow:")
    assert messages(editor) == "It is one."
    assert_no_card_is_open(editor)


async def test_a_sub_agent_that_may_only_read_has_no_other_tool_and_is_refused_one(tmp_path: Path):
    calls = [("write", {"path": "b", "content": "x"}), ("bash", {"command": "touch c"}), run("general", "find more")]
    script: Script = {
        "^find": [uses(*calls), says("I could not.")],
        "^go": [uses(run("explore", "find")), says("done")],
    }
    config = "[acp]\nauto_approve = 'full-auto'\n"
    async with editing(tmp_path, script, capabilities=NOTHING, config=config) as editor:
        await editor.say(await editor.open(), "go")
        assert sorted(path.name for path in editor.workspace.iterdir()) == []
    refused = nested(editor)["explore: find"]
    assert [call.status for call in refused] == ["failed"] * 3
    assert "has no tool 'write'" in refused[0].text
    assert "explore may only read" in refused[1].text
    assert "has no tool 'agent'" in refused[2].text


async def test_three_that_explore_ask_their_models_at_the_same_time(tmp_path: Path):
    async with (
        meeting_model("find a", "find b", "find c") as model,  # it answers none before all three have asked
        editing(tmp_path, None, capabilities=NOTHING, **model.options) as editor,
    ):
        await editor.say(await editor.open(), "go")
    assert [card.final["rawOutput"]["output"] for card in editor.calls] == [
        f"report of find {letter}" for letter in "abc"
    ]
    assert messages(editor) == "all have reported"
    assert_no_card_is_open(editor)


async def test_the_question_of_a_sub_agent_says_who_asks(tmp_path: Path):
    script: Script = {
        "^make": [uses(("write", {"path": "b", "content": "x"})), says("written")],
        "^go": [uses(run("general", "make b")), says("done")],
    }
    asked: list[dict[str, Any]] = []

    async def look(call: Call) -> None:
        asked.append(call.params)
        await call.serve()

    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        editor.overrides["session/request_permission"] = look
        await editor.say(await editor.open(), "go")
        assert (editor.workspace / "b").read_text() == "x"
    assert "general (sub-agent general-1) asks" in json.dumps(asked[0])


async def test_the_audit_says_which_sub_agent_made_a_call(tmp_path: Path):
    script: Script = {
        "^find": [uses(("list_directory", {"path": "."})), says("nothing")],
        "^go": [uses(run("explore", "find")), says("done")],
    }
    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        session = await editor.open()
        await editor.say(session, "go")
        (file,) = Path(editor.home.data).rglob("audit.jsonl")
        records = [json.loads(line) for line in file.read_text().splitlines()]
    made = {record["tool"]: record["caller_id"] for record in records if "tool" in record}
    assert made == {"list_directory": f"{session}/explore-1", "agent": session}
