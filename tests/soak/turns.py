"""Ten thousand turns of a few agents: words, reads, edits, commands and plans, in several sessions at a time."""

import contextlib
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
from anyio.abc import SocketAttribute, SocketStream

from tests.e2e.killed_view import drawn, lost
from tests.e2e.killing import assert_audit_whole
from tests.e2e.model_servers import ListeningModel, ToolUse
from tests.fakes.editor import NOTHING, ScriptedEditor, editing
from tests.soak.case import Case
from tests.soak.endings import ended

TURNS, SESSIONS, AT_ONCE = 1000, 10, 3
_CONFIG = "[acp]\nauto_approve = 'full-auto'\n[tools.anomaly]\nenabled = false\n"
_MOST_DESCRIPTORS = 100


@dataclass
class TurningModel(ListeningModel):
    """Makes one call a turn, which the number of the turn decides, and then says the number."""

    def answer(self, request: dict[str, Any]) -> str | ToolUse:
        """What to say or to call."""
        self.requests.clear()
        last = request["messages"][-1]
        number = int(re.findall(r"turn (\d+)", json.dumps(request["messages"]))[-1])
        if last["role"] != "user" or number % 5 == 0:
            return f"said {number}"
        return (
            ("read", {"path": "log.txt", "limit": 5}),
            ("bash", {"command": f"echo {number}"}),
            ("write", {"path": "log.txt", "content": f"line {number}\n" * 200}),
            ("update_plan", {"entries": [{"content": f"step {number}", "status": "pending"}]}),
        )[number % 5 - 1]

    async def serve(self, client: SocketStream) -> None:
        with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            await super().serve(client)


@asynccontextmanager
async def turning_model() -> AsyncIterator[TurningModel]:
    """The server."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        model = TurningModel(listener.extra(SocketAttribute.local_port), [])
        tasks.start_soon(listener.serve, model.serve)
        yield model
        tasks.cancel_scope.cancel()


async def turns(case: Case) -> None:
    """TURNS turns, the end of the agent, and a look at every session."""
    case.times = 0
    async with turning_model() as model:
        options = {**model.options, "config": model.options["config"] + _CONFIG, "capabilities": NOTHING}
        async with editing(case.folder, None, **options, lawful=False) as editor:
            await editor.initialize()
            sessions = [await _session(editor, number) for number in range(SESSIONS)]
            limit = anyio.CapacityLimiter(AT_ONCE)
            async with anyio.create_task_group() as tasks:
                for session in sessions:
                    tasks.start_soon(_talk, case, editor, session, limit)
            if (open_files := len(os.listdir(f"/proc/{editor.agent.pid}/fd"))) > _MOST_DESCRIPTORS:
                case.fault("other", f"{open_files} descriptors are open after {TURNS} turns")
            case.check_log(editor)
            case.check_answers(editor.recording.frames, alive=True)
            await ended(case, editor, case.random.choice(("SIGKILL", "EOF", "SIGTERM")))
        async with editing(case.folder, None, **options, lawful=False) as second:
            await second.initialize()
            for session in sessions:
                await _look(case, editor, second, session)
    with case.judged("torn lines"):
        assert_audit_whole(editor.home.data)
        records = sum(b'"call"' in line for line in (editor.home.data / "audit.jsonl").read_bytes().splitlines())
        calls = sum(frame.update.get("sessionUpdate") == "tool_call" for frame in editor.recording.frames)
        assert records == calls, f"{calls} calls were shown, {records} are on record"


async def _session(editor: ScriptedEditor, number: int) -> str:
    folder = editor.workspace / f"{number}"
    folder.mkdir()
    (folder / "log.txt").write_text("new\n")
    return await editor.new_session(str(folder))


async def _talk(case: Case, editor: ScriptedEditor, session: str, limit: anyio.CapacityLimiter) -> None:
    async with limit:
        for number in range(TURNS // SESSIONS):
            stop = await editor.say(session, f"turn {number}")
            case.times += 1
            if stop != "end_turn":
                case.fault("other", f"turn {number} ended with {stop}")


async def _look(case: Case, before: ScriptedEditor, editor: ScriptedEditor, session: str) -> None:
    """A load shows all that was shown."""
    live = drawn(
        frame.update for frame in before.recording.frames if frame.update and frame.params["sessionId"] == session
    )
    await editor.ask("session/load", {"sessionId": session, "cwd": str(editor.workspace), "mcpServers": []})
    frames = [frame for frame in editor.recording.frames if frame.update and frame.params["sessionId"] == session]
    with case.judged("lost rows"):
        prompts = [f"turn {number}" for number in range(TURNS // SESSIONS)]
        missing = lost(live, drawn(frame.update for frame in frames), prompts)
        assert not missing, "\n".join(missing)[:2000]
