"""An editor that a test can make behave badly, in a private home, with an agent that never outlives the test."""

import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

import acp_agent
from acp_agent.cli.editor.calls import SeenCall, seen_calls
from acp_agent.cli.editor.client import EVERYTHING, Editor
from acp_agent.cli.editor.frames import Direction, Frame, JsonRpcError, text_at
from tests.wire import rules, schema

PATIENCE = 20.0  # seconds a test waits for something that should take milliseconds

FILES_ONLY = {"fs": {"readTextFile": True, "writeTextFile": True}}
READ_ONLY = {"fs": {"readTextFile": True}}
TERMINAL_ONLY = {"terminal": True}
NOTHING: dict[str, Any] = {}

AGENT = [sys.executable, "-m", "acp_agent"]
AGENT_CWD = str(Path(acp_agent.__file__).parents[1])
"""Where `-m` finds the package. No session has this as its folder, so a wrong cwd shows."""

Step = dict[str, Any]
Script = Sequence[Step] | dict[str, Sequence[Step]]
"""The model's answers, one a step; with several kinds of prompts, by a pattern of the prompt."""


def says(*pieces: str) -> Step:
    """The model answers in these pieces."""
    return {"text": list(pieces)}


def uses(*calls: tuple[str, dict[str, Any]], text: str = "") -> Step:
    """The model calls tools, all in one answer."""
    step: Step = {"tools": [{"name": name, "arguments": arguments} for name, arguments in calls]}
    return {"text": text, **step} if text else step


def write_script(folder: Path, script: Script) -> str:
    """The script as a file; the value of `[llm] model` that plays it."""
    turns = script if isinstance(script, dict) else {"": script}
    path = folder / "script.json"
    document = {"turns": [{"when": when, "steps": list(steps)} for when, steps in turns.items()]}
    path.write_text(json.dumps(document))
    return f"scripted:{path}"


@dataclass
class Call:
    """One request of the agent that the test answers as it likes, or not at all."""

    editor: "ScriptedEditor"
    frame: Frame

    @property
    def params(self) -> dict[str, Any]:
        return self.frame.params

    async def reply(self, result: Any) -> None:
        await self.send({"result": result})

    async def refuse(self, code: int, message: str) -> None:
        await self.send({"error": {"code": code, "message": message}})

    async def send(self, members: dict[str, Any]) -> None:
        """An answer with any members at all beside `jsonrpc` and `id`."""
        await self.editor.agent.send({"jsonrpc": "2.0", "id": self.frame.message["id"], **members})

    async def serve(self) -> None:
        """The honest answer."""
        await Editor.answer(self.editor, self.frame)


Override = Callable[[Call], Awaitable[None]]


def refusing(code: int, message: str) -> Override:
    async def refuse(call: Call) -> None:
        await call.refuse(code, message)

    return refuse


def answering(result: Any) -> Override:
    async def answer(call: Call) -> None:
        await call.reply(result)

    return answer


async def never(call: Call) -> None:
    """No answer, ever."""


async def twice(call: Call) -> None:
    await call.serve()
    await call.serve()


def held_until(event: anyio.Event) -> Override:
    """The honest answer, late."""

    async def wait(call: Call) -> None:
        await event.wait()
        await call.serve()

    return wait


