"""Every way in to a session's tools, all of the session real: its gates, its front door, its terminals.

The editor is a peer on the other end of pipes. The shell of this machine is a stand-in that writes down what it is
told to run and runs nothing: it is the only `bash` and `sh` on PATH.
"""

import json
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import anyio

from acp_agent.config.load import Flags, Loaded, load, options_at_start
from acp_agent.core.events import Event, ToolFinished
from acp_agent.core.messages import StopReason
from acp_agent.core.secrets import verbatim
from acp_agent.core.sessions import SessionRecord
from acp_agent.core.types import CallOrigin, JsonObject, McpSubject, ToolCall, ToolResult
from acp_agent.gates.rules.policy_rules import TrustLevel
from acp_agent.protocol.client import Client
from acp_agent.protocol.content import read_prompt
from acp_agent.protocol.editor import Connection
from acp_agent.session.engine import SessionEngine
from acp_agent.session.factory import SessionFactory
from acp_agent.session.session import Opening, Session, SessionDependencies, SessionWorkspace
from acp_agent.session.toolset.reloading import ReloadingToolset
from acp_agent.session.toolset.toolset import SessionTools
from acp_agent.session.turn_slot import Answer
from acp_agent.session.workspace_facts import FolderLook
from acp_agent.tools.bash import Bash
from acp_agent.tools.edit import Write
from acp_agent.tools.path_tools import DeletePath
from acp_agent.tools.read import Read
from acp_agent.tools.tool import Tool
from acp_agent.tools.web import Fetch
from acp_agent.workspace.seen_files import SeenFiles
from tests.unit.protocol.wires import OtherEnd, connected
from tests.unit.session.live_session import Shop

EDITORS_OWN = Client(name="scripted", read_text_file=True, write_text_file=True, terminal=True)
NOTHING_OFFERED = Client(name="scripted")
STOOD_IN = "stood in"


class StandInShell:
    """The only shell on PATH. `ran` are the command lines it was handed, in order."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "bin")
        self._told = folder / "told"
        os.mkdir(self.path)
        for name in ("bash", "sh"):
            shell = Path(self.path, name)
            shell.write_text(f"#!/bin/sh\nprintf '%s\\0' \"$3\" >> '{self._told}'\necho '{STOOD_IN}'\n")
            shell.chmod(0o700)

    @property
    def ran(self) -> list[str]:
        return self._told.read_text().split("\0")[:-1] if self._told.exists() else []


@dataclass
class Editor:
    """Answers whatever it is asked, with a yes where there is a question; remembers all but what it is only told."""

    asked: list[str] = field(default_factory=list)

    def decide(self, call: str) -> str:
        """Return the option that answers a question about a call."""
        del call
        return "allow_once"

    def answer(self, method: str, params: Any) -> Any:
        """Return the answer to a request."""
        match method:
            case "terminal/create":
                return {"terminalId": "t1"}
            case "terminal/wait_for_exit":
                return {"exitCode": 0}
            case "terminal/output":
                return {"output": f"{STOOD_IN}\n", "truncated": False}
            case "fs/read_text_file":
                return {"content": "as the editor has it\n"}
            case "session/request_permission":
                chosen = self.decide(params["toolCall"]["toolCallId"])
                return {"outcome": {"outcome": "selected", "optionId": chosen}}
            case _:
                return {}

    async def serve(self, other: OtherEnd) -> None:
        # Not by `receive`, which has a time limit: nobody may want anything for long.
        async for line in other._lines:  # pyright: ignore[reportPrivateUsage]
            assert isinstance(line, bytes)
            message = json.loads(line)
            if "id" in message and "method" in message:
                self.asked.append(message["method"])
                other.send(id=message["id"], result=self.answer(message["method"], message["params"]))

    @property
    def done(self) -> list[str]:
        """What it was asked to do: looking at a file for the preview of a change does nothing."""
        return [method for method in self.asked if method != "fs/read_text_file"]


class _Served:
    """A server's tool that does what one of ours does."""

    name: str

    def subjects(self, params: Any) -> tuple[Any, ...]:
        return (McpSubject("server", self.name), *super().subjects(params))  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType] - of the tool it is mixed into


class McpRun(_Served, Bash):
    name = "mcp_server_bash"


class McpRead(_Served, Read):
    name = "mcp_server_read"


class McpWrite(_Served, Write):
    name = "mcp_server_write"


class McpDelete(_Served, DeletePath):
    name = "mcp_server_delete_path"


class McpFetch(_Served, Fetch):
    name = "mcp_server_fetch"


