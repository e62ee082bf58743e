"""An agent that is killed (SIGKILL) somewhere in a story, and what must be left of it (issue 7; security.md 3).

The story is told by a real model server in many small pieces. It knows from each request alone where the story is, so
that an agent may die at any point and another go on.
"""

import contextlib
import json
import os
import random
import re
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import psutil
from anyio.abc import SocketAttribute, SocketStream

from acp_agent.cli.editor.client import EVERYTHING
from acp_agent.cli.editor.connection import AgentGone
from acp_agent.execution.atomic_write import is_temporary
from acp_agent.store.audit_verify import verify
from tests.contract.wire_rules import assert_openai_request
from tests.e2e.killed_view import drawn, loaded, lost
from tests.e2e.model_servers import _HEAD, ListeningModel, _chunk, _read_request
from tests.fakes.editor import ScriptedEditor, editing, from_agent
from tests.fakes.held import PATIENCE, processes_ended

# Seconds. The promises are two each; a test must also pass on a machine under load.
STARTS_WITHIN = LEAVES_WITHIN = 6.0
PAUSE = 0.002
NOTICES = {"session": {"notices": {}}}
CLIENTS = {
    "plain": NOTICES,
    "draws terminals": {**NOTICES, "_meta": {"terminal_output": True}},
    "serves all": {**EVERYTHING, **NOTICES},
}
OLD, NEW, NEWER = ("".join(f"{word} {number}\n" for number in range(9_000)) for word in ("old", "new", "newer"))
EDITED, EDITED_TWICE = OLD.replace("old 0\n", "first\n"), OLD.replace("old 0\n", "first\nsecond\n")
BEFORE = {"edited.txt": OLD, "replaced.txt": OLD, "moved.txt": OLD}
MAY_BE = {
    "edited.txt": {OLD, EDITED, EDITED_TWICE},
    "replaced.txt": {OLD, NEW},
    "made.txt": {None, NEW, NEWER},
    "moved.txt": {OLD, None},
    "sub/moved.txt": {OLD, None},
}


@dataclass(frozen=True)
class Step:
    """One answer of the model. `thought` and `text` are numbers of pieces."""

    thought: int = 0
    text: int = 0
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()

    def pieces(self, name: str) -> Iterator[dict[str, Any]]:
        """The deltas."""
        yield from ({"reasoning_content": f"{name}-thought-{number} "} for number in range(self.thought))
        yield from ({"content": f"{name}-{number} "} for number in range(self.text))
        for number, (tool, arguments) in enumerate(self.calls):
            function = {"name": tool, "arguments": json.dumps(arguments)}
            yield {
                "tool_calls": [{"index": number, "id": f"{name}-{number}", "type": "function", "function": function}]
            }


def _bash(command: str) -> tuple[str, dict[str, Any]]:
    return "bash", {"command": command}


def _plan(done: int) -> tuple[str, dict[str, Any]]:
    entries = [{"content": f"step {n}", "status": "completed" if n < done else "pending"} for n in range(3)]
    return "update_plan", {"entries": entries}


STORY = {
    "first": (
        Step(30, 30, (_plan(0),)),
        Step(0, 10, (("read", {"path": "edited.txt", "limit": 20}), _bash("seq 1 20000"))),
        Step(0, 10, (("edit", {"path": "edited.txt", "old_string": "old 0\n", "new_string": "first\n"}),)),
        Step(
            10,
            0,
            (("write", {"path": "made.txt", "content": NEW}), ("write", {"path": "replaced.txt", "content": NEW})),
        ),
        Step(0, 5, (("move_path", {"source": "moved.txt", "destination": "sub/moved.txt"}),)),
        Step(0, 5, (_plan(1), _bash("for n in 1 2 3 4 5 6; do echo line $n; sleep 0.02; done; exit 3"))),
        Step(0, 60),
    ),
    "second": (
        Step(10, 10, (("edit", {"path": "edited.txt", "old_string": "first\n", "new_string": "first\nsecond\n"}),)),
        Step(0, 10, (("write", {"path": "made.txt", "content": NEWER}), _plan(3))),
        Step(0, 20, (_bash("(setsid sleep 300 &) ; sleep 300 & echo waiting; sleep 300"),)),
    ),
    "third": (Step(3, 3, (("read", {"path": "edited.txt", "limit": 20}),)), Step(0, 5)),
}
PLANS = [json.dumps(_plan(done)[1]["entries"]) for done in (0, 1, 3)]


