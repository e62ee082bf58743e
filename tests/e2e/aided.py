"""Agents over real model servers that play what they are told, and what came of it: requests, records, rows."""

import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio

from acp_agent.cli.agent_process import SeenCall, text_at
from tests.contract.wire_rules import assert_openai_request
from tests.e2e.model_servers import ThinkingModel, Thought, ToolUse, thinking_model
from tests.fakes.editor import NOTHING, ScriptedEditor, Turn, editing
from tests.fakes.held import PATIENCE

KEY = {"MODEL_KEY": "obviously-fake"}
SECRET = "ghp_" + "A1b2C3d4E5f6G7h8I9j0" + "K1l2M3n4O5p6Q7r8"  # of GitHub's form, and nobody's
DATABASE = "acp-agent.db"

Request = dict[str, Any]


def plays(*steps: str | ToolUse) -> Thought:
    """Each step an answer: a text, which ends the turn, or a call."""
    return (step for step in steps)


def llm(model: str, *places: tuple[str, int], more: str = "") -> str:
    """The `[llm]` of a configuration: who answers, and where each provider listens."""
    entries = "".join(
        f'[[llm.providers]]\nname = "{name}"\ntype = "openai"\nbase_url = "http://127.0.0.1:{port}/v1"\n'
        'api_key_env = "MODEL_KEY"\n'
        for name, port in places
    )
    return f'[llm]\nmodel = "{model}"\n{more}{entries}'


@asynccontextmanager
async def aided(
    folder: Path, *steps: str | ToolUse, chores: str | None = None, config: str = "", more: str = "", **options: Any
) -> AsyncIterator[tuple["Aided", ThinkingModel, ThinkingModel]]:
    """An editor that offers nothing, whose agent's model plays `steps`, and a second model, "chores:any".

    chores   what the second model answers to requests without tools
    more     of `[llm]`
    """
    options = {"capabilities": NOTHING, "environment": {}, **options}
    options["environment"] = KEY | options["environment"]
    async with thinking_model(plays(*steps)) as main, thinking_model(plays(), chores or "") as second:
        config = llm("main:any", ("main", main.port), ("chores", second.port), more=more) + config
        async with editing(folder, None, config=config, **options) as editor:
            yield Aided(editor), main, second
        for request in (*main.requests, *second.requests):
            assert_openai_request(json.dumps(request).encode())


class Aided:
    """One session of an editor."""

    def __init__(self, editor: ScriptedEditor) -> None:
        self.editor = editor
        self._session = ""

    async def say(self, text: str) -> str:
        """A turn, in a session that the first one opens; what the agent and its notices said in it."""
        return await self._said(text, "end_turn")

    async def ends(self, text: str, stop: str) -> str:
        """A turn that stops for another reason."""
        return await self._said(text, stop)

    @property
    def id(self) -> str:
        """The session's id, once it is open."""
        return self._session

    @asynccontextmanager
    async def saying(self, text: str) -> AsyncIterator[tuple[Turn, Callable[[], str]]]:
        """A turn under way, and what returns what was said in it so far. It ends before the block is left."""
        self._session = self._session or await self.editor.open()
        start = len(self.editor.recording.frames)
        async with self.editor.prompting(self._session, text) as turn:
            yield turn, lambda: self._heard(start)

    async def _said(self, text: str, stop: str) -> str:
        self._session = self._session or await self.editor.open()
        start = len(self.editor.recording.frames)
        assert await self.editor.say(self._session, text) == stop
        return self._heard(start)

    def _heard(self, start: int) -> str:
        """Return the texts of the agent and of its notices from a frame on."""
        updates = [frame.update for frame in self.editor.recording.frames[start:]]
        texts = (text_at(u, "content", "text") or text_at(u, "title") for u in updates if "toolCallId" not in u)
        return "\n".join(text.strip() for text in texts if text.strip())

    async def status(self) -> str:
        return await self.say("/status")

    async def until_offered(self, *tools: str) -> None:
        """Wait for tools of MCP servers."""
        with anyio.fail_after(PATIENCE):
            while not all(f"`{tool}`" in self.editor.text for tool in tools):
                await self.say("/tools")

    def write(self, name: str, text: str) -> Path:
        path = self.editor.workspace / name
        path.write_text(text)
        return path

    @property
    def calls(self) -> list[SeenCall]:
        return self.editor.calls

    @property
    def questions(self) -> int:
        return len(self.editor.requests("session/request_permission"))

    @property
    def records(self) -> list[dict[str, Any]]:
        """The calls on record, in order."""
        return [each for line in self.editor.audit() if "call" in (each := json.loads(line))]

    def record_of(self, tool: str) -> dict[str, Any]:
        """The only record of a tool."""
        (record,) = [each for each in self.records if each["tool"] == tool]
        return record

    @property
    def traces(self) -> str:
        """All that is left of the session: frames, the log, and every file of the data folder."""
        frames = json.dumps([frame.message for frame in self.editor.recording.frames], ensure_ascii=False)
        kept = [
            path.read_bytes().decode("utf-8", "replace") for path in self.editor.home.data.rglob("*") if path.is_file()
        ]
        return "\n".join((frames, self.editor.log, *kept))


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    """What a query finds in the database of the agents whose editors lived in `folder`."""
    with closing(sqlite3.connect(folder / "home" / "data" / DATABASE)) as database:
        return database.execute(query).fetchall()


def offered(request: Request) -> list[str]:
    """The names of the tools in a request."""
    return [tool["function"]["name"] for tool in request.get("tools", [])]


def parameters(request: Request, name: str) -> dict[str, Any]:
    """The schema of one of them."""
    (found,) = [tool["function"]["parameters"] for tool in request["tools"] if tool["function"]["name"] == name]
    return found


def system(request: Request) -> str:
    """Its system prompt."""
    return request["messages"][0]["content"]


def told(request: Request) -> str:
    """All that its messages say but the system prompt."""
    return "\n".join(json.dumps(message, ensure_ascii=False) for message in request["messages"][1:])


def last(request: Request) -> str:
    """Its newest message."""
    return request["messages"][-1]["content"]