SERVED: tuple[Tool[Any], ...] = (
    McpRun(),
    McpRead(max_lines=100, max_line_chars=100, seen=SeenFiles()),
    McpWrite(max_bytes=1000, seen=SeenFiles()),
    McpDelete(seen=SeenFiles()),
    McpFetch(),
)


class ReachableTools(SessionTools):
    """With a server's tools among them."""

    def _tools(self, loaded: Loaded) -> tuple[Tool[Any], ...]:
        return (*super()._tools(loaded), *SERVED)


class Reachable(SessionFactory):
    """A session's parts as they are put together for every editor."""

    tools = ReachableTools

    @property
    def live(self) -> ReloadingToolset:
        """The session's tools."""
        return self.toolset

    async def agents_ended(self) -> None:
        """Wait until no sub-agent works beside a turn."""
        while await self._agents.wait():
            pass

    def trust(self, level: TrustLevel) -> None:
        """How far the user trusts the server's tools."""
        self._gate_state.memory.trust.tools.update({tool.name: level for tool in SERVED})


class Heard(Session):
    """Remembers what it told."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.events: list[Event] = []

    async def emit(self, event: Event) -> None:
        self.events.append(event)
        await super().emit(event)


class FolderShop(Shop):
    """What sessions share, with a folder for the editor's scripts."""

    def __init__(self, folder: str, start: Callable[..., object]) -> None:
        super().__init__([], folder, None)
        self.start = start

    def script_folder(self) -> str:
        return self._folder

    def background(self, task: Any) -> None:
        """Start it: the next prompt waits for what cleans up behind a command of the editor's terminal."""
        self.start(task)

    def folder_look(self, *_: Any) -> FolderLook:
        """Leave the look undone: it starts git, which would run on when the session ends."""
        return FolderLook(super().background)


class OpenSession:
    """One session, and every way to call a tool of it."""

    def __init__(self, session: Heard, factory: Reachable, engine: SessionEngine, editor: Editor) -> None:
        self.session = session
        self.parts = factory
        self.editor = editor
        self._engine = engine
        self._numbers = count()

    async def called(self, tool: str, arguments: JsonObject, origin: CallOrigin = CallOrigin.MODEL) -> ToolResult:
        """As the loop calls."""
        return await self.parts.live.run(ToolCall(f"call-{next(self._numbers)}", tool, arguments, origin=origin))

    async def turn_ended(self) -> None:
        """What the engine does behind the answer of a turn."""
        await self._engine.answered(Answer(StopReason.END_TURN))

    async def prompted(self, text: str) -> list[Event]:
        """What is told in answer to a prompt."""
        before = len(self.session.events)
        prompt: JsonObject = {"sessionId": self.session.id, "prompt": [{"type": "text", "text": text}]}
        await self.session.prompt(partial(read_prompt, prompt))
        return self.session.events[before:]

    async def typed(self, command: str) -> ToolResult:
        """`/run`, through a prompt: what the card said in the end."""
        told = await self.prompted(f"/run {command}")
        [finished] = [event for event in told if isinstance(event, ToolFinished)]
        return finished.result


@asynccontextmanager
async def opened(
    client: Client, work: Path, scripts: Path, editor: Editor | None = None, shop_of: type[FolderShop] = FolderShop
) -> AsyncGenerator[OpenSession]:
    """A session of a client in a folder, by the configuration the environment names."""
    editor = editor or Editor()
    reload: Callable[..., Loaded] = partial(load, Flags(), os.environ, str(work))
    loaded = reload()
    assert loaded.problems == (), list(map(str, loaded.problems))[:5]
    async with connected() as (peer, other), anyio.create_task_group() as tasks:

        async def make(*_: object) -> SessionEngine:
            return engine

        async def allowed(_: Session) -> None:
            """It is resident."""

        shop: Any = shop_of(str(scripts), tasks.start_soon)
        needs = SessionDependencies(make, allowed, verbatim, tasks.start_soon, lambda: 0)
        offered = Connection(peer, client).session("reachable", str(work))
        opening = Opening(SessionRecord("reachable", str(work)), SessionWorkspace(str(work)), offered)
        session = Heard(needs, opening, options_at_start(loaded), shop.choices(loaded))
        factory = Reachable(shop, session, loaded, reload)
        engine = factory.engine()
        factory.trust(TrustLevel.TRUSTED)
        tasks.start_soon(editor.serve, other)
        yield OpenSession(session, factory, engine, editor)
        tasks.cancel_scope.cancel()


def files_below(folder: Path) -> Iterator[tuple[str, bytes | None]]:
    """Every entry and what is in it, to see whether anything changed."""
    for path in sorted(folder.rglob("*")):
        yield str(path), path.read_bytes() if path.is_file() else None
