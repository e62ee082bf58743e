"""Agents that serve a module of tests and not one test: a fork, an initialize and an end cost more than most turns.

Each test has an editor, a connection, a log, a folder and sessions of its own. An agent is used again only if the test
passed, all its sessions were closed, and a last request was answered; else it is ended like any other. The home
(configuration, database, credentials) is the agent's: a test that is about these, or about the process, has an agent of
its own.
"""

import atexit
import os
import signal
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import anyio

from acp_agent.cli.agent_process import AgentGone, Direction, RecordedFrame, text_at
from tests.fakes.forked_agent import ForkedAgent, fork_agent
from tests.fakes.home import Home
from tests.fakes.plain_editor import AgentConnection, JsonRpcError

_WAITING = 4
_OURS = {"config.toml", "data", "script.json"}
_PATIENCE = 5.0  # seconds
_OPENING = {"session/new", "session/load", "session/resume", "session/fork"}
_CLOSING = {"session/close", "session/delete"}


class SharedAgent:
    """An agent with its home, for one test at a time.

    key       the module it serves, and what it learns of the editor and the environment when it starts
    greeting  its `initialize` and the answer, once there was one
    audited   how many lines the audit had when this test began
    """

    def __init__(self, key: tuple[Any, ...], extra: dict[str, str]) -> None:
        self.key = key
        self._folder = tempfile.TemporaryDirectory(prefix="acp-shared-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))
        self.home = Home(Path(self._folder.name), extra)
        self.greeting: list[RecordedFrame] = []
        self.requests = 0
        self.audited = 0
        self._config: str | None = None
        self._process: ForkedAgent | None = None

    def configure(self, text: str) -> None:
        """Write its configuration. An agent that runs takes it up with its next session."""
        if text != self._config:
            self._config = text
            self.home.config.write_text(text)

    async def open(self, environment: Mapping[str, str], cwd: str) -> ForkedAgent:
        """Its process, which is started for the first test. It is out until it is `settled`."""
        if self._process is None:
            self._process = await fork_agent(environment, cwd)
        self._process.stays = False
        self.audited = sum(len(file.read_text().splitlines()) for file in self.home.data.glob("audit*.jsonl"))
        return self._process

    async def settle(self, agent: AgentConnection) -> None:
        """Close the sessions of a test that passed; the agent stays if nothing is left of them."""
        assert self._process is not None
        with suppress(JsonRpcError, AgentGone, TimeoutError), anyio.fail_after(_PATIENCE):
            for session in _open_sessions(agent.recording.frames):
                await agent.request("session/close", {"sessionId": session})
            try:
                await agent.request("_test/nothing", {})
            except JsonRpcError as error:
                self._process.stays = error.code == -32601 and agent.is_idle and self._is_home_unchanged()
        if self._process.stays:
            self.requests = agent.requests
            agent.take_log(self._process.rest_of_log())
            shared_agents().append(self)

    def _is_home_unchanged(self) -> bool:
        """Whether the test has left the files alone that the agent reads."""
        names = {each for each in os.listdir(self.home.root) if not each.startswith("xdg-")}
        return names <= _OURS and self.home.config.read_text() == self._config

    def leave(self) -> None:
        """Remove the home, unless the agent stays."""
        if self._process is None or not self._process.stays:
            self._folder.cleanup()

    def end(self) -> None:
        """Kill it and wait. It has no session, so it has no process either."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        self._process.close_now()
        self._folder.cleanup()


def _open_sessions(frames: list[RecordedFrame]) -> list[str]:
    """The sessions that were opened and not closed, in order."""
    asked: dict[Any, RecordedFrame] = {}
    found: dict[str, None] = {}
    for frame in frames:
        if frame.direction is Direction.TO_AGENT and frame.is_request:
            asked[frame.message["id"]] = frame
        elif frame.direction is Direction.FROM_AGENT and not frame.method and "result" in frame.message:
            request = asked.get(frame.message["id"])
            if request is not None and request.method in _OPENING:
                found[text_at(frame.message, "result", "sessionId") or text_at(request.params, "sessionId")] = None
            elif request is not None and request.method in _CLOSING:
                found.pop(text_at(request.params, "sessionId"), None)
    return list(found)


@cache
def shared_agents() -> list[SharedAgent]:
    """The agents of this test process that wait for the next test of their module."""
    waiting: list[SharedAgent] = []

    def end_all() -> None:
        while waiting:
            waiting.pop().end()

    atexit.register(end_all)
    return waiting


def take_shared_agent(key: tuple[Any, ...], extra: dict[str, str]) -> SharedAgent:
    """An agent of this key, a new one if none waits. Those of another module are ended, and the oldest of too many."""
    waiting = shared_agents()
    for each in [each for each in waiting if each.key[0] != key[0]] + waiting[:-_WAITING]:
        if each in waiting:
            waiting.remove(each)
            each.end()
    for each in waiting:
        if each.key == key:
            waiting.remove(each)
            return each
    return SharedAgent(key, extra)