def told_by_model(kind: str, *turns: str) -> str:
    """All that the model says in turns: "content" or "reasoning_content"."""
    steps = ((f"{turn}-{number}", step) for turn in turns for number, step in enumerate(STORY[turn]))
    return "".join(piece.get(kind, "") for name, step in steps for piece in step.pieces(name))


class StoryModel(ListeningModel):
    """Tells STORY with a pause before each piece."""

    async def serve(self, client: SocketStream) -> None:
        async with client:
            with contextlib.suppress(anyio.BrokenResourceError, anyio.EndOfStream):
                await self._tell(client)

    async def _tell(self, client: SocketStream) -> None:
        request = json.loads(await _read_request(client))
        self.requests.append(request)
        turn, number = _position(request["messages"])
        step = STORY[turn][number]
        await client.send(_HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        for piece in step.pieces(f"{turn}-{number}"):
            await anyio.sleep(PAUSE)
            await client.send(_chunk(piece))
        await client.send(_chunk({}, "tool_calls" if step.calls else "stop") + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


def _position(messages: list[dict[str, Any]]) -> tuple[str, int]:
    """The turn that runs, and how many answers it has had."""
    answers = 0
    for message in reversed(messages):
        if message["role"] == "assistant":
            answers += 1
        elif message["role"] == "user" and (asked := re.findall(r"tell the (\w+) part", json.dumps(message))):
            return asked[-1], answers
    raise AssertionError("no prompt in the request")


@asynccontextmanager
async def story_model() -> AsyncIterator[StoryModel]:
    """The server; afterwards every request it got was one that the API accepts."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        model = StoryModel(listener.extra(SocketAttribute.local_port), [])
        tasks.start_soon(partial(listener.serve, model.serve))
        yield model
        tasks.cancel_scope.cancel()
    for request in model.requests:
        assert_openai_request(json.dumps(request).encode())


# ---------------------------------------------------------------------------------------- killing


@dataclass(frozen=True)
class Point:
    """When to kill: so many seconds after so many frames of the turns have come."""

    client: str
    frames: int
    seconds: float


def points(seed: int, frames: int, seconds: float) -> Iterator[Point]:
    """Without end, by frames and by time in turn. `frames` and `seconds` are what the whole story takes."""
    chance = random.Random(seed)
    while True:
        yield Point(
            chance.choice(list(CLIENTS)), chance.randint(1, frames), chance.choice((0, chance.uniform(0, 0.02)))
        )
        yield Point(chance.choice(list(CLIENTS)), 0, chance.uniform(0, seconds))


@dataclass(frozen=True)
class Outcome:
    """What a kill was like. Times are in seconds.

    during    what had come last
    gone      from the kill until no process was left
    loaded    from the start of the next agent to the answer of `session/load`
    left      temporary files of the agent in the workspace
    """

    point: Point
    during: str
    frames: int
    gone: float
    loaded: float
    left: int


async def kill_and_look(folder: Path, model: StoryModel, point: Point) -> Outcome:
    """One agent that is killed at a point, and another that takes the session up. AssertionError tells what is lost."""
    folder.mkdir()
    options = {**model.options, "capabilities": CLIENTS[point.client]}
    async with editing(folder, None, **options) as editor:
        for name, text in BEFORE.items():
            (editor.workspace / name).write_text(text)
        session = await editor.open()
        start = len(editor.recording.frames)
        gone = await _killed(editor, session, point, start)
    live = drawn([frame.update for frame in editor.recording.frames[start:] if frame.update])
    prompts = [text for text in _prompts(editor, start)]
    _assert_audit_whole(editor.home.data)

    begun = time.monotonic()
    async with editing(folder, None, **options) as second:
        await second.initialize()
        told = await loaded(second, session)
        took = time.monotonic() - begun
        assert lost(live, told, prompts) == []
        _assert_told_as_said(told)
        _assert_files(second.workspace)
        left = sum(is_temporary(path.name) for path in second.workspace.rglob("*"))
        assert await second.say(session, "tell the third part") == "end_turn"
        assert_openai_request(json.dumps(model.requests[-1]).encode())
        after = await loaded(second, session)
        assert after.entries[: len(told.entries)] == told.entries
        assert len(after.entries) == len(told.entries) + 5, "a prompt, a thought, a text, a card and a text"
        assert told_by_model("content", "third") in "".join(after.texts("agent"))
    _assert_audit_whole(second.home.data)
    with closing(sqlite3.connect(second.home.data / "acp-agent.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
    during = str(
        editor.recording.frames[-1].update.get("sessionUpdate") or editor.recording.frames[-1].method or "answer"
    )
    return Outcome(point, during, len(editor.recording.frames) - start, gone, took, left)


async def _killed(editor: ScriptedEditor, session: str, point: Point, start: int) -> float:
    """Tell the story, and kill the agent at the point. Seconds until nothing of it was left."""

    async def tell() -> None:
        with contextlib.suppress(AgentGone):
            await editor.say(session, "tell the first part")
            await editor.say(session, "tell the second part")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tell)
        await _come(editor, start + point.frames)
        await anyio.sleep(point.seconds)
        below = [each.pid for each in psutil.Process(editor.agent.pid).children(recursive=True)]
        os.kill(editor.agent.pid, signal.SIGKILL)
        killed = time.monotonic()
        await editor.agent.gone.wait()
        await processes_ended([editor.agent.pid, *below], within=LEAVES_WITHIN)
        if "terminal" not in editor.capabilities:  # else they are the editor's, which goes on
            with anyio.fail_after(LEAVES_WITHIN):
                while await anyio.to_thread.run_sync(left_behind, str(editor.home.root)):
                    await anyio.sleep(0.02)
        return time.monotonic() - killed


async def _come(editor: ScriptedEditor, frames: int) -> None:
    """Wait for so many frames; or for the command that the story ends with, in case there are not so many."""
    with anyio.fail_after(PATIENCE):
        while len(editor.recording.frames) < frames:
            seen = len(editor.recording.frames)
            if seen and "waiting" in json.dumps(editor.recording.frames[-1].update):
                return
            await editor.recording.until(lambda _: True, seen)


def left_behind(home: str) -> list[int]:
    """Processes that were started with this HOME."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if f"HOME={home}\0".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def _prompts(editor: ScriptedEditor, start: int) -> Iterator[str]:
    """What was sent, as far as the agent has answered to it with anything."""
    text = ""
    for frame in editor.recording.frames[start:]:
        if not from_agent(frame) and frame.method == "session/prompt":
            text = frame.params["prompt"][0]["text"]
        elif text and frame.update.get("sessionUpdate") in {"agent_message_chunk", "agent_thought_chunk", "tool_call"}:
            yield text
            text = ""


def _assert_told_as_said(told: Any) -> None:
    """What the model said, each word of it once, in order, up to where it was killed."""
    for role, kind in (("agent", "content"), ("thought", "reasoning_content")):
        # Of a turn that ended, all of it; so the words of the second follow those of the first without a gap.
        assert told_by_model(kind, "first", "second").startswith("".join(told.texts(role)))
    assert told.texts("user") in ([], ["tell the first part"], ["tell the first part", "tell the second part"])
    assert told.plan is None or json.dumps([{k: e[k] for k in ("content", "status")} for e in told.plan]) in PLANS


def _assert_files(workspace: Path) -> None:
    for name, allowed in MAY_BE.items():
        path = workspace / name
        text = path.read_text() if path.exists() else None
        assert text in allowed, f"{name}: {None if text is None else (len(text), text[:40], text[-40:])}"
    assert (workspace / "moved.txt").exists() != (workspace / "sub" / "moved.txt").exists()
    known = {*MAY_BE, "sub"}
    strange = [path.relative_to(workspace) for path in workspace.rglob("*") if not is_temporary(path.name)]
    assert {str(path) for path in strange} <= known


def _assert_audit_whole(data: Path) -> None:
    for file in data.glob("audit*.jsonl"):
        text = file.read_bytes()
        assert not text or text.endswith(b"\n")
        assert all(isinstance(json.loads(line), dict) for line in text.splitlines())
        assert [report.fault for report in verify(str(file)) if report.fault] == []
