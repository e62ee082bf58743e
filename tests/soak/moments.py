"""The moments of a story at which something happens to its agent, and what the agent was doing just then."""

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import anyio
import anyio.to_thread

from acp_agent.cli.agent_process import RecordedFrame
from tests.e2e.killing import CLIENTS
from tests.fakes.answers import allowing
from tests.fakes.editor import AGENT, ScriptedEditor, from_agent

MOMENTS = (
    "streaming", "question", "editor write", "system call", "command", "audit write", "load", "close", "anywhere",
)  # fmt: skip
_CALLS = ("write", "pwrite64,fdatasync", "rename,renameat,renameat2,linkat", "unlink,unlinkat,ftruncate")
"""System calls in whose middle an agent is killed: the files that it writes have a name for microseconds only."""
STORY_SECONDS = 2.0
"""What the story takes, about."""
_CHUNKS = {"agent_message_chunk", "agent_thought_chunk"}


@dataclass(frozen=True)
class Moment:
    """A moment: the `nth` time that something happens, and `delay` seconds.

    servers   whether the session has an MCP server
    """

    kind: str
    client: str
    nth: int
    delay: float
    sandboxed: bool
    servers: bool

    @classmethod
    def chosen(cls, random: Random, kinds: Sequence[str] = MOMENTS) -> "Moment":
        kind = random.choice(kinds)
        client = random.choice(list(CLIENTS))
        if kind == "editor write":
            client = "serves all"
        if kind == "system call":
            client = random.choice(["plain", "draws terminals"])
        most, delay = {
            "streaming": (180, 0.004),
            "question": (9, 0.02),
            "editor write": (5, 0.004),
            "command": (4, 0.15),
            "audit write": (14, 0.0),
            "system call": (120, 0.0),
            "load": (200, 0.06),
            "close": (200, 0.01),
        }.get(kind, (0, STORY_SECONDS))
        nth = random.randint(1, most) if most else 0
        return cls(kind, client, nth, random.uniform(0, delay), random.random() < 0.3, random.random() < 0.25)

    @property
    def agent(self) -> list[str]:
        """The command of an agent that strace kills in its `nth` system call of a kind, or [] where it need not."""
        strace = shutil.which("strace")
        if self.kind != "system call" or strace is None:
            return []
        calls = _CALLS[self.nth % len(_CALLS)]
        once = 1 + self.nth // (8 if calls == "write" else 40)
        how = ["-e", f"trace={calls}", "-e", f"inject={calls}:signal=SIGKILL:when={once}"]
        return [strace, "-D", "-f", "--seccomp-bpf", "-o", "/dev/null", *how, *AGENT]

    async def reached(self, editor: ScriptedEditor, start: int, strike: Callable[[], None]) -> None:
        """Wait for the moment, or for the command that the story ends with.

        strike   called at once where the moment is shorter than a step of the event loop
        """
        seen = Counted(self)
        ended = partial(editor.recording.until, lambda frame: seen.take(frame) or _is_end(frame), start)
        watch = {"audit write": _audit_growth}.get(self.kind)
        with anyio.move_on_after(20):
            if self.kind == "system call":
                await _either(ended, editor.agent.gone.wait)
            elif watch is None:
                await ended()
            else:
                await _watched(partial(watch, editor, self.nth), strike, ended)
        await anyio.sleep(self.delay)


class Counted:
    """Counts the frames that a moment waits for."""

    def __init__(self, moment: Moment) -> None:
        self._moment = moment
        self._times = 0

    def take(self, frame: RecordedFrame) -> bool:
        """Whether this is the frame."""
        wanted = {
            "streaming": lambda: frame.update.get("sessionUpdate") in _CHUNKS,
            "question": lambda: frame.method == "session/request_permission",
            "editor write": lambda: frame.method == "fs/write_text_file",
            "command": lambda: frame.update.get("kind") == "execute" or frame.method == "terminal/create",
            "load": lambda: True,
            "close": lambda: True,
        }.get(self._moment.kind, lambda: self._moment.kind == "anywhere")
        self._times += wanted()
        return self._times >= self._moment.nth and self._times > 0


def _is_end(frame: RecordedFrame) -> bool:
    """The last command of the story waits: nothing more will come."""
    return "echo waiting" in str(frame.update)


async def _either(*waits: Callable[[], Any]) -> None:
    async def wait(one: Callable[[], Any]) -> None:
        await one()
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for one in waits:
            tasks.start_soon(wait, one)


async def _watched(watch: Callable[[threading.Event], bool], strike: Callable[[], None], ended: Callable[[], Any]):
    """Strike from a thread as soon as it sees something; give up when the story ends."""
    given_up = threading.Event()

    def look() -> None:
        if watch(given_up):
            strike()

    async def give_up() -> None:
        await ended()
        given_up.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(give_up)
        try:
            await anyio.to_thread.run_sync(look, abandon_on_cancel=True)
        finally:
            given_up.set()
        tasks.cancel_scope.cancel()


def _audit_growth(editor: ScriptedEditor, nth: int, given_up: threading.Event) -> bool:
    """Whether the audit grew for the `nth` time."""
    size, times = 0, 0
    while not given_up.is_set():
        with contextlib.suppress(OSError):
            now = os.stat(editor.home.data / "audit.jsonl").st_size
            times, size = times + (now != size), now
        if times >= nth:
            return True
        time.sleep(0.00005)
    return False


def holding(moment: Moment) -> Callable[[dict[str, Any]], Any]:
    """A user who allows everything, but leaves the question of the moment open."""
    asked = 0

    async def decide(params: dict[str, Any]) -> str | None:
        nonlocal asked
        asked += 1
        if moment.kind == "question" and asked >= moment.nth:
            await anyio.sleep_forever()
        return await allowing(params)

    return decide


def doing(frames: Sequence[RecordedFrame]) -> str:
    """What the agent was doing after these frames."""
    answered = {frame.message.get("id") for frame in frames if not from_agent(frame) and not frame.method}
    asked = [f for f in frames if from_agent(f) and f.is_request and f.message["id"] not in answered]
    methods = {frame.method for frame in asked}
    for method, words in (("session/request_permission", "question"), ("fs/write_text_file", "editor write")):
        if method in methods:
            return words
    ours = [frame for frame in frames if not from_agent(frame) and frame.is_request]
    done = {frame.message.get("id") for frame in frames if from_agent(frame) and not frame.method}
    waiting = [frame.method for frame in ours if frame.message["id"] not in done]
    for method in ("session/close", "session/load"):
        if method in waiting:
            return method.removeprefix("session/")
    return _within_turn(frames) if "session/prompt" in waiting else "between turns"


def _within_turn(frames: Sequence[RecordedFrame]) -> str:
    open_calls: dict[str, str] = {}
    for frame in frames:
        update = frame.update
        if update.get("sessionUpdate") == "tool_call":
            open_calls[str(update["toolCallId"])] = str(update.get("kind"))
        elif update.get("status") in ("completed", "failed"):
            open_calls.pop(str(update.get("toolCallId")), None)
    if open_calls:
        return "command" if "execute" in open_calls.values() else "file call"
    return "streaming" if frames and frames[-1].update.get("sessionUpdate") in _CHUNKS else "between steps"