class Holding:
    """An override that keeps requests for the test to answer when it wants to."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._arrived = anyio.Event()

    async def __call__(self, call: Call) -> None:
        self.calls.append(call)
        self._arrived.set()
        self._arrived = anyio.Event()

    async def next(self, number: int = 1) -> Call:
        """The `number`-th request, waiting for it."""
        with anyio.fail_after(PATIENCE):
            while len(self.calls) < number:
                await self._arrived.wait()
        return self.calls[number - 1]


def choosing(kind: str | None) -> Callable[[dict[str, Any]], Awaitable[str | None]]:
    """A user who always picks the option of a kind; None dismisses the question."""

    async def decide(params: dict[str, Any]) -> str | None:
        return next((option["optionId"] for option in params["options"] if option["kind"] == kind), None)

    return decide


allowing = choosing("allow_once")
rejecting = choosing("reject_once")
dismissing = choosing(None)


@dataclass
class Turn:
    """A turn under way; `stop_reason` is empty until it was answered."""

    stop_reason: str = ""


class Fifo:
    """A named pipe in the workspace: what a command and a test tell each other instead of sleeping.

    The test holds it open for both, so that neither side ever blocks in `open`.
    """

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def write_line(self, text: str = "") -> None:
        os.write(self._fd, text.encode() + b"\n")

    async def line(self) -> str:
        """The next line a command writes (short enough to come whole)."""
        with anyio.fail_after(PATIENCE):
            await anyio.wait_readable(self._fd)
        return os.read(self._fd, 4096).decode()

    def close(self) -> None:
        os.close(self._fd)


class Held:
    """A command (`sh hold.sh`) that says who it is and then sleeps with a child, until somebody ends both."""

    COMMAND = "sh hold.sh"

    def __init__(self, editor: "ScriptedEditor") -> None:
        self._alive = editor.fifo("alive")
        (editor.workspace / "hold.sh").write_text('sleep 60 &\necho "$$ $!" > alive\nwait\n')

    async def pids(self) -> list[int]:
        """The shell and its child, once they run."""
        return [int(word) for word in (await self._alive.line()).split()]


class ScriptedEditor(Editor):
    """The demo's editor with every answer open to change: `overrides` maps a method to how it is answered."""

    def __init__(self, home: "Home", workspace: Path, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.home = home
        self.workspace = workspace
        self.overrides: dict[str, Override] = {}
        self.initialized: dict[str, Any] = {}
        self._fifos: list[Fifo] = []

    async def answer(self, request: Frame) -> None:
        override = self.overrides.get(request.method, Call.serve)
        await override(Call(self, request))

    # ------------------------------------------------------------------------------ talking

    async def initialize(self) -> Any:
        with anyio.fail_after(PATIENCE):
            self.initialized = await super().initialize()
        return self.initialized

    async def open(self) -> str:
        """Initialize, and a session in the workspace."""
        await self.initialize()
        with anyio.fail_after(PATIENCE):
            return await self.new_session(str(self.workspace))

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

    # ------------------------------------------------------------------------------ watching

    async def seen(self, wanted: Callable[[Frame], bool], start: int = 0) -> Frame:
        """The first frame from `start` on that is wanted, within PATIENCE."""
        with anyio.fail_after(PATIENCE):
            return self.recording.frames[await self.recording.until(wanted, start)]

    async def answer_to(self, request_id: Any, start: int = 0) -> dict[str, Any]:
        """The agent's answer to an id that the test chose itself."""
        return (
            await self.seen(lambda f: from_agent(f) and f.is_response and f.message.get("id") == request_id, start)
        ).message

    async def requested(self, method: str, start: int = 0) -> Frame:
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

    def index(self, wanted: Callable[[Frame], bool]) -> int:
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


def from_agent(frame: Frame) -> bool:
    return frame.direction is Direction.FROM_AGENT


@dataclass
class Home:
    """A user's folders, private to one test: nothing of the machine's configuration, keys or history is seen."""

    root: Path
    extra: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)

    @property
    def config(self) -> Path:
        return self.root / "config.toml"

    @property
    def data(self) -> Path:
        return self.root / "data"

    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self.root),
            "XDG_CONFIG_HOME": str(self.root / "xdg-config"),
            "XDG_DATA_HOME": str(self.root / "xdg-data"),
            "XDG_CACHE_HOME": str(self.root / "xdg-cache"),
            "XDG_STATE_HOME": str(self.root / "xdg-state"),
            "ACP_AGENT_CONFIG": str(self.config),
            "ACP_AGENT_DATA_DIR": str(self.data),
            "PYTHONDONTWRITEBYTECODE": "1",
            **self.extra,
        }


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
) -> AsyncIterator[ScriptedEditor]:
    """An editor with a running agent; its files are below `folder` (home/ and work/).

    script   what the model answers; None configures no model at all
    lawful   check the whole conversation against the protocol's rules and schema when the test is through
    """
    home, workspace = Home(folder / "home", environment or {}), folder / "work"
    workspace.mkdir(exist_ok=True)
    model = "" if script is None else f'[llm]\nmodel = "{write_script(home.root, script)}"\n'
    home.config.write_text(model + config)
    editor = ScriptedEditor(
        home,
        workspace,
        AGENT,
        home.environment(),
        AGENT_CWD,
        decide,
        EVERYTHING if capabilities is None else capabilities,
    )
    failure: BaseException | None = None
    try:
        async with editor.running():
            yield editor
    except BaseExceptionGroup as group:  # the test's own failure reads best without the task groups around it
        failure = _innermost(group)
    finally:
        editor.close()
    if failure is not None:
        print(editor.log, file=sys.stderr)
        raise failure
    if lawful:
        assert rules.broken(editor.recording) == []
        assert schema.violations(editor.recording) == []


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def processes_ended(pids: Sequence[int], within: float = 5.0) -> None:
    """Wait until no process of `pids` runs any more; a zombie nobody reaped does not run."""

    async def ended(pid: int) -> None:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            await anyio.wait_readable(fd)
        finally:
            os.close(fd)

    with anyio.fail_after(within):
        async with anyio.create_task_group() as tasks:
            for pid in pids:
                tasks.start_soon(ended, pid)
