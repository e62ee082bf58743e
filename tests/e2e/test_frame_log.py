"""`ACP_AGENT_LOG_FRAMES`: every message both ways, without secrets, in a file that stays small."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from acp_agent.protocol import stdio
from acp_agent.protocol.stdio import FrameLog, Overlong
from tests.fakes.editor import NOTHING, editing
from tests.fakes.model_script import says, uses

pytestmark = pytest.mark.anyio
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def entries(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


async def test_every_message_both_ways_is_recorded_without_secrets(tmp_path: Path):
    file = tmp_path / "frames.jsonl"
    script = [uses(("write", {"path": "a.txt", "content": f"token = {TOKEN}\n"})), says("done")]
    environment = {"ACP_AGENT_LOG_FRAMES": str(file)}
    async with editing(tmp_path, script, capabilities=NOTHING, environment=environment) as editor:
        session = await editor.open()
        assert await editor.say(session, f"keep {TOKEN}") == "end_turn"
        sent = [frame.message for frame in editor.recording.frames if frame.method != "initialize"]
    told = entries(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {each["direction"] for each in told} == {"in", "out"}
    assert all(each["time"].endswith("+00:00") for each in told)
    methods = [each["frame"].get("method") for each in told]
    assert methods[:2] == ["initialize", None]
    assert {"session/new", "session/prompt", "session/update", "session/request_permission"} <= set(methods)
    assert len(told) >= len(sent)
    assert TOKEN not in file.read_text(encoding="utf-8")
    assert "[REDACTED:" in file.read_text(encoding="utf-8")


async def test_a_file_that_cannot_be_opened_is_told_and_the_agent_works(tmp_path: Path):
    environment = {"ACP_AGENT_LOG_FRAMES": str(tmp_path / "missing" / "frames.jsonl")}
    async with editing(tmp_path, [says("done")], environment=environment) as editor:
        assert await editor.say(await editor.open(), "go") == "end_turn"
    assert "ACP_AGENT_LOG_FRAMES" in editor.told


def test_a_log_that_others_could_read_is_made_private(tmp_path: Path):
    file = tmp_path / "frames.jsonl"
    file.touch(mode=0o644)
    FrameLog(str(file), lambda value: value)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_full_log_is_set_aside_and_texts_are_cut_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stdio, "FRAMES_LIMIT", 60_000)
    file = tmp_path / "frames.jsonl"
    log = FrameLog(str(file), lambda value: value)
    log.received(b"not JSON")
    log.received(Overlong())
    for number in range(5):
        log.sent(json.dumps({"n": number, "text": "x" * 100_000 + "end"}).encode())
    told = entries(tmp_path / "frames.jsonl.1") + entries(file)
    assert max(path.stat().st_size for path in tmp_path.iterdir()) <= 60_000
    assert [each["text"] for each in told if "text" in each] == ["not JSON", "(a line over 32 MiB)"]
    assert told[-1]["frame"]["n"] == 4
    assert "characters left out" in told[-1]["frame"]["text"]
    assert told[-1]["frame"]["text"].endswith("end")
