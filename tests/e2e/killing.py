"""An agent that is killed (SIGKILL) somewhere in a conversation, and what must be left of it."""

import contextlib
import json
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import psutil

from acp_agent.cli.agent_process import AgentGone, RecordedFrame
from acp_agent.core.new_file import is_temporary
from acp_agent.store.audit_read import verify
from tests.contract.wire_rules import assert_openai_request
from tests.e2e.killed_story import BEFORE, MAY_BE, PLANS, StoryModel, told_by_model
from tests.e2e.killed_view import Seen, drawn, loaded, lost
from tests.fakes.editor import ScriptedEditor, editing, from_agent
from tests.fakes.held import PATIENCE, processes_ended
from tests.fakes.plain_editor import EVERYTHING

# Seconds. The promises are two each; a test must also pass on a machine under load.
STARTS_WITHIN = LEAVES_WITHIN = 6.0
NOTICES = {"session": {"notices": {}}}
CLIENTS = {
    "plain": NOTICES,
    "draws terminals": {**NOTICES, "_meta": {"terminal_output": True}},
    "serves all": {**EVERYTHING, **NOTICES},
}


@dataclass(frozen=True)
class Point:
    """When to kill: so many seconds after so many frames of the turns have come."""

    client: str
    frames: int
    seconds: float


END = Point("plain", 1_000_000, 0.05)
"""While the command waits that the story ends with."""


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
    frames    how many had come
    told      from the first prompt to the kill
    gone      from the kill until no process was left
    loaded    from the start of the next agent to the answer of `session/load`
    left      temporary files of the agent in the workspace
    """

    point: Point
    during: str
    frames: int
    told: float
    gone: float
    loaded: float
    left: int


async def kill_and_look(folder: Path, model: StoryModel, point: Point, **options: Any) -> Outcome:
    """One agent that is killed at a point, and another that takes the session up. AssertionError tells what is lost.

    options   of `editing`, for both agents
    """
    folder.mkdir()
    options = {**model.options, "capabilities": CLIENTS[point.client], **options}
    async with editing(folder, None, **options) as editor:
        prepare(editor.workspace)
        session = await editor.open()
        start = len(editor.recording.frames)
        prompted = time.monotonic()
        gone = await _killed(editor, session, point, start)
        told_for = time.monotonic() - prompted - gone
    frames = editor.recording.frames[start:]
    took, left = await look(folder, model, options, shown(session, frames))
    during = str(frames[-1].update.get("sessionUpdate") or frames[-1].method or "answer") if frames else "prompt"
    return Outcome(point, during, len(frames), told_for, gone, took, left)


def prepare(workspace: Path) -> None:
    """Write the files that the story begins with."""
    for name, text in BEFORE.items():
        (workspace / name).write_text(text)


@dataclass(frozen=True)
class Shown:
    """What an editor was shown of a session, and the prompts to which it was shown anything."""

    session: str
    live: Seen
    prompts: list[str]


def shown(session: str, frames: Sequence[RecordedFrame]) -> Shown:
    """What frames, none of them of `session/load`, showed of the only session in them."""
    return Shown(session, drawn([frame.update for frame in frames if frame.update]), list(_prompts(frames)))


Judge = Callable[[str], contextlib.AbstractContextManager[None]]
"""Catches what is wrong with a thing: "lost rows", "half files", "torn lines"."""


async def look(
    folder: Path,
    model: StoryModel,
    options: dict[str, Any],
    before: Shown,
    judge: Judge = lambda _: contextlib.nullcontext(),
) -> tuple[float, int]:
    """Have another agent take a session up. Return the seconds until it was loaded, and the temporary files left."""
    with judge("torn lines"):
        assert_audit_whole(folder / "home" / "data", unfinished=True)
    begun = time.monotonic()
    async with editing(folder, None, **options) as second:
        await second.initialize()
        told = await loaded(second, before.session)
        took = time.monotonic() - begun
        with judge("lost rows"):
            missing = lost(before.live, told, before.prompts)
            assert not missing, "\n".join(missing)
            _assert_told_as_said(told)
        with judge("half files"):
            assert_files(second.workspace)
        left = sum(is_temporary(path.name) for path in second.workspace.rglob("*"))
        assert await second.say(before.session, "tell the third part") == "end_turn"
        assert_openai_request(json.dumps(model.requests[-1]).encode())
        after = await loaded(second, before.session)
        with judge("lost rows"):
            assert after.entries[: len(told.entries)] == told.entries
            assert len(after.entries) == len(told.entries) + 5, "a prompt, a thought, a text, a card and a text"
            assert told_by_model("content", "third") in "".join(after.texts("agent"))
    with judge("torn lines"):
        assert_audit_whole(second.home.data)
    with judge("lost rows"), closing(sqlite3.connect(second.home.data / "acp-agent.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
    return took, left


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
            await _nobody_left(str(editor.home.root))
        return time.monotonic() - killed


async def _nobody_left(home: str) -> None:
    """Wait until no process that was started with this HOME is left: also those that left the tree of the agent."""
    with anyio.fail_after(LEAVES_WITHIN):
        while left := await anyio.to_thread.run_sync(left_behind, home):
            await processes_ended(left, within=LEAVES_WITHIN)


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


def _prompts(frames: Sequence[RecordedFrame]) -> Iterator[str]:
    """What was sent, as far as the agent has answered to it with anything."""
    text = ""
    for frame in frames:
        if not from_agent(frame) and frame.method == "session/prompt":
            text = frame.params["prompt"][0]["text"]
        elif text and frame.update.get("sessionUpdate") in {"agent_message_chunk", "agent_thought_chunk", "tool_call"}:
            yield text
            text = ""


def _assert_told_as_said(told: Seen) -> None:
    """What the model said, each word of it once, in order, up to where it was killed."""
    for role, kind in (("agent", "content"), ("thought", "reasoning_content")):
        # All of a turn that ended: the words of the second follow those of the first without a gap.
        assert told_by_model(kind, "first", "second").startswith("".join(told.texts(role)))
    assert told.texts("user") in ([], ["tell the first part"], ["tell the first part", "tell the second part"])
    assert told.plan is None or json.dumps([{k: e[k] for k in ("content", "status")} for e in told.plan]) in PLANS


def assert_files(workspace: Path) -> None:
    for name, allowed in MAY_BE.items():
        path = workspace / name
        text = path.read_text() if path.exists() else None
        assert text in allowed, f"{name}: {None if text is None else (len(text), text[:40], text[-40:])}"
    assert (workspace / "moved.txt").exists() != (workspace / "sub" / "moved.txt").exists()
    known = {*MAY_BE, "sub"}
    strange = [path.relative_to(workspace) for path in workspace.rglob("*") if not is_temporary(path.name)]
    assert {str(path) for path in strange} <= known


def assert_audit_whole(data: Path, *, unfinished: bool = False, torn: bool = False) -> None:
    """Every line is a record; only the last one may be `unfinished`, until the next agent finishes it.

    torn   whether a line may have no end, as after a full disk, if the record behind it tells of that
    """
    for file in data.glob("audit*.jsonl"):
        text = file.read_bytes()
        if unfinished:
            text = text[: text.rfind(b"\n") + 1]
        assert not text or text.endswith(b"\n")
        assert torn or all(isinstance(json.loads(line), dict) for line in text.splitlines())
        assert [report.fault for report in verify(str(file)) if report.fault] == []
