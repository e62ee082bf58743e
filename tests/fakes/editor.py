"""An editor that a test can make behave badly, in a private home, with an agent that never outlives the test."""

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process

import acp_agent
from acp_agent.cli.agent_process import Direction, RecordedFrame, SeenCall, seen_calls, text_at
from tests.fakes.answers import Call, Override, allowing
from tests.fakes.fork_server import PREPARED_BY
from tests.fakes.forked_agent import CAN_FORK, ForkedAgent, fork_agent
from tests.fakes.held import PATIENCE, Fifo
from tests.fakes.home import Home
from tests.fakes.model_script import Script, write_script
from tests.fakes.plain_editor import EVERYTHING, JsonRpcError, PlainEditor
from tests.fakes.shared_agents import SharedAgent, take_shared_agent
from tests.fakes.short_waits import VARIABLE, pass_time_of
from tests.wire import rules, schema

FILES_ONLY = {"fs": {"readTextFile": True, "writeTextFile": True}}
READ_ONLY = {"fs": {"readTextFile": True}}
TERMINAL_ONLY = {"terminal": True}
NOTHING: dict[str, Any] = {}

AGENT = [sys.executable, "-m", "acp_agent"]
AGENT_CWD = str(Path(acp_agent.__file__).parents[1])
"""Where `-m` finds the package. No session has this as its folder, so a wrong cwd shows."""


@dataclass
class Turn:
    """A turn under way; `stop_reason` is empty until it was answered."""

    stop_reason: str = ""


