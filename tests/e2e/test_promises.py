"""What the user has seen is kept: looked up in the database and the audit when the editor reads it."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from acp_agent.cli.agent_process import RecordedFrame
from tests.e2e.model_servers import Thought
from tests.e2e.thoughts import Mind, thinking
from tests.fakes.editor import from_agent
from tests.fakes.plain_editor import LiveRecording

pytestmark = pytest.mark.anyio


class Kept:
    """What an agent has stored by now: the kinds and bodies of its events, and the ids of calls in its audit."""

    def __init__(self, data: Path) -> None:
        self._data = data

    def events(self) -> str:
        with closing(sqlite3.connect(f"file:{self._data / 'acp-agent.db'}?mode=ro", uri=True)) as database:
            rows = database.execute("SELECT kind, CAST(body AS TEXT) FROM told ORDER BY seq").fetchall()
        return "\n".join(f"{kind} {body}" for kind, body in rows)

    def audited(self) -> int:
        lines = (self._data / "audit.jsonl").read_text().splitlines()
        return sum(json.loads(line)["kind"] == "tool" for line in lines)


async def test_every_update_is_stored_when_the_editor_reads_it_and_each_result_is_audited(tmp_path):
    mind, seen, early = Mind(), list[str](), list[str]()

    def think() -> Thought:
        early.extend([] if "the words of the user" in kept.events() else ["prompt"])
        yield from mind.call(("read", {"path": "a.txt"}), ("bash", {"command": "echo two"}))
        yield from mind.call(("write", {"path": "b.txt", "content": "three\n"}))
        yield "the last words"

    def watch(frame: RecordedFrame) -> None:
        if not from_agent(frame) or frame.method != "session/update":
            return
        update = frame.message["params"]["update"]
        kind, stored = update["sessionUpdate"], kept.events()
        match kind:
            case "agent_message_chunk":
                wanted = update["content"]["text"] in stored
            case "tool_call":
                wanted = update["toolCallId"] in stored
            case "tool_call_update" if update.get("status") == "completed":
                ended = [line for line in stored.splitlines() if update["toolCallId"] in line]
                wanted = len(ended) > 1 and kept.audited() > seen.count("completed")
                kind = "completed"
            case _:
                return
        seen.append(kind)
        early.extend([] if wanted else [kind])

    async with thinking(tmp_path, think()) as (editor, _):
        kept = Kept(editor.home.data)
        (editor.workspace / "a.txt").write_text("one\n")
        session = await editor.open()
        watched = LiveRecording(watch)
        watched.frames.extend(editor.recording.frames)
        editor.recording = editor.agent.recording = watched
        assert await editor.say(session, "the words of the user") == "end_turn"
    assert early == []
    assert (seen.count("tool_call"), seen.count("completed"), seen[-1]) == (3, 3, "agent_message_chunk")