class ScriptedEditor(PlainEditor):
    """The demo's editor with every answer open to change: `overrides` maps a method to how it is answered."""

    def __init__(self, home: Home, workspace: Path, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.home = home
        self.workspace = workspace
        self.overrides: dict[str, Override] = {}
        self.initialized: dict[str, Any] = {}
        self._fifos: list[Fifo] = []
        self.forks = CAN_FORK
        self.shared: SharedAgent | None = None

    async def open_agent(self) -> Process:
        if self.shared is not None:
            return await self.shared.open(self.environment, self.cwd)
        return await (fork_agent(self.environment, self.cwd) if self.forks else super().open_agent())

    async def answer(self, request: RecordedFrame) -> None:
        override = self.overrides.get(request.method, Call.serve)
        await override(Call(self, request))

    async def end_agent(self, process: Process) -> None:
        if not (isinstance(process, ForkedAgent) and process.stays):
            await super().end_agent(process)

    # ------------------------------------------------------------------------------ talking

    async def initialize(self) -> Any:
        if self.shared is not None and self.shared.greeting:
            for frame in self.shared.greeting:
                self.recording.add(frame)
            self.agent.requests = self.shared.requests
            self.initialized = self.shared.greeting[1].message["result"]
            return self.initialized
        with anyio.fail_after(PATIENCE):
            self.initialized = await super().initialize()
        if self.shared is not None:
            self.shared.greeting = self.recording.frames[:2]
        return self.initialized

    async def open(self) -> str:
        """Initialize, and a session in the workspace."""
        await self.initialize()
        with anyio.fail_after(PATIENCE):
            return await self.new_session(str(self.workspace))

    def audit(self) -> list[str]:
        """The lines of the audit, without those of earlier tests of this agent."""
        files = list(self.home.data.glob("audit*.jsonl"))
        assert len(files) <= 1
        lines = [line for file in files for line in file.read_text().splitlines()]
        return lines if self.shared is None else lines[self.shared.audited :]

    @property
    def auth_method(self) -> str:
        return self.initialized["authMethods"][0]["id"]

    def prompt_params(self, session: str, text: str) -> dict[str, Any]:
        return {"sessionId": session, "prompt": [{"type": "text", "text": text}]}

    @asynccontextmanager
    async def prompting(self, session: str, text: str = "go") -> AsyncIterator["Turn"]:
        """A turn that runs while the body does; it has ended when the body is left."""
        turn = Turn()

        async def run() -> None:
            turn.stop_reason = await self.say(session, text)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            yield turn

    async def ask(self, method: str, params: Any) -> Any:
        """The result of a request, within PATIENCE. Raises JsonRpcError."""
        with anyio.fail_after(PATIENCE):
            return await self.agent.request(method, params)

    async def error_of(self, method: str, params: Any) -> JsonRpcError:
        """The error a request is answered with; fails when it is not."""
        try:
            result = await self.ask(method, params)
        except JsonRpcError as error:
            return error
        raise AssertionError(f"{method} was answered {result}")

    async def say(self, session: str, text: str) -> str:
        """A whole turn; its stop reason."""
        with anyio.fail_after(PATIENCE):
            return await self.prompt(session, text)

    async def send_line(self, line: bytes | str | dict[str, Any]) -> None:
        """One line, whatever is in it."""
        if isinstance(line, dict):
            line = json.dumps(line)
        await self.agent.send_bytes((line.encode() if isinstance(line, str) else line) + b"\n")

    async def send_lines(self, *messages: dict[str, Any]) -> None:
        """Several messages in one write, unrecorded."""
        await self.agent.send_bytes(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def pass_time(self) -> None:
        """Let two seconds pass at once for an agent that was forked with short waits; another needs them."""
        if self.forks:
            pass_time_of(self.agent.pid)

    async def pass_time_until_the_end_of(self, turn: Turn) -> None:
        """Let time pass at once, for an agent with short waits, until a turn that only a timeout ends has ended."""
        while self.forks and not turn.stop_reason:
            self.pass_time()
            await anyio.sleep(0.02)

    # ------------------------------------------------------------------------------ watching

    async def seen(self, wanted: Callable[[RecordedFrame], bool], start: int = 0) -> RecordedFrame:
        """The first frame from `start` on that is wanted, within PATIENCE."""
        with anyio.fail_after(PATIENCE):
            return self.recording.frames[await self.recording.until(wanted, start)]

    async def answer_to(self, request_id: Any, start: int = 0) -> dict[str, Any]:
        """The agent's answer to an id that the test chose itself."""
        return (
            await self.seen(lambda f: from_agent(f) and not f.method and f.message.get("id") == request_id, start)
        ).message

    async def requested(self, method: str, start: int = 0) -> RecordedFrame:
        """The agent's next request of a method."""
        return await self.seen(lambda f: from_agent(f) and f.method == method, start)

    async def updated(self, kind: str, start: int = 0) -> dict[str, Any]:
        """The agent's next update of a kind."""
        return (await self.seen(lambda f: f.update.get("sessionUpdate") == kind, start)).update

    @property
    def calls(self) -> list[SeenCall]:
        return seen_calls(self.recording)

    @property
    def call(self) -> SeenCall:
        """The only tool call there was."""
        (call,) = self.calls
        return call

    def calls_of(self, session: str) -> list[SeenCall]:
        """The tool calls of one session."""
        return [call for call in self.calls if self.recording.frames[call.start].params["sessionId"] == session]

    def fifo(self, name: str) -> Fifo:
        """A new named pipe in the workspace."""
        fifo = Fifo(self.workspace / name)
        self._fifos.append(fifo)
        return fifo

    def close(self) -> None:
        for fifo in self._fifos:
            fifo.close()

    def requests(self, method: str) -> list[dict[str, Any]]:
        """The params of what the agent asked for, in order."""
        return [f.params for f in self.recording.frames if from_agent(f) and f.is_request and f.method == method]

    def index(self, wanted: Callable[[RecordedFrame], bool]) -> int:
        """Where the first wanted frame stands."""
        return next(index for index, frame in enumerate(self.recording.frames) if wanted(frame))

    @property
    def requested_methods(self) -> list[str]:
        """What the agent asked for, in order."""
        return [f.method for f in self.recording.frames if from_agent(f) and f.is_request]

    @property
    def told(self) -> str:
        """All a user could have read that is not a tool call: messages, thoughts, notices."""
        updates = self.recording.updates()
        return "\n".join(text_at(u, "content", "text") or text_at(u, "title") for u in updates if "toolCallId" not in u)

    @property
    def text(self) -> str:
        """All the agent has said."""
        return "".join(text_at(update, "content", "text") for update in self.recording.updates("agent_message_chunk"))


def from_agent(frame: RecordedFrame) -> bool:
    return frame.direction is Direction.FROM_AGENT


@asynccontextmanager
async def editing(
    folder: Path,
    script: Script | None,
    *,
    capabilities: dict[str, Any] | None = None,
    decide: Callable[[dict[str, Any]], Awaitable[str | None]] = allowing,
    config: str = "",
    environment: dict[str, str] | None = None,
    lawful: bool = True,
    cold: bool = False,
    short_waits: bool | str = False,
    agent: Sequence[str] = AGENT,
    serves: str = "",
) -> AsyncIterator[ScriptedEditor]:
    """An editor with a running agent; its files are below `folder` (home/ and work/).

    script   what the model answers; None configures no model at all
    cold     start the interpreter and all imports anew, where a test is about starting
    agent    the command that starts a cold agent. A forked one calls `prepare` of the module that it names
    lawful   check the whole conversation against the protocol's rules and schema when the test is through
    short_waits   let the agent wait a tenth as long for locks and the like, where it is forked; SILENT: also for the
                  first output of background commands
    serves   the module whose tests share this agent; it takes up the configuration of each (shared_agents.py)
    """
    more = {**(environment or {}), **({VARIABLE: "1" if short_waits is True else short_waits} if short_waits else {})}
    if agent[1] == "-m" and agent[2] != "acp_agent" and not cold:
        more[PREPARED_BY] = agent[2]
    shared = None
    if serves and CAN_FORK and not cold:
        offered = json.dumps(capabilities)
        shared = take_shared_agent((serves, offered, tuple(more.items())), more)
    home, workspace = Home(folder / "home", more) if shared is None else shared.home, folder / "work"
    workspace.mkdir(exist_ok=True)
    model = "" if script is None else f'[llm]\nmodel = "{write_script(home.root, script)}"\n'
    if shared is None:
        home.config.write_text(model + config)
    else:
        shared.configure(model + config)
    editor = ScriptedEditor(
        home,
        workspace,
        agent,
        home.environment(),
        AGENT_CWD,
        decide,
        EVERYTHING if capabilities is None else capabilities,
    )
    editor.forks = CAN_FORK and not cold
    editor.shared = shared
    failure: BaseException | None = None
    try:
        async with editor.running():
            yield editor
            if shared is not None:
                await shared.settle(editor.agent)
    except BaseExceptionGroup as group:  # the test's own failure reads best without the task groups around it
        failure = _innermost(group)
    finally:
        editor.close()
        if shared is not None:
            shared.leave()
    if failure is not None:
        print(editor.log, file=sys.stderr)
        raise failure
    if lawful:
        assert "strict: sent" not in editor.log, editor.log  # with ACP_AGENT_STRICT=1
        assert (broken := rules.broken(editor.recording)) == [], broken
        assert (problems := schema.violations(editor.recording)) == [], problems


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
